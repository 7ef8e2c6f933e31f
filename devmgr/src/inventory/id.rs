//! Names of nodes, devices and units.

use std::fmt;

use causeway_proto::id::{DeviceIndex, PlatformIndex};
use serde::{Deserialize, Serialize};

/// A node: its uuid, the same however it is reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node ")?;
        self.0[..4].iter().try_for_each(|of| write!(f, "{of:02x}"))
    }
}

/// As uuids are usually written.
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
    /// The device's index in it.
    pub device: u32,
}

impl DeviceId {
    /// From the wire's names.
    #[must_use]
    pub fn new(platform: PlatformIndex, device: DeviceIndex) -> Self {
        Self {
            platform: platform.0,
            device: device.0,
        }
    }
}

/// What is given to one lease at a time: a device, or one of its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Unit {
    /// Of which device.
    pub device: DeviceId,
    /// Which share, from 0; 0 of an undivided device.
    pub share: u16,
}
