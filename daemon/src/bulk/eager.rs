//! Writes whose bytes come without being asked for: a chunk each, within the client's standing credit.
//!
//! Command and bytes come by different connections, so either may be first. Bytes that come early wait in
//! memory of ours, [`EAGER_BYTES`] at most; the command, when it may run, is one native write from there.
//! That costs a copy, and saves the round trip for credit and two driver commands, which for one chunk
//! cost more.
//!
//! Invariant: of each such write both command and bytes come, once, so an entry goes with the second of them
//! (or stays with a command that is held). What counts as early is only what the client still counts
//! as standing credit: a command that ends gives it back, though its bytes are still arriving.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::bulk::Header;
use causeway_proto::id::EventId;
use causeway_proto::limits::{EAGER_BYTES, INLINE_PAYLOAD};
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::lane::{LaneError, discard};
use super::memory::receive_into;
use crate::runtime::block::Block;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;
use crate::worker::session::command::Command;
use crate::worker::session::enqueue::{INVALID_VALUE, Task};
use crate::worker::session::hash::ById;
use crate::worker::session::objects::{Memory, Queue};
use crate::worker::session::run::{Runner, native_waits};
use crate::worker::session::{Shared, broken};

/// Writes at most that will not run and whose bytes have still to come. A client sends bytes before their
/// command ends, so these lie in the buffers of its connections, where a gigabyte or two has room at most.
const MOST_UNWANTED: usize = (2 << 30) / INLINE_PAYLOAD;

/// What a client sent is not within its standing credit, or not once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unasked {
    #[error("more bytes came unasked than there is credit for")]
    TooMany,
    #[error("the bytes of {0:?} came twice, or in parts")]
    Twice(EventId),
    #[error("the bytes of {0:?} came unasked, and are so few that they belong in the command")]
    TooFew(EventId),
}

/// The eager writes of a session.
#[derive(Default)]
pub(super) struct EagerWrites {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<EventId, Entry, ById>,
    // Bytes that are here or arriving and that no command has taken or given up.
    early: u64,
    // What bytes that are just arriving count in `early`; one for a lane at most.
    arriving: HashMap<EventId, u64, ById>,
    // Entries of that kind.
    unwanted: usize,
}

impl State {
    /// Bytes of `length` are about to arrive. Whether they are wanted.
    fn begin_arrival(&mut self, event: EventId, length: u64) -> Result<bool, Unasked> {
        if length <= INLINE_PAYLOAD as u64 {
            return Err(Unasked::TooFew(event));
        }
        if self.arriving.contains_key(&event) {
            return Err(Unasked::Twice(event));
        }
        match self.entries.get(&event) {
            Some(Entry::Arrived(_)) => return Err(Unasked::Twice(event)),
            Some(Entry::Unwanted) => {
                self.entries.remove(&event);
                self.unwanted -= 1;
                return Ok(false);
            }
            _ => {}
        }
        if self.early + length > EAGER_BYTES {
            return Err(Unasked::TooMany);
        }
        self.early += length;
        self.arriving.insert(event, length);
        Ok(true)
    }

    /// They have arrived, or will not. What they still count in `early`.
    fn end_arrival(&mut self, event: EventId) -> u64 {
        self.arriving.remove(&event).unwrap_or(0)
    }

