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

use super::Engine;
use crate::worker::session::{Shared, spawn};

type Job = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// The jobs of the bulk thread.
#[derive(Default)]
pub(super) struct Jobs {
    given: Mutex<Given>,
    wake: Condvar,
}

#[derive(Default)]
struct Given {
    waiting: VecDeque<Job>,
    timed: Vec<(Instant, Job)>,
    started: bool,
}

impl Engine {
    /// Has the bulk thread run a job that calls the driver.
    pub(super) fn later(
        &self,
        shared: &Arc<Shared>,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let job = Box::new(work);
        self.jobs.give(shared, |given| given.waiting.push_back(job));
    }

    /// Has the bulk thread run a job at a given time.
    pub(super) fn at(
        &self,
        shared: &Arc<Shared>,
        when: Instant,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let job = Box::new(work);
        self.jobs
            .give(shared, |given| given.timed.push((when, job)));
    }
}

impl Jobs {
    fn give(&self, shared: &Arc<Shared>, add: impl FnOnce(&mut Given)) {
        let mut given = self.given.lock();
        add(&mut given);
        if !std::mem::replace(&mut given.started, true) {
            let shared = Arc::clone(shared);
            spawn("bulk", move || shared.bulk.jobs.serve(&shared));
        }
        drop(given);
        self.wake.notify_one();
    }

    fn serve(&self, shared: &Arc<Shared>) {
        let mut given = self.given.lock();
        loop {
            let due = given.due();
            match due.or_else(|| given.waiting.pop_front()) {
                Some(job) => {
                    drop(given);
                    job(shared);
                    given = self.given.lock();
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
