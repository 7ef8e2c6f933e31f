//! Takes copied checkpoints into the program's memory.
//!
//! ```text
//! worker                                        client
//! copies what a checkpoint consists of  ------> decides who holds it (`checkpoints::client_holds`)
//! sends the bytes over the lanes        <------ marks the cut, and goes on
//! the end of the last byte              ------> cuts at the mark
//! ```
//! Until all bytes have come, the checkpoint before counts, and the log behind it is kept. If the log is full meanwhile,
//! commands wait. Invariant: at most one checkpoint comes at a time, and none of a worker that has died.

use causeway_proto::bulk::CHECKPOINT;
use causeway_proto::command::Holder;

use super::Core;
use super::reexecution::Reexecution;
use crate::config::Hold;
use crate::transport::checkpoints::client_holds;
use crate::transport::held::HeldCheckpoint;
use crate::transport::outbox::Marked;

/// A checkpoint whose bytes come.
pub(super) struct Pending {
    marked: Marked,
    contents: HeldCheckpoint,
}

impl Core {
    /// Decides who holds a checkpoint of `bytes` bytes that the worker has copied. If the program does, the session goes on
    /// while they come. If the node does, the session stands until the node has it.
    ///
    /// # Errors
    /// The worker cannot have copied it.
    pub(super) fn decide_holder(&self, bytes: u64) -> Result<(), String> {
        if !self.outbox.stands() {
            return Err("the node has copied a checkpoint of another state".to_owned());
        }
        let holder = match self.again() {
            None => Holder::Nobody,
            Some(again) if self.node_holds(again, bytes) => Holder::Node,
            Some(again) => self.take_checkpoint(again, bytes)?,
        };
        self.outbox.say_holder(holder);
        if holder == Holder::Node {
            return Ok(());
        }
        self.bulk.expect_end(false);
        self.outbox.go_on();
        Ok(())
    }

    fn node_holds(&self, again: &Reexecution, bytes: u64) -> bool {
        let mut checkpoints = *again.checkpoints.lock();
        checkpoints.stood(again.opened.elapsed());
        let rate = checkpoints.rate(self.bulk.measured_rate());
        !client_holds(again.hold, bytes, rate, checkpoints.interval())
    }

    fn take_checkpoint(&self, again: &Reexecution, bytes: u64) -> Result<Holder, String> {
        let contents = match HeldCheckpoint::new(bytes, again.held) {
            Ok(contents) => contents,
            Err(error) if again.hold == Hold::Auto => {
                tracing::debug!(%error, "the node holds a checkpoint");
                return Ok(Holder::Node);
            }
            Err(error) => {
                self.end_protection(&error.to_string());
                return Ok(Holder::Nobody);
            }
        };
        let marked = self.outbox.mark();
        let marked = marked.ok_or("the node has copied a checkpoint of another state")?;
        let mut pending = again.pending.lock();
        // What is open was enqueued behind the cut, as for a checkpoint that the node holds.
        self.bulk
            .with_uploads(|is_open| again.sent.lock().mark(is_open));
        again.given.lock().mark();
        let now = again.opened.elapsed();
        let mut checkpoints = again.checkpoints.lock();
        checkpoints.stood(now);
        checkpoints.begins_to_come(now, bytes);
        drop(checkpoints);
        self.bulk.fetch(CHECKPOINT, contents.target());
        *pending = Some(Pending { marked, contents });
        Ok(Holder::Client)
    }

    /// Handles that all bytes of a checkpoint have come, or that the worker cannot send them. The caller holds no lock.
    pub(super) fn checkpoint_has_come(&self, again: &Reexecution, status: i32) {
        if status != 0 {
            drop(self.abandon_checkpoint());
            again.checkpoints.lock().refused();
            return;
        }
        let mut pending = again.pending.lock();
        let Some(Pending { marked, contents }) = pending.take() else {
            return;
        };
        if self.again().is_none() {
            drop(pending);
            return;
        }
        let bytes = contents.length();
        let before = self.outbox.cut_at(marked, contents);
        again.sent.lock().cut_at_mark();
        again.given.lock().cut_at_mark();
        again.checkpoints.lock().made(again.opened.elapsed());
        drop(pending);
        self.hold_back(false);
        self.flusher.wake();
        again.free();
        drop(before);
        // The protection may have ended meanwhile. Its end, or this, finds what the other has done.
        if self.again().is_none() {
            self.outbox.lets_go();
        }
        tracing::debug!(bytes, "the program holds a checkpoint");
    }

    /// Forgets a checkpoint whose bytes come, because its worker is gone. The checkpoint before counts. What is returned is
    /// much memory, so the caller drops it without locks.
    #[must_use]
    pub(super) fn abandon_checkpoint(&self) -> Option<Pending> {
        let again = self.reexecution.as_ref()?;
        let mut pending = again.pending.lock();
        let abandoned = pending.take()?;
        self.bulk.forget_fetch(CHECKPOINT);
        again.sent.lock().forget_mark();
        again.given.lock().forget_mark();
        again.checkpoints.lock().begin_again();
        self.outbox.forget_holder();
        drop(pending);
        self.hold_back(false);
        Some(abandoned)
    }

    /// Lets no command leave while a checkpoint comes and the log is full, or lets commands leave again. Says so once for
    /// each change.
    pub(super) fn hold_back(&self, holds: bool) {
        if !self.outbox.hold_back(holds) {
            return;
        }
        let address = self.address.as_str();
        match holds {
            true => tracing::warn!(
                address,
                "the log of the program's commands is full (`log` in servers.toml); they wait until a checkpoint has come \
                 from the node"
            ),
            false => tracing::info!(
                address,
                "the program's commands wait for no checkpoint any more"
            ),
        }
        // It may have looked before, and then sleeps until somebody wakes it.
        self.flusher.wake();
    }
}