    /// See [`EagerWrites::give_up`]. `Err`: there are too many such writes.
    fn give_up(&mut self, event: EventId) -> Result<Option<Block>, ()> {
        // The client counts them no longer.
        if let Some(counted) = self.arriving.get_mut(&event) {
            self.early -= std::mem::take(counted);
        }
        match self.entries.remove(&event) {
            Some(Entry::Arrived(block)) => {
                self.early -= block.as_ref().len() as u64;
                Ok(Some(block))
            }
            Some(entry) => {
                let before = matches!(entry, Entry::Unwanted);
                self.unwanted += usize::from(!before);
                self.entries.insert(event, Entry::Unwanted);
                if self.unwanted > MOST_UNWANTED {
                    return Err(());
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }
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
        let gone = self.state.lock().give_up(event);
        match gone {
            Ok(gone) => drop(gone),
            Err(()) => broken("the client announces writes and sends no bytes for them"),
        }
    }

    /// A command that was announced may run. Its native write, if the bytes are here; else it is enqueued
    /// when they have come.
    ///
    /// # Errors
    /// What the driver says.
    pub(super) fn begin(
        &self,
        shared: &Arc<Shared>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
        waits: &WaitList<'_>,
    ) -> Result<Option<Event>, Status> {
        let event = task.command.id();
        let waiting = || Waiting {
            command: Arc::clone(&task.command),
            queue: Arc::clone(&task.queue),
            memory: Arc::clone(memory),
            region,
            waits: task.waits.clone(),
        };
        let mut state = self.state.lock();
        match state.entries.remove(&event) {
            Some(Entry::Arrived(block)) => {
                state.early -= block.as_ref().len() as u64;
                drop(state);
                match source(&task.queue, block) {
                    Ok(source) => write(&task.queue, memory, region, source, waits).map(Some),
                    Err(block) => {
                        waiting().enqueue_later(shared, block);
                        Ok(None)
                    }
                }
            }
            _ => {
                let waiting = Entry::Waiting(Box::new(waiting()));
                state.entries.insert(event, waiting);
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
        if header.offset != 0 {
            return Err(Unasked::Twice(event).into());
        }
        let wanted = self.state.lock().begin_arrival(event, length)?;
        if !wanted {
            return Ok(discard(stream, header.length, scratch)?);
        }
        let mut block = shared.bulk.blocks.take(length as usize);
        let received = receive_into(stream, block.as_mut());
        let mut state = self.state.lock();
        let counted = state.end_arrival(event);
        if let Err(error) = received {
            state.early -= counted;
            return Err(error.into());
        }
        let (waiting, gone) = match state.entries.remove(&event) {
            None | Some(Entry::Announced) => {
                state.entries.insert(event, Entry::Arrived(block));
                return Ok(());
            }
            Some(Entry::Waiting(waiting)) => (Some(waiting), block),
            Some(Entry::Unwanted) => {
                state.unwanted -= 1;
                (None, block)
            }
            Some(Entry::Arrived(_)) => return Err(Unasked::Twice(event).into()),
        };
        state.early -= counted;
        drop(state);
        match waiting {
            Some(waiting) => waiting.arrived(shared, gone),
            None => drop(gone),
        }
        Ok(())
    }
}

impl Waiting {
    /// The bytes are here. Enters the driver.
    fn arrived(self, shared: &Arc<Shared>, block: Block) {
        match source(&self.queue, block) {
            Ok(source) => self.enqueue(shared, source),
            Err(block) => self.enqueue_later(shared, block),
        }
    }

    /// The native write may block, so the bulk thread makes it.
    fn enqueue_later(self, shared: &Arc<Shared>, block: Block) {
        let enqueue = move |shared: &_| self.enqueue(shared, Host::Block(block));
        shared.bulk.later(shared, enqueue);
    }

    /// The command goes, and what follows it. Enters the driver.
    fn enqueue(self, shared: &Arc<Shared>, source: Host) {
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
            native_waits(&waits).and_then(|waits| write(&queue, &memory, region, source, &waits));
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

/// What a native write takes the bytes from without blocking; `Err`: there is nothing of that kind. From
/// other memory a driver of a device with its own may copy only when all before it has run.
fn source(queue: &Queue, block: Block) -> Result<Host, Block> {
    match queue.stage(block.as_ref().len()) {
        Some(part) => Ok(Host::pinned_copy(part, block.as_ref())),
        None if is_direct(queue) => Ok(Host::Block(block)),
        None => Err(block),
    }
}

// A queue that is broken blocks nobody.
fn is_direct(queue: &Queue) -> bool {
    queue
        .native()
        .map_or(true, |native| native.device().has_direct_memory())
}

fn write(
    queue: &Queue,
    memory: &Memory,
    region: Region,
    source: Host,
    waits: &WaitList<'_>,
) -> Result<Event, Status> {
    if source.length() as u64 != region.packed_length() {
        return Err(INVALID_VALUE);
    }
    queue
        .native()?
        .write(memory.native()?, &region, source, 0, waits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::limits::BULK_CHUNK;

    #[test]
    fn a_command_is_announced_once() {
        let writes = EagerWrites::default();
        assert!(writes.announce(EventId(1)));
        assert!(!writes.announce(EventId(1)));
        writes.give_up(EventId(1));
        assert!(!writes.announce(EventId(1)), "its bytes have still to come");
    }

    const CHUNK: u64 = BULK_CHUNK as u64;

    #[test]
    fn what_is_given_up_while_it_arrives_does_not_count() {
        let writes = EagerWrites::default();
        let full = EAGER_BYTES / CHUNK;
        for event in (1..=full).map(EventId) {
            assert!(writes.announce(event));
            assert_eq!(writes.state.lock().begin_arrival(event, CHUNK), Ok(true));
        }
        writes.give_up(EventId(1));
        let mut state = writes.state.lock();
        let one = state.begin_arrival(EventId(1), CHUNK);
        assert_eq!(one, Err(Unasked::Twice(EventId(1))));
        assert_eq!(state.begin_arrival(EventId(50), CHUNK), Ok(true));
        let more = state.begin_arrival(EventId(51), CHUNK);
        assert_eq!(more, Err(Unasked::TooMany));
        assert_eq!(state.end_arrival(EventId(1)), 0);
        assert_eq!(state.end_arrival(EventId(50)), CHUNK);
    }

    #[test]
    fn writes_that_will_not_run_are_bounded_and_go_with_their_bytes() {
        let mut state = State::default();
        let mut announce_and_give_up = |event| {
            state.entries.insert(EventId(event), Entry::Announced);
            state.give_up(EventId(event)).map(drop)
        };
        for event in 0..MOST_UNWANTED as u64 {
            assert_eq!(announce_and_give_up(event), Ok(()));
        }
        assert_eq!(announce_and_give_up(u64::MAX), Err(()));
        for event in 0..MOST_UNWANTED as u64 {
            assert_eq!(state.begin_arrival(EventId(event), CHUNK), Ok(false));
        }
        assert_eq!((state.unwanted, state.entries.len()), (1, 1));
    }

    #[test]
    fn few_bytes_are_refused() {
        let few = State::default().begin_arrival(EventId(1), INLINE_PAYLOAD as u64);
        assert_eq!(few, Err(Unasked::TooFew(EventId(1))));
    }
}
