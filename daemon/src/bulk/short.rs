//! Reads of one chunk from devices whose memory the host sees: a native read into memory of ours, from
//! where a lane sends it.
//!
//! A mapping saves that copy, and costs a second driver command behind the sending, which for one chunk is
//! more. Invariant: the bytes are in the lanes' queue before the command ends.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use causeway_proto::status::Status;

use super::Transfer;
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::host::Host;
use crate::worker::session::run::watch;

/// Whether a read of these bytes for the client is short.
pub(super) fn is_short(region: &Region) -> bool {
    region.packed_length() <= BULK_CHUNK as u64
}

/// Enqueues a read.
///
/// # Errors
/// What the driver says.
pub(super) fn read(transfer: Transfer, waits: &WaitList<'_>) -> Result<(), Status> {
    let length = transfer.region.packed_length() as usize;
    let target = Host::Block(transfer.shared.bulk.blocks.take(length));
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
