//! The bulk thread. It makes driver calls that callbacks must not make or that block, such as allocating
//! a ring. It also runs jobs at a given time.
//!
//! There is one thread, started with the first job; this is not a pool. Invariant: untimed jobs run in
//! the order in which they were given. No job runs under a lock.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::worker::threads::Scope;

type Job = Box<dyn FnOnce() + Send>;

/// The jobs of the bulk thread.
#[derive(Default)]
pub(super) struct Jobs {
    scope: Scope,
    queue: Arc<JobQueue>,
}

/// What the bulk thread shares with those who give it jobs.
#[derive(Default)]
struct JobQueue {
    given: Mutex<Given>,
    wake: Condvar,
}

#[derive(Default)]
struct Given {
    waiting: VecDeque<Job>,
    timed: Vec<(Instant, Job)>,
    started: bool,
    // The session has ended: only the jobs that wait still run.
    is_over: bool,
}

impl Jobs {
    /// Makes an empty list, whose thread counts in `scope`.
    pub(super) fn new(scope: Scope) -> Jobs {
        Jobs {
            scope,
            queue: Arc::default(),
        }
    }

    /// Has the bulk thread run a job that calls the driver.
    pub(super) fn later(&self, work: impl FnOnce() + Send + 'static) {
        let job = Box::new(work);
        self.give(|given| given.waiting.push_back(job));
    }

    /// Has the bulk thread run a job at a given time.
    pub(super) fn at(&self, when: Instant, work: impl FnOnce() + Send + 'static) {
        let job = Box::new(work);
        self.give(|given| given.timed.push((when, job)));
    }

    fn give(&self, add: impl FnOnce(&mut Given)) {
        let mut given = self.queue.given.lock();
        add(&mut given);
        if !given.started {
            let queue = Arc::clone(&self.queue);
            match self.scope.try_spawn("bulk", move || queue.serve()) {
                Ok(()) => given.started = true,
                Err(error) => {
                    let what = format!("cannot start the thread \"bulk\": {error}");
                    self.scope.fail(&what);
                }
            }
        }
        drop(given);
        self.queue.wake.notify_one();
    }

    /// Runs the untimed jobs on this thread, if there is no bulk thread.
    pub(super) fn run_left(&self) {
        loop {
            let mut given = self.queue.given.lock();
            if given.started {
                return;
            }
            let Some(job) = given.waiting.pop_front() else {
                return;
            };
            drop(given);
            job();
        }
    }

    /// Ends the bulk thread when no untimed job is left. Timed jobs are dropped.
    pub(super) fn end(&self) {
        self.queue.given.lock().is_over = true;
        self.queue.wake.notify_all();
    }
}

impl JobQueue {
    fn serve(&self) {
        let mut given = self.given.lock();
        loop {
            let due = match given.is_over {
                true => None,
                false => given.due(),
            };
            match due.or_else(|| given.waiting.pop_front()) {
                Some(job) => {
                    drop(given);
                    job();
                    given = self.given.lock();
                }
                None if given.is_over => {
                    let timed = std::mem::take(&mut given.timed);
                    drop(given);
                    return drop(timed);
                }
                None => match given.timed.iter().map(|(when, _)| *when).min() {
                    Some(when) => drop(self.wake.wait_until(&mut given, when)),
                    None => self.wake.wait(&mut given),
                },
            }
        }
    }
}

impl Given {
    fn due(&mut self) -> Option<Job> {
        // A linear search is enough: at most one timed job per link.
        let now = Instant::now();
        let due = self.timed.iter().position(|(when, _)| *when <= now)?;
        Some(self.timed.swap_remove(due).1)
    }
}
