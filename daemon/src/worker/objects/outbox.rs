//! Collects the messages of a session and sends them to the client.
//!
//! Any thread puts messages in. If no thread is sending, that thread becomes the sender and continues
//! until nothing is left. So messages that become ready together travel in one batch. In an idle session,
//! the thread that learned of the completion sends it, and no other thread has to wake up.
//!
//! A flood of single completions in close succession would cost one system call each. So in a flood
//! ([`FLOOD`]), a completion may wait for the next ones while commands are in progress. It waits until
//! [`GATHERED`] completions wait or the flusher ticks. The last one in progress never waits.
//!
//! In a host, a command may fail because a neighbour has broken the native context. If another worker can execute the
//! session's commands again ([`Outbox::withhold_suspects`]), nothing is sent from such a failure on, until the keeper has looked
//! at the context.
//!
//! Kernels' printed text is drained before each batch is closed, so it travels no later than the
//! completions that follow it.
//!
//! This module makes no driver calls. Invariant: only one thread at a time calls
//! [`EventSink::send`], and without a lock.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::bulk::CHECKPOINT;
use causeway_proto::command::{Answer, Completion, EventBatch, LinkState, Notice, Parking};
use causeway_proto::status::Status;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::command::Command;
use super::commons::Alive;
use super::console::Wake;
use super::pieces::Pieces;
use super::printed::Printed;
use super::progress::{Progress, may_spoil};
use crate::accounting::{Busy, LedgerSlot};
use crate::worker::connection::EventSink;

/// Ended commands that the client has learned of or soon will. Their native events are released with them.
#[derive(Default)]
pub(crate) struct Spent {
    /// Commands that the graph may still have.
    pub(crate) commands: Vec<Arc<Command>>,
    /// Commands that the graph does not have.
    pub(crate) others: Vec<Arc<dyn Send + Sync>>,
}

/// Where all threads of a session put messages for the client.
pub(crate) struct Outbox {
    sink: Arc<dyn EventSink>,
    printed: Printed,
    applied: AtomicU64,
    // Bytes of commands since the last report of `applied`.
    received: AtomicUsize,
    progress: Arc<Progress>,
    busy: Arc<Busy>,
    // Unobserved commands in native queues whose ends are not reported.
    unobserved: AtomicUsize,
    // Whether nothing is sent after a failure that may be of a broken context.
    withholds: AtomicBool,
    state: Mutex<OutboxState>,
    flood: Condvar,
    // Signals that the sender has finished.
    free: Condvar,
    _alive: Alive,
}

#[derive(Default)]
struct OutboxState {
    batch: EventBatch,
    // Kept for a thread that may call the driver, because their drop releases native events.
    spent: Spent,
    sending: bool,
    // The value of `applied` in the last batch.
    told: u64,
    // Number of completions in quick succession, reset by each pause, and the time of the last one.
    quick: u32,
    last: Option<Instant>,
    // Whether the flusher ticks.
    ticking: bool,
    // Whether nothing is sent, because a command has failed and the keeper has not looked at its context yet.
    withheld: bool,
    // Whether the session has ended, so that no thread may wait here.
    is_over: bool,
}

/// Number of applied commands after which the client is informed even without another message.
const REPORT_EVERY: u64 = 4096;
/// Bytes of applied commands after which the client is informed, because it keeps them until then.
const REPORT_BYTES: usize = 1 << 20;
/// Number of completions, each within [`QUICK`] of the one before, that make a flood.
const FLOOD: u32 = 16;
const QUICK: Duration = Duration::from_micros(25);
/// Number of completions that are sent together in a flood.
const GATHERED: usize = 64;
/// Longest wait of a completion in a flood, apart from the precision of the system's timers.
const TICK: Duration = Duration::from_micros(100);
/// Bytes of text that are withheld at most. Beyond, everything is sent.
const MOST_TEXT: usize = 4 << 20;
/// Number of ticks without anything to send after which the flusher sleeps.
const IDLE_TICKS: u32 = 20;

impl Outbox {
    /// Makes an outbox that drains `printed` before each batch.
    pub(crate) fn new(
        sink: Arc<dyn EventSink>,
        printed: Printed,
        account: LedgerSlot,
        busy: Arc<Busy>,
        alive: Alive,
    ) -> Outbox {
        Outbox {
            sink,
            printed,
            applied: AtomicU64::new(0),
            received: AtomicUsize::new(0),
            progress: Arc::new(Progress::new(account)),
            busy,
            unobserved: AtomicUsize::new(0),
            withholds: AtomicBool::new(false),
            state: Mutex::default(),
            flood: Condvar::new(),
            free: Condvar::new(),
            _alive: alive,
        }
    }

