//! Finds the ends of commands by polling, for drivers whose callbacks come late or not at all.
//!
//! NVIDIA's driver calls back from a thread that sleeps up to a millisecond between checks and handles one
//! event at a time. That is a hundred times the duration of a small command. A thread of this module
//! therefore polls the oldest commands of each queue. It polls without pause while commands end, with
//! growing pauses when none do, and not at all when none runs. Such a query is no synchronization point, so
//! a wait, which returns at once, confirms the end.
//!
//! Each poll takes the driver's locks, for which threads that enqueue compete. While commands are being
//! enqueued ([`Enqueuing`]), polls therefore keep a minimum distance. The thread stays awake meanwhile and
//! polls at once afterwards.
//!
//! In a process of several sessions, the driver may report an event's end after a kernel of another queue. A queue whose
//! oldest event seems late is therefore finished as well ([`finisher`]).
//!
//! Invariant: a listener is notified once, and never while this module's lock is held.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::status::Status;
use parking_lot::{Condvar, Mutex};

use super::event::{Listener, WatchedQueue, report};
use super::finisher::{self, Finish};

type Watched = Arc<dyn Listener>;

/// Events that were added since the polling thread last checked.
struct Arrivals {
    new: Mutex<Vec<(WatchedQueue, Watched)>>,
    some: Condvar,
}

static ARRIVALS: Arrivals = Arrivals {
    new: Mutex::new(Vec::new()),
    some: Condvar::new(),
};

/// Number of commands at the head of a queue that are polled, because those of out-of-order queues may
/// overtake each other. Of such a queue, each poll looks at as many further ones.
const LOOK_AHEAD: usize = 16;
/// An in-order queue is polled at its head. One poll in this number looks ahead, too, because threads that enqueue at
/// the same time may add their events in another order.
const HEADS_ONLY: u32 = 16;
/// Time after the latest event during which the thread polls without a pause.
const EAGER: Duration = Duration::from_micros(200);
/// Longest pause between polls.
const LONGEST_PAUSE: Duration = Duration::from_micros(200);
/// Time for which the thread stays awake without commands. Waking it costs the thread that enqueues.
const AWAKE: Duration = Duration::from_millis(2);

/// Minimum distance of polls while commands are being enqueued.
const DISTANCE: Duration = Duration::from_micros(50);
/// The same in a process of several sessions. Some session then enqueues nearly always, while others wait for
/// the end of a command. Measured on an H200 with NVIDIA's driver (580.159), launch and finish of an empty
/// kernel in 2, 4 and 8 sessions: 45, 68 and 140 µs with 20 µs, 50, 95 and 164 µs with 50 µs.
const SHARED_DISTANCE: Duration = Duration::from_micros(20);

/// Time after which the oldest event of a queue seems late. With 40 µs on an H100, eight sessions launched 38,000 kernels
/// of 38 µs a second, and 61,000 without finishes, because a finish also waits for the launches behind the oldest.
const PATIENCE: Duration = Duration::from_micros(250);
/// Number of finishes that follow without patience after one that found an end which the driver did not report.
const HASTY: u32 = 64;

/// Number of threads that are enqueuing commands now.
static ENQUEUING: AtomicUsize = AtomicUsize::new(0);
/// Number of sessions of this process that announced themselves.
static SESSIONS: AtomicUsize = AtomicUsize::new(0);

/// Counts a session of a host until dropped. See [`SHARED_DISTANCE`].
#[derive(Debug)]
pub struct HostedSession(());

impl HostedSession {
    /// Starts counting the session.
    #[must_use]
    pub fn begin() -> HostedSession {
        SESSIONS.fetch_add(1, Ordering::Relaxed);
        HostedSession(())
    }
}

