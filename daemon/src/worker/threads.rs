//! The threads of a session, and what ends when one of them cannot continue.
//!
//! A [`Scope`] belongs to one session. In a worker that serves only this session, the scope is the process:
//! a session that cannot continue aborts it. In a host, which serves several sessions, the scope counts the
//! session's threads. A failure ([`Scope::fail`]) then ends only that session, on any thread. So does a panic on
//! one of these threads. On any other thread, such as a driver's, a panic ends the process, because the neighbours'
//! state may be affected too.
//!
//! Invariant: no thread waits for another that is gone. [`Scope::wait_until_alone`] returns when no thread
//! of the session is left.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_serving::logging::{self, Name};
use parking_lot::{Condvar, Mutex};

thread_local! {
    /// The scope of the session that this thread serves.
    static CURRENT: RefCell<Scope> = const { RefCell::new(Scope(None)) };
}

/// The threads of one session. See the module. Clones are the same scope.
#[derive(Clone, Default)]
pub(crate) struct Scope(Option<Arc<Hosted>>);

/// The scope of a session in a host.
struct Hosted {
    /// Receives the reason why the session cannot continue.
    report: Box<dyn Fn(String) + Send + Sync>,
    has_failed: AtomicBool,
    /// The fields that every log line of the session's threads has.
    names: Mutex<Vec<Name>>,
    threads: Mutex<usize>,
    ended: Condvar,
}

/// The payload with which a thread unwinds after [`Scope::broken`].
struct Broken;

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let threads = self.0.as_ref().map(|hosted| *hosted.threads.lock());
        f.debug_tuple("Scope").field(&threads).finish()
    }
}

impl Scope {
    /// Makes the scope of a session in a host. `report` receives the reason why the session cannot continue.
    pub(crate) fn hosted(report: impl Fn(String) + Send + Sync + 'static) -> Scope {
        Scope(Some(Arc::new(Hosted {
            report: Box::new(report),
            has_failed: AtomicBool::new(false),
            names: Mutex::default(),
            threads: Mutex::new(0),
            ended: Condvar::new(),
        })))
    }

    /// Whether the session is in a host, so that the process outlives it.
    pub(crate) fn is_hosted(&self) -> bool {
        self.0.is_some()
    }

    /// Adds these fields to the log lines of the session: of the whole process if it is the session's own.
    pub(crate) fn name_in_log(&self, names: Vec<Name>) {
        match &self.0 {
            None => logging::name_process(names),
            Some(hosted) => {
                logging::name_thread(&names);
                *hosted.names.lock() = names;
            }
        }
    }

    /// Gives this thread's log lines the session's names, which were not known when the thread began.
    pub(crate) fn name_thread(&self) {
        if let Some(hosted) = &self.0 {
            logging::name_thread(&hosted.names.lock());
        }
    }

    /// Ends the session, because its client would otherwise wait forever. In the session's own worker this
    /// aborts the process, and runs no destructors, because a driver's may block too. In a host, the session is
    /// about to end when this returns. Any thread may call this, also a driver's.
    pub(crate) fn fail(&self, what: &str) {
        // A stopped client makes a session fail again and again, until it has ended.
        let is_known =
            (self.0.as_ref()).is_some_and(|of| of.has_failed.swap(true, Ordering::Relaxed));
        if is_known {
            return;
        }
        tracing::error!(what, "the session cannot continue, so it ends");
        match &self.0 {
            None => std::process::abort(),
            Some(hosted) => (hosted.report)(what.to_owned()),
        }
    }

    /// As [`Scope::fail`]. In a host, the calling thread unwinds, so it must be one of the session's.
    pub(crate) fn broken(&self, what: &str) -> ! {
        self.fail(what);
        resume_unwind(Box::new(Broken))
    }