    /// Ends the session, because its client violated the protocol on a bulk connection.
    pub(crate) fn violated(&self, what: String) {
        self.sink.violated(what);
    }

    /// Ends the session's waiting threads here. Later messages go nowhere, because the connection is lost.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.withheld = false;
        self.withholds.store(false, Ordering::Relaxed);
        drop(state);
        self.flood.notify_all();
        self.free.notify_all();
    }

    /// The commands whose completion is still to come: enqueued natively, or in a batch and not yet applied.
    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Where the session counts its busy time.
    pub(crate) fn busy(&self) -> &Busy {
        &self.busy
    }

    /// Announces `commands` more completions.
    pub(crate) fn begin(&self, commands: usize) {
        self.progress.begin(commands);
    }

    /// Withdraws announced completions, because they come another way or not at all.
    pub(crate) fn end(&self, commands: usize) {
        self.progress.end(commands);
    }

    /// Number of unobserved commands in native queues whose ends are not reported.
    pub(crate) fn unobserved(&self) -> usize {
        self.unobserved.load(Ordering::Relaxed)
    }

    /// Counts an unobserved command that is in its native queue.
    pub(super) fn add_unobserved(&self) {
        self.unobserved.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts unobserved commands whose ends are about to be reported.
    pub(super) fn end_unobserved(&self, commands: usize) {
        self.unobserved.fetch_sub(commands, Ordering::Relaxed);
    }

    /// Adds the completion of a command that has ended.
    pub(crate) fn complete(&self, completion: Completion, spent: Option<Arc<Command>>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        self.note_end(&mut state, &completion, now);
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
            && self.progress.is_busy();
        if !waits {
            self.send(state);
        } else if !state.sending && !state.ticking {
            state.ticking = true;
            self.flood.notify_one();
        }
    }

    // Notes the end of a command.
    fn note_end(&self, state: &mut OutboxState, completion: &Completion, now: Instant) {
        let status = Status(completion.status);
        // Before the suspicion is noted, which the keeper may take at once.
        state.withheld |= may_spoil(status) && self.withholds.load(Ordering::Relaxed);
        self.progress.note(status, now);
    }

    /// From now on, sends nothing after a failure that may be of a broken context, until [`Outbox::send_suspects`].
    pub(crate) fn withhold_suspects(&self) {
        self.withholds.store(true, Ordering::Relaxed);
    }

    /// Sends what was withheld, because the contexts work.
    pub(crate) fn send_suspects(&self) {
        let mut state = self.state.lock();
        // A further failure may have come after the look.
        if state.withheld && !self.progress.is_suspect() {
            state.withheld = false;
            self.send(state);
        }
    }

    /// Adds completions without sending them. They leave with the completion that the caller adds next.
    pub(crate) fn gather(&self, completions: Vec<Completion>) {
        self.state.lock().batch.completions.extend(completions);
    }

    /// Adds and sends the completions of several commands.
    pub(crate) fn complete_all(&self, completions: Vec<Completion>, spent: Arc<dyn Send + Sync>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        for completion in &completions {
            self.note_end(&mut state, completion, now);
        }
        state.batch.completions.extend(completions);
        state.spent.others.push(spent);
        self.send(state);
    }

    /// Sends the completions that wait. The reading thread calls this after each batch.
    pub(crate) fn flush(&self) {
        let state = self.state.lock();
        if !state.batch.completions.is_empty() {
            self.send(state);
        }
    }

    /// Sends, during a flood, the completions that wait for others which do not come. Returns after
    /// [`Outbox::stop`].
    pub(crate) fn tick(&self) {
        let mut idle = 0;
        loop {
            {
                let mut state = self.state.lock();
                if idle >= IDLE_TICKS {
                    state.ticking = false;
                }
                while !state.ticking && !state.is_over {
                    idle = 0;
                    self.flood.wait(&mut state);
                }
                if state.is_over {
                    return;
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

    /// Adds the answer to a query.
    pub(crate) fn answer(&self, answer: Answer) {
        self.put(|state| state.batch.answers.push(answer));
    }

    /// Adds a notice of a failure that no event reports.
    pub(crate) fn notice(&self, notice: Notice) {
        self.put(|state| state.batch.notices.push(notice));
    }

    /// Adds the news that a link is up or down.
    pub(crate) fn link(&self, state: LinkState) {
        self.put(|waiting| waiting.batch.links.push(state));
    }

    /// Adds the reason why the session ends.
    pub(crate) fn close_reason(&self, reason: &str) {
        self.put(|state| reason.clone_into(&mut state.batch.close_reason));
    }

    /// Tells the client how far the session is with being parked.
    pub(crate) fn parking(&self, parking: Parking) {
        self.put(|state| state.batch.parking = parking.into());
    }

    /// Tells the client that a checkpoint of `bytes` bytes is copied.
    pub(crate) fn copied(&self, bytes: u64) {
        self.put(|state| {
            state.batch.parking = Parking::Copied.into();
            state.batch.checkpoint_bytes = bytes;
        });
    }

    /// Tells the client that all bytes of a checkpoint are sent.
    pub(crate) fn checkpoint_sent(&self) {
        let completion = Completion {
            event: CHECKPOINT.0,
            ..Completion::default()
        };
        self.put(|state| state.batch.completions.push(completion));
    }

    /// Whether everything is sent, as far as this knows, and no command is in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        let is_empty = !state.sending && !has_something(&state.batch);
        is_empty && self.unobserved() == 0 && !self.progress.is_busy()
    }

    /// Begins behind `number`, which the client knows to be applied.
    pub(crate) fn begin_behind(&self, number: u64) {
        self.applied.store(number, Ordering::Release);
        self.state.lock().told = number;
    }

    /// Counts the bytes of commands that are about to be applied.
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of the last applied command.
    pub(crate) fn last_applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Notes that all commands up to `number` have been applied.
    pub(crate) fn applied(&self, number: u64) {
        self.applied.store(number, Ordering::Release);
        let state = self.state.lock();
        if self.must_report(&state) {
            self.send(state);
        }
    }

    /// Whether the client has to learn now which commands have been applied.
    fn must_report(&self, state: &OutboxState) -> bool {
        let unreported = self.last_applied().saturating_sub(state.told);
        let many = self.received.load(Ordering::Relaxed) >= REPORT_BYTES;
        unreported >= REPORT_EVERY || unreported > 0 && many
    }

    /// Takes ended commands, to be dropped by a thread that may call the driver. Every command whose end
    /// the client knows has been among them, or is now.
    pub(crate) fn take_spent(&self) -> Spent {
        std::mem::take(&mut self.state.lock().spent)
    }

    /// Blocks while the client takes too few of the bytes that are to be sent. A kernel that prints then waits at the capture, as
    /// at a terminal.
    pub(crate) fn wait_for_room(&self) {
        self.sink.wait_for_room();
    }

    /// Sends printed text; the thread that watches the capture calls this. Returns when this thread or
    /// another sender has taken some of it. So the caller does not find the same text again.
    pub(crate) fn text_waits(&self) {
        let mut state = self.state.lock();
        while state.sending && !state.is_over {
            self.free.wait(&mut state);
        }
        if state.withheld {
            // The text goes with what is withheld.
            let text = &mut state.batch.printed;
            text.extend(self.printed.drain());
            if text.iter().map(Bytes::len).sum::<usize>() < MOST_TEXT {
                return;
            }
            state.withheld = false;
        }
        self.send(state);
    }

    /// The captured output of kernels.
    pub(crate) fn printed(&self) -> &Printed {
        &self.printed
    }

    fn put(&self, change: impl FnOnce(&mut OutboxState)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.send(state);
    }

    /// Sends everything that waits, unless another thread is sending.
    fn send<'a>(&'a self, mut state: MutexGuard<'a, OutboxState>) {
        if state.sending || state.withheld {
            return;
        }
        state.sending = true;
        loop {
            let mut batch = std::mem::take(&mut state.batch);
            let applied = self.applied.load(Ordering::Acquire);
            let news = applied != std::mem::replace(&mut state.told, applied);
            if news {
                self.received.store(0, Ordering::Relaxed);
            }
            drop(state);
            // Drained after the completions were taken, so that all output of their kernels is included.
            batch.printed.extend(self.printed.drain());
            batch.applied = applied;
            let sent = if news || has_something(&batch) {
                Pieces::of(batch).for_each(|piece| self.sink.send(piece));
                Some(Instant::now())
            } else {
                None
            };
            state = self.state.lock();
            // To send takes longer than `QUICK`. That must not make the next completion look slow.
            state.last = sent.or(state.last);
            // In the common case, one completion and nothing since, this avoids another drain. A client that waits until
            // its commands have been applied may get no other message.
            let has_nothing = !has_something(&state.batch) && !self.must_report(&state);
            if has_nothing || state.withheld {
                state.sending = false;
                self.free.notify_all();
                return;
            }
        }
    }
}

impl Wake for Outbox {
    fn text_waits(&self) {
        // The host's thread knows that there is text, although no program may have been expected to print.
        self.printed.expect();
        Outbox::text_waits(self);
    }
}

/// Whether the batch contains anything that the client must get.
fn has_something(batch: &EventBatch) -> bool {
    !(batch.completions.is_empty()
        && batch.answers.is_empty()
        && batch.notices.is_empty()
        && batch.links.is_empty()
        && batch.parking == 0
        && batch.close_reason.is_empty()
        && batch.printed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::LedgerSlot;
    use std::sync::Barrier;

    /// Stops each batch twice: when it arrives, and until the test releases it.
    struct StopSink(Barrier, Mutex<Vec<EventBatch>>);

    impl EventSink for StopSink {
        fn send(&self, batch: EventBatch) {
            self.0.wait();
            self.0.wait();
            self.1.lock().push(batch);
        }

        fn wait_for_room(&self) {}
        fn violated(&self, _: String) {}
    }

    #[test]
    fn text_waits_for_the_sender_and_goes_after_it() {
        let (read, write) = rustix::pipe::pipe_with(
            rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK,
        )
        .unwrap();
        let stops = Arc::new(StopSink(Barrier::new(2), Mutex::default()));
        let sink: Arc<dyn EventSink> = Arc::<StopSink>::clone(&stops);
        let account = LedgerSlot::alone();
        let busy = Busy::new(account.clone(), []);
        let printed = Printed::new(Some(read));
        let outbox = Outbox::new(sink, printed, account, busy, Alive::default());
        outbox.printed().expect();
        std::thread::scope(|scope| {
            scope.spawn(|| outbox.notice(Notice::default()));
            stops.0.wait();
            // The sender is inside the sink, so text printed now has to wait for it.
            rustix::io::write(&write, b"text").unwrap();
            let watcher = scope.spawn(|| outbox.text_waits());
            assert!(!watcher.is_finished());
            stops.0.wait();
            stops.0.wait();
            stops.0.wait();
            watcher.join().unwrap();
        });
        let batches = stops.1.lock();
        assert_eq!(batches.len(), 2);
        assert!(batches[0].printed.is_empty());
        assert_eq!(&batches[1].printed[0][..], b"text");
    }

    #[test]
    fn bytes_that_were_applied_while_another_thread_sends_are_reported() {
        let stops = Arc::new(StopSink(Barrier::new(2), Mutex::default()));
        let sink: Arc<dyn EventSink> = Arc::<StopSink>::clone(&stops);
        let account = LedgerSlot::alone();
        let busy = Busy::new(account.clone(), []);
        let outbox = Outbox::new(sink, Printed::new(None), account, busy, Alive::default());
        std::thread::scope(|scope| {
            scope.spawn(|| outbox.notice(Notice::default()));
            stops.0.wait();
            outbox.received(REPORT_BYTES);
            outbox.applied(1);
            stops.0.wait();
            stops.0.wait();
            stops.0.wait();
        });
        let batches = stops.1.lock();
        let applied: Vec<_> = batches.iter().map(|batch| batch.applied).collect();
        assert_eq!(applied, [0, 1]);
    }

    /// Keeps each batch.
    #[derive(Default)]
    struct Sent(Mutex<Vec<EventBatch>>);

    impl EventSink for Sent {
        fn send(&self, batch: EventBatch) {
            self.0.lock().push(batch);
        }

        fn wait_for_room(&self) {}
        fn violated(&self, _: String) {}
    }

    impl Sent {
        fn events(&self) -> Vec<u64> {
            let batches = self.0.lock();
            let completions = batches.iter().flat_map(|batch| &batch.completions);
            completions.map(|of| of.event).collect()
        }
    }

    #[test]
    fn nothing_is_sent_from_a_suspicious_failure_on_until_its_context_was_looked_at() {
        let sent = Arc::new(Sent::default());
        let sink: Arc<dyn EventSink> = Arc::<Sent>::clone(&sent);
        let account = LedgerSlot::alone();
        let busy = Busy::new(account.clone(), []);
        let outbox = Outbox::new(sink, Printed::new(None), account, busy, Alive::default());
        let end = |event, status| Completion {
            event,
            status,
            ..Completion::default()
        };
        const SUSPICIOUS: i32 = Status::OUT_OF_RESOURCES.0;
        outbox.complete(end(1, SUSPICIOUS), None);
        assert!(outbox.progress().take_suspicion());
        outbox.withhold_suspects();
        outbox.complete(end(2, 0), None);
        outbox.complete(end(3, SUSPICIOUS), None);
        outbox.complete(end(4, 0), None);
        outbox.text_waits();
        assert_eq!(sent.events(), [1, 2]);
        // A failure that came after the look waits for the next one.
        outbox.send_suspects();
        assert_eq!(sent.events(), [1, 2]);
        assert!(outbox.progress().take_suspicion());
        outbox.send_suspects();
        assert_eq!(sent.events(), [1, 2, 3, 4]);
        // A session that ends withholds nothing: nobody would look.
        outbox.complete(end(5, SUSPICIOUS), None);
        outbox.stop();
        outbox.complete(end(6, SUSPICIOUS), None);
        assert_eq!(sent.events(), [1, 2, 3, 4, 5, 6]);
    }
}
