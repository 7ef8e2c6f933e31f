//! Reads of one chunk from devices whose memory the host sees: a native read into memory of ours, from
//! where the thread that hears of its end sends it, or a lane.
//!
//! A mapping saves that copy, and costs a second driver command behind the sending, which for one chunk is
//! more. Invariant: the bytes are sent, or in the lanes' queue, before the command ends; what the driver fills and what
//! waits there is [`MOST`] bytes at most, for nothing else holds the client to what its lanes can carry.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::bulk::Header;
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::Transfer;
use super::lane::data;
use super::outlet::Message;
use crate::accounting::Counter;
use crate::runtime::block::{Block, Blocks};
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::host::Host;
use crate::worker::session::Shared;
use crate::worker::session::run::watch;

/// Bytes of a session's short reads that were begun and not sent.
const MOST: usize = 16 << 20;

/// The longest that the driver's thread sends itself: copying more takes longer than to wake a lane's thread,
/// and a socket seldom has room for it.
const AT_ONCE: usize = 256 << 10;

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
            Whole { transfer, bytes }.leave(&self.0.shared);
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

impl Whole {
    /// What goes before the bytes.
    pub(super) fn header(&self) -> Header {
        data(self.transfer, 0, self.bytes.len() as u32)
    }

    /// On its way to the client: at once if it is the only one; else the lanes' threads send it, while the
    /// driver fills the next. Does not wait.
    fn leave(mut self, shared: &Shared) {
        let bulk = &shared.bulk;
        let length = self.bytes.len();
        if length <= AT_ONCE && bulk.blocks.bounded() <= length {
            let header = self.header();
            let bytes = self.bytes;
            match bulk.send_at_once(Message { header, bytes }) {
                Ok(()) => {
                    shared.account.add(Counter::ToClient, length as u64);
                    return;
                }
                Err(back) => self.bytes = back.bytes,
            }
        }
        bulk.outgoing.whole(self).discard();
    }
}
