//! What the session has to say, on its way to the client.
//!
//! Any thread puts something in; the first to do so while nobody sends becomes the sender and goes on
//! until nothing is left. So what becomes ready together travels in one batch, an idle session sends
//! from the very thread that learned of the completion, and no thread is woken for it.
//!
//! A flood of completions, one at a time and each followed by another, would cost a system call each.
//! So in a flood ([`FLOOD`]) a completion may wait for its followers, as long as commands are still under
//! way, at most until [`GATHERED`] wait or the flusher ticks. The last one under way never waits.
//!
//! Kernels' printed text is drained before each batch is closed, so it travels no later than the completions
//! that follow it.
//!
//! What it is not: it calls no driver. Invariant: [`EventSink::send`] is called by one thread at a
//! time and without a lock.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::command::{Answer, Completion, EventBatch, LinkState, Notice};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::command::Command;
use super::printed::Printed;
use crate::worker::connection::EventSink;

/// What has ended, and been told or is about to be: its native events go with it.
#[derive(Default)]
pub(crate) struct Spent {
    /// Commands that the graph may still have.
    pub(crate) commands: Vec<Arc<Command>>,
    /// What it never had, or has no more.
    pub(crate) others: Vec<Arc<dyn Send + Sync>>,
}

/// Where all threads of a session put what the client shall hear.
pub(crate) struct Outbox {
    sink: Arc<dyn EventSink>,
    printed: Printed,
    applied: AtomicU64,
    // Commands whose completion is to come: enqueued natively, or yet to be applied of a batch.
    under_way: AtomicUsize,
    state: Mutex<State>,
    flood: Condvar,
    // The sender has left.
    free: Condvar,
}

#[derive(Default)]
struct State {
    batch: EventBatch,
    // Their native events are released by a thread that may enter the driver.
    spent: Spent,
    sending: bool,
    // What the last batch said of `applied`.
    told: u64,
    // Completions that came quickly after one another, halved by each pause, and when the last came.
    quick: u32,
    last: Option<Instant>,
    // The flusher ticks.
    ticking: bool,
}

/// So many commands are applied before the client hears of it even when nothing else is said.
const APPLIED_UNTOLD: u64 = 4096;
/// So many completions, each within [`QUICK`] of the one before, are a flood.
const FLOOD: u32 = 16;
const QUICK: Duration = Duration::from_micros(25);
/// So many completions are sent together in a flood.
const GATHERED: usize = 64;
/// How long a completion waits in a flood at most, but for the system's timers.
const TICK: Duration = Duration::from_micros(100);
/// Ticks without anything to send after which the flusher sleeps.
const IDLE_TICKS: u32 = 20;

impl Outbox {
    /// An outbox that drains `printed` before each batch.
    pub(crate) fn new(sink: Arc<dyn EventSink>, printed: Printed) -> Outbox {
        Outbox {
            sink,
            printed,
            applied: AtomicU64::new(0),
            under_way: AtomicUsize::new(0),
            state: Mutex::default(),
            flood: Condvar::new(),
            free: Condvar::new(),
        }
    }

    /// So many more completions are to come.
    pub(crate) fn begin(&self, commands: usize) {
        self.under_way.fetch_add(commands, Ordering::Relaxed);
    }

    /// So many of those will not come from where they were expected.
    pub(crate) fn end(&self, commands: usize) {
        self.under_way.fetch_sub(commands, Ordering::Relaxed);
    }

    /// A command has ended.
    pub(crate) fn complete(&self, completion: Completion, spent: Option<Arc<Command>>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.batch.completions.push(completion);
        state.spent.commands.extend(spent);
        let quick = state
            .last
            .is_some_and(|last| now.duration_since(last) < QUICK);
        state.quick = if quick {
            state.quick.saturating_add(1)
        } else {
            0
        };
        state.last = Some(now);
        let waits = state.quick >= FLOOD
            && state.batch.completions.len() < GATHERED
            && self.under_way.load(Ordering::Relaxed) > 0;
        if !waits {
            self.send(state);
        } else if !state.sending && !state.ticking {
            state.ticking = true;
            self.flood.notify_one();
        }
    }

    /// Several commands have ended; the client hears of them with what the caller adds next.
    pub(crate) fn gather(&self, completions: Vec<Completion>) {
        self.state.lock().batch.completions.extend(completions);
    }

    /// Several commands have ended.
    pub(crate) fn complete_all(&self, completions: Vec<Completion>, spent: Arc<dyn Send + Sync>) {
        let mut state = self.state.lock();
        state.batch.completions.extend(completions);
        state.spent.others.push(spent);
        self.send(state);
    }

    /// Sends what waits. The reading thread calls it after each batch.
    pub(crate) fn flush(&self) {
        let state = self.state.lock();
        if !state.batch.completions.is_empty() {
            self.send(state);
        }
    }

