//! The threads that build.
//!
//! Builds take long and must not delay other commands or each other. But jobs on one program run in
//! command order. A job names its programs. It starts when no running job and no earlier waiting job
//! names one of them. Threads are started as needed, up to a few.
//!
//! To wake a thread takes as long as a short build. A client that makes a program is about to build it.
//! So the creation of the program wakes a thread, which polls for the build for a moment.
//!
//! Some jobs can wait, and would delay the session's own calls: a driver may keep a program locked
//! meanwhile. One of them runs when the client has sent nothing for [`QUIET`]. The next one waits for another
//! such time, so a call that comes meanwhile waits for one job at most. At the session's end they all run.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::id::ProgramId;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::worker::threads::Scope;

const THREADS: usize = 4;
/// How long a thread polls for an expected job.
const ABOUT: Duration = Duration::from_micros(200);
/// Time without commands after which jobs that can wait may run.
const QUIET: Duration = Duration::from_millis(500);
/// Maximum number of jobs that can wait. Each may keep a program alive that the client has released.
const MAX_LATER: usize = 256;

/// The builder of one session.
#[derive(Default)]
pub(crate) struct Builder {
    scope: Scope,
    pool: Arc<(Mutex<Pool>, Condvar)>,
    // Whether there are jobs that can wait.
    has_later: AtomicBool,
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
    // Jobs that can wait, and when they may run, which commands put off.
    later: VecDeque<Job>,
    later_from: Option<Instant>,
    // Number of running jobs that could wait.
    late: usize,
    // The session ends: jobs that could wait run now.
    is_ending: bool,
    // The session has ended: no further job runs.
    is_over: bool,
}

struct Job {
    // The programs that the job concerns. If empty, the job must run alone.
    programs: Vec<ProgramId>,
    work: Box<dyn FnOnce() + Send>,
    can_wait: bool,
}

impl Builder {
    /// Makes the builder of a session.
    pub(crate) fn new(scope: Scope) -> Builder {
        Builder {
            scope,
            ..Builder::default()
        }
    }

    /// Ends the threads when their jobs have ended, and drops the jobs that wait, because the session has
    /// ended and its host goes on.
    pub(crate) fn stop(&self) {
        let (lock, wake) = &*self.pool;
        let mut pool = lock.lock();
        pool.is_over = true;
        let waiting = std::mem::take(&mut pool.waiting);
        let later = std::mem::take(&mut pool.later);
        drop(pool);
        wake.notify_all();
        // Dropped outside of the lock, because the drop may call the driver.
        drop((waiting, later));
    }

    /// Runs `work` after all earlier jobs that name one of `programs`.
    pub(crate) fn submit(&self, programs: Vec<ProgramId>, work: impl FnOnce() + Send + 'static) {
        self.push(Job {
            programs,
            work: Box::new(work),
            can_wait: false,
        });
    }

    /// Runs `work` when no other job runs.
    pub(crate) fn unload(&self, work: impl FnOnce() + Send + 'static) {
        self.submit(Vec::new(), work);
    }

    /// Runs `work`, which concerns `program`, when the session is quiet or ends. Drops it if too many such
    /// jobs wait. Only a job may call this, because the job's thread then waits for the quiet.
    pub(crate) fn later(&self, program: ProgramId, work: impl FnOnce() + Send + 'static) {
        let mut pool = self.pool.0.lock();
        if pool.later.len() < MAX_LATER {
            pool.later.push_back(Job {
                programs: vec![program],
                work: Box::new(work),
                can_wait: true,
            });
            pool.put_off();
            self.has_later.store(true, Ordering::Relaxed);
        }
    }

    /// Puts the jobs off that can wait, because the client has sent commands.
    pub(crate) fn put_off(&self) {
        // Most batches find no such job, and take no lock.
        if self.has_later.load(Ordering::Relaxed) {
            let mut pool = self.pool.0.lock();
            self.has_later
                .store(!pool.later.is_empty(), Ordering::Relaxed);
            pool.put_off();
        }
    }

