//! Names of leases and of their grants.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A lease, and before it the request that it comes from: one id for both. 128 random bits that the
/// shell makes, so that nobody can name another's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub [u8; 16]);

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four bytes tell leases apart in a log and are too few to name one.
        let [a, b, c, d, ..] = self.0;
        write!(f, "lease {a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// A grant's number. It grows with every grant, over restarts too, and is never used twice; a node
/// refuses what is older than the newest that it has seen for a unit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);
