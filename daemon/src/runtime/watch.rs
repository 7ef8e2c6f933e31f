//! Hearing of the ends of commands where the driver's callbacks come late or not at all: by looking.
//!
//! NVIDIA's driver calls back from a thread that sleeps up to a millisecond between its looks, one
//! event at a time; that is a hundred times what a small command takes. So a thread of our own asks for
//! the state of each queue's oldest commands: without pause while something happens, ever more
//! seldom when nothing does, never when nothing runs. A state read so is no synchronisation point, so a
//! wait (which then returns at once) confirms it.
//!
//! Each look takes the driver's locks, which whoever enqueues wants as well. So while commands are being enqueued
//! ([`Enqueuing`]) looks keep a distance; the thread stays awake, to look at once when that is over.
//!
//! Invariant: a listener hears once, and never under this module's lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::status::Status;
use parking_lot::{Condvar, Mutex};

use super::event::Listener;

/// Names the queue that an event belongs to.
pub(super) type QueueKey = usize;

type Watched = Arc<dyn Listener>;

/// Events that came since the watching thread last looked.
struct Arrivals {
    new: Mutex<Vec<(QueueKey, Watched)>>,
    some: Condvar,
}

static ARRIVALS: Arrivals = Arrivals {
    new: Mutex::new(Vec::new()),
    some: Condvar::new(),
};

/// How far behind a queue's oldest command a finished one is looked for (out-of-order queues).
const LOOK_AHEAD: usize = 16;
/// So long after the last event the thread looks without a pause.
const EAGER: Duration = Duration::from_micros(200);
/// The longest pause between looks.
const LONGEST_PAUSE: Duration = Duration::from_micros(200);
/// With nothing to watch, the thread stays awake so long: waking it would cost the enqueueing one more.
const AWAKE: Duration = Duration::from_millis(2);

/// The distance of looks while commands are being enqueued.
const DISTANCE: Duration = Duration::from_micros(50);

/// How many threads are enqueueing commands just now.
static ENQUEUING: AtomicUsize = AtomicUsize::new(0);

/// As long as it lives, its thread is enqueueing: ends are looked for less often.
#[derive(Debug)]
pub struct Enqueuing(());

impl Enqueuing {
    /// From now on.
    #[must_use]
    pub fn begin() -> Enqueuing {
        ENQUEUING.fetch_add(1, Ordering::Relaxed);
        Enqueuing(())
    }
}

impl Drop for Enqueuing {
    fn drop(&mut self) {
        ENQUEUING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Has `listener` hear of the end of its event.
///
/// # Errors
/// `CL_OUT_OF_RESOURCES` when there is no thread to be had.
pub(super) fn add(queue: QueueKey, listener: Watched) -> Result<(), Status> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    {
        let mut started = STARTED.lock();
        if !*started {
            std::thread::Builder::new()
                .name("watch".to_owned())
                .spawn(watch)
                .map_err(|_| Status::OUT_OF_RESOURCES)?;
            *started = true;
        }
    }
    ARRIVALS.new.lock().push((queue, listener));
    ARRIVALS.some.notify_one();
    Ok(())
}

fn watch() {
    let mut queues: HashMap<QueueKey, VecDeque<Watched>> = HashMap::new();
    let mut taken = Vec::new();
    let mut last = Instant::now();
    let mut looked = Instant::now();
    loop {
        keep_distance(looked);
        std::mem::swap(&mut taken, &mut *ARRIVALS.new.lock());
        let mut something = !taken.is_empty();
        for (queue, listener) in taken.drain(..) {
            queues.entry(queue).or_default().push_back(listener);
        }
        for queue in queues.values_mut() {
            something |= look(queue);
        }
        queues.retain(|_, queue| !queue.is_empty());
        looked = Instant::now();
        if something {
            last = Instant::now();
        } else {
            rest(last.elapsed(), queues.is_empty());
        }
    }
}

// Waits until nobody enqueues, or the last look was long enough ago.
fn keep_distance(looked: Instant) {
    while ENQUEUING.load(Ordering::Relaxed) > 0 && looked.elapsed() < DISTANCE {
        std::thread::yield_now();
    }
}

// Tells those of a queue whose commands have ended; whether there were any.
fn look(queue: &mut VecDeque<Watched>) -> bool {
    let (mut place, mut any) = (0, false);
    while place < queue.len().min(LOOK_AHEAD) {
        if queue[place]
            .event()
            .is_some_and(|event| !event.looks_ended())
        {
            place += 1;
            continue;
        }
        if let Some(listener) = queue.remove(place) {
            let status = listener
                .event()
                .map_or(Status::SUCCESS, super::event::Event::confirm_end);
            tell(listener, status);
            any = true;
        }
    }
    any
}

fn tell(listener: Watched, status: Status) {
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| listener.ended(status)));
    if told.is_err() {
        // A completion is lost, so the session would hang: end the worker, which serves only this one.
        std::process::abort();
    }
}

fn rest(quiet: Duration, nothing_runs: bool) {
    if quiet < EAGER {
        std::thread::yield_now();
    } else if nothing_runs && quiet > AWAKE {
        let mut new = ARRIVALS.new.lock();
        while new.is_empty() {
            ARRIVALS.some.wait(&mut new);
        }
    } else {
        std::thread::sleep((quiet / 16).min(LONGEST_PAUSE));
    }
}
