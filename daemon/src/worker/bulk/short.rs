//! Reads of one chunk from devices whose memory the host sees. The native read goes into host memory; the
//! thread that handles its end sends the bytes, or a lane does.
//!
//! A mapping saves that copy, but costs a second driver command after the sending. Measured with PoCL on
//! two cores: by mapping, a blocking read of 64 to 256 KiB took 1.1 to 1.4 times as long. Sixteen reads of
//! 512 KiB enqueued together took 0.4 (shared memory) and 0.7 (TCP) of the time. But a mapping lasts until
//! its bytes are sent, and commands behind it wait for that. So all reads of one chunk are short.
//!
//! Invariant: before the command ends, its bytes are sent or are in the lanes' queue. The driver's targets
//! and the queued bytes are together at most [`MOST`] bytes, because nothing else limits a client to what
//! its lanes can carry.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::engine::Engine;
use super::message::{Message, data};
use super::transfer::Transfer;
use crate::accounting::{Busy, Counter};
use crate::runtime::block::{Block, Blocks};
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::host::Host;
use crate::worker::objects::command::watch;

/// Limit on the bytes of a session's short reads that have begun and are not sent.
const MOST: usize = 16 << 20;

/// Longest read that the driver's thread sends itself, in bytes. To copy more takes longer than to wake a
/// lane's thread, and a socket seldom has room for it.
const AT_ONCE: usize = 256 << 10;

/// Takes memory for a short read to the client. Returns `None` if the read is too long or the limit is
/// reached. The read then uses a mapping, which needs no such memory.
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
/// The driver's error.
pub(super) fn read(transfer: Transfer, room: Block, waits: &WaitList<'_>) -> Result<(), Status> {
    let target = Host::Block(room);
    let queue = transfer.queue.native()?;
    let memory = transfer.memory.native()?;
    let event = queue.read(memory, &transfer.region, target, 0, waits)?;
    transfer.command.enqueued(event);
    transfer.engine.short_reads.fetch_add(1, Ordering::Relaxed);
    watch(&Arc::new(ShortRead(transfer)));
    Ok(())
}

struct ShortRead(Transfer);

impl Listener for ShortRead {
    fn event(&self) -> Option<&Event> {
        self.0.command.native()
    }

    fn busy(&self) -> &Busy {
        self.0.command.busy()
    }

    fn ended(self: Arc<Self>, status: Status) {
        let transfer = &self.0;
        if let Some(event) = self.event()
            && !status.is_error()
        {
            let bytes = event.take_contents();
            let header = data(transfer.name(), 0, bytes.len() as u32);
            leave(&transfer.engine, Message { header, bytes });
        }
        transfer.engine.short_reads.fetch_sub(1, Ordering::Relaxed);
        // The command ends only now, after its bytes were sent or queued: see the module's invariant.
        transfer.command.finish(status, String::new());
    }
}

/// Sends the bytes, or queues them for a lane, without waiting. The calling thread sends only if no other
/// short read is in progress. Otherwise the lanes' threads send while the driver fills the next.
fn leave(engine: &Engine, message: Message) {
    let length = message.bytes.len();
    // Blocks whose bytes were sent may be kept until they are acknowledged, so their number says nothing.
    let is_alone = engine.short_reads.load(Ordering::Relaxed) <= 1;
    let sent = if length <= AT_ONCE && is_alone {
        engine.send_at_once(message)
    } else {
        Err(message)
    };
    match sent {
        Ok(()) => engine.account.add(Counter::ToClient, length as u64),
        Err(message) => engine.outgoing.chunk(Box::new(message)).discard(),
    }
}
