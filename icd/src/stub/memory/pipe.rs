//! The properties that make a memory object a pipe: a [`Buffer`](crate::stub::Buffer) whose bytes are never
//! moved.
//!
//! Only kernels on the same site can read the packets. So in a context of several sites, a pipe belongs to
//! the first site where a launch uses it, and launches elsewhere fail.

use std::sync::OnceLock;

use cl_headers::types::{CL_DEVICE_MAX_PIPE_ARGS, CL_DEVICE_PIPE_SUPPORT, CL_INVALID_OPERATION};

use crate::error::{ClResult, require};
use crate::stub::{Device, Site};

/// The pipe part of a [`Buffer`](crate::stub::Buffer); see the module.
#[derive(Debug)]
pub struct Pipe {
    packet_size: u32,
    max_packets: u32,
    // Index of the site that the pipe belongs to; unset before the first launch.
    home: OnceLock<usize>,
}

impl Pipe {
    /// Makes a pipe that belongs to no site yet.
    #[must_use]
    pub fn new(packet_size: u32, max_packets: u32) -> Pipe {
        Pipe {
            packet_size,
            max_packets,
            home: OnceLock::new(),
        }
    }

    /// Returns `CL_PIPE_PACKET_SIZE`, in bytes.
    #[must_use]
    pub fn packet_size(&self) -> u32 {
        self.packet_size
    }

    /// Returns `CL_PIPE_MAX_PACKETS`.
    #[must_use]
    pub fn max_packets(&self) -> u32 {
        self.max_packets
    }

    /// Returns the size of all packets, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.packet_size) * u64::from(self.max_packets)
    }

    /// Records that a launch uses the pipe on a site.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when the pipe belongs to another site.
    pub(in crate::stub) fn use_on(&self, site: &Site) -> ClResult {
        let home = *self.home.get_or_init(|| site.index());
        require(home == site.index(), CL_INVALID_OPERATION)
    }
}

/// Whether a device supports pipes: the device reports so, or it is an OpenCL 2.x device with pipe
/// arguments.
#[must_use]
pub fn has_pipes(device: &Device) -> bool {
    let says = device.number(CL_DEVICE_PIPE_SUPPORT) != 0;
    says || device.version().0 == 2 && device.number(CL_DEVICE_MAX_PIPE_ARGS) != 0
}