    /// Starts the jobs that could wait, because the session ends, and no others. Returns whether there are
    /// any.
    pub(crate) fn end(&self) -> bool {
        let (lock, wake) = &*self.pool;
        let mut pool = lock.lock();
        let waiting = std::mem::take(&mut pool.waiting);
        match self.scope.is_hosted() {
            // Outside of the lock, because the drop may call the driver.
            true => MutexGuard::unlocked(&mut pool, || drop(waiting)),
            // Forgotten, because a drop may call the driver. The process is about to exit.
            false => std::mem::forget(waiting),
        }
        pool.is_ending = true;
        wake.notify_all();
        pool.has_later()
    }

    /// Waits until the jobs that could wait have run, but not past `until`.
    pub(crate) fn finish(&self, until: Instant) {
        let (lock, wake) = &*self.pool;
        let mut pool = lock.lock();
        while pool.has_later() && !wake.wait_until(&mut pool, until).timed_out() {}
    }

    /// Returns whether no job runs or waits, except those that can wait.
    pub(crate) fn is_idle(&self) -> bool {
        self.pool.0.lock().is_idle()
    }

    /// Waits until no job runs or waits, except those that can wait.
    pub(crate) fn wait_until_idle(&self) {
        let (lock, wake) = &*self.pool;
        let mut pool = lock.lock();
        while !pool.is_idle() {
            wake.wait(&mut pool);
        }
    }

    /// Returns whether jobs run.
    pub(crate) fn is_busy(&self) -> bool {
        !self.pool.0.lock().running.is_empty()
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
        if pool.is_over {
            // Dropped outside of the lock.
            drop(pool);
            return drop(job);
        }
        pool.waiting.push_back(job);
        pool.expected = None;
        pool.put_off();
        if pool.idle < pool.waiting.len() && pool.threads < THREADS {
            self.grow(&mut pool);
            if pool.threads == 0 {
                self.scope.broken("cannot start a thread for builds");
            }
        }
        wake.notify_one();
    }

