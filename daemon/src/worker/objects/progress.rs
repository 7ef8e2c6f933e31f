//! How the commands of a session get on, so that a host knows which of its sessions waits for which.
//!
//! The counts are approximate, because nothing orders them against the commands. They only decide how long a session
//! may take to end. In a worker of its own, nothing measures time here.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Instant;

use causeway_proto::status::Status;
use parking_lot::Mutex;

/// The progress of one session.
#[derive(Default)]
pub(crate) struct Progress {
    // Commands whose completion is still to come.
    under_way: AtomicUsize,
    // Whether the session is in a host.
    is_timed: AtomicBool,
    // When the first of these commands began or the latest one ended, as of [`now`].
    since: AtomicU64,
    // Whether a command has ended with a status that a context of no further use also gives.
    is_suspect: AtomicBool,
}

impl Progress {
    pub(super) fn begin(&self, commands: usize) {
        let before = self.under_way.fetch_add(commands, Ordering::Relaxed);
        if before == 0 {
            self.stamp();
        }
    }

    pub(super) fn end(&self, commands: usize) {
        self.under_way.fetch_sub(commands, Ordering::Relaxed);
    }

    /// Notes the end of a command.
    pub(super) fn note(&self, status: Status) {
        self.stamp();
        if may_spoil(status) {
            self.is_suspect.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// Whether a command has ended so that its context may be of no further use. Forgets it.
    pub(crate) fn take_suspicion(&self) -> bool {
        self.is_suspect.load(Ordering::Relaxed) && self.is_suspect.swap(false, Ordering::Relaxed)
    }

    fn stamp(&self) {
        if self.is_timed.load(Ordering::Relaxed) {
            self.since.store(now(), Ordering::Relaxed);
        }
    }

    /// Since when the session waits for the end of a command; `None` if it does not.
    fn waits_since(&self) -> Option<u64> {
        self.is_busy().then(|| self.since.load(Ordering::Relaxed))
    }
}

/// Whether commands end with this status in a context in which a kernel has failed. NVIDIA gives these to all
/// later commands of such a context.
fn may_spoil(status: Status) -> bool {
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

/// Nanoseconds since the process first asked.
fn now() -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(BEGUN.elapsed().as_nanos()).unwrap_or(u64::MAX)
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

    /// Whether another session has waited longer for the end of a command than this one.
    pub(crate) fn any_older(&self, own: &Arc<Progress>) -> bool {
        let since = own.waits_since().unwrap_or(u64::MAX);
        let all = self.0.lock();
        let mut others = all.iter().filter_map(Weak::upgrade);
        others.any(|of| !Arc::ptr_eq(&of, own) && of.waits_since().is_some_and(|of| of < since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for_the_clock() {
        let begun = now();
        while now() == begun {}
    }

    #[test]
    fn the_session_that_waits_longest_is_behind_no_other() {
        let all = Progresses::default();
        let (kernel, behind) = (Arc::<Progress>::default(), Arc::<Progress>::default());
        all.add(&kernel);
        all.add(&behind);
        assert!(!all.any_older(&kernel) && !all.any_older(&behind));
        // The session has been busy for longer, but its commands have ended until the other's kernel began.
        behind.begin(5);
        wait_for_the_clock();
        kernel.begin(1);
        wait_for_the_clock();
        behind.end(1);
        behind.note(Status::SUCCESS);
        assert!(all.any_older(&behind) && !all.any_older(&kernel));
        kernel.end(1);
        assert!(!all.any_older(&behind) && all.any_older(&kernel));
    }

    #[test]
    fn only_some_failures_are_suspect() {
        let progress = Progress::default();
        progress.note(Status::INVALID_VALUE);
        assert!(!progress.take_suspicion());
        progress.note(Status::OUT_OF_RESOURCES);
        assert!(progress.take_suspicion() && !progress.take_suspicion());
    }
}
