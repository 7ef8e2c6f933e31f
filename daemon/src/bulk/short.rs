//! Reads of one chunk from devices whose memory the host sees: a native read into memory of ours, from
//! where a lane sends it.
//!
//! A mapping saves that copy, and costs a second driver command behind the sending, which for one chunk is
//! more. Invariant: the bytes are in the lanes' queue before the command ends; what the driver fills and what
//! waits there is [`MOST`] bytes at most, for nothing else holds the client to what its lanes can carry.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::Transfer;
use crate::runtime::block::{Block, Blocks};
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::host::Host;
use crate::worker::session::run::watch;

/// Bytes of a session's short reads that were begun and not sent.
const MOST: usize = 16 << 20;

/// Memory for such a read for the client. `None`: it is not short, or there is no room; then it goes
/// through a mapping, which takes none.
pub(super) fn room(blocks: &Blocks, region: &Region) -> Option<Block> {
    let length = region.packed_length();
    if length > BULK_CHUNK as u64 {
        return None;
    }
    blocks.take_within(MOST, length as usize)
}

/// Enqueues a read into `room`.
///
/// # Errors
/// What the driver says.
pub(super) fn read(transfer: Transfer, room: Block, waits: &WaitList<'_>) -> Result<(), Status> {
    let target = Host::Block(room);
    let queue = transfer.queue.native()?;
    let memory = transfer.memory.native()?;
    let event = queue.read(memory, &transfer.region, target, 0, waits)?;
    transfer.command.enqueued(event);
    watch(&Arc::new(ShortRead(transfer)));
    Ok(())
}

struct ShortRead(Transfer);

impl Listener for ShortRead {
    fn event(&self) -> Option<&Event> {
        self.0.command.native()
    }

    fn ended(self: Arc<Self>, status: Status) {
        let transfer = &self.0;
        if let Some(event) = self.event()
            && !status.is_error()
        {
            let (transfer, bytes) = (transfer.name(), event.take_contents());
            self.0.put(|queue| queue.whole(Whole { transfer, bytes }));
        }
        transfer.command.finish(status, String::new());
    }
}

/// All bytes of a read.
pub(super) struct Whole {
    /// Whose.
    pub(super) transfer: EventId,
    /// At most a chunk.
    pub(super) bytes: Bytes,
}
