//! Writes whose bytes come without being asked for: a chunk each, within the client's standing credit.
//!
//! Command and bytes come by different connections, so either may be first. Bytes that come early wait in
//! memory of ours, [`EAGER_BYTES`] at most; the command, when it may run, is one native write from there.
//! That costs a copy, and saves the round trip for credit and two driver commands, which for one chunk
//! cost more.
//!
//! Invariant: of each such write both command and bytes come, once, so an entry goes with the second of them
//! (or stays with a command that is held).
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::bulk::Header;
use causeway_proto::id::EventId;
use causeway_proto::limits::EAGER_BYTES;
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::lane::{LaneError, discard};
use super::memory::receive_into;
use crate::runtime::block::Block;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;
use crate::worker::session::Shared;
use crate::worker::session::command::Command;
use crate::worker::session::enqueue::{INVALID_VALUE, Task};
use crate::worker::session::hash::ById;
use crate::worker::session::objects::{Memory, Queue};
use crate::worker::session::run::{Runner, native_waits};

/// What a client sent is not within its standing credit, or not once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unasked {
    #[error("more bytes came unasked than there is credit for")]
    TooMany,
    #[error("the bytes of {0:?} came twice, or in parts")]
    Twice(EventId),
}

/// The eager writes of a session.
#[derive(Default)]
pub(super) struct EagerWrites {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<EventId, Entry, ById>,
    // Bytes that are here or arriving and that no command has taken.
    early: u64,
}

/// What has come of a write.
enum Entry {
    /// The command, which may not run yet.
    Announced,
    /// The bytes.
    Arrived(Block),
    /// The command, which waits for nothing but the bytes.
    Waiting(Box<Waiting>),
    /// The command, which will not run.
    Unwanted,
}

/// A write that could run.
struct Waiting {
    command: Arc<Command>,
    queue: Arc<Queue>,
    memory: Arc<Memory>,
    region: Region,
    waits: Vec<Arc<Command>>,
}

impl EagerWrites {
    /// A command says that its bytes come so. `false`: another did before.
    pub(super) fn announce(&self, event: EventId) -> bool {
        let mut state = self.state.lock();
        match state.entries.get(&event) {
            None => {
                state.entries.insert(event, Entry::Announced);
                true
            }
            // It finds them when it runs.
            Some(Entry::Arrived(_)) => true,
            Some(_) => false,
        }
    }

    /// A command that was announced will not run.
    pub(super) fn give_up(&self, event: EventId) {
        let mut state = self.state.lock();
        let gone = match state.entries.remove(&event) {
            Some(Entry::Arrived(block)) => {
                state.early -= block.as_ref().len() as u64;
                Some(block)
            }
            Some(_) => {
                state.entries.insert(event, Entry::Unwanted);
                None
            }
            None => None,
        };
        drop(state);
        drop(gone);
    }

    /// A command that was announced may run. Its native write, if the bytes are here; else it is enqueued
    /// when they have come.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn begin(
        &self,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
        waits: &WaitList<'_>,
    ) -> Result<Option<Event>, Status> {
        let event = task.command.id();
        let mut state = self.state.lock();
        match state.entries.remove(&event) {
            Some(Entry::Arrived(block)) => {
                state.early -= block.as_ref().len() as u64;
                drop(state);
                write(&task.queue, memory, region, block, waits).map(Some)
            }
            _ => {
                let waiting = Waiting {
                    command: Arc::clone(&task.command),
                    queue: Arc::clone(&task.queue),
                    memory: Arc::clone(memory),
                    region,
                    waits: task.waits.clone(),
                };
                state
                    .entries
                    .insert(event, Entry::Waiting(Box::new(waiting)));
                Ok(None)
            }
        }
    }

    /// Takes the bytes of a write off the stream.
    ///
    /// # Errors
    /// The stream's, and [`Unasked`].
    pub(super) fn receive(
        &self,
        shared: &Arc<Shared>,
        stream: &Stream,
        header: &Header,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError> {
        let (event, length) = (header.transfer, u64::from(header.length));
        {
            let mut state = self.state.lock();
            match state.entries.get(&event) {
                Some(Entry::Arrived(_)) => return Err(Unasked::Twice(event).into()),
                Some(Entry::Unwanted) => {
                    state.entries.remove(&event);
                    drop(state);
                    return Ok(discard(stream, header.length, scratch)?);
                }
                _ => {}
            }
            if header.offset != 0 {
                return Err(Unasked::Twice(event).into());
            }
            if state.early + length > EAGER_BYTES {
                return Err(Unasked::TooMany.into());
            }
            state.early += length;
        }
        let mut block = shared.bulk.blocks.take(length as usize);
        receive_into(stream, block.as_mut())?;
        let mut state = self.state.lock();
        let (waiting, gone) = match state.entries.remove(&event) {
            None | Some(Entry::Announced) => {
                state.entries.insert(event, Entry::Arrived(block));
                return Ok(());
            }
            Some(Entry::Waiting(waiting)) => (Some(waiting), block),
            Some(Entry::Unwanted) => (None, block),
            Some(Entry::Arrived(_)) => return Err(Unasked::Twice(event).into()),
        };
        state.early -= length;
        drop(state);
        match waiting {
            Some(waiting) => waiting.enqueue(shared, gone),
            None => drop(gone),
        }
        Ok(())
    }
}

impl Waiting {
    /// The bytes are here: the command goes, and what follows it. Enters the driver.
    fn enqueue(self, shared: &Arc<Shared>, block: Block) {
        let Waiting {
            command,
            queue,
            memory,
            region,
            waits,
        } = self;
        let mut runner = Runner::new(shared);
        runner.touch(&queue);
        let enqueued =
            native_waits(&waits).and_then(|waits| write(&queue, &memory, region, block, &waits));
        match enqueued {
            Ok(event) => {
                command.enqueued(event);
                runner.watch_command(&command);
                runner.passed(&command);
            }
            Err(status) => {
                command.finish(status, String::new());
                runner.failed(&command);
            }
        }
    }
}

fn write(
    queue: &Queue,
    memory: &Memory,
    region: Region,
    block: Block,
    waits: &WaitList<'_>,
) -> Result<Event, Status> {
    if block.as_ref().len() as u64 != region.packed_length() {
        return Err(INVALID_VALUE);
    }
    let source = match queue.stage(block.as_ref().len()) {
        Some(part) => Host::pinned_copy(part, block.as_ref()),
        None => Host::Block(block),
    };
    queue
        .native()?
        .write(memory.native()?, &region, source, 0, waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_announced_once() {
        let writes = EagerWrites::default();
        assert!(writes.announce(EventId(1)));
        assert!(!writes.announce(EventId(1)));
        writes.give_up(EventId(1));
        assert!(!writes.announce(EventId(1)), "its bytes have still to come");
    }
}
