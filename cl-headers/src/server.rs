//! The extension `cl_wwu_server` for Rust. `include/CL/cl_ext_causeway.h` specifies it.
//!
//! Invariant: names and numbers are those of the header. `tests/causeway_header.rs` checks that with the C
//! compiler.

#![allow(
    non_camel_case_types,
    reason = "C's names are kept, so that they can be searched for"
)]

use core::ffi::{c_char, c_void};

use libc::size_t;
use opencl_sys::{cl_device_id, cl_device_info, cl_int, cl_uint};

/// The extension's name, as `CL_PLATFORM_EXTENSIONS` lists it.
pub const CL_WWU_SERVER_EXTENSION_NAME: &str = "cl_wwu_server";

/// A handle of a server.
pub type cl_server_WWU = *mut c_void;
/// A query of `clGetServerInfoWWU`.
pub type cl_server_info = cl_uint;
/// A query of `clGetLinkInfoWWU`.
pub type cl_link_info = cl_uint;
/// The way of bytes between two devices.
pub type cl_link_route = cl_uint;

/// Signature of `clConnectServerWWU`.
pub type clConnectServerWWU_fn = unsafe extern "C" fn(*const c_char, *mut cl_int) -> cl_server_WWU;
/// Signature of `clDisconnectServerWWU`.
pub type clDisconnectServerWWU_fn = unsafe extern "C" fn(cl_server_WWU) -> cl_int;
/// Signature of `clGetServerInfoWWU`.
pub type clGetServerInfoWWU_fn =
    unsafe extern "C" fn(cl_server_WWU, cl_server_info, size_t, *mut c_void, *mut size_t) -> cl_int;
/// Signature of `clGetLinkInfoWWU`.
pub type clGetLinkInfoWWU_fn = unsafe extern "C" fn(
    cl_device_id,
    cl_device_id,
    cl_link_info,
    size_t,
    *mut c_void,
    *mut size_t,
) -> cl_int;

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $ty = $value;)*

        /// All constants of the extension with their names, for tables and tests.
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}

constants! {
    /// The handle is not a server.
    CL_INVALID_SERVER_WWU: cl_int = -57500;
    /// The server could not be reached, or is not a Causeway server.
    CL_CONNECTION_FAILURE_WWU: cl_int = -57501;
    /// `char[]`: `host:port`.
    CL_SERVER_ADDRESS_WWU: cl_server_info = 0x5757_5500;
    /// `char[]`: its display name.
    CL_SERVER_NAME_WWU: cl_server_info = 0x5757_5501;
    /// `cl_uchar[16]`.
    CL_SERVER_UUID_WWU: cl_server_info = 0x5757_5502;
    /// `char[]`: the version of its daemon.
    CL_SERVER_DAEMON_VERSION_WWU: cl_server_info = 0x5757_5503;
    /// `cl_bool`: whether the server is connected, that is, has not been disconnected.
    CL_SERVER_CONNECTED_WWU: cl_server_info = 0x5757_5504;
    /// `cl_bool`: whether the server is connected and not lost.
    CL_SERVER_AVAILABLE_WWU: cl_server_info = 0x5757_5505;
    /// `cl_uint`.
    CL_SERVER_NUM_DEVICES_WWU: cl_server_info = 0x5757_5506;
    /// `cl_device_id[]`.
    CL_SERVER_DEVICES_WWU: cl_server_info = 0x5757_5507;
    /// `cl_uint`.
    CL_SERVER_REFERENCE_COUNT_WWU: cl_server_info = 0x5757_5508;
    /// `cl_ulong`: ns; 0 when not measured.
    CL_SERVER_ROUND_TRIP_TIME_WWU: cl_server_info = 0x5757_5509;
    /// `cl_ulong`: bytes per second; 0 when not measured.
    CL_SERVER_BANDWIDTH_WWU: cl_server_info = 0x5757_550A;
    /// `cl_bool`: whether the session on it has no connection, and is being resumed.
    CL_SERVER_AWAY_WWU: cl_server_info = 0x5757_550B;
    /// `cl_ulong`: how often the session on it was resumed; 0 without a session.
    CL_SERVER_RESUMED_WWU: cl_server_info = 0x5757_550C;
    /// `cl_server_WWU`.
    CL_DEVICE_SERVER_WWU: cl_device_info = 0x5757_5520;
    /// `cl_ulong`: ns; 0 when not measured.
    CL_DEVICE_ROUND_TRIP_TIME_WWU: cl_device_info = 0x5757_5521;
    /// `cl_ulong`: bytes per second; 0 when not measured.
    CL_DEVICE_BANDWIDTH_WWU: cl_device_info = 0x5757_5522;
    /// `cl_link_route`: the way of bytes from the first device to the second.
    CL_LINK_ROUTE_WWU: cl_link_info = 0x5757_5540;
    /// `cl_ulong`: ns; 0 when not known.
    CL_LINK_ROUND_TRIP_TIME_WWU: cl_link_info = 0x5757_5541;
    /// `cl_ulong`: bytes per second; 0 when not known.
    CL_LINK_BANDWIDTH_WWU: cl_link_info = 0x5757_5542;
    /// `cl_ulong`: age of the bandwidth in ns; the largest number when the bandwidth is not known.
    CL_LINK_AGE_WWU: cl_link_info = 0x5757_5543;
    /// Both devices are of one server.
    CL_LINK_ROUTE_SAME_SERVER_WWU: cl_link_route = 0x5757_5550;
    /// Between the two servers.
    CL_LINK_ROUTE_DIRECT_WWU: cl_link_route = 0x5757_5551;
    /// Through the program.
    CL_LINK_ROUTE_VIA_CLIENT_WWU: cl_link_route = 0x5757_5552;
}
