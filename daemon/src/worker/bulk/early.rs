//! The bytes of eager writes, from their arrival until their commands may run.
//!
//! This module calls no driver, but what a command left in [`Missing::wait`] may.
//!
//! Invariant: for each eager write the client sends one command, and its bytes once. The entry goes when both
//! have arrived and the command may run. Bytes count as early only while the client still counts them against
//! its standing credit. A command that ends gives that credit back, even if its bytes are still arriving.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use causeway_lane::Stream;
use causeway_proto::bulk::Header;
use causeway_proto::id::EventId;
use causeway_proto::limits::{EAGER_BYTES, INLINE_PAYLOAD};
use parking_lot::{Mutex, MutexGuard};

use super::incoming::{LaneError, UploadError, discard};
use super::memory::receive_into;
use crate::runtime::block::{Block, Blocks};
use crate::worker::objects::hash::ById;
use crate::worker::threads::Scope;

/// Limit on writes that will not run and whose bytes have still to come. A client sends bytes before
/// their command ends. So these bytes lie in socket buffers, which hold a gigabyte or two at most.
const MOST_UNWANTED: usize = (2 << 30) / INLINE_PAYLOAD;

/// The eager writes of a session.
#[derive(Default)]
pub(super) struct EagerWrites {
    scope: Scope,
    state: Mutex<EagerState>,
}

#[derive(Default)]
struct EagerState {
    entries: HashMap<EventId, EagerProgress, ById>,
    // Bytes that have arrived or are arriving, and that no command has taken or given up.
    early: u64,
    // How many bytes of `early` each arriving write accounts for. At most one entry per lane.
    arriving: HashMap<EventId, u64, ById>,
    // Number of [`EagerProgress::Unwanted`] entries.
    unwanted: usize,
}

impl EagerState {
    /// Notes that `length` bytes of a write begin to arrive. Returns whether the write still needs them.
    fn begin_arrival(&mut self, event: EventId, length: u64) -> Result<bool, UploadError> {
        if length <= INLINE_PAYLOAD as u64 {
            return Err(UploadError::TooFew(event));
        }
        if self.arriving.contains_key(&event) {
            return Err(UploadError::Twice(event));
        }
        match self.entries.get(&event) {
            Some(EagerProgress::Arrived(_)) => return Err(UploadError::Twice(event)),
            Some(EagerProgress::Unwanted) => {
                self.entries.remove(&event);
                self.unwanted -= 1;
                return Ok(false);
            }
            _ => {}
        }
        if self.early + length > EAGER_BYTES {
            return Err(UploadError::TooMany);
        }
        self.early += length;
        self.arriving.insert(event, length);
        Ok(true)
    }

    /// Notes that the bytes have arrived or never will. Returns how many bytes they still count in `early`.
    fn end_arrival(&mut self, event: EventId) -> u64 {
        self.arriving.remove(&event).unwrap_or(0)
    }

