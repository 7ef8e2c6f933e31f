//! How the commands of a session get on, so that a host knows which of its sessions waits for which.
//!
//! The counts are approximate, because nothing orders them against the commands. They only decide how long a session
//! may take to end. In a worker of its own, nothing measures time here.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Instant;

use causeway_proto::status::Status;
use parking_lot::Mutex;

use crate::accounting::{Counter, LedgerSlot};

/// The progress of one session.
pub(crate) struct Progress {
    // Counts the commands whose completion is still to come. The supervisor reads this if the process dies.
    account: LedgerSlot,
    // Whether the session is in a host.
    is_timed: AtomicBool,
    // When the first of these commands began or the latest one ended, as of [`nanoseconds`].
    since: AtomicU64,
    // Whether a command has ended with a status that a context of no further use also gives.
    is_suspect: AtomicBool,
}

impl Progress {
    pub(super) fn new(account: LedgerSlot) -> Progress {
        Progress {
            account,
            is_timed: AtomicBool::new(false),
            since: AtomicU64::new(0),
            is_suspect: AtomicBool::new(false),
        }
    }

    pub(super) fn begin(&self, commands: usize) {
        if self.account.begin(Counter::UnderWay, commands as u64) == 0 {
            self.stamp_now();
        }
    }

    pub(super) fn end(&self, commands: usize) {
        self.account.end(Counter::UnderWay, commands as u64);
    }

    /// Notes the end of a command, at `now`.
    pub(super) fn note(&self, status: Status, now: Instant) {
        self.stamp(now);
        if may_spoil(status) {
            self.is_suspect.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.account.get(Counter::UnderWay) > 0
    }

    /// Whether a command has ended so that its context may be of no further use. Forgets it.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed) && self.is_suspect.swap(false, Ordering::Relaxed)
    }

    /// Whether a command has ended so since the last [`Progress::take_suspicion`].
    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed)
    }

    fn stamp_now(&self) {
        if self.is_timed.load(Ordering::Relaxed) {
            self.stamp(Instant::now());
        }
    }

    fn stamp(&self, at: Instant) {
        if self.is_timed.load(Ordering::Relaxed) {
            self.since.store(nanoseconds(at), Ordering::Relaxed);
        }
    }

    /// Since when the session waits for the end of a command; `None` if it does not.
    fn waits_since(&self) -> Option<u64> {
        self.is_busy().then(|| self.since.load(Ordering::Relaxed))
    }
}

/// Whether commands end with this status in a context in which a kernel has failed. NVIDIA gives these to all
/// later commands of such a context, and to later contexts of the process.
pub(crate) fn may_spoil(status: Status) -> bool {
    const INVALID_COMMAND_QUEUE: Status = Status(-36);
    // NVIDIA's own code for an illegal address.
    const ILLEGAL_ACCESS: Status = Status(-9999);
    [
        Status::OUT_OF_RESOURCES,
        INVALID_COMMAND_QUEUE,
        ILLEGAL_ACCESS,
    ]
    .contains(&status)
}

/// Nanoseconds from when the process first asked; 0 for earlier times.
fn nanoseconds(at: Instant) -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(at.saturating_duration_since(*BEGUN).as_nanos()).unwrap_or(u64::MAX)
}

/// The progress of all sessions of a host.
#[derive(Default)]
pub(crate) struct Progresses(Mutex<Vec<Weak<Progress>>>);

impl Progresses {
    pub(crate) fn add(&self, progress: &Arc<Progress>) {
        progress.is_timed.store(true, Ordering::Relaxed);
        let mut all = self.0.lock();
        all.retain(|progress| progress.strong_count() > 0);
        all.push(Arc::downgrade(progress));
    }

    /// Whether another session builds programs, or has commands in progress while this one has none.
    pub(crate) fn any_other_works(&self, own: &Arc<Progress>) -> bool {
        let is_idle = !own.is_busy();
        let works =
            |of: &Progress| of.account.get(Counter::Building) > 0 || is_idle && of.is_busy();
        let all = self.0.lock();
        let mut others = all.iter().filter_map(Weak::upgrade);
        others.any(|of| !Arc::ptr_eq(&of, own) && works(&of))
    }

    /// Whether another session has waited longer for the end of a command than this one, which began to end at `left`. A
    /// session that waits for no command may have to wait in the driver for what had begun by then.
    pub(crate) fn any_older(&self, own: &Arc<Progress>, left: Instant) -> bool {
        let since = own.waits_since().unwrap_or_else(|| nanoseconds(left));
        let all = self.0.lock();
        let mut others = all.iter().filter_map(Weak::upgrade);
        others.any(|of| !Arc::ptr_eq(&of, own) && of.waits_since().is_some_and(|of| of < since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Arc<Progress> {
        Arc::new(Progress::new(LedgerSlot::alone()))
    }

    fn wait_for_the_clock() {
        let begun = nanoseconds(Instant::now());
        while nanoseconds(Instant::now()) == begun {}
    }

    #[test]
    fn the_session_that_waits_longest_is_behind_no_other() {
        let all = Progresses::default();
        let (kernel, behind) = (progress(), progress());
        all.add(&kernel);
        all.add(&behind);
        assert!(!all.any_older(&kernel, Instant::now()) && !all.any_older(&behind, Instant::now()));
        // The session has been busy for longer, but its commands have ended until the other's kernel began.
        behind.begin(5);
        wait_for_the_clock();
        kernel.begin(1);
        wait_for_the_clock();
        behind.end(1);
        behind.note(Status::SUCCESS, Instant::now());
        assert!(all.any_older(&behind, Instant::now()) && !all.any_older(&kernel, Instant::now()));
        kernel.end(1);
        assert!(!all.any_older(&behind, Instant::now()) && all.any_older(&kernel, Instant::now()));
    }

    #[test]
    fn a_session_without_commands_is_behind_those_of_its_neighbours_that_had_begun() {
        let all = Progresses::default();
        let (idle, busy) = (progress(), progress());
        all.add(&idle);
        all.add(&busy);
        busy.begin(2);
        wait_for_the_clock();
        let left = Instant::now();
        assert!(all.any_older(&idle, left) && all.any_other_works(&idle));
        wait_for_the_clock();
        busy.end(1);
        busy.note(Status::SUCCESS, Instant::now());
        // The neighbour gets on.
        assert!(!all.any_older(&idle, left) && all.any_other_works(&idle));
        busy.end(1);
        assert!(!all.any_other_works(&idle));
    }

    #[test]
    fn the_builds_of_others_count() {
        let all = Progresses::default();
        let (builds, waits) = (progress(), progress());
        all.add(&builds);
        all.add(&waits);
        builds.account.begin(Counter::Building, 1);
        assert!(all.any_other_works(&waits) && !all.any_other_works(&builds));
        builds.account.end(Counter::Building, 1);
        assert!(!all.any_other_works(&waits));
    }

    #[test]
    fn only_some_failures_are_suspect() {
        let progress = progress();
        progress.note(Status::INVALID_VALUE, Instant::now());
        assert!(!progress.take_suspicion());
        progress.note(Status::OUT_OF_RESOURCES, Instant::now());
        assert!(progress.take_suspicion() && !progress.take_suspicion());
    }
}
