//! For how long a session without connections is waited for, and when the next attempt is due.
//!
//! Pure: the caller says how long each pause was to take, and how long it took. Time in which the process was stopped
//! (Ctrl-Z, a suspended machine) does not count. Invariant: after the process was stopped, attempts go on for
//! [`AFTER_WAKING`] at least. A session whose connections break again and again without progress is waited for no longer
//! than one without connections.
#![forbid(unsafe_code)]

use std::time::Duration;

use causeway_proto::limits::PARKED_HOLD;

/// The pauses between attempts grow from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// The shortest limit of an attempt at a node that may keep the caller waiting.
const AT_PARKED: Duration = PARKED_HOLD.saturating_add(Duration::from_millis(500));
/// How long attempts go on at least after the process was stopped.
const AFTER_WAKING: Duration = Duration::from_secs(10);
/// A pause or attempt that takes this much longer than planned means that the process was stopped.
const STOPPED: Duration = Duration::from_secs(1);

/// Round trips until both connections are made: each connects, begins TLS, and exchanges preamble, greeting and proofs.
const ROUND_TRIPS: u32 = 8;
/// The longest time of an attempt over a slow network.
const SLOWEST: Duration = Duration::from_secs(10);

/// A connection that lasts for less than this is of use only if the session makes progress.
const USEFUL: Duration = Duration::from_secs(1);

/// How many commands the worker has reported as applied, and how many event batches were handled.
pub(super) type Positions = (u64, u64);

/// The time that is left for a session; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patience {
    limit: Duration,
    left: Duration,
    pause: Duration,
    // At the last break.
    positions: Option<Positions>,
    // Whether the node has said at the last attempt that the session is parked.
    is_parked: bool,
}

impl Patience {
    /// Waits for `limit` in all.
    pub(super) fn new(limit: Duration) -> Patience {
        Patience {
            limit,
            left: limit,
            pause: PAUSES.0,
            positions: None,
            is_parked: false,
        }
    }

    /// What is left after this time.
    pub(super) fn after(mut self, spent: Duration) -> Patience {
        self.left = self.left.saturating_sub(spent);
        self
    }

    /// Waits for `limit` from now on, unless more is left.
    pub(super) fn extend(&mut self, limit: Duration) {
        if self.left < limit {
            *self = Patience {
                positions: self.positions,
                ..Patience::new(limit)
            };
        }
    }

    /// Handles another break, of a connection that lasted for `lasted`. Starts anew if the connection was of use.
    /// Returns whether a pause must come before the first attempt, because it was not.
    pub(super) fn begin(&mut self, lasted: Duration, positions: Positions) -> bool {
        let is_stuck = lasted < USEFUL && self.positions == Some(positions);
        if is_stuck {
            self.left = self.left.saturating_sub(lasted);
        } else {
            *self = Patience::new(self.limit);
            self.positions = Some(positions);
        }
        is_stuck
    }

    /// The pause before the next attempt; `None` if no time is left.
    pub(super) fn pause(&mut self) -> Option<Duration> {
        let pause = self.pause.min(self.left);
        self.pause = (self.pause * 3 / 2).min(PAUSES.1);
        (!pause.is_zero()).then_some(pause)
    }

    /// Handles that a node has said after this time that the session is parked. A node that has kept the caller waiting
    /// expects the session soon, so the next pause is short.
    pub(super) fn is_parked(&mut self, taken: Duration) {
        self.is_parked = true;
        if taken >= PARKED_HOLD {
            self.pause = PAUSES.0;
        }
    }

    /// Handles an attempt that ended otherwise.
    pub(super) fn is_not_parked(&mut self) {
        self.is_parked = false;
    }

    /// How much time is used up.
    pub(super) fn spent(&self) -> Duration {
        self.limit.saturating_sub(self.left)
    }

    /// Whether any time is left.
    pub(super) fn has_time(&self) -> bool {
        !self.left.is_zero()
    }

    /// The longest time that the next attempt, at one address, may take, unless the network is slow.
    pub(super) fn attempt(&self) -> Duration {
        let least = if self.is_parked { AT_PARKED } else { PAUSES.0 };
        self.left.clamp(least, PAUSES.1)
    }

    /// The longest time that an attempt may take in all if connecting took `connecting`, which is a round trip at least.
    pub(super) fn attempt_over(&self, connecting: Duration) -> Duration {
        let limit = self.attempt();
        if connecting > limit {
            // The process was stopped meanwhile.
            return limit;
        }
        (limit + ROUND_TRIPS * connecting).min(self.left.clamp(limit, SLOWEST))
    }

