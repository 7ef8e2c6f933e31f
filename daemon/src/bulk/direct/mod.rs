//! Transfers straight between sockets and a mapping, for devices whose memory the host sees.
//!
//! What comes in: map the region on the command's queue (so it is free to be overwritten when the mapping
//! has ended), grant credit for all of it, receive into the mapping, unmap. What goes out: map, send from
//! the mapping, unmap. What follows in the queue is held until the unmapping is enqueued.
//!
//! Invariant: a mapping is given back once, by whoever finishes, fails or abandons the transfer, and
//! only when no lane is inside it.

mod read;
mod turns;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_proto::status::Status;

pub(super) use self::read::{DirectRead, MappedChunk, read};
pub(super) use self::turns::Turns;
use self::turns::{Turn, Work};
pub(super) use self::write::write;
use super::Transfer;
use super::memory::Window;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::queue::Access;
use crate::worker::session::run::Runner;

/// A transfer's mapping.
struct Mapped {
    transfer: Transfer,
    window: Window,
    turn: Turn,
    event: Arc<Event>,
    over: AtomicBool,
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
        let turns = &transfer.shared.bulk.turns;
        let (event, pointer, turn) = turns.map(|| queue.map(memory, &region, access, waits))?;
        Ok(Arc::new(Mapped {
            // SAFETY: the mapping holds the region from its first byte on, until `give_back`.
            window: unsafe { Window::new(pointer, region) },
            event: Arc::new(event),
            over: AtomicBool::new(false),
            turn,
            transfer,
        }))
    }

    /// The mapping's command has ended. Called by the driver's threads, so it calls no driver.
    fn ended(&self, status: Status) {
        let shared = &self.transfer.shared;
        for unmapping in shared.bulk.turns.ended(self.turn, status.is_error()) {
            shared.bulk.later(shared, move |_: &_| unmapping());
        }
    }

    /// Does what begins with an unmapping, now or when its turn has come.
    fn in_turn(self: &Arc<Self>, work: impl FnOnce(&Mapped) + Send + 'static) {
        let mapped = Arc::clone(self);
        let work: Work = Box::new(move || work(&mapped));
        if let Some(work) = self.transfer.shared.bulk.turns.unmap(self.turn, work) {
            work();
        }
    }

    /// Unmaps; the memory is not touched afterwards.
    fn give_back(&self) -> Result<Event, Status> {
        let queue = self.transfer.queue.native()?;
        let memory = self.transfer.memory.native()?;
        // SAFETY: the pointer is the mapping's; callers see to it that no lane is inside and that
        // this happens once.
        unsafe { queue.unmap(memory, self.window.first(), &WaitList::default()) }
    }

    /// Whether the caller is the one to end the transfer. The peer may send a cancellation on one lane
    /// while the last bytes arrive on another.
    fn first_to_end(&self) -> bool {
        !self.over.swap(true, Ordering::AcqRel)
    }

    /// The mapping is no longer needed: unmaps, and lets the queue's successors go.
    fn finish(self: &Arc<Self>) {
        self.in_turn(Mapped::finish_now);
    }

    /// The mapping was in vain: unmaps, and fails the command.
    fn abandon(self: &Arc<Self>, status: Status, message: String) {
        self.in_turn(move |mapped| {
            let _ = mapped.give_back();
            mapped.transfer.fail(status, message);
        });
    }

    fn finish_now(&self) {
        let command = &self.transfer.command;
        let mut runner = Runner::new(&self.transfer.shared);
        runner.touch(&self.transfer.queue);
        match self.give_back() {
            Ok(event) => {
                command.began(Arc::clone(&self.event));
                command.enqueued(event);
                runner.watch_command(command);
                runner.passed(command);
            }
            Err(status) => {
                command.finish(status, "unmapping failed".into());
                runner.failed(command);
            }
        }
    }
}