    /// Starts a thread of the session.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn try_spawn(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let builder = std::thread::Builder::new().name(name.into());
        let Some(hosted) = &self.0 else {
            return builder.spawn(work).map(drop);
        };
        let counted = Counted::add(hosted);
        let scope = self.clone();
        builder
            .spawn(move || {
                let counted = counted;
                scope.enter(work);
                // The scope is released before the count. So nothing of the session is left at zero.
                drop(scope);
                drop(counted);
            })
            .map(drop)
    }

    /// Starts a thread that the session needs. If the system cannot start it, the session ends.
    pub(crate) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = self.try_spawn(name, work) {
            self.broken(&format!("cannot start the thread {name:?}: {error}"));
        }
    }

    /// Runs `work` on this thread as part of the session. A panic ends the session and not the thread.
    pub(crate) fn enter(&self, work: impl FnOnce()) {
        let Some(hosted) = &self.0 else {
            return work();
        };
        logging::name_thread(&hosted.names.lock());
        let before = CURRENT.replace(self.clone());
        let done = catch_unwind(AssertUnwindSafe(work));
        CURRENT.set(before);
        if let Err(payload) = done
            && !payload.is::<Broken>()
        {
            (hosted.report)("a thread of the session panicked".to_owned());
        }
        logging::name_thread(&[]);
    }

    /// Waits until no thread of the session is left, at most until `deadline`. Returns whether none is left.
    pub(crate) fn wait_until_alone(&self, deadline: Option<Instant>) -> bool {
        let Some(hosted) = &self.0 else { return true };
        let mut threads = hosted.threads.lock();
        while *threads > 0 {
            match deadline {
                None => hosted.ended.wait(&mut threads),
                Some(deadline) => {
                    if hosted.ended.wait_until(&mut threads, deadline).timed_out() {
                        return *threads == 0;
                    }
                }
            }
        }
        true
    }
}

/// One counted thread of a scope, until dropped.
struct Counted(Arc<Hosted>);

impl Counted {
    fn add(hosted: &Arc<Hosted>) -> Counted {
        *hosted.threads.lock() += 1;
        Counted(Arc::clone(hosted))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.threads.lock() -= 1;
        self.0.ended.notify_all();
    }
}

/// As [`Scope::broken`], for the session that this thread serves. On a thread of no session, such as a
/// driver's, this aborts the process.
pub(crate) fn broken(what: &str) -> ! {
    let scope = CURRENT.with_borrow(Scope::clone);
    scope.broken(what)
}

/// Whether a panic on this thread ends only a session. The panic hook then leaves the process running.
pub(crate) fn confines_panics() -> bool {
    CURRENT
        .try_with(|scope| scope.try_borrow().is_ok_and(|scope| scope.is_hosted()))
        .unwrap_or(false)
}

/// A lock-protected flag that says that a session has ended, for threads that only wait or pause.
#[derive(Default)]
pub(crate) struct Over {
    // For those that only look.
    is_set: AtomicBool,
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Over {
    /// Sets the flag and wakes the threads that pause.
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        *self.is_over.lock() = true;
        self.changed.notify_all();
    }

    /// Whether the flag is set.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Pauses for `time`, or until the flag is set. Returns whether it is set.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut is_over = self.is_over.lock();
        while !*is_over && !self.changed.wait_until(&mut is_over, until).timed_out() {}
        *is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_secs(10);

    fn scope() -> (Scope, mpsc::Receiver<String>) {
        let (tell, told) = mpsc::channel();
        let scope = Scope::hosted(move |reason| drop(tell.send(reason)));
        (scope, told)
    }

    #[test]
    fn a_thread_that_breaks_ends_its_session_and_no_other() {
        let (one, of_one) = scope();
        let (other, of_other) = scope();
        one.spawn("broken", || broken("why"));
        let (open, gate) = mpsc::channel::<()>();
        other.spawn("waits", move || assert!(gate.recv().is_err()));
        assert_eq!(of_one.recv_timeout(SOON).unwrap(), "why");
        assert!(one.wait_until_alone(Some(Instant::now() + SOON)));
        assert!(!other.wait_until_alone(Some(Instant::now())));
        assert!(of_other.try_recv().is_err());
        drop(open);
        assert!(other.wait_until_alone(Some(Instant::now() + SOON)));
    }

    #[test]
    fn a_failure_on_a_drivers_thread_ends_the_session_and_unwinds_nothing() {
        let (scope, told) = scope();
        let driver = std::thread::spawn(move || {
            scope.fail("why");
            scope.fail("again");
        });
        driver.join().unwrap();
        assert_eq!(told.iter().collect::<Vec<_>>(), ["why"]);
    }

    #[test]
    fn a_panic_is_confined_to_threads_of_a_session() {
        assert!(!confines_panics());
        let (scope, told) = scope();
        let (tell, confined) = mpsc::channel();
        scope.spawn("panics", move || {
            tell.send(confines_panics()).unwrap();
            resume_unwind(Box::new("a panic"));
        });
        assert!(confined.recv_timeout(SOON).unwrap());
        assert!(told.recv_timeout(SOON).unwrap().contains("panicked"));
        assert!(scope.wait_until_alone(None));
    }

    #[test]
    fn a_pause_ends_with_the_session() {
        let over = Arc::new(Over::default());
        assert!(!over.pause(Duration::from_millis(1)));
        let pausing = std::thread::spawn({
            let over = Arc::clone(&over);
            move || over.pause(SOON)
        });
        over.set();
        assert!(pausing.join().unwrap());
    }
}