    /// See [`EagerWrites::give_up`]. `Err` means that too many writes are unwanted.
    fn give_up(&mut self, event: EventId) -> Result<Option<Block>, ()> {
        // The client no longer counts them against its standing credit.
        if let Some(counted) = self.arriving.get_mut(&event) {
            self.early -= std::mem::take(counted);
        }
        match self.entries.remove(&event) {
            Some(EagerProgress::Arrived(block)) => {
                self.early -= block.as_ref().len() as u64;
                Ok(Some(block))
            }
            Some(entry) => {
                let before = matches!(entry, EagerProgress::Unwanted);
                self.unwanted += usize::from(!before);
                self.entries.insert(event, EagerProgress::Unwanted);
                if self.unwanted > MOST_UNWANTED {
                    return Err(());
                }
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

/// The state of an eager write.
enum EagerProgress {
    /// The command has arrived, but may not run yet.
    Announced,
    /// The bytes have arrived; the command has not, or may not run yet.
    Arrived(Block),
    /// The command may run and waits only for the bytes.
    Waiting(Box<dyn FnOnce(Block) + Send>),
    /// The command will not run; its bytes have still to come.
    Unwanted,
}

impl EagerWrites {
    /// Makes the table of a session.
    pub(super) fn new(scope: Scope) -> EagerWrites {
        EagerWrites {
            scope,
            state: Mutex::default(),
        }
    }

    /// Forgets all writes, because the session ends.
    pub(super) fn clear(&self) {
        // Dropped outside of the lock, because a transfer's drop may call the driver.
        let entries = std::mem::take(&mut self.state.lock().entries);
        drop(entries);
    }

    /// Registers a command whose bytes come eagerly. Returns false if the event id was used before.
    pub(super) fn announce(&self, event: EventId) -> bool {
        let mut state = self.state.lock();
        match state.entries.get(&event) {
            None => {
                state.entries.insert(event, EagerProgress::Announced);
                true
            }
            // The command finds the bytes when it runs.
            Some(EagerProgress::Arrived(_)) => true,
            Some(_) => false,
        }
    }

    /// Notes that an announced command will not run.
    pub(super) fn give_up(&self, event: EventId) {
        let gone = self.state.lock().give_up(event);
        match gone {
            Ok(gone) => drop(gone),
            Err(()) => self
                .scope
                .fail("the client announced eager writes, but did not send their bytes"),
        }
    }

    /// Takes the bytes of a command that may run now. `Err` if they have still to come.
    pub(super) fn take(&self, event: EventId) -> Result<Block, Missing<'_>> {
        let mut state = self.state.lock();
        let Some(EagerProgress::Arrived(block)) = state.entries.remove(&event) else {
            return Err(Missing { state, event });
        };
        state.early -= block.as_ref().len() as u64;
        Ok(block)
    }

    /// Takes the bytes of an eager write off the stream.
    ///
    /// # Errors
    /// The stream's error, or [`UploadError`].
    pub(super) fn receive(
        &self,
        blocks: &Blocks,
        stream: &Stream,
        header: &Header,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError> {
        let (event, length) = (header.transfer, u64::from(header.length));
        if header.offset != 0 {
            return Err(UploadError::Twice(event).into());
        }
        let wanted = self.state.lock().begin_arrival(event, length)?;
        if !wanted {
            return Ok(discard(stream, header.length, scratch)?);
        }
        // The lock is not held while the bytes arrive. Therefore the entry is looked up again afterwards.
        let mut block = blocks.take(length as usize);
        let received = receive_into(stream, block.as_mut());
        let mut state = self.state.lock();
        let counted = state.end_arrival(event);
        if let Err(error) = received {
            state.early -= counted;
            return Err(error.into());
        }
        let (waiting, gone) = match state.entries.remove(&event) {
            None | Some(EagerProgress::Announced) => {
                state.entries.insert(event, EagerProgress::Arrived(block));
                return Ok(());
            }
            Some(EagerProgress::Waiting(waiting)) => (Some(waiting), block),
            Some(EagerProgress::Unwanted) => {
                state.unwanted -= 1;
                (None, block)
            }
            Some(EagerProgress::Arrived(_)) => return Err(UploadError::Twice(event).into()),
        };
        state.early -= counted;
        drop(state);
        match waiting {
            Some(run) => run(gone),
            None => drop(gone),
        }
        Ok(())
    }
}

/// Bytes for which a command waits. The table is locked, so they do not arrive meanwhile.
pub(super) struct Missing<'a> {
    state: MutexGuard<'a, EagerState>,
    event: EventId,
}

impl Missing<'_> {
    /// Has `run` get the bytes when they arrive. It may call the driver.
    pub(super) fn wait(mut self, run: impl FnOnce(Block) + Send + 'static) {
        let waiting = EagerProgress::Waiting(Box::new(run));
        self.state.entries.insert(self.event, waiting);
    }
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
        assert_eq!(one, Err(UploadError::Twice(EventId(1))));
        assert_eq!(state.begin_arrival(EventId(50), CHUNK), Ok(true));
        let more = state.begin_arrival(EventId(51), CHUNK);
        assert_eq!(more, Err(UploadError::TooMany));
        assert_eq!(state.end_arrival(EventId(1)), 0);
        assert_eq!(state.end_arrival(EventId(50)), CHUNK);
    }

    #[test]
    fn writes_that_will_not_run_are_bounded_and_go_with_their_bytes() {
        let mut state = EagerState::default();
        let mut announce_and_give_up = |event| {
            state
                .entries
                .insert(EventId(event), EagerProgress::Announced);
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
        let few = EagerState::default().begin_arrival(EventId(1), INLINE_PAYLOAD as u64);
        assert_eq!(few, Err(UploadError::TooFew(EventId(1))));
    }
}
