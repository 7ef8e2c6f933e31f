//! The threads that build.
//!
//! Builds take long and must not delay other commands or each other. But jobs on one program run in
//! command order. A job names its programs. It starts when no running job and no earlier waiting job
//! names one of them. Threads are started as needed, up to a few.
//!
//! To wake a thread takes as long as a short build. A client that makes a program is about to build it.
//! So the creation of the program wakes a thread, which polls for the build for a moment.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::id::ProgramId;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::worker::threads::broken;

const THREADS: usize = 4;
/// How long a thread polls for an expected job.
const ABOUT: Duration = Duration::from_micros(200);

/// The builder of one session.
#[derive(Default)]
pub(crate) struct Builder {
    pool: Arc<(Mutex<Pool>, Condvar)>,
}

#[derive(Default)]
struct Pool {
    waiting: VecDeque<Job>,
    running: Vec<Vec<ProgramId>>,
    threads: usize,
    // Number of threads that are starting, asleep or polling.
    idle: usize,
    // The time until which a job is expected.
    expected: Option<Instant>,
}

struct Job {
    // The programs that the job concerns. If empty, the job must run alone.
    programs: Vec<ProgramId>,
    work: Box<dyn FnOnce() + Send>,
}

impl Builder {
    /// Runs `work` after all earlier jobs that name one of `programs`.
    pub(crate) fn submit(&self, programs: Vec<ProgramId>, work: impl FnOnce() + Send + 'static) {
        self.push(Job {
            programs,
            work: Box::new(work),
        });
    }

    /// Runs `work` when no other job runs.
    pub(crate) fn unload(&self, work: impl FnOnce() + Send + 'static) {
        self.push(Job {
            programs: Vec::new(),
            work: Box::new(work),
        });
    }

    /// Announces that a job is about to come.
    pub(crate) fn expect(&self) {
        let (lock, wake) = &*self.pool;
        let mut pool = lock.lock();
        pool.expected = Some(Instant::now() + ABOUT);
        if pool.threads == 0 {
            self.grow(&mut pool);
        }
        wake.notify_one();
    }

    fn push(&self, job: Job) {
        let (lock, wake) = &*self.pool;
        let mut pool = lock.lock();
        pool.waiting.push_back(job);
        pool.expected = None;
        if pool.idle < pool.waiting.len() && pool.threads < THREADS {
            self.grow(&mut pool);
            if pool.threads == 0 {
                broken("cannot start a thread for builds");
            }
        }
        wake.notify_one();
    }

    // Starts another thread, if the system allows.
    fn grow(&self, pool: &mut Pool) {
        let shared = Arc::clone(&self.pool);
        let spawned = std::thread::Builder::new()
            .name("build".into())
            .spawn(move || serve(&shared));
        match spawned {
            Ok(_) => {
                pool.threads += 1;
                pool.idle += 1;
            }
            Err(error) => tracing::warn!(%error, "cannot start a further thread for builds"),
        }
    }
}

fn serve(shared: &(Mutex<Pool>, Condvar)) {
    let (lock, wake) = shared;
    let mut pool = lock.lock();
    pool.idle -= 1;
    loop {
        let Some(job) = pool.next() else {
            pool.idle += 1;
            if pool.is_expecting() {
                // Unlocked, so that a job can be pushed while this thread polls.
                MutexGuard::unlocked(&mut pool, std::thread::yield_now);
            } else {
                wake.wait(&mut pool);
            }
            pool.idle -= 1;
            continue;
        };
        let programs = job.programs.clone();
        pool.running.push(job.programs);
        drop(pool);
        (job.work)();
        pool = lock.lock();
        if let Some(at) = pool.running.iter().position(|r| *r == programs) {
            pool.running.swap_remove(at);
        }
        // Jobs that waited for these programs may start now, perhaps several.
        wake.notify_all();
    }
}

impl Pool {
    fn is_expecting(&self) -> bool {
        self.expected.is_some_and(|until| Instant::now() < until)
    }

    /// Takes the first job that conflicts with no running and no earlier job.
    fn next(&mut self) -> Option<Job> {
        let stands = |taken: &[ProgramId], job: &[ProgramId]| {
            taken.is_empty() || job.is_empty() || taken.iter().any(|p| job.contains(p))
        };
        let free = (0..self.waiting.len()).find(|at| {
            let job = &self.waiting[*at].programs;
            !self.running.iter().any(|r| stands(r, job))
                && !self
                    .waiting
                    .iter()
                    .take(*at)
                    .any(|w| stands(&w.programs, job))
        })?;
        self.waiting.remove(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn one_programs_jobs_keep_their_order_and_others_pass() {
        let builder = Builder::default();
        // An expected job must not change the order.
        builder.expect();
        let (tell, told) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        let say = |n: u32| {
            let tell = tell.clone();
            move || tell.send(n).unwrap()
        };
        let first = say(1);
        builder.submit(vec![ProgramId(1)], move || {
            opened.recv_timeout(SOON).unwrap();
            first();
        });
        builder.submit(vec![ProgramId(1), ProgramId(2)], say(2));
        builder.submit(vec![ProgramId(2)], say(3));
        builder.submit(vec![ProgramId(4)], say(4));
        assert_eq!(told.recv_timeout(SOON), Ok(4));
        open.send(()).unwrap();
        let rest: Vec<u32> = (0..3).map(|_| told.recv_timeout(SOON).unwrap()).collect();
        assert_eq!(rest, [1, 2, 3]);
        builder.unload(say(5));
        assert_eq!(told.recv_timeout(SOON), Ok(5));
    }
}
