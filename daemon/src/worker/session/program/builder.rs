//! The threads that build.
//!
//! Builds take long and must not disturb other commands, nor each other; but what concerns one program
//! happens in command order. A job names its programs; it starts when no running and no earlier job
//! names one of them. Threads are made as they are needed, up to a few.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use causeway_proto::id::ProgramId;
use parking_lot::{Condvar, Mutex};

use crate::worker::session::broken;

const THREADS: usize = 4;

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
    idle: usize,
}

struct Job {
    // Empty: the job wants to be alone.
    programs: Vec<ProgramId>,
    work: Box<dyn FnOnce() + Send>,
}

impl Builder {
    /// Does `work` after everything earlier that names one of `programs`.
    pub(crate) fn submit(&self, programs: Vec<ProgramId>, work: impl FnOnce() + Send + 'static) {
        self.push(Job {
            programs,
            work: Box::new(work),
        });
    }

    /// Does `work` when nothing else runs.
    pub(crate) fn unload(&self, work: impl FnOnce() + Send + 'static) {
        self.push(Job {
            programs: Vec::new(),
            work: Box::new(work),
        });
    }

    fn push(&self, job: Job) {
        let (lock, wake) = &*self.pool;
        let mut pool = lock.lock();
        pool.waiting.push_back(job);
        if pool.idle < pool.waiting.len() && pool.threads < THREADS {
            pool.threads += 1;
            let shared = Arc::clone(&self.pool);
            let spawned = std::thread::Builder::new()
                .name("build".into())
                .spawn(move || serve(&shared));
            if let Err(error) = spawned {
                pool.threads -= 1;
                if pool.threads == 0 {
                    broken(&format!("no thread for builds could be started: {error}"));
                }
            }
        }
        wake.notify_one();
    }
}

fn serve(shared: &(Mutex<Pool>, Condvar)) {
    let (lock, wake) = shared;
    let mut pool = lock.lock();
    loop {
        let Some(job) = pool.next() else {
            pool.idle += 1;
            wake.wait(&mut pool);
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
        // What waited for these programs may start now, perhaps several jobs.
        wake.notify_all();
    }
}

impl Pool {
    /// The first job that nothing running and nothing earlier stands against.
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
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn one_programs_jobs_keep_their_order_and_others_pass() {
        let builder = Builder::default();
        let (tell, told) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let say = |n: u32| {
            let tell = tell.clone();
            move || tell.send(n).unwrap()
        };
        let first = say(1);
        builder.submit(vec![ProgramId(1)], move || {
            gate.recv_timeout(SOON).unwrap();
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
