//! Time limits for the end of a worker process, and the escalation when it does not end.
//!
//! This module has no clock and kills nothing; [`Worker::watch`](super::worker::Worker::watch) does both.
//! Invariants: a process that is to end is killed after a bounded time. For a session of a host, this time begins when
//! the host no longer reports that an older command of a neighbour delays it. A process that survives the kill is reported
//! after a bounded time.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

/// Time for a worker to leave by itself. It may be inside a driver that does not return.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_secs(3);
/// Time for a killed worker to disappear. A process that lives on is inside the kernel, where no signal
/// reaches it. The kernel is freeing much memory, or a device's kernel driver does not return.
pub(super) const DIE_WITHIN: Duration = Duration::from_secs(5);
/// Time for the end of a session of a host while a compiler works for it or beside it, or while it has no commands and a
/// neighbour has. Compilers end by themselves.
pub(super) const BUILD_WITHIN: Duration = Duration::from_secs(60);

/// The state of one process's end.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// When the process was first told to end.
    told_at: Option<Instant>,
    /// The process must have ended by then, whatever time it was given.
    due_by: Option<Instant>,
    /// Time that the process was given for its end, if it is more than [`LEAVE_WITHIN`].
    given: Duration,
    dead_by: Option<Instant>,
    is_stuck: bool,
}

/// The next action for the caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LeavingAction {
    Wait,
    Kill,
    /// Report that the process was killed and still exists.
    TellStuck,
}

