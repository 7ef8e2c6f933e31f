//! Tells the worker which event batches this side has handled, over the heartbeat connection.
//!
//! Invariant: no call waits. Bytes that the connection does not take now are sent first by the next call.

use std::io;
use std::sync::Arc;

use causeway_proto::frame::COMES_BACK;

use super::super::received::Received;
use super::super::socket;
use super::Core;

/// What was and is to be acknowledged to the worker.
#[derive(Default)]
pub(super) struct Acknowledging {
    pub(super) window: Received,
    // Bytes of acknowledgements that the heartbeat connection has not taken.
    unsent: Vec<u8>,
}

impl Acknowledging {
    // Begins anew over another connection.
    pub(super) fn restart(&mut self, told: u64) {
        self.window.restart(told);
        self.unsent.clear();
    }
}

impl Core {
    /// Records that a batch of `bytes` bytes was handled. Acknowledges it if much was received since the last time.
    pub(in super::super) fn note_received(&self, bytes: usize) {
        if let Some(resume) = &self.resume
            && resume.acknowledging.lock().window.note(bytes)
        {
            self.acknowledge();
        }
    }

    /// Tells the worker which event batches were handled, if there are new ones. Does not wait.
    pub(in super::super) fn acknowledge(&self) {
        let complete = self.complete();
        self.send_acknowledgement(|window| window.next_acknowledgement(complete));
    }

    /// As [`Core::acknowledge`] while this end stands: the worker waits until this end has everything. Otherwise the next
    /// heartbeat is early enough.
    pub(super) fn acknowledge_if_it_stands(&self) {
        if self.outbox.stands() {
            self.acknowledge();
        }
    }

    /// Tells the worker again which event batches were handled, so that something crosses the connection. Does not wait.
    pub(in super::super) fn acknowledge_again(&self) {
        let complete = self.complete();
        self.send_acknowledgement(|window| Some(window.repeated_acknowledgement(complete)));
    }

    // The number of the last event batch of which this end has everything. The worker of a session that is being parked
    // ends once it knows that number of its last batch, so the bytes of ended transfers belong to everything then.
    pub(super) fn complete(&self) -> u64 {
        let Some(resume) = &self.resume else { return 0 };
        // Before the look at the bytes, which says nothing about later batches.
        let handled = resume.acknowledging.lock().window.handled();
        match self.outbox.stands() && self.bulk.awaits_bytes() {
            true => 0,
            false => handled,
        }
    }

    // Tells the worker that the connections end because one has broken, and not because the program was killed.
    pub(super) fn say_comes_back(&self) {
        self.send_acknowledgement(|_| Some(COMES_BACK));
    }

    fn send_acknowledgement(&self, number: impl FnOnce(&mut Received) -> Option<u64>) {
        let Some(resume) = &self.resume else { return };
        let mut acknowledging = resume.acknowledging.lock();
        let Acknowledging { window, unsent } = &mut *acknowledging;
        let line = Arc::clone(&self.heartbeat.lock());
        let sent = (|| {
            if !socket::send_now(&line, unsent)? {
                return Ok(());
            }
            let Some(number) = number(window) else {
                return Ok(());
            };
            socket::seal(&line, &number.to_le_bytes(), unsent)?;
            socket::send_now(&line, unsent).map(drop)
        })();
        if let Err(error) = sent {
            // The thread that reads this connection notices the end.
            let error: io::Error = error;
            tracing::debug!(%error, "event batches were not acknowledged");
        }
    }
}