impl Drop for HostedSession {
    fn drop(&mut self) {
        SESSIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Marks its thread as enqueuing until dropped. Polls are less frequent meanwhile.
#[derive(Debug)]
pub struct Enqueuing(());

impl Enqueuing {
    /// Starts marking the thread.
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

/// Takes the mark of [`Enqueuing`] from its thread until dropped, because the thread waits.
#[derive(Debug)]
pub struct Unmarked(());

impl Unmarked {
    /// Starts taking the mark. The thread must have it.
    #[must_use]
    pub fn begin() -> Unmarked {
        ENQUEUING.fetch_sub(1, Ordering::Relaxed);
        Unmarked(())
    }
}

impl Drop for Unmarked {
    fn drop(&mut self) {
        ENQUEUING.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notifies `listener` of the end of its event.
///
/// # Errors
/// `CL_OUT_OF_RESOURCES` if the polling thread cannot be started.
pub(super) fn add(queue: WatchedQueue, listener: Watched) -> Result<(), Status> {
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
    let mut queues: HashMap<WatchedQueue, QueueEvents> = HashMap::new();
    let (mut taken, mut polls) = (Vec::new(), 0u32);
    let mut last = Instant::now();
    let mut looked = Instant::now();
    loop {
        keep_distance(looked);
        std::mem::swap(&mut taken, &mut *ARRIVALS.new.lock());
        let mut something = !taken.is_empty();
        for (queue, listener) in taken.drain(..) {
            queues
                .entry(queue)
                .or_default()
                .listeners
                .push_back(listener);
        }
        polls = polls.wrapping_add(1);
        let shared = SESSIONS.load(Ordering::Relaxed) > 1;
        for (queue, events) in &mut queues {
            let ahead = if queue.in_order && !polls.is_multiple_of(HEADS_ONLY) {
                1
            } else {
                LOOK_AHEAD
            };
            something |= events.look(ahead);
            if !queue.in_order {
                something |= events.look_further();
            }
            something |= events.finish(queue.key, shared && queue.in_order);
        }
        queues.retain(|_, events| !events.is_over());
        looked = Instant::now();
        if something {
            last = Instant::now();
        } else {
            rest(last.elapsed(), queues.is_empty());
        }
    }
}

// Waits until no thread enqueues, or until the last poll is long enough ago.
fn keep_distance(looked: Instant) {
    let distance = match SESSIONS.load(Ordering::Relaxed) {
        0 | 1 => DISTANCE,
        _ => SHARED_DISTANCE,
    };
    while ENQUEUING.load(Ordering::Relaxed) > 0 && looked.elapsed() < distance {
        std::thread::yield_now();
    }
}

/// The events of a queue that have not been reported, in order.
struct QueueEvents {
    listeners: VecDeque<Watched>,
    /// A finish of the queue that has not returned, and the number of listeners that were here before it began.
    finish: Option<(Arc<Finish>, usize)>,
    /// The time since which the oldest event is the oldest.
    since: Option<Instant>,
    /// The place of the next event behind the head to look at.
    next: usize,
    /// Number of finishes to be begun without patience.
    hasty: u32,
    /// Time until which the queue is kept here without events, because it is hasty.
    kept: Instant,
}

impl Default for QueueEvents {
    fn default() -> QueueEvents {
        QueueEvents {
            listeners: VecDeque::new(),
            finish: None,
            since: None,
            next: LOOK_AHEAD,
            hasty: 0,
            kept: Instant::now(),
        }
    }
}

impl QueueEvents {
    /// Notifies the listeners whose commands have ended, up to the place `ahead`. Returns whether there were any.
    fn look(&mut self, ahead: usize) -> bool {
        self.look_at(0, ahead).1
    }

    /// As [`QueueEvents::look`], at the next [`LOOK_AHEAD`] events behind the head. In time that is each of them, so none
    /// waits for all that stand before it.
    fn look_further(&mut self) -> bool {
        if self.next >= self.listeners.len() {
            self.next = LOOK_AHEAD;
        }
        let (next, any) = self.look_at(self.next, self.next + LOOK_AHEAD);
        self.next = next;
        any
    }

    // Returns the place behind the last event that was looked at, too.
    fn look_at(&mut self, mut place: usize, end: usize) -> (usize, bool) {
        let mut any = false;
        while place < self.listeners.len().min(end) {
            if self.listeners[place]
                .event()
                .is_some_and(|event| !event.looks_ended())
            {
                place += 1;
                continue;
            }
            if let Some(listener) = self.listeners.remove(place) {
                if let Some((_, before)) = &mut self.finish
                    && place < *before
                {
                    *before -= 1;
                }
                let status = listener
                    .event()
                    .map_or(Status::SUCCESS, super::event::Event::confirm_end);
                self.since = None;
                tell(listener, status);
                any = true;
            }
        }
        (place, any)
    }

    /// Notifies the listeners whose commands a finish has found to have ended. Returns whether there were any. If
    /// `begins`, finishes the queue if its oldest event seems late.
    fn finish(&mut self, key: usize, begins: bool) -> bool {
        if let Some((finish, before)) = &self.finish {
            let Some(succeeded) = finish.outcome() else {
                return false;
            };
            // After an error, the events tell what has failed.
            let ended = if succeeded { *before } else { 0 };
            self.finish = None;
            self.since = None;
            self.hasty = match ended {
                0 => self.hasty.saturating_sub(1),
                _ => HASTY,
            };
            self.kept = Instant::now() + AWAKE;
            for listener in self.listeners.drain(..ended).collect::<Vec<_>>() {
                let status = listener
                    .event()
                    .map_or(Status::SUCCESS, super::event::Event::end_of_finished);
                tell(listener, status);
            }
            return ended > 0;
        }
        if !begins || self.listeners.is_empty() {
            return false;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        if self.hasty > 0 || now.duration_since(since) > PATIENCE {
            self.finish = finisher::begin(key).map(|finish| (finish, self.listeners.len()));
            // If the queue cannot be finished, the next attempt is after as much patience again.
            self.since = None;
        }
        false
    }

    fn is_over(&self) -> bool {
        self.listeners.is_empty()
            && self.finish.is_none()
            && (self.hasty == 0 || self.kept < Instant::now())
    }
}

fn tell(listener: Watched, status: Status) {
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| report(listener, status)));
    if told.is_err() {
        // A lost completion would make the session hang. The thread serves all sessions, so the process ends.
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
        // The pause grows with the time since the latest event, so that it adds little to the duration of a
        // long command.
        std::thread::sleep((quiet / 16).min(LONGEST_PAUSE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finish_that_returns_in_a_process_of_one_session_does_not_keep_the_thread_awake() {
        let finish = Arc::new(Finish::default());
        let mut events = QueueEvents {
            finish: Some((Arc::clone(&finish), 0)),
            ..QueueEvents::default()
        };
        events.finish(0, false);
        assert!(!events.is_over());
        finish.end(true);
        events.finish(0, false);
        assert!(events.is_over());
    }
}
