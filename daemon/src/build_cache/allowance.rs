//! How much each user may store in a minute: pure.
//!
//! A hostile session could otherwise keep the disk and the supervisor's queue full. The limits are far
//! above what programs build. Invariant: in one [`WINDOW`], no user takes more than [`ENTRIES`] entries and
//! [`BYTES`] bytes.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::entry::MAX_ENTRY;
use super::key::Owner;

const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of entries.
const ENTRIES: u32 = 1024;
/// Maximum number of bytes. A single entry always fits.
const BYTES: usize = 256 << 20;
const _: () = assert!(MAX_ENTRY <= BYTES);

/// What was taken in this window, by user.
#[derive(Debug)]
pub struct Allowance {
    began: Instant,
    taken: HashMap<Owner, (u32, usize)>,
}

impl Allowance {
    /// Makes an allowance of which nothing is taken.
    #[must_use]
    pub fn new(now: Instant) -> Allowance {
        Allowance {
            began: now,
            taken: HashMap::new(),
        }
    }

    /// Takes an entry of `bytes` bytes out of a user's allowance. Returns whether that was possible.
    pub fn take(&mut self, owner: Owner, bytes: usize, now: Instant) -> bool {
        if now.duration_since(self.began) >= WINDOW {
            *self = Allowance::new(now);
        }
        let (entries, total) = self.taken.entry(owner).or_default();
        let fits = *entries < ENTRIES && *total + bytes <= BYTES;
        if fits {
            *entries += 1;
            *total += bytes;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_an_allowance_of_their_own_every_minute() {
        let now = Instant::now();
        let mut allowance = Allowance::new(now);
        let [ann, bob] = [Some("ann"), Some("bob")].map(Owner::of);
        let taken = (0..2 * ENTRIES)
            .filter(|_| allowance.take(ann, 1, now))
            .count();
        assert_eq!(taken, ENTRIES as usize);
        assert!(allowance.take(bob, BYTES - 1, now) && !allowance.take(bob, 2, now));
        assert!(allowance.take(bob, 1, now));
        let later = now + WINDOW;
        assert!(allowance.take(ann, BYTES, later) && !allowance.take(ann, 1, later));
    }
}
