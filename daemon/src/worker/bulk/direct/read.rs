//! Sends from a mapping, to the client or to another worker. To a worker, sends only as far as its credit goes.
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::bulk::Header;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::Mapped;
use crate::accounting::Busy;
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::queue::Access;
use crate::worker::bulk::allowance::Allowance;
use crate::worker::bulk::message::{Chunk, Message, data};
use crate::worker::bulk::outgoing::Divisible;
use crate::worker::bulk::peers::{TransferInProgress, Why};
use crate::worker::bulk::transfer::Transfer;
use crate::worker::objects::command::watch;

/// A read through a mapping.
struct DirectRead {
    mapped: Arc<Mapped>,
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
    let allowance = Allowance::new(transfer.total());
    let read = Arc::new(DirectRead {
        mapped: Mapped::new(transfer, Access::Read, waits)?,
        state: Mutex::new(Sending {
            allowance,
            mapped: false,
            queued: false,
            why: None,
        }),
    });
    let sender: Arc<dyn TransferInProgress> = Arc::clone(&read) as _;
    read.mapped.transfer.start_sending(sender);
    watch(&read);
    Ok(())
}

impl Listener for DirectRead {
    fn event(&self) -> Option<&Event> {
        Some(&self.mapped.event)
    }

    fn busy(&self) -> &Busy {
        self.mapped.transfer.command.busy()
    }

    fn ended(self: Arc<Self>, status: Status) {
        if self.mapped.ended(status) {
            self.state.lock().mapped = true;
            self.go_on();
        }
    }
}

impl DirectRead {
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
            let end = move || read.finish();
            // The driver's callback may be the caller, so the bulk thread makes the unmap.
            transfer.engine.jobs.later(end);
        } else if state.allowance.has_more() && !std::mem::replace(&mut state.queued, true) {
            drop(state);
            let read = Arc::clone(self);
            self.mapped.transfer.put(|queue| queue.read(read));
        }
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

impl Divisible for DirectRead {
    fn take_chunk(self: Arc<Self>) -> (Option<Box<dyn Chunk>>, bool) {
        let mut state = self.state.lock();
        let taken = state.allowance.take(BULK_CHUNK as u64);
        state.queued = state.allowance.has_more();
        let more = state.queued;
        drop(state);
        let chunk = taken.map(|(offset, length)| -> Box<dyn Chunk> {
            Box::new(MappedChunk {
                read: self,
                offset,
                length,
                sent: false,
            })
        });
        (chunk, more)
    }

    fn unqueued(&self) {
        self.state.lock().queued = false;
    }
}

impl TransferInProgress for DirectRead {
    fn heard(self: Arc<Self>, credit: u64) {
        if credit > self.mapped.transfer.total() {
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
struct MappedChunk {
    read: Arc<DirectRead>,
    offset: u64,
    length: u64,
    sent: bool,
}

impl Chunk for MappedChunk {
    fn header(&self) -> Header {
        data(
            self.read.mapped.transfer.name(),
            self.offset,
            self.length as u32,
        )
    }

    fn put(
        &self,
        stream: &Stream,
        before: &[u8],
        skip: u64,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        // The window is the mapping of the whole read, not only of this chunk.
        let window = &self.read.mapped.window;
        let (offset, length) = (self.offset + skip, self.length - skip);
        window.send(stream, before, offset, length, scratch)
    }

    fn sent(&mut self) {
        self.sent = true;
    }

    fn copied(&self, leaves: bool) -> Option<Message> {
        // Commands behind the read wait for the end of its mapping. They do not wait for a round trip of the
        // network, nor for an acknowledgement that comes with the next MiB only.
        let is_acknowledged_late = self.offset == 0 && self.length < BULK_CHUNK as u64;
        (leaves || is_acknowledged_late).then(|| {
            let mapped = &self.read.mapped;
            let copy = |to: &mut [u8]| mapped.window.copy_out(self.offset, to);
            Message::copy(&mapped.transfer.engine.blocks, self.header(), copy)
        })
    }
}

impl Drop for MappedChunk {
    fn drop(&mut self) {
        self.read.put_back(if self.sent { self.length } else { 0 });
    }
}
