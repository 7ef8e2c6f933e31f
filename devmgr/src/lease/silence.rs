//! For how long nothing was heard of a lease's holder, across changes of leader and restarts.
//!
//! Only time counts in which a manager served, because holders cannot renew otherwise. A manager stores a silence once it
//! is longer than that of any holder that lives and reaches the manager ([`late`]), and again each [`step`] later. So
//! renewals in time write nothing. A new manager continues a stored silence, but gives each lease [`least`] from its start.
//! A holder that lives renews within that time: it knows nothing of the change, but its last renewal has failed or is long
//! ago.
//!
//! Thousands of holders can become silent in one moment: their network breaks, or a new manager takes over. So what is due
//! for a grant is due a little later, by a time that depends on the grant ([`spread`]). Otherwise one step would write the
//! rows of all.
//!
//! A limit: a manager that lasts less than [`late`] and that time (25 to 30 s of a lease of 60 s) stores no first silence.
//! While all managers last less than that, a lease that nobody renews stays. A manager that takes a stored silence over adds
//! to it after a [`step`] and that time (5 to 10 s) at the earliest.
//!
//! Pure; `grants` uses it. Invariants: a stored silence is deleted before its holder hears that the lease was renewed. A
//! lease ends by silence only if managers have served for the lease's whole time without a word, and the present one for
//! [`least`].

use super::id::Epoch;
use crate::policy::Timing;
use crate::time::{Span, Time};

/// A holder that looks for the new leader, and whose attempts fail for some seconds, is heard within this time.
const FOUND_WITHIN: Span = Span::seconds(15);

/// The silence of a lease's holder. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Silence {
    /// Since when this manager has heard nothing.
    since: Time,
    /// The silence until then, under earlier managers.
    before: Span,
    /// The silence that the lease's row has. 0: none.
    stored: Span,
}

/// Shortest time that a new manager gives a lease.
pub(super) fn least(timing: &Timing) -> Span {
    let quarter = Span(timing.lease.0 / 4);
    quarter.max(FOUND_WITHIN).min(timing.lease)
}

/// The silence after which a holder is late: it renews after a third of the lease's time, and repeats a failed attempt
/// after a twelfth.
fn late(timing: &Timing) -> Span {
    Span(timing.lease.0 / 3 + timing.lease.0 / 12)
}

/// The time after which a silence is stored again. Few leases are silent, so it is short.
fn step(timing: &Timing) -> Span {
    Span(timing.lease.0 / 12)
}

/// A time from 0 to a [`step`]. Neighbouring epochs have times that are far apart.
fn spread(timing: &Timing, epoch: Epoch) -> Span {
    // Multiplicative hashing, by the golden ratio.
    let part = epoch.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    Span((part * u64::from(u32::try_from(step(timing).0).unwrap_or(u32::MAX))) >> 32)
}

impl Silence {
    /// The holder was heard now.
    pub(super) fn heard(now: Time) -> Silence {
        Silence {
            since: now,
            ..Silence::default()
        }
    }

    /// The silence of a lease that a manager takes over.
    pub(super) fn taken_over(now: Time, stored: Span) -> Silence {
        Silence {
            since: now,
            before: stored,
            stored,
        }
    }

    /// Until when the new manager keeps the lease of a grant without a word of its holder.
    pub(super) fn until(&self, timing: &Timing, epoch: Epoch) -> Time {
        let left = Span(timing.lease.0.saturating_sub(self.before.0));
        let until = self.since.after(left.max(least(timing)));
        until.after(spread(timing, epoch))
    }

    /// What the lease's row has.
    pub(super) fn stored(&self) -> Span {
        self.stored
    }

    /// When the silence of a grant's holder is to be stored.
    pub(super) fn due(&self, timing: &Timing, epoch: Epoch) -> Option<Time> {
        if least(timing) == timing.lease {
            // Each manager gives the lease its whole time again, so a stored silence says nothing.
            return None;
        }
        let next = match self.stored {
            Span(0) => late(timing),
            stored => Span(stored.0.saturating_add(step(timing).0)),
        };
        let due = self.since.after(Span(next.0.saturating_sub(self.before.0)));
        // What this manager has stored is from different moments already.
        let is_first = self.stored == self.before;
        Some(if is_first {
            due.after(spread(timing, epoch))
        } else {
            due
        })
    }

    /// The same silence, stored.
    pub(super) fn noted(self, now: Time) -> Silence {
        let length = self.before.0.saturating_add(now.since(self.since).0);
        Silence {
            stored: Span(length),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grant whose times are not later.
    const FIRST: Epoch = Epoch(0);

    #[test]
    fn a_holder_in_time_is_never_late_and_a_silence_goes_on_with_the_next_manager() {
        let timing = Timing::default();
        let silence = Silence::heard(Time(0));
        assert_eq!(silence.until(&timing, FIRST), Time(60_000));
        assert_eq!(silence.due(&timing, FIRST), Some(Time(25_000)));
        let silence = silence.noted(Time(26_000));
        assert_eq!(silence.stored(), Span::seconds(26));
        assert_eq!(silence.due(&timing, FIRST), Some(Time(31_000)));
        // The next manager's clock has another beginning.
        let next = Silence::taken_over(Time(5_000), silence.stored());
        assert_eq!(next.until(&timing, FIRST), Time(5_000 + 34_000));
        assert_eq!(next.due(&timing, FIRST), Some(Time(5_000 + 5_000)));
        let last = Silence::taken_over(Time(0), Span::seconds(59));
        assert_eq!(last.until(&timing, FIRST), Time(15_000));
    }

    #[test]
    fn a_short_lease_gets_its_whole_time_again() {
        let timing = Timing {
            lease: Span::seconds(9),
            ..Timing::default()
        };
        let silence = Silence::taken_over(Time(0), Span::seconds(8));
        assert_eq!(silence.until(&timing, FIRST), Time(9_000));
        assert_eq!(silence.due(&timing, FIRST), None);
    }

    #[test]
    fn what_begins_in_one_moment_is_due_in_different_ones() {
        let timing = Timing::default();
        let silence = Silence::taken_over(Time(0), Span::seconds(30));
        let mut all = [0_u32; 50];
        for epoch in (0..10_000).map(Epoch) {
            let due = silence.due(&timing, epoch).unwrap();
            let until = silence.until(&timing, epoch);
            assert_eq!(until.since(due), Span::seconds(25));
            all[(due.since(Time(5_000)).0 / 100) as usize] += 1;
        }
        // Over five seconds, and so many in each tenth of a second.
        assert!(
            all.iter().all(|count| (150..=250).contains(count)),
            "{all:?}"
        );
    }
}
