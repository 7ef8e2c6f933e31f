//! Eager writes: writes of one chunk, whose bytes the client sends unrequested, within its standing credit.
//!
//! Command and bytes use different connections, so either may arrive first. Early bytes wait in host memory,
//! [`EAGER_BYTES`](causeway_proto::limits::EAGER_BYTES) at most ([`early`](super::early)). When the command may run, it
//! becomes one native write from there. This costs a copy, but saves the round trip for credit and two driver commands,
//! which cost more for one chunk. Measured with PoCL on two cores: with credit, a blocking write of 64 to 256 KiB took
//! 1.5 to 3 times as long.
//!
//! Invariant: each announced write that may run is enqueued once, or its command fails.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::status::Status;

use super::early::EagerWrites;
use super::transfer::Transfer;
use crate::runtime::block::Block;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;
use crate::worker::objects::Queue;
use crate::worker::objects::command::native_waits;

/// Runs an announced command. Returns its native write if the bytes are here. Otherwise the write is
/// enqueued when they arrive.
///
/// # Errors
/// The driver's error for the native write.
pub(super) fn begin(
    writes: &EagerWrites,
    transfer: Transfer,
    waits: &WaitList<'_>,
) -> Result<Option<Event>, Status> {
    let block = match writes.take(transfer.name()) {
        Ok(block) => block,
        Err(missing) => {
            missing.wait(move |block| arrived(transfer, block));
            return Ok(None);
        }
    };
    match source(&transfer.queue, block) {
        Ok(source) => write(&transfer, source, waits).map(Some),
        Err(block) => {
            enqueue_later(transfer, block);
            Ok(None)
        }
    }
}

/// Enqueues the native write now that the bytes are here. Calls the driver.
fn arrived(transfer: Transfer, block: Block) {
    match source(&transfer.queue, block) {
        Ok(source) => enqueue(&transfer, source),
        Err(block) => enqueue_later(transfer, block),
    }
}

/// Leaves the native write to the bulk thread, because it may block.
fn enqueue_later(transfer: Transfer, block: Block) {
    let engine = Arc::clone(&transfer.engine);
    engine
        .jobs
        .later(move || enqueue(&transfer, Host::Block(block)));
}

/// Enqueues the command and runs the commands that follow it. Calls the driver.
fn enqueue(transfer: &Transfer, source: Host) {
    let enqueued = native_waits(&transfer.waits).and_then(|waits| write(transfer, source, &waits));
    match enqueued {
        Ok(event) => {
            transfer.command.enqueued(event);
            transfer.command.watch_end();
            transfer.passed();
        }
        Err(status) => transfer.fail_command(status, String::new()),
    }
}

/// Returns memory from which a native write does not block; `Err` if there is none. From other memory, a
/// driver of a device with its own memory may copy only after all earlier commands.
fn source(queue: &Queue, block: Block) -> Result<Host, Block> {
    match queue.stage(block.as_ref().len()) {
        Some(part) => Ok(Host::pinned_copy(part, block.as_ref())),
        None if is_direct(queue) => Ok(Host::Block(block)),
        None => Err(block),
    }
}

// A broken queue never blocks.
fn is_direct(queue: &Queue) -> bool {
    queue
        .native()
        .map_or(true, |native| native.device().has_direct_memory())
}

fn write(transfer: &Transfer, source: Host, waits: &WaitList<'_>) -> Result<Event, Status> {
    if source.length() as u64 != transfer.total() {
        return Err(Status::INVALID_VALUE);
    }
    let (queue, memory) = (transfer.queue.native()?, transfer.memory.native()?);
    queue.write(memory, &transfer.region, source, 0, waits)
}
