//! The wire: everything that client, daemon and device manager agree on.
//!
//! - [`control`]: ordinary gRPC to a node's supervisor.
//! - [`command`]: the ordered stream of commands to a worker and of events back; moved by a carrier
//!   (gRPC, or [`frame`]s straight over a socket).
//! - [`manager`]: gRPC to the device manager, and the lease that it signs; [`codec`]: its buffers; [`named_lease`]: how a
//!   call to a node says which lease it is about.
//! - [`preamble`]: the first bytes of every connection that is not gRPC to the supervisor, and the
//!   proof of the session's secret that follows them.
//! - [`bulk`]: the 32-byte header before every chunk of bulk data.
//! - [`endpoint`]: what all gRPC clients have set.
//! - [`socket`]: what both ends set on their connections' sockets.
//! - [`source`]: what both ends must see alike in OpenCL C.
//! - [`clock`]: one clock by another, for both ends.
//! - [`request`]: the language in which devices are asked for.
//! - [`id`], [`status`], [`region`], [`raster`],
//!   [`image_format`], [`limits`], [`version`]: the vocabulary.
//!
//! What it is not: it opens no socket, starts no thread, knows no OpenCL handle. Invariant: nothing
//! here trusts a length or an enumerator that came from outside.
#![forbid(unsafe_code)]

pub mod bulk;
pub mod clock;
pub mod codec;
pub mod endpoint;
pub mod frame;
pub mod id;
pub mod image_format;
pub mod limits;
pub mod named_lease;
pub mod patience;
pub mod preamble;
pub mod raster;
pub mod region;
pub mod request;
pub mod socket;
pub mod source;
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

/// What the services are, in protobuf's own words (an encoded `FileDescriptorSet`): for gRPC's reflection.
pub const SERVICES: &[u8] = include_bytes!("gen/services.bin");

/// The port a device manager listens on unless told otherwise.
pub const MANAGER_PORT: u16 = 7078;

/// The port a daemon listens on unless told otherwise.
pub const DAEMON_PORT: u16 = 7079;

/// Set in the environment of a daemon's processes: the client library then reports no platform, so
/// that a daemon never forwards to itself.
pub const RECURSION_GUARD: &str = "CAUSEWAY_INSIDE_DAEMON";

/// `CL_DEVICE_VENDOR_ID` of NVIDIA, its PCI vendor number: both ends know what its driver does otherwise than it says.
pub const VENDOR_NVIDIA: u64 = 0x10DE;
