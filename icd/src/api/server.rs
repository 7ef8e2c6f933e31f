//! `cl_wwu_server`: `clConnectServerWWU`, `clDisconnectServerWWU`, `clGetServerInfoWWU`, `clGetLinkInfoWWU`.
//!
//! The C header `cl-headers/include/CL/cl_ext_causeway.h` specifies them.

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use cl_headers::server::*;
use cl_headers::types::*;

use super::device::publish_once;
use super::entry::entry_point;
use super::handle;
use super::info::{Answered, Info, c_str};
use super::loader;
use crate::error::{ClResult, fail, require};
use crate::stub::server::between::{self, LinkRoute};
use crate::stub::{Device, Platform, Server};
use crate::transport::{Node, figures};

/// The version of the extension, packed as `CL_MAKE_VERSION` does.
pub(super) const VERSION: cl_version = super::platform::version(1, 1, 0);

/// A function of the extension by name.
pub(super) fn function(name: &CStr) -> Option<*const ()> {
    match name.to_bytes() {
        b"clConnectServerWWU" => Some(clConnectServerWWU as *const ()),
        b"clDisconnectServerWWU" => Some(clDisconnectServerWWU as *const ()),
        b"clGetLinkInfoWWU" => Some(clGetLinkInfoWWU as *const ()),
        b"clGetServerInfoWWU" => Some(clGetServerInfoWWU as *const ()),
        _ => None,
    }
}

fn the_platform() -> ClResult<&'static Arc<Platform>> {
    // clConnectServerWWU: CL_INVALID_PLATFORM when the process has no Causeway platform.
    // The handle must exist too, because a server's devices report it as their platform.
    require(loader::platform_handle().is_some(), CL_INVALID_PLATFORM)?;
    match Platform::get() {
        Some(platform) => Ok(platform),
        // clConnectServerWWU: CL_INVALID_PLATFORM when the process has no Causeway platform.
        None => fail(CL_INVALID_PLATFORM),
    }
}

fn raw_of(server: &Arc<Server>) -> cl_server_WWU {
    publish_once(server);
    handle::raw_of(server)
}

#[entry_point]
pub(crate) fn clConnectServerWWU(url: *const c_char) -> ClResult<cl_server_WWU> {
    // clConnectServerWWU: CL_INVALID_VALUE when url is NULL or is not UTF-8.
    // SAFETY: by the header, `url` is NULL or a C string.
    let url = unsafe { c_str(url, CL_INVALID_VALUE)? };
    Ok(raw_of(&the_platform()?.connect(url)?))
}

#[entry_point]
pub(crate) fn clDisconnectServerWWU(server: cl_server_WWU) -> ClResult {
    let server = handle::resolve::<Server>(server)?;
    the_platform()?.disconnect(&server)
}

#[entry_point]
pub(crate) fn clGetServerInfoWWU(
    server: cl_server_WWU,
    param_name: cl_server_info,
    info: Info,
) -> ClResult {
    let server = handle::resolve::<Server>(server)?;
    answer(&server, param_name, info).map(drop)
}

