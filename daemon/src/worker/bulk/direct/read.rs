//! Sends from a mapping, to the client or to another worker. To a worker, sends only as far as its credit goes.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::Mapped;
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::queue::Access;
use crate::worker::bulk::Transfer;
use crate::worker::bulk::allowance::Allowance;
use crate::worker::bulk::memory::Window;
use crate::worker::bulk::peers::{Running, Why, offer};
use crate::worker::session::run::watch;

/// A read through a mapping.
pub(in crate::worker::bulk) struct DirectRead {
    mapped: Arc<Mapped>,
    total: u64,
    state: Mutex<Sending>,
}

struct Sending {
    allowance: Allowance,
    // Whether the map command has ended, so that bytes can be sent.
    mapped: bool,
    // Whether the read is in the queue of a lane group.
    queued: bool,
    why: Option<Why>,
}

/// Starts a read.
///
/// # Errors
/// The driver's error for the map command.
pub(in crate::worker::bulk) fn read(
    transfer: Transfer,
    waits: &WaitList<'_>,
) -> Result<(), Status> {
    let total = transfer.region.packed_length();
    let read = Arc::new(DirectRead {
        mapped: Mapped::new(transfer, Access::Read, waits)?,
        total,
        state: Mutex::new(Sending {
            allowance: Allowance::new(total),
            mapped: false,
            queued: false,
            why: None,
        }),
    });
    read.begin();
    watch(&read);
    Ok(())
}

impl Listener for DirectRead {
    fn event(&self) -> Option<&Event> {
        Some(&self.mapped.event)
    }

    fn ended(self: Arc<Self>, status: Status) {
        self.mapped.ended(status);
        if status.is_error() {
            self.mapped.transfer.fail_later(status, String::new());
            return;
        }
        self.state.lock().mapped = true;
        self.go_on();
    }
}

impl DirectRead {
    fn begin(self: &Arc<Self>) {
        let transfer = &self.mapped.transfer;
        let Some(far) = &transfer.far else {
            // A read to the client needs no credit: the application's memory exists from the start.
            self.state.lock().allowance.grant(self.total);
            return;
        };
        let running: Arc<dyn Running> = Arc::<DirectRead>::clone(self);
        let heard = transfer.start(far, running);
        let credit = heard.amount(far.part).unwrap_or(0);
        if let Some(why) = heard.over {
            Arc::clone(self).stop(why);
        } else {
            if credit < self.total {
                transfer.send_header(offer(far.transfer, self.total));
            }
            Arc::clone(self).heard(credit);
        }
    }

    /// Queues the read while there are bytes to send. Ends it when no lane will touch the bytes any more.
    fn go_on(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if !state.mapped {
            return;
        }
        if state.allowance.is_over() {
            drop(state);
            let read = Arc::clone(self);
            let transfer = &self.mapped.transfer;
            let end = move |_: &_| read.finish();
            // The driver's callback may be the caller, so the bulk thread makes the unmap.
            transfer.shared.bulk.later(&transfer.shared, end);
        } else if state.allowance.has_more() && !std::mem::replace(&mut state.queued, true) {
            drop(state);
            let read = Arc::clone(self);
            self.mapped.transfer.put(|queue| queue.mapped(read));
        }
    }

    /// Takes the next chunk for a lane. Also returns whether more chunks are available.
    pub(in crate::worker::bulk) fn take_chunk(
        read: &Arc<DirectRead>,
    ) -> (Option<MappedChunk>, bool) {
        let mut state = read.state.lock();
        let taken = state.allowance.take(BULK_CHUNK as u64);
        state.queued = state.allowance.has_more();
        let more = state.queued;
        drop(state);
        let chunk = taken.map(|(offset, length)| MappedChunk {
            read: Arc::clone(read),
            offset,
            length,
            sent: false,
        });
        (chunk, more)
    }

    /// Notes that the read is in no queue any more.
    pub(in crate::worker::bulk) fn unqueued(&self) {
        self.state.lock().queued = false;
    }

    fn put_back(&self, sent: u64) {
        let mut state = self.state.lock();
        state.allowance.put_back(sent);
        let over = state.allowance.is_over();
        drop(state);
        if over {
            self.finish();
        }
    }

    fn finish(&self) {
        if !self.mapped.first_to_end() {
            return;
        }
        let why = self.state.lock().why.take();
        self.mapped.transfer.settle(why.map(|why| why.status));
        self.mapped.finish();
    }
}

impl Running for DirectRead {
    fn heard(self: Arc<Self>, credit: u64) {
        if credit > self.total {
            return self.stop(Why::mismatch());
        }
        self.state.lock().allowance.grant(credit);
        self.go_on();
    }

    /// Stops sending. The command does not fail: later commands on this node only wait until
    /// the buffer is no longer read.
    fn stop(self: Arc<Self>, why: Why) {
        self.mapped.transfer.log_stop(&why);
        let mut state = self.state.lock();
        state.allowance.stop();
        state.why.get_or_insert(why);
        drop(state);
        self.go_on();
    }
}

/// Bytes of a mapped read that a lane has taken to send.
pub(in crate::worker::bulk) struct MappedChunk {
    read: Arc<DirectRead>,
    offset: u64,
    length: u64,
    sent: bool,
}

impl MappedChunk {
    /// Id of the transfer that the bytes belong to.
    pub(in crate::worker::bulk) fn transfer(&self) -> EventId {
        self.read.mapped.transfer.name()
    }

    /// Packed offset of the chunk's first byte.
    pub(in crate::worker::bulk) fn offset(&self) -> u64 {
        self.offset
    }

    /// Length of the chunk in bytes.
    pub(in crate::worker::bulk) fn length(&self) -> u32 {
        self.length as u32
    }

    /// The mapping of the whole read, not only of this chunk.
    pub(in crate::worker::bulk) fn window(&self) -> &Window {
        &self.read.mapped.window
    }

    /// Marks the bytes as handed to the socket.
    pub(in crate::worker::bulk) fn sent(mut self) {
        self.sent = true;
    }
}

impl Drop for MappedChunk {
    fn drop(&mut self) {
        self.read.put_back(if self.sent { self.length } else { 0 });
    }
}
