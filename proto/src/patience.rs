//! How long to look for something before sleeping until it comes.
//!
//! Waking a sleeping core costs more than most answers of a near peer take; so who waits looks for about as
//! long as waits have lately taken, if that is short, and not at all where only one core is allowed. Invariant:
//! never longer than [`Patience::LIMIT`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A moving average of the waits at one place, and what follows from it.
#[derive(Debug)]
pub struct Patience {
    expected_nanos: AtomicU64,
    may_look: bool,
}

impl Patience {
    /// The longest look. A little more than what a small command takes when three sleeping cores are woken on
    /// its way.
    pub const LIMIT: Duration = Duration::from_micros(200);

    /// A core that was on offer for so long is wanted by somebody else.
    const CROWDED: Duration = Duration::from_micros(50);

    /// Without experience.
    #[must_use]
    pub fn new() -> Patience {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Patience {
            expected_nanos: AtomicU64::new(Patience::LIMIT.as_nanos() as u64 / 4),
            may_look: cores > 1,
        }
    }

    /// How long a wait that begins now looks before it sleeps.
    #[must_use]
    pub fn budget(&self) -> Duration {
        let expected = Duration::from_nanos(self.expected_nanos.load(Ordering::Relaxed));
        if self.may_look && expected <= Patience::LIMIT {
            (expected * 2).min(Patience::LIMIT)
        } else {
            Duration::ZERO
        }
    }

    /// Offers the core between two looks. False when somebody has taken it for long: then who looks had better
    /// sleep, also the next times, since the system puts who offers behind all others.
    #[must_use]
    pub fn offer_core(&self) -> bool {
        let offered = Instant::now();
        std::thread::yield_now();
        let quiet = offered.elapsed() < Patience::CROWDED;
        if !quiet {
            let long = 4 * Patience::LIMIT.as_nanos() as u64;
            self.expected_nanos.store(long, Ordering::Relaxed);
        }
        quiet
    }

    /// A wait took so long, looking and sleeping. A lost update between two who wait does no harm.
    pub fn learn(&self, waited: Duration) {
        // One long wait shall not outweigh many short ones.
        let waited = waited.min(4 * Patience::LIMIT).as_nanos() as u64;
        let old = self.expected_nanos.load(Ordering::Relaxed);
        self.expected_nanos
            .store((old * 7 + waited) / 8, Ordering::Relaxed);
    }
}

impl Default for Patience {
    fn default() -> Patience {
        Patience::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_teach_not_to_look_and_short_ones_to_look_again() {
        let patience = Patience {
            may_look: true,
            ..Patience::new()
        };
        for _ in 0..50 {
            patience.learn(Duration::from_millis(3));
        }
        assert_eq!(patience.budget(), Duration::ZERO);
        for _ in 0..50 {
            patience.learn(Duration::from_micros(10));
        }
        let budget = patience.budget();
        assert!(budget > Duration::ZERO && budget < Patience::LIMIT);
    }

    #[test]
    fn one_core_is_left_to_who_is_waited_for() {
        let patience = Patience {
            may_look: false,
            ..Patience::new()
        };
        assert_eq!(patience.budget(), Duration::ZERO);
    }
}
