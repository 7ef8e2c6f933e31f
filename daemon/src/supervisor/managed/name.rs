//! Identifiers of leases, grants, devices and sessions' places in managed mode.

use std::fmt;
use std::time::Duration;

/// Identifier of a lease: 128 random bits that the manager chose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseId(pub(crate) [u8; 16]);

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes distinguish leases in a log, and do not reveal the whole id.
        let [a, b, c, d, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// Number of a grant. Later grants have larger numbers, also across restarts of the manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Epoch(pub(crate) u64);

/// A root device, by its indices in the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeviceAt {
    pub(crate) platform: u32,
    pub(crate) device: u32,
}

/// An exclusive device, or one share of a shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Unit {
    pub(crate) device: DeviceAt,
    pub(crate) share: u32,
}

/// A unit in a grant, with its memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GrantedUnit {
    pub(crate) unit: Unit,
    /// Bytes that sessions of the lease may allocate; 0: no limit.
    pub(crate) memory: u64,
}

/// Time since the daemon started, by a monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(pub(crate) Duration);

impl Time {
    /// Returns the time that is `span` later; saturates.
    pub(crate) fn after(self, span: Duration) -> Time {
        Time(self.0.saturating_add(span))
    }
}

/// Identifier of a session's place in a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PlaceNumber(pub(crate) u64);
