//! What the session has to say, on its way to the client.
//!
//! Any thread puts something in; the first to do so while nobody sends becomes the sender and goes on
//! until nothing is left. So what becomes ready together travels in one batch, an idle session sends
//! from the very thread that learned of the completion, and no thread is woken for it. Kernels'
//! printed text is drained before each batch is closed, so it travels no later than the completions
//! that follow it.
//!
//! What it is not: it calls no driver. Invariant: [`EventSink::send`] is called by one thread at a
//! time and without a lock.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::command::{Answer, Completion, EventBatch, Notice};
use parking_lot::Mutex;

use super::command::Command;
use super::printed::Printed;
use crate::worker::connection::EventSink;

/// Where all threads of a session put what the client shall hear.
pub(crate) struct Outbox {
    sink: Arc<dyn EventSink>,
    printed: Printed,
    applied: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    batch: EventBatch,
    // Ended commands: their native events are released by a thread that may enter the driver.
    spent: Vec<Arc<Command>>,
    sending: bool,
    // What the last batch said of `applied`.
    told: u64,
}

/// So many commands are applied before the client hears of it even when nothing else is said.
const APPLIED_UNTOLD: u64 = 4096;

impl Outbox {
    /// An outbox that drains `printed` before each batch.
    pub(crate) fn new(sink: Arc<dyn EventSink>, printed: Printed) -> Outbox {
        Outbox {
            sink,
            printed,
            applied: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// A command has ended.
    pub(crate) fn complete(&self, completion: Completion, spent: Option<Arc<Command>>) {
        self.put(|state| {
            state.batch.completions.push(completion);
            state.spent.extend(spent);
        });
    }

    /// A question is answered.
    pub(crate) fn answer(&self, answer: Answer) {
        self.put(|state| state.batch.answers.push(answer));
    }

    /// Something failed that no event tells.
    pub(crate) fn notice(&self, notice: Notice) {
        self.put(|state| state.batch.notices.push(notice));
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

    /// Ended commands, to be dropped by the caller, who may enter the driver.
    pub(crate) fn take_spent(&self) -> Vec<Arc<Command>> {
        std::mem::take(&mut self.state.lock().spent)
    }

    /// Text waits in the capture; called by the thread that watches it.
    pub(crate) fn text_waits(&self) {
        self.put(|_| {});
    }

    /// What kernels print.
    pub(crate) fn printed(&self) -> &Printed {
        &self.printed
    }

    fn put(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        if state.sending {
            return;
        }
        state.sending = true;
        loop {
            drop(state);
            // Text first: whatever a kernel printed before its completion was put in is read here.
            let text = self.printed.drain();
            state = self.state.lock();
            let applied = self.applied.load(Ordering::Acquire);
            let empty = state.batch.completions.is_empty()
                && state.batch.answers.is_empty()
                && state.batch.notices.is_empty()
                && text.is_empty()
                && applied == state.told;
            if empty {
                state.sending = false;
                return;
            }
            let mut batch = std::mem::take(&mut state.batch);
            state.told = applied;
            drop(state);
            batch.printed = text;
            batch.applied = applied;
            self.sink.send(batch);
            state = self.state.lock();
            // The common case, one completion and nothing since, ends without another drain.
            if state.batch.completions.is_empty()
                && state.batch.answers.is_empty()
                && state.batch.notices.is_empty()
            {
                state.sending = false;
                return;
            }
        }
    }
}
