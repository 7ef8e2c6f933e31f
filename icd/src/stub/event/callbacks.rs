//! The threads on which the application's callbacks run.
//!
//! A callback may take long, enqueue, set user events or release its own event. So callbacks never run on a
//! thread that reads a socket, and no lock is held. Normally one thread runs them, in the order of [`run`].
//! A callback may also wait for the effect of a later one, which the specification leaves undefined.
//! Programs do that, because drivers have several threads. So when a callback runs for 100 ms while others
//! wait, the next thread continues with those.
//!
//! Invariant: every callback runs once, but none starts after the process has begun to end. While none
//! takes longer than that time, they run in order and never two at once. Threads that were started once
//! stay, asleep.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::fork;
use crate::thread::{self, Stack};
use crate::transport;

type Job = Box<dyn FnOnce() + Send>;

/// How long one callback may delay the others. Normal callbacks take microseconds. A program that would
/// deadlock on one thread waits once for this long.
const PATIENCE: Duration = Duration::from_millis(100);

/// Maximum number of callbacks that may block each other at the same time. Each takes a thread.
const MOST_THREADS: usize = 128;

static QUEUE: CallbackQueue = CallbackQueue {
    state: Mutex::new(CallbacksState {
        jobs: VecDeque::new(),
        turn: None,
        turns: 0,
        threads: 0,
        resting: 0,
    }),
    changed: Condvar::new(),
};

/// The queued callbacks, and the threads that run them.
struct CallbackQueue {
    state: Mutex<CallbacksState>,
    changed: Condvar,
}

struct CallbacksState {
    jobs: VecDeque<Job>,
    // The turn of the thread that runs a callback, unless another thread has taken over.
    turn: Option<Turn>,
    // Number of turns given so far.
    turns: u64,
    threads: usize,
    // Number of threads that wait for a turn.
    resting: usize,
}

#[derive(Clone, Copy)]
struct Turn {
    number: u64,
    since: Instant,
}

impl CallbacksState {
    // Whether to start another thread; counts it already. One thread more than needed is kept, to notice
    // when the running callback takes too long.
    fn wants_another(&mut self) -> bool {
        let wants = !self.jobs.is_empty() && self.resting == 0 && self.threads < MOST_THREADS;
        self.threads += usize::from(wants);
        wants
    }
}

/// Queues a callback of the application.
pub fn run(job: impl FnOnce() + Send + 'static) {
    // In a child of `fork` no thread runs callbacks, and the lock may be locked for ever, so the job is
    // dropped. The same holds when the process is ending, because objects that the callback uses may be
    // gone.
    if fork::check().is_err() || transport::is_ending() {
        return;
    }
    let mut state = QUEUE.state.lock();
    state.jobs.push_back(Box::new(job));
    let another = state.wants_another();
    // The first job wakes a thread that waits for jobs. A thread that watches a slow callback has its own
    // timeout.
    let wake = state.turn.is_none() || state.jobs.len() == 1;
    drop(state);
    if another {
        start(thread::spawn);
    } else if wake {
        QUEUE.changed.notify_one();
    }
}

/// Starts the first thread during a call of the application. That thread accepts signals that end the
/// process, in case no thread of the application is left to take them.
pub fn prepare() {
    let mut state = QUEUE.state.lock();
    if state.threads > 0 {
        return;
    }
    state.threads = 1;
    drop(state);
    start(thread::spawn_stoppable);
}

fn start(spawn: fn(&str, Stack, fn()) -> bool) {
    if !spawn("cw-callbacks", Stack::Application, serve) {
        QUEUE.state.lock().threads -= 1;
    }
}

fn serve() {
    let mut state = QUEUE.state.lock();
    loop {
        let until = state.turn.map(|turn| turn.since + PATIENCE);
        let now = Instant::now();
        if let Some(until) = until.filter(|until| now < *until) {
            // A callback is running. Without queued jobs there is no need to watch it.
            let until = (!state.jobs.is_empty()).then_some(until);
            rest(&mut state, until);
        } else if let Some(job) = state.jobs.pop_front() {
            state.turns += 1;
            let number = state.turns;
            state.turn = Some(Turn { number, since: now });
            let another = state.wants_another();
            MutexGuard::unlocked(&mut state, || {
                if another {
                    start(thread::spawn);
                }
                if !transport::is_ending() {
                    call(job);
                }
            });
            // Otherwise another thread has taken over the queue.
            if state.turn.is_some_and(|turn| turn.number == number) {
                state.turn = None;
            }
        } else {
            rest(&mut state, None);
        }
    }
}

fn rest(state: &mut MutexGuard<'_, CallbacksState>, until: Option<Instant>) {
    state.resting += 1;
    match until {
        Some(until) => drop(QUEUE.changed.wait_until(state, until)),
        None => QUEUE.changed.wait(state),
    }
    state.resting -= 1;
}

fn call(job: Job) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
        tracing::error!("a callback of the application panicked; the remaining callbacks continue");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    // A wait of these tests that takes this long is a failure.
    const LIMIT: Duration = Duration::from_secs(30);

    #[test]
    fn they_run_in_order_one_at_a_time() {
        let (tell, told) = channel();
        for number in 0..1000 {
            let tell = tell.clone();
            run(move || tell.send(number).unwrap());
        }
        let order: Vec<u32> = (0..1000)
            .map(|_| told.recv_timeout(LIMIT).unwrap())
            .collect();
        assert!(order.is_sorted(), "{order:?}");
    }

    #[test]
    fn callbacks_that_wait_for_later_ones_do_not_keep_these_away() {
        let (done, all) = channel();
        // Each job waits for the one that is queued after it.
        let mut waits_for = None;
        let mut jobs: Vec<Job> = Vec::new();
        for _ in 0..5 {
            let (tell, told) = channel::<()>();
            let waits_for: Option<std::sync::mpsc::Receiver<()>> = waits_for.replace(told);
            let done = done.clone();
            jobs.push(Box::new(move || {
                if let Some(other) = waits_for {
                    other.recv_timeout(LIMIT).unwrap();
                }
                tell.send(()).unwrap();
                done.send(()).unwrap();
            }));
        }
        jobs.into_iter().rev().for_each(run);
        for _ in 0..5 {
            all.recv_timeout(LIMIT).unwrap();
        }
        // A thread that was overtaken goes on as before.
        let (tell, told) = channel();
        run(move || tell.send(()).unwrap());
        told.recv_timeout(LIMIT).unwrap();
    }
}
