//! The bulk thread: it makes the driver calls that come up where none may be made (a callback) or that block
//! (allocating a ring), and what is to be done at a given time.
//!
//! What it is not: a pool; there is one, started with the first job. Invariant: jobs that are to be done as soon
//! as can be are done in the order in which they were given, and none under a lock.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::Engine;
use crate::worker::session::{Shared, spawn};

type Job = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// What the bulk thread has to do.
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
    /// Has the bulk thread do something that enters the driver.
    pub(super) fn later(
        &self,
        shared: &Arc<Shared>,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let job = Box::new(work);
        self.jobs.give(shared, |given| given.waiting.push_back(job));
    }

    /// The same at a given time.
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
        // Few: one a link at most.
        let now = Instant::now();
        let due = self.timed.iter().position(|(when, _)| *when <= now)?;
        Some(self.timed.swap_remove(due).1)
    }
}
