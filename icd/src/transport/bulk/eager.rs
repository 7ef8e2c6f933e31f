//! The standing credit of a session: bytes that may be sent before the worker asks for them.
//!
//! Pure. Invariant: outstanding grants never exceed [`EAGER_BYTES`] together, for which the worker always
//! has room.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::limits::{BULK_CHUNK, EAGER_BYTES};

/// The part of the standing credit that is not granted.
#[derive(Debug)]
pub(super) struct StandingCredit(Arc<AtomicU64>);

impl Default for StandingCredit {
    fn default() -> StandingCredit {
        StandingCredit(Arc::new(AtomicU64::new(EAGER_BYTES)))
    }
}

/// A part of a session's standing credit, for one write. It becomes free again on drop.
#[derive(Debug)]
pub struct EagerGrant {
    left: Arc<AtomicU64>,
    bytes: u64,
}

impl StandingCredit {
    /// Returns a grant for a write of `bytes` bytes. `None` if the write is larger than a chunk, or if
    /// too many bytes are outstanding.
    pub(super) fn take(&self, bytes: u64) -> Option<EagerGrant> {
        if bytes > BULK_CHUNK as u64 {
            return None;
        }
        let less = |left: u64| left.checked_sub(bytes);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less)
            .ok()?;
        Some(EagerGrant {
            left: Arc::clone(&self.0),
            bytes,
        })
    }
}

impl Drop for EagerGrant {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_granted_than_there_is_and_what_is_dropped_is_there_again() {
        let credit = StandingCredit::default();
        assert!(credit.take(BULK_CHUNK as u64 + 1).is_none());
        let mut grants: Vec<_> = (0..EAGER_BYTES / BULK_CHUNK as u64)
            .map(|_| credit.take(BULK_CHUNK as u64).unwrap())
            .collect();
        assert!(credit.take(1).is_none());
        grants.pop();
        assert!(credit.take(1).is_some());
        assert!(credit.take(BULK_CHUNK as u64).is_some());
    }
}
