//! How many bytes of small reads are on their way inside of completions.
//!
//! Such bytes have no credit: the node holds them until the connection has taken them. Reads beyond the limit use lanes, whose
//! bytes the node holds back while this side does not take them. Invariant: `MOST` is less than what a frame may carry and
//! than what the node holds for a client before it gives the client up.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum bytes on their way, of a session.
const MOST: usize = 32 << 20;

/// Number of bytes of a session's small reads on their way.
#[derive(Debug, Default)]
pub struct InlineReads(AtomicUsize);

/// The bytes of one read. They are no longer counted when this is dropped.
#[derive(Debug)]
pub struct InlineRead {
    all: Arc<InlineReads>,
    bytes: usize,
}

impl InlineReads {
    /// Counts a read whose bytes are to come inside of its completion. `None` if too many are on their way.
    #[must_use]
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<InlineRead> {
        let fits = |now: usize| now.checked_add(bytes).filter(|all| *all <= MOST);
        let taken = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.ok()?;
        let all = Arc::clone(self);
        Some(InlineRead { all, bytes })
    }
}

impl Drop for InlineRead {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let all = Arc::<InlineReads>::default();
        let half = all.take(MOST / 2).unwrap();
        let rest = all.take(MOST / 2).unwrap();
        assert!(all.take(1).is_none() && all.take(usize::MAX).is_none());
        drop(half);
        assert!(all.take(MOST / 2 + 1).is_none());
        let again = all.take(MOST / 2);
        assert!(again.is_some());
        drop((rest, again));
        assert!(all.take(MOST).is_some());
    }
}
