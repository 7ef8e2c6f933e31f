//! The threads on which the application's callbacks run.
//!
//! Never the thread that reads a socket, never one that holds a lock: a callback may take its time,
//! enqueue, set user events or release its own event. One thread runs them, in the order of [`run`]. A callback may also
//! wait for what only another callback brings, which the specification leaves undefined and programs do (drivers have
//! several threads): when one has kept the others waiting for 100 ms, the next thread goes on with those, beside it.
//!
//! Invariant: every callback runs once, but none begins behind the program's own end; as long as none takes longer than
//! that, in order and never two at once. No lock is held while one runs. Threads that were needed once stay, asleep.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::thread::{self, Stack};
use crate::transport;

type Job = Box<dyn FnOnce() + Send>;

/// How long one callback may hold up the others. Ordinary ones take microseconds; who deadlocks without another
/// thread waits this long once.
const PATIENCE: Duration = Duration::from_millis(100);

/// As many callbacks may block each other at once. Each takes a thread.
const MOST_THREADS: usize = 128;

static LINE: Line = Line {
    state: Mutex::new(State {
        jobs: VecDeque::new(),
        turn: None,
        turns: 0,
        threads: 0,
        resting: 0,
    }),
    changed: Condvar::new(),
};

/// Those who wait to be run, and who runs them.
struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    // Of the thread that runs a callback, unless others were let past it.
    turn: Option<Turn>,
    // Given so far.
    turns: u64,
    threads: usize,
    // Threads that wait for a turn.
    resting: usize,
}

#[derive(Clone, Copy)]
struct Turn {
    number: u64,
    since: Instant,
}

impl State {
    // Whether a thread is to be started, which is counted already: there is one more than run at once, to see when the
    // one that runs takes too long.
    fn wants_another(&mut self) -> bool {
        let wants = !self.jobs.is_empty() && self.resting == 0 && self.threads < MOST_THREADS;
        self.threads += usize::from(wants);
        wants
    }
}

/// Queues a call of the application's code.
pub fn run(job: impl FnOnce() + Send + 'static) {
    // In a fork's child nobody listens, and the line may have been locked for ever when it was made: the job is
    // dropped. So it is behind the program's own end: what a callback would use may be gone.
    if transport::check_not_forked().is_err() || transport::is_ending() {
        return;
    }
    let mut state = LINE.state.lock();
    state.jobs.push_back(Box::new(job));
    let another = state.wants_another();
    // Who waits for jobs is woken by the first; who looks after a slow one has its own clock.
    let wake = state.turn.is_none() || state.jobs.len() == 1;
    drop(state);
    if another {
        start(thread::spawn);
    } else if wake {
        LINE.changed.notify_one();
    }
}

/// Has the first thread there, by a call of the application: signals that end a process reach it where no thread
/// of the application is left to take them.
pub fn prepare() {
    let mut state = LINE.state.lock();
    if state.threads > 0 {
        return;
    }
    state.threads = 1;
    drop(state);
    start(thread::spawn_stoppable);
}

fn start(spawn: fn(&str, Stack, fn()) -> bool) {
    if !spawn("cw-callbacks", Stack::Application, serve) {
        LINE.state.lock().threads -= 1;
    }
}

fn serve() {
    let mut state = LINE.state.lock();
    loop {
        let until = state.turn.map(|turn| turn.since + PATIENCE);
        let now = Instant::now();
        if let Some(until) = until.filter(|until| now < *until) {
            // Somebody runs; with nothing in line there is nothing to look after either.
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
            // Otherwise somebody else has gone on with the others.
            if state.turn.is_some_and(|turn| turn.number == number) {
                state.turn = None;
            }
        } else {
            rest(&mut state, None);
        }
    }
}

fn rest(state: &mut MutexGuard<'_, State>, until: Option<Instant>) {
    state.resting += 1;
    match until {
        Some(until) => drop(LINE.changed.wait_until(state, until)),
        None => LINE.changed.wait(state),
    }
    state.resting -= 1;
}

fn call(job: Job) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
        tracing::error!("a callback panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    // Any wait of these tests is a failure when it takes so long.
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
        // Each waits for the one after it.
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
        // Who was let past goes on as before.
        let (tell, told) = channel();
        run(move || tell.send(()).unwrap());
        told.recv_timeout(LIMIT).unwrap();
    }
}
