//! What makes a memory object a pipe: a [`Buffer`](super::Buffer) of which no byte is ever moved.
//!
//! Its packets are where the kernels run that put them in, and nobody else can read them. So in a context of several
//! sites a pipe belongs to the first one that a launch uses it on, and launches elsewhere are refused.

use std::sync::OnceLock;

use cl_headers::types::{CL_DEVICE_MAX_PIPE_ARGS, CL_DEVICE_PIPE_SUPPORT, CL_INVALID_OPERATION};

use super::{Device, Site};
use crate::error::{ClResult, require};

/// See the module.
#[derive(Debug)]
pub struct Pipe {
    packet_size: u32,
    max_packets: u32,
    // The index of the site that it belongs to, once it does.
    home: OnceLock<usize>,
}

impl Pipe {
    /// One that belongs to no site yet.
    #[must_use]
    pub fn new(packet_size: u32, max_packets: u32) -> Pipe {
        Pipe {
            packet_size,
            max_packets,
            home: OnceLock::new(),
        }
    }

    /// `CL_PIPE_PACKET_SIZE`, bytes.
    #[must_use]
    pub fn packet_size(&self) -> u32 {
        self.packet_size
    }

    /// `CL_PIPE_MAX_PACKETS`.
    #[must_use]
    pub fn max_packets(&self) -> u32 {
        self.max_packets
    }

    /// Bytes of its packets.
    #[must_use]
    pub fn size(&self) -> u64 {
        u64::from(self.packet_size) * u64::from(self.max_packets)
    }

    /// A launch uses it on a site.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when it belongs to another one.
    pub(super) fn use_on(&self, site: &Site) -> ClResult {
        let home = *self.home.get_or_init(|| site.index());
        require(home == site.index(), CL_INVALID_OPERATION)
    }
}

/// Whether a device has pipes: as it says, or as all of OpenCL 2.x have them.
#[must_use]
pub fn has_pipes(device: &Device) -> bool {
    let says = device.number(CL_DEVICE_PIPE_SUPPORT) != 0;
    says || device.version().0 == 2 && device.number(CL_DEVICE_MAX_PIPE_ARGS) != 0
}