    // Starts another thread, if the system allows.
    fn grow(&self, pool: &mut Pool) {
        let shared = Arc::clone(&self.pool);
        match self.scope.try_spawn("build", move || serve(&shared)) {
            Ok(()) => {
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
        if pool.is_over {
            return;
        }
        let Some(job) = pool.next() else {
            pool.idle += 1;
            if pool.is_expecting() {
                // Unlocked, so that a job can be pushed while this thread polls.
                MutexGuard::unlocked(&mut pool, std::thread::yield_now);
            } else if let Some(from) = pool.next_later() {
                wake.wait_until(&mut pool, from);
            } else {
                wake.wait(&mut pool);
            }
            pool.idle -= 1;
            continue;
        };
        let programs = job.programs.clone();
        pool.running.push(job.programs);
        pool.late += usize::from(job.can_wait);
        drop(pool);
        (job.work)();
        pool = lock.lock();
        if job.can_wait {
            pool.late -= 1;
            // A call of the client may have waited for this job.
            pool.put_off();
        }
        if let Some(at) = pool.running.iter().position(|r| *r == programs) {
            pool.running.swap_remove(at);
        }
        // Jobs that waited for these programs may start now, perhaps several.
        wake.notify_all();
    }
}

impl Pool {
    fn put_off(&mut self) {
        self.later_from = Some(Instant::now() + QUIET);
    }

    /// Whether jobs that can wait are left, or run.
    fn has_later(&self) -> bool {
        !self.later.is_empty() || self.late > 0
    }

    fn is_idle(&self) -> bool {
        self.is_over || self.waiting.is_empty() && self.running.len() == self.late
    }

    fn is_expecting(&self) -> bool {
        self.expected.is_some_and(|until| Instant::now() < until)
    }

    /// Takes the first job that conflicts with no running and no earlier job. If no job waits, takes one of
    /// those that can wait, when they may run. These run one at a time, so that threads are left for builds.
    fn next(&mut self) -> Option<Job> {
        let stands = |taken: &[ProgramId], job: &[ProgramId]| {
            taken.is_empty() || job.is_empty() || taken.iter().any(|p| job.contains(p))
        };
        let runs = |job: &Job| self.running.iter().any(|r| stands(r, &job.programs));
        if self.waiting.is_empty() {
            let is_quiet = self.later_from.is_none_or(|from| from <= Instant::now());
            let due = self.late == 0 && (is_quiet || self.is_ending);
            let free = self.later.iter().position(|job| !runs(job));
            return free.filter(|_| due).and_then(|at| self.later.remove(at));
        }
        let free = (0..self.waiting.len()).find(|at| {
            let job = &self.waiting[*at];
            let mut earlier = self.waiting.iter().take(*at);
            !runs(job) && !earlier.any(|w| stands(&w.programs, &job.programs))
        })?;
        self.waiting.remove(free)
    }

    /// Returns when to look again for a job that can wait. `None` if there is none, or if another job's end
    /// wakes the threads before.
    fn next_later(&self) -> Option<Instant> {
        let is_there = !self.later.is_empty() && self.late == 0;
        self.later_from
            .filter(|from| is_there && *from > Instant::now())
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

    #[test]
    fn what_can_wait_runs_when_it_is_quiet_and_not_before() {
        let builder = Arc::new(Builder::default());
        let (tell, told) = mpsc::channel();
        let started = Instant::now();
        builder.submit(vec![ProgramId(1)], {
            let builder = Arc::clone(&builder);
            move || builder.later(ProgramId(1), move || tell.send(Instant::now()).unwrap())
        });
        let ran = told.recv_timeout(SOON).unwrap();
        assert!(ran - started >= QUIET);
    }

    /// A call of the client may wait for such a job, and no batch can put the next one off meanwhile.
    #[test]
    fn after_one_that_could_wait_the_next_waits_for_quiet_again() {
        let builder = Arc::new(Builder::default());
        let (tell, told) = mpsc::channel();
        builder.submit(vec![ProgramId(1)], {
            let builder = Arc::clone(&builder);
            move || {
                for _ in 0..2 {
                    let tell = tell.clone();
                    builder.later(ProgramId(1), move || {
                        let began = Instant::now();
                        // Longer than the quiet that lets the next one run.
                        std::thread::sleep(2 * QUIET);
                        tell.send((began, Instant::now())).unwrap();
                    });
                }
            }
        });
        let [(_, ended), (began, _)] = [(); 2].map(|()| told.recv_timeout(SOON).unwrap());
        assert!(began - ended >= QUIET, "{:?}", began - ended);
    }

    #[test]
    fn at_the_end_only_what_could_wait_runs() {
        let builder = Arc::new(Builder::default());
        let (tell, told) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        builder.submit(vec![ProgramId(1)], {
            let (builder, tell) = (Arc::clone(&builder), tell.clone());
            move || {
                for n in 0..2 * MAX_LATER {
                    let tell = tell.clone();
                    builder.later(ProgramId(1), move || tell.send(n).unwrap());
                }
                begun.send(()).unwrap();
                gate.recv_timeout(SOON).unwrap();
            }
        });
        begins.recv_timeout(SOON).unwrap();
        builder.submit(vec![ProgramId(1)], move || tell.send(usize::MAX).unwrap());
        // The running job blocks them, so the limit ends the wait.
        assert!(builder.end());
        builder.finish(Instant::now());
        assert!(told.try_recv().is_err());
        open.send(()).unwrap();
        builder.finish(Instant::now() + SOON);
        assert!(!builder.end());
        let ran: Vec<usize> = told.try_iter().collect();
        assert_eq!(ran, (0..MAX_LATER).collect::<Vec<_>>());
    }
}