    /// Counts a step that was to take `planned` at most, and took `taken`.
    pub(super) fn count(&mut self, planned: Duration, taken: Duration) {
        if taken < planned + STOPPED {
            self.left = self.left.saturating_sub(taken);
        } else {
            self.left = self.left.saturating_sub(planned).max(AFTER_WAKING);
            self.pause = PAUSES.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_stopped_process_has_time_after_it_wakes() {
        let mut patience = Patience::new(Duration::from_secs(1));
        let pause = patience.pause().unwrap();
        patience.count(pause, Duration::from_secs(3600));
        assert_eq!(patience.left, AFTER_WAKING);
        assert_eq!(patience.pause(), Some(PAUSES.0));
    }

    #[test]
    fn pauses_stay_short_while_the_node_keeps_the_caller_waiting() {
        let mut patience = Patience::new(Duration::from_secs(60));
        for _ in 0..3 {
            assert_eq!(patience.pause(), Some(PAUSES.0));
            patience.is_parked(PARKED_HOLD);
        }
        // A refusal at once, over a slow network.
        let round_trips = Duration::from_millis(600);
        patience.is_parked(round_trips);
        patience.pause();
        patience.is_parked(round_trips);
        assert!(patience.pause() > Some(PAUSES.0));
    }

    #[test]
    fn the_last_attempt_at_a_node_that_keeps_the_caller_waiting_hears_the_answer() {
        let mut patience = Patience::new(Duration::from_millis(300));
        assert!(patience.attempt() < PARKED_HOLD);
        patience.is_parked(Duration::ZERO);
        assert!(patience.attempt() > PARKED_HOLD);
        // The node has died meanwhile.
        patience.is_not_parked();
        assert!(patience.attempt() < PARKED_HOLD);
    }

    #[test]
    fn more_time_is_given_and_never_taken() {
        let [short, long] = [5, 60].map(Duration::from_secs);
        let mut patience = Patience::new(long);
        patience.extend(short);
        assert_eq!(patience, Patience::new(long));
        let mut patience = Patience::new(short);
        patience.extend(long);
        assert_eq!(patience, Patience::new(long));
        assert_eq!(patience.after(long).left, Duration::ZERO);
    }

    #[test]
    fn an_attempt_over_a_slow_network_has_time_for_its_round_trips() {
        let patience = Patience::new(Duration::from_secs(60));
        for round_trip in [1, 330, 600, 1000].map(Duration::from_millis) {
            let limit = patience.attempt_over(round_trip);
            assert!(limit >= ROUND_TRIPS * round_trip && limit <= SLOWEST);
        }
        assert_eq!(patience.attempt_over(SLOWEST), PAUSES.1);
        for left in [Duration::ZERO, Duration::from_millis(10), PAUSES.1] {
            let patience = Patience { left, ..patience };
            assert_eq!(patience.attempt_over(PAUSES.1), patience.attempt());
        }
    }

    #[test]
    fn connections_that_break_at_once_without_progress_use_up_the_time() {
        let limit = Duration::from_secs(10);
        let mut patience = Patience::new(limit);
        let lasted = Duration::from_millis(300);
        assert!(!patience.begin(lasted, (5, 7)));
        let mut spent = Duration::ZERO;
        loop {
            assert!(patience.begin(lasted, (5, 7)));
            spent += lasted;
            let Some(pause) = patience.pause() else { break };
            patience.count(pause, pause);
            spent += pause;
        }
        assert!(spent >= limit && spent <= limit + lasted, "{spent:?}");
    }

    #[test]
    fn progress_and_long_connections_give_all_the_time_again() {
        let fresh = |patience: Patience| patience.left == patience.limit;
        let mut patience = Patience::new(Duration::from_secs(10));
        let short = Duration::from_millis(1);
        patience.begin(short, (0, 0));
        for positions in [(1, 0), (1, 1)] {
            patience.count(USEFUL, USEFUL);
            assert!(!patience.begin(short, positions) && fresh(patience));
        }
        assert!(patience.begin(short, (1, 1)) && !fresh(patience));
        assert!(!patience.begin(USEFUL, (1, 1)) && fresh(patience));
    }

    proptest! {
        #[test]
        fn the_limit_is_kept_and_pauses_grow(limit in 1u64..600_000) {
            let limit = Duration::from_millis(limit);
            let mut patience = Patience::new(limit);
            let (mut waited, mut last) = (Duration::ZERO, Duration::ZERO);
            while let Some(pause) = patience.pause() {
                prop_assert!(pause >= last.min(limit - waited) && pause <= PAUSES.1);
                patience.count(pause, pause);
                waited += pause;
                last = pause;
            }
            prop_assert_eq!(waited, limit);
        }
    }
}