impl Leaving {
    /// Requires the process to end by itself within [`LEAVE_WITHIN`] from `at`, or within the time that it was
    /// given. `at` may be in the future. An earlier deadline stays in force.
    pub(super) fn is_due(&mut self, at: Instant) {
        self.told_at = Some(self.told_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Requires the process to end by itself before `by`. An earlier deadline stays in force.
    pub(super) fn is_due_by(&mut self, by: Instant) {
        self.due_by = Some(self.due_by.map_or(by, |earlier| earlier.min(by)));
    }

    /// Gives the process this time for its end. The time counts from when the process was told to end, so further
    /// requests add nothing. The process may have seen that it is to end before the caller has.
    pub(super) fn may_take(&mut self, time: Duration) {
        self.given = self.given.max(time);
    }

    /// Lets the time for the end begin at `at`, because a session of a host has to wait for the commands of a neighbour, or
    /// a session waits for its client.
    pub(super) fn waits(&mut self, at: Instant) {
        if let Some(told_at) = &mut self.told_at {
            // A session that is away may still stay for longer.
            *told_at = (*told_at).max(at);
        }
    }

    /// Cancels the deadline: the process may stay after all.
    pub(super) fn may_stay(&mut self) {
        self.told_at = None;
        self.due_by = None;
    }

    /// Returns when the process is killed.
    fn killed_at(&self) -> Option<Instant> {
        let told = self.told_at.map(|at| at + self.given.max(LEAVE_WITHIN));
        [told, self.due_by].into_iter().flatten().min()
    }

    /// Notes that the process was killed at `now`.
    pub(super) fn was_killed(&mut self, now: Instant) {
        self.dead_by.get_or_insert(now + DIE_WITHIN);
    }

    /// Returns when to ask for the next step.
    pub(super) fn next(&self) -> Option<Instant> {
        match self.dead_by {
            Some(_) if self.is_stuck => None,
            Some(dead_by) => Some(dead_by),
            None => self.killed_at(),
        }
    }

    /// Returns the action that is due at `now`.
    pub(super) fn step(&mut self, now: Instant) -> LeavingAction {
        match self.next() {
            Some(at) if at <= now => {}
            _ => return LeavingAction::Wait,
        }
        if self.dead_by.is_some() {
            self.is_stuck = true;
            return LeavingAction::TellStuck;
        }
        self.was_killed(now);
        LeavingAction::Kill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_leave_is_killed_and_who_does_not_die_is_told_of() {
        let begun = Instant::now();
        let mut leaving = Leaving::default();
        assert_eq!(
            (leaving.next(), leaving.step(begun)),
            (None, LeavingAction::Wait)
        );
        leaving.is_due_by(begun + 10 * LEAVE_WITHIN);
        leaving.is_due(begun);
        // A later deadline changes nothing.
        leaving.is_due(begun + LEAVE_WITHIN);
        assert_eq!(leaving.step(begun), LeavingAction::Wait);
        let late = begun + LEAVE_WITHIN;
        assert_eq!(
            (leaving.next(), leaving.step(late)),
            (Some(late), LeavingAction::Kill)
        );
        assert_eq!(leaving.step(late), LeavingAction::Wait);
        leaving.is_due(late);
        let stuck = late + DIE_WITHIN;
        assert_eq!(
            (leaving.next(), leaving.step(stuck)),
            (Some(stuck), LeavingAction::TellStuck)
        );
        assert_eq!(
            (leaving.next(), leaving.step(stuck + 2 * DIE_WITHIN)),
            (None, LeavingAction::Wait)
        );
    }

    #[test]
    fn a_longer_time_counts_before_and_after_the_end_is_required() {
        let now = Instant::now();
        for is_first in [true, false] {
            let mut leaving = Leaving::default();
            if is_first {
                leaving.may_take(BUILD_WITHIN / 2);
                assert_eq!(leaving.next(), None);
            }
            leaving.is_due(now);
            leaving.may_take(BUILD_WITHIN / 2);
            leaving.is_due(now);
            assert_eq!(leaving.step(now + 2 * LEAVE_WITHIN), LeavingAction::Wait);
            leaving.may_take(BUILD_WITHIN);
            assert_eq!(leaving.step(now + BUILD_WITHIN / 2), LeavingAction::Wait);
            // A process that asks again and again is killed at the same time.
            leaving.may_take(BUILD_WITHIN);
            leaving.is_due(now + BUILD_WITHIN / 2);
            assert_eq!(leaving.step(now + BUILD_WITHIN), LeavingAction::Kill);
        }
    }

    #[test]
    fn the_time_counts_from_the_end_of_a_wait_for_a_neighbour() {
        let now = Instant::now();
        let mut leaving = Leaving::default();
        leaving.waits(now);
        assert_eq!(leaving.next(), None);
        leaving.is_due(now);
        for seconds in 1..100 {
            let later = now + Duration::from_secs(seconds);
            assert_eq!(leaving.step(later), LeavingAction::Wait);
            leaving.waits(later);
        }
        let last = now + Duration::from_secs(99);
        assert_eq!(leaving.step(last + LEAVE_WITHIN), LeavingAction::Kill);
        leaving.waits(last + LEAVE_WITHIN);
        assert_eq!(leaving.next(), Some(last + LEAVE_WITHIN + DIE_WITHIN));
    }

    #[test]
    fn time_for_the_end_does_not_delay_other_deadlines() {
        let now = Instant::now();
        let mut leaving = Leaving::default();
        leaving.is_due_by(now + 2 * LEAVE_WITHIN);
        leaving.may_take(BUILD_WITHIN);
        assert_eq!(leaving.step(now + 2 * LEAVE_WITHIN), LeavingAction::Kill);
    }

    #[test]
    fn a_session_that_is_away_has_its_time_and_no_more() {
        let now = Instant::now();
        let mut leaving = Leaving::default();
        let keep = Duration::from_secs(600);
        leaving.is_due(now + keep);
        // A report of its host does not make it shorter, and a second break does not make it longer.
        leaving.waits(now);
        leaving.is_due(now + 2 * keep);
        assert_eq!(leaving.step(now + keep), LeavingAction::Wait);
        // The worker says that the session ends.
        leaving.is_due(now + Duration::from_secs(1));
        assert_eq!(leaving.step(now + 2 * LEAVE_WITHIN), LeavingAction::Kill);
    }

    #[test]
    fn who_may_stay_is_left_alone() {
        let now = Instant::now();
        let mut leaving = Leaving::default();
        leaving.is_due(now);
        leaving.may_stay();
        assert_eq!(leaving.step(now + 2 * LEAVE_WITHIN), LeavingAction::Wait);
        leaving.was_killed(now);
        leaving.may_stay();
        assert_eq!(leaving.step(now + DIE_WITHIN), LeavingAction::TellStuck);
    }
}
