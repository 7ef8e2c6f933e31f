//! Receives into a mapping, from the client or from another worker.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::Mapped;
use crate::accounting::Busy;
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::queue::Access;
use crate::worker::bulk::incoming::{Incoming, LaneError, discard};
use crate::worker::bulk::peers::{TransferInProgress, Why};
use crate::worker::bulk::received_ranges::ReceivedRanges;
use crate::worker::bulk::transfer::Transfer;
use crate::worker::objects::command::watch;
use crate::worker::objects::task::Far;

/// A write through a mapping.
struct DirectWrite {
    mapped: Arc<Mapped>,
    state: Mutex<Receiving>,
}

struct Receiving {
    received_ranges: ReceivedRanges,
    // Number of lanes that are receiving into the mapping.
    inside: usize,
    mapped: bool,
    cancelled: Option<Why>,
}

/// Starts a write.
///
/// # Errors
/// The driver's error for the map command.
pub(in crate::worker::bulk) fn write(
    transfer: Transfer,
    waits: &WaitList<'_>,
) -> Result<(), Status> {
    let received_ranges = ReceivedRanges::new(transfer.total());
    let write = Arc::new(DirectWrite {
        mapped: Mapped::new(transfer, Access::Overwrite, waits)?,
        state: Mutex::new(Receiving {
            received_ranges,
            inside: 0,
            mapped: false,
            cancelled: None,
        }),
    });
    write.mapped.transfer.start_receiving(&write);
    watch(&write);
    Ok(())
}

impl Listener for DirectWrite {
    fn event(&self) -> Option<&Event> {
        Some(&self.mapped.event)
    }

    fn busy(&self) -> &Busy {
        self.mapped.transfer.command.busy()
    }

    fn ended(self: Arc<Self>, status: Status) {
        if !self.mapped.ended(status) {
            return;
        }
        // Only now may the peer send: before the map command has ended there is no memory to receive into.
        let credit = {
            let mut state = self.state.lock();
            state.mapped = true;
            state.received_ranges.grant(u64::MAX);
            state
                .cancelled
                .is_none()
                .then(|| state.received_ranges.credit())
        };
        match credit {
            Some(credit) => self.mapped.transfer.grant(credit),
            None => self.abandon_later(),
        }
    }
}

impl DirectWrite {
    /// Ends a write that was cancelled, because its bytes will not come.
    fn abandon(&self) {
        let why = self.state.lock().cancelled.clone();
        if let Some(why) = why
            && self.mapped.first_to_end()
        {
            self.mapped.abandon(why.status, why.message);
        }
    }

    fn abandon_later(self: &Arc<Self>) {
        let write = Arc::clone(self);
        let transfer = &self.mapped.transfer;
        let abandon = move || write.abandon();
        transfer.engine.jobs.later(abandon);
    }
}

impl Incoming for DirectWrite {
    fn far(&self) -> Option<&Far> {
        self.mapped.transfer.far()
    }

    fn receive(
        &self,
        stream: &Stream,
        offset: u64,
        length: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError> {
        let bytes = u64::from(length);
        {
            let mut state = self.state.lock();
            if state.cancelled.is_some() {
                drop(state);
                return Ok(discard(stream, length, scratch)?);
            }
            state.received_ranges.claim(offset, bytes)?;
            state.inside += 1;
        }
        // The lock is not held while bytes arrive, so that other lanes can receive into the same mapping.
        let received = self.mapped.window.receive(stream, offset, bytes, scratch);
        let mut state = self.state.lock();
        state.inside -= 1;
        let all = received.is_ok() && state.received_ranges.arrive(bytes);
        let abandoned = state.cancelled.is_some() && state.inside == 0;
        drop(state);
        if all {
            let transfer = &self.mapped.transfer;
            transfer.engine.forget(transfer.name());
            if self.mapped.first_to_end() {
                transfer.settle(None);
                self.mapped.finish();
            }
        } else if abandoned {
            self.abandon();
        }
        Ok(received?)
    }
}

impl TransferInProgress for DirectWrite {
    fn heard(self: Arc<Self>, offered: u64) {
        if offered != self.mapped.transfer.total() {
            self.stop(Why::mismatch());
        }
    }

    fn stop(self: Arc<Self>, why: Why) {
        let transfer = &self.mapped.transfer;
        transfer.engine.forget(transfer.name());
        let mut state = self.state.lock();
        let first = state.cancelled.is_none();
        state.cancelled.get_or_insert(why);
        // While a lane is inside, that lane abandons the write when it leaves.
        let now = first && state.mapped && state.inside == 0;
        drop(state);
        if now {
            self.abandon_later();
        }
    }
}
