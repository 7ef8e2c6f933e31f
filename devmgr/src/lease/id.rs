//! Ids of leases and numbers of grants.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a lease, and before that of the request for it. The service makes it from 128 random bits,
/// so that nobody can guess another user's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub [u8; 16]);

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes distinguish leases in a log, and are too few to reveal the id.
        let [a, b, c, d, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// A grant's number. It grows with every grant, also across restarts, and is never reused. A node refuses
/// grants that are older than the newest that it has seen for a unit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);
