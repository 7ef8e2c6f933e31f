//! The wire protocol: everything that client, daemon and device manager must agree on.
//!
//! - [`control`]: ordinary gRPC to a node's supervisor.
//! - [`command`]: the ordered stream of commands to a worker and of events back. A carrier transports it:
//!   gRPC, or [`frame`]s directly on a socket.
//! - [`manager`]: gRPC to the device manager, and the lease that it signs. [`codec`]: buffers of these
//!   calls. [`metadata`]: the metadata of these calls and answers.
//! - [`preamble`]: the first bytes of every connection that is not gRPC to the supervisor, and the proof
//!   of the session's secret that follows them.
//! - [`bulk`]: the 32-byte header of every message on a bulk connection.
//! - [`endpoint`]: settings of all gRPC clients.
//! - [`socket`]: socket options that both ends set.
//! - [`source`]: how both ends must read OpenCL C source text.
//! - [`clock`]: relates one clock to another, for both ends.
//! - [`request`]: the language of requests for devices.
//! - [`settings`]: numbers and errors in the settings files of all programs.
//! - [`span`]: durations in settings files.
//! - [`id`], [`status`], [`region`], [`raster`], [`image_format`], [`limits`], [`version`]: shared types
//!   and constants.
//!
//! This crate opens no socket, starts no thread and knows no OpenCL handle. Invariant: no length or
//! enumerator from outside is used unchecked.
#![forbid(unsafe_code)]

pub mod bulk;
pub mod clock;
pub mod codec;
pub mod endpoint;
pub mod frame;
pub mod id;
pub mod image_format;
pub mod limits;
pub mod log_filter;
pub mod metadata;
pub mod preamble;
pub mod raster;
pub mod region;
pub mod request;
pub mod settings;
pub mod socket;
pub mod source;
pub mod span;
pub mod spin_budget;
pub mod status;
pub mod version;

/// Generated from `proto/control.proto`.
pub mod control {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    include!("gen/causeway.control.v1.rs");
}

/// Generated from `proto/command.proto`.
pub mod command {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    include!("gen/causeway.command.v1.rs");
}

/// Generated from `proto/manager.proto`.
pub mod manager {
    #![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    include!("gen/causeway.manager.v1.rs");
}

/// The services as an encoded `FileDescriptorSet`, for gRPC reflection.
pub const SERVICES: &[u8] = include_bytes!("gen/services.bin");

/// Default port of a device manager.
pub const MANAGER_PORT: u16 = 7078;

/// Default port of a daemon.
pub const DAEMON_PORT: u16 = 7079;

/// Environment variable of a daemon's processes. The client library then reports no platform, so that a
/// daemon never forwards to itself.
pub const RECURSION_GUARD: &str = "CAUSEWAY_INSIDE_DAEMON";

/// `CL_DEVICE_VENDOR_ID` of NVIDIA, its PCI vendor id. Both ends work around differences between its
/// driver and what the driver reports.
pub const VENDOR_NVIDIA: u64 = 0x10DE;
