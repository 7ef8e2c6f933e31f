//! Ids of nodes, devices and units.

use std::fmt;

use causeway_proto::id::{DeviceIndex, PlatformIndex};
use serde::{Deserialize, Serialize};

/// A node's uuid, the same for all of its addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|of| write!(f, "{of:02x}"))
    }
}

/// The usual form of a uuid.
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, byte) in self.0.iter().enumerate() {
            if matches!(n, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A root device of a node, by its place in the node's inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceId {
    /// The platform's index.
    pub platform: u32,
    /// The device's index within the platform.
    pub device: u32,
}

impl DeviceId {
    /// Converts from the wire's types.
    #[must_use]
    pub fn new(platform: PlatformIndex, device: DeviceIndex) -> Self {
        Self {
            platform: platform.0,
            device: device.0,
        }
    }
}

/// The unit of leasing, in at most one lease at a time: a device, or one of its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unit {
    /// The device.
    pub device: DeviceId,
    /// The share, from 0; always 0 for an undivided device.
    pub share: u16,
}
