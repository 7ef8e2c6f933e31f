//! Out of a mapping: to the client, or to another worker as far as its credit goes.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::Mapped;
use crate::bulk::Transfer;
use crate::bulk::allowance::Allowance;
use crate::bulk::memory::Window;
use crate::bulk::peers::{Running, Why, offer};
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::queue::Access;
use crate::worker::session::run::watch;

/// A read out of a mapping.
pub(in crate::bulk) struct DirectRead {
    mapped: Arc<Mapped>,
    total: u64,
    state: Mutex<Sending>,
}

struct Sending {
    allowance: Allowance,
    // The mapping is there.
    mapped: bool,
    // It stands in the queue of a way.
    queued: bool,
    why: Option<Why>,
}

/// Starts a read.
///
/// # Errors
/// What the driver says to the mapping.
pub(in crate::bulk) fn read(transfer: Transfer, waits: &WaitList<'_>) -> Result<(), Status> {
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
            // The client's memory is there from the start.
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
                transfer.say(offer(far.transfer, self.total));
            }
            Arc::clone(self).heard(credit);
        }
    }

    /// Stands in the queue while there is something to send, and ends when nobody will touch the bytes.
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
            transfer.shared.bulk.later(&transfer.shared, end);
        } else if state.allowance.has_more() && !std::mem::replace(&mut state.queued, true) {
            drop(state);
            let read = Arc::clone(self);
            self.mapped.transfer.put(|queue| queue.mapped(read));
        }
    }

    /// The next chunk for a lane, and whether there are more.
    pub(in crate::bulk) fn take_chunk(read: &Arc<DirectRead>) -> (Option<MappedChunk>, bool) {
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

    /// It stands in no queue any more.
    pub(in crate::bulk) fn unqueued(&self) {
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

    /// The buffer is no longer read, which is all that others on this node wait for: no failure here.
    fn stop(self: Arc<Self>, why: Why) {
        self.mapped.transfer.log_stop(&why);
        let mut state = self.state.lock();
        state.allowance.stop();
        state.why.get_or_insert(why);
        drop(state);
        self.go_on();
    }
}

/// Bytes of a mapped read that are with a lane.
pub(in crate::bulk) struct MappedChunk {
    read: Arc<DirectRead>,
    offset: u64,
    length: u64,
    sent: bool,
}

impl MappedChunk {
    /// Whose bytes.
    pub(in crate::bulk) fn transfer(&self) -> EventId {
        self.read.mapped.transfer.name()
    }

    /// Where they begin in packed order.
    pub(in crate::bulk) fn offset(&self) -> u64 {
        self.offset
    }

    /// How many.
    pub(in crate::bulk) fn length(&self) -> u32 {
        self.length as u32
    }

    /// Where the whole read's bytes lie.
    pub(in crate::bulk) fn window(&self) -> &Window {
        &self.read.mapped.window
    }

    /// They were handed to the socket.
    pub(in crate::bulk) fn sent(mut self) {
        self.sent = true;
    }
}

impl Drop for MappedChunk {
    fn drop(&mut self) {
        self.read.put_back(if self.sent { self.length } else { 0 });
    }
}
