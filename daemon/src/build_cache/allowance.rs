//! How much each user may store and ask in a minute: pure.
//!
//! A hostile session could otherwise keep the disk and the supervisor's queue full. The limits are far
//! above what programs build. Invariant: in one [`WINDOW`], no user takes more than [`ENTRIES`] entries,
//! [`BYTES`] bytes and [`QUESTIONS`] questions.
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
/// Maximum number of questions: lookups and removals.
const QUESTIONS: u32 = 16 << 10;

/// What was taken in this window, by user.
#[derive(Debug)]
pub struct Allowance {
    began: Instant,
    taken: HashMap<Owner, Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    entries: u32,
    bytes: usize,
    questions: u32,
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
        let taken = self.taken(owner, now);
        let fits = taken.entries < ENTRIES && taken.bytes + bytes <= BYTES;
        if fits {
            taken.entries += 1;
            taken.bytes += bytes;
        }
        fits
    }

    /// Takes a question out of a user's allowance. Returns whether that was possible.
    pub fn ask(&mut self, owner: Owner, now: Instant) -> bool {
        let taken = self.taken(owner, now);
        let fits = taken.questions < QUESTIONS;
        taken.questions += u32::from(fits);
        fits
    }

    fn taken(&mut self, owner: Owner, now: Instant) -> &mut Taken {
        if now.duration_since(self.began) >= WINDOW {
            *self = Allowance::new(now);
        }
        self.taken.entry(owner).or_default()
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
        let asked = (0..2 * QUESTIONS)
            .filter(|_| allowance.ask(ann, now))
            .count();
        assert_eq!(asked, QUESTIONS as usize);
        assert!(allowance.ask(bob, now));
        let later = now + WINDOW;
        assert!(allowance.ask(ann, later));
        assert!(allowance.take(ann, BYTES, later) && !allowance.take(ann, 1, later));
    }
}