fn answer(server: &Arc<Server>, name: cl_server_info, info: Info) -> ClResult<Answered> {
    let node = server.node();
    match name {
        CL_SERVER_ADDRESS_WWU => info.give_str(node.address()),
        CL_SERVER_NAME_WWU => info.give_str(&server.name()),
        CL_SERVER_UUID_WWU => info.give_bytes(&server.uuid()),
        CL_SERVER_DAEMON_VERSION_WWU => {
            let inventory = node.inventory();
            info.give_str(inventory.as_ref().map_or("", |known| &known.daemon_version))
        }
        CL_SERVER_CONNECTED_WWU => info.give_bool(server.is_connected()),
        CL_SERVER_AVAILABLE_WWU => info.give_bool(node.is_available()),
        CL_SERVER_NUM_DEVICES_WWU => info.give(server.devices().len() as cl_uint),
        CL_SERVER_DEVICES_WWU => {
            let devices = server.devices();
            devices.iter().for_each(publish_once);
            let devices: Vec<cl_device_id> = devices.iter().map(handle::raw_of).collect();
            info.give_slice(&devices)
        }
        CL_SERVER_REFERENCE_COUNT_WWU => info.give(server.references()),
        CL_SERVER_ROUND_TRIP_TIME_WWU => info.give(round_trip_ns(node)),
        CL_SERVER_AWAY_WWU => {
            info.give_bool(node.live_session().is_some_and(|session| session.is_away()))
        }
        CL_SERVER_RESUMED_WWU => {
            let session = node.live_session();
            info.give::<cl_ulong>(session.map_or(0, |session| session.resumed()))
        }
        CL_SERVER_BANDWIDTH_WWU => info.give(bandwidth(node)),
        // clGetServerInfoWWU: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

/// Answers the extension's queries of `clGetDeviceInfo`. Returns `None` for any other name.
pub(super) fn device_answer(
    device: &Arc<Device>,
    name: cl_device_info,
    info: Info,
) -> Option<ClResult<Answered>> {
    let node = device.node();
    Some(match name {
        CL_DEVICE_SERVER_WWU => {
            let server = Platform::get().and_then(|platform| platform.server_of(device));
            info.give(server.map_or(std::ptr::null_mut(), |server| raw_of(&server)))
        }
        CL_DEVICE_ROUND_TRIP_TIME_WWU => info.give(round_trip_ns(node)),
        CL_DEVICE_BANDWIDTH_WWU => info.give(bandwidth(node)),
        _ => return None,
    })
}

#[entry_point]
pub(crate) fn clGetLinkInfoWWU(
    from: cl_device_id,
    to: cl_device_id,
    param_name: cl_link_info,
    info: Info,
) -> ClResult {
    let from = handle::resolve::<Device>(from)?;
    let to = handle::resolve::<Device>(to)?;
    link_answer(&from, &to, param_name, info).map(drop)
}

fn link_answer(from: &Device, to: &Device, name: cl_link_info, info: Info) -> ClResult<Answered> {
    // Only an answer that is read is worth a wait for the network.
    let is_read = info.has_room(size_of::<cl_ulong>());
    match name {
        CL_LINK_ROUTE_WWU => info.give(match between::route(from, to)? {
            LinkRoute::SameServer => CL_LINK_ROUTE_SAME_SERVER_WWU,
            LinkRoute::Direct => CL_LINK_ROUTE_DIRECT_WWU,
            LinkRoute::ViaClient => CL_LINK_ROUTE_VIA_CLIENT_WWU,
        }),
        CL_LINK_ROUND_TRIP_TIME_WWU | CL_LINK_BANDWIDTH_WWU | CL_LINK_AGE_WWU if !is_read => {
            info.give::<cl_ulong>(0)
        }
        CL_LINK_ROUND_TRIP_TIME_WWU => {
            info.give(in_ns(between::round_trip(from, to)?.unwrap_or_default()))
        }
        CL_LINK_BANDWIDTH_WWU => {
            info.give::<cl_ulong>(between::bandwidth(from, to)?.map_or(0, |of| of.rate))
        }
        CL_LINK_AGE_WWU => {
            let bandwidth = between::bandwidth(from, to)?;
            info.give(bandwidth.map_or(cl_ulong::MAX, |of| in_ns(of.age)))
        }
        // clGetLinkInfoWWU: CL_INVALID_VALUE when param_name is not a known query.
        _ => fail(CL_INVALID_VALUE),
    }
}

/// What this process has seen, else what the user has measured.
fn bandwidth(node: &Node) -> cl_ulong {
    match node.gauge().bandwidth() {
        0 => {
            let kept = node.link_end().and_then(|end| figures::kept_of(&end));
            kept.map_or(0, |of| of.outward.min(of.inward))
        }
        seen => seen,
    }
}

fn round_trip_ns(node: &Node) -> cl_ulong {
    in_ns(node.gauge().round_trip().unwrap_or_default())
}

fn in_ns(time: Duration) -> cl_ulong {
    cl_ulong::try_from(time.as_nanos()).unwrap_or(cl_ulong::MAX)
}