    /// Sends, while a flood lasts, what waits for followers that do not come. Never returns.
    pub(crate) fn tick(&self) {
        let mut idle = 0;
        loop {
            {
                let mut state = self.state.lock();
                if idle >= IDLE_TICKS {
                    state.ticking = false;
                }
                while !state.ticking {
                    idle = 0;
                    self.flood.wait(&mut state);
                }
            }
            std::thread::sleep(TICK);
            let state = self.state.lock();
            if state.batch.completions.is_empty() {
                idle += 1;
            } else {
                idle = 0;
                self.send(state);
            }
        }
    }

    /// A question is answered.
    pub(crate) fn answer(&self, answer: Answer) {
        self.put(|state| state.batch.answers.push(answer));
    }

    /// Something failed that no event tells.
    pub(crate) fn notice(&self, notice: Notice) {
        self.put(|state| state.batch.notices.push(notice));
    }

    /// A link is up or down.
    pub(crate) fn link(&self, state: LinkState) {
        self.put(|waiting| waiting.batch.links.push(state));
    }

    /// The session ends, and why.
    pub(crate) fn farewell(&self, reason: &str) {
        self.put(|state| reason.clone_into(&mut state.batch.farewell));
    }

    /// All commands up to `number` have been applied.
    pub(crate) fn applied(&self, number: u64) {
        self.applied.store(number, Ordering::Release);
        let untold = {
            let state = self.state.lock();
            number.saturating_sub(state.told) >= APPLIED_UNTOLD
        };
        if untold {
            self.put(|_| {});
        }
    }

    /// To be dropped by a thread that may enter the driver. A command whose end the client has heard of is in here,
    /// or was.
    pub(crate) fn take_spent(&self) -> Spent {
        std::mem::take(&mut self.state.lock().spent)
    }

    /// Text waits in the capture; called by the thread that watches it. Returns when some of it has been
    /// taken, by this thread or by a sender, so that the caller does not find the same text over and over.
    pub(crate) fn text_waits(&self) {
        let mut state = self.state.lock();
        while state.sending {
            self.free.wait(&mut state);
        }
        self.send(state);
    }

    /// What kernels print.
    pub(crate) fn printed(&self) -> &Printed {
        &self.printed
    }

    fn put(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.send(state);
    }

    /// Sends everything there is, unless somebody else does.
    fn send<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        if state.sending {
            return;
        }
        state.sending = true;
        loop {
            let mut batch = std::mem::take(&mut state.batch);
            let applied = self.applied.load(Ordering::Acquire);
            let news = applied != std::mem::replace(&mut state.told, applied);
            drop(state);
            // Not before the completions were taken: now all that their kernels printed is here.
            batch.printed = self.printed.drain();
            batch.applied = applied;
            let sent = if news || batch.has_something() {
                self.sink.send(batch);
                Some(Instant::now())
            } else {
                None
            };
            state = self.state.lock();
            // Sending takes longer than a quick completion; it must not make the next one look slow.
            state.last = sent.or(state.last);
            // The common case, one completion and nothing since, ends without another drain.
            if !state.batch.has_something() {
                state.sending = false;
                self.free.notify_one();
                return;
            }
        }
    }
}

trait Something {
    /// Whether the client must hear of it.
    fn has_something(&self) -> bool;
}

impl Something for EventBatch {
    fn has_something(&self) -> bool {
        !(self.completions.is_empty()
            && self.answers.is_empty()
            && self.notices.is_empty()
            && self.links.is_empty()
            && self.farewell.is_empty()
            && self.printed.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Holds each batch until the test has met it twice: when it comes, and to let it go.
    struct Gate(Barrier, Mutex<Vec<EventBatch>>);

    impl EventSink for Gate {
        fn send(&self, batch: EventBatch) {
            self.0.wait();
            self.0.wait();
            self.1.lock().push(batch);
        }
    }

    #[test]
    fn text_waits_for_the_sender_and_goes_after_it() {
        let (read, write) = rustix::pipe::pipe_with(
            rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK,
        )
        .unwrap();
        let gate = Arc::new(Gate(Barrier::new(2), Mutex::default()));
        let sink: Arc<dyn EventSink> = Arc::<Gate>::clone(&gate);
        let outbox = Outbox::new(sink, Printed::new(Some(read)));
        outbox.printed().expect();
        std::thread::scope(|scope| {
            scope.spawn(|| outbox.notice(Notice::default()));
            gate.0.wait();
            // The sender is inside the sink. What is printed now finds it there.
            rustix::io::write(&write, b"text").unwrap();
            let watcher = scope.spawn(|| outbox.text_waits());
            assert!(!watcher.is_finished());
            gate.0.wait();
            gate.0.wait();
            gate.0.wait();
            watcher.join().unwrap();
        });
        let batches = gate.1.lock();
        assert_eq!(batches.len(), 2);
        assert!(batches[0].printed.is_empty());
        assert_eq!(&batches[1].printed[0][..], b"text");
    }
}
