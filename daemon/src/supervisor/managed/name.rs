//! Names of what a device manager gives away, as a node has them.

use std::fmt;
use std::time::Duration;

/// A lease: 128 random bits of the manager's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseId(pub(crate) [u8; 16]);

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes tell leases apart in a log and are too few to name one.
        let [a, b, c, d, ..] = self.0;
        write!(f, "lease {a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// A grant's number: later grants have larger ones, over restarts of the manager too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Epoch(pub(crate) u64);

/// A root device, by its place in the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeviceAt {
    pub(crate) platform: u32,
    pub(crate) device: u32,
}

/// A device that is exclusive, or one share of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unit {
    pub(crate) device: DeviceAt,
    pub(crate) share: u32,
}

/// A unit in a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GrantedUnit {
    pub(crate) unit: Unit,
    /// Bytes that sessions of the lease may allocate; 0: no limit.
    pub(crate) memory: u64,
}

/// Time since the daemon started, by a clock that never jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Duration);

impl Time {
    /// So much later; the end of time if there is no such time.
    pub(crate) fn after(self, span: Duration) -> Time {
        Time(self.0.saturating_add(span))
    }
}

/// A session's place in a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PlaceNumber(pub(crate) u64);
