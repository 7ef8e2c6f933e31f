//! Transfers directly between sockets and a mapping, for devices whose memory the host can access.
//!
//! An incoming transfer maps the region on the command's queue, grants credit for all bytes, receives into
//! the mapping and unmaps. The region may be overwritten once the map command has ended. An outgoing transfer
//! maps, sends from the mapping and unmaps. Later commands of the queue wait until the unmap is enqueued.
//!
//! Invariant: a mapping is unmapped once, when the transfer finishes, fails or is abandoned, and only
//! when no lane is using the mapping.

mod read;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_proto::status::Status;

pub(super) use self::read::read;
pub(super) use self::write::write;
use super::memory::Window;
use super::transfer::Transfer;
use super::turns::{Turn, Work};
use crate::runtime::event::{Event, WaitList};
use crate::runtime::queue::Access;

/// A transfer and its mapping.
struct Mapped {
    transfer: Transfer,
    window: Window,
    turn: Turn,
    event: Arc<Event>,
    // Whether the map command has succeeded.
    is_mapped: AtomicBool,
    over: AtomicBool,
}

impl Drop for Mapped {
    /// Gives back a mapping whose transfer has not ended, because its session ends and its host goes on.
    fn drop(&mut self) {
        let is_hosted = self.transfer.engine.scope.is_hosted();
        if !is_hosted || !*self.is_mapped.get_mut() || *self.over.get_mut() {
            return;
        }
        let (transfer, window) = (self.transfer.clone(), self.window);
        // The drop may be on a thread that must not call the driver.
        self.transfer.engine.jobs.later(move || {
            let (Ok(queue), Ok(memory)) = (transfer.queue.native(), transfer.memory.native())
            else {
                return;
            };
            // SAFETY: the pointer is the mapping's. No lane is inside, because lanes hold the transfer that
            // was dropped, and nothing else has given the mapping back.
            let _ = unsafe { queue.unmap(memory, window.first(), &WaitList::default()) };
            let _ = queue.flush();
        });
    }
}

impl Mapped {
    fn new(
        transfer: Transfer,
        access: Access,
        waits: &WaitList<'_>,
    ) -> Result<Arc<Mapped>, Status> {
        let queue = transfer.queue.native()?;
        let memory = transfer.memory.native()?;
        let region = transfer.region;
        let turns = &transfer.engine.turns;
        let (event, pointer, turn) = turns.map(|| queue.map(memory, &region, access, waits))?;
        Ok(Arc::new(Mapped {
            // SAFETY: the mapping holds the region from its first byte on, until `give_back`.
            window: unsafe { Window::new(pointer, region) },
            event: Arc::new(event),
            is_mapped: AtomicBool::new(false),
            over: AtomicBool::new(false),
            turn,
            transfer,
        }))
    }

    /// Handles the end of the map command. Returns whether the memory is mapped; otherwise the transfer
    /// fails. The driver's threads call this, so it must not call the driver.
    fn ended(&self, status: Status) -> bool {
        let engine = &self.transfer.engine;
        let failed = status.is_error();
        for unmapping in engine.turns.ended(self.turn, failed) {
            engine.jobs.later(unmapping);
        }
        self.is_mapped.store(!failed, Ordering::Release);
        if failed {
            self.transfer.fail_later(status, String::new());
        }
        !failed
    }

    /// Runs `work`, which begins with an unmap: now, or later when this mapping's turn has come.
    fn in_turn(self: &Arc<Self>, work: impl FnOnce(&Mapped) + Send + 'static) {
        let mapped = Arc::clone(self);
        let work: Work = Box::new(move || work(&mapped));
        if let Some(work) = self.transfer.engine.turns.unmap(self.turn, work) {
            work();
        }
    }

    /// Enqueues the unmap. The memory must not be touched afterwards.
    fn give_back(&self) -> Result<Event, Status> {
        let queue = self.transfer.queue.native()?;
        let memory = self.transfer.memory.native()?;
        // SAFETY: the pointer is the mapping's. Callers ensure that no lane is inside and
        // that this happens only once.
        unsafe { queue.unmap(memory, self.window.first(), &WaitList::default()) }
    }

    /// Returns true for the first caller only, who then ends the transfer. The peer may send a
    /// cancellation on one lane while the last bytes arrive on another.
    fn first_to_end(&self) -> bool {
        !self.over.swap(true, Ordering::AcqRel)
    }

    /// Ends a successful transfer: unmaps and releases the commands that follow in the queue.
    fn finish(self: &Arc<Self>) {
        self.in_turn(Mapped::finish_now);
    }

    /// Ends a failed transfer: unmaps and fails the command.
    fn abandon(self: &Arc<Self>, status: Status, message: String) {
        self.in_turn(move |mapped| {
            let _ = mapped.give_back();
            mapped.transfer.fail(status, message);
        });
    }

    fn finish_now(&self) {
        let command = &self.transfer.command;
        match self.give_back() {
            Ok(event) => {
                command.began(Arc::clone(&self.event));
                command.enqueued(event);
                command.watch_end();
                self.transfer.passed();
            }
            Err(status) => {
                self.transfer
                    .fail_command(status, "unmapping failed".into());
            }
        }
    }
}
