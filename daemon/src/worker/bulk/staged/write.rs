//! Writes through pinned chunks: credit, then bytes into a chunk, then native writes from it.
//!
//! Invariant: a chunk's native writes are enqueued once, by the lane that received its last bytes.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::{CHUNK, Pieces, Rings, chunk_window, chunks, enqueue, passed};
use crate::runtime::context::Context;
use crate::runtime::pinned::PinnedChunk;
use crate::worker::bulk::blocks::blocks;
use crate::worker::bulk::incoming::{Incoming, LaneError, discard};
use crate::worker::bulk::peers::{TransferInProgress, Why};
use crate::worker::bulk::received_ranges::ReceivedRanges;
use crate::worker::bulk::transfer::Transfer;
use crate::worker::objects::task::Far;

/// A write through chunks.
pub(super) struct StagedWrite {
    transfer: Transfer,
    total: u64,
    state: Mutex<Writing>,
}

struct Writing {
    received_ranges: ReceivedRanges,
    granted: u64,
    filling: HashMap<u64, (Arc<PinnedChunk>, u64)>,
    pieces: Pieces,
    lined_up: bool,
    over: bool,
}

/// Starts a write.
pub(in crate::worker::bulk) fn write(transfer: Transfer) {
    let total = transfer.total();
    let write = Arc::new(StagedWrite {
        transfer,
        total,
        state: Mutex::new(Writing {
            received_ranges: ReceivedRanges::new(total),
            granted: 0,
            filling: HashMap::new(),
            pieces: Pieces::default(),
            lined_up: false,
            over: false,
        }),
    });
    write.transfer.start_receiving(&write);
}

impl StagedWrite {
    /// Has the bulk thread put the write into the line for chunks, once.
    fn line_up(self: &Arc<Self>) {
        if std::mem::replace(&mut self.state.lock().lined_up, true) {
            return;
        }
        let write = Arc::clone(self);
        let transfer = &self.transfer;
        transfer
            .engine
            .jobs
            .later(move || match Rings::of(&write.transfer) {
                Ok(rings) => {
                    rings.writes.lock().push_back(write);
                    rings.serve_writes();
                }
                Err(status) => write.give_up(status, String::new()),
            });
    }

    pub(super) fn context(&self) -> Result<&Context, Status> {
        super::context(&self.transfer)
    }

    pub(super) fn wants_chunk(&self) -> bool {
        let state = self.state.lock();
        !state.over && state.granted < chunks(self.total)
    }

    pub(super) fn grant(&self, chunk: PinnedChunk) {
        let mut state = self.state.lock();
        let number = state.granted;
        state.granted += 1;
        state.filling.insert(number, (Arc::new(chunk), 0));
        let to = state.granted * CHUNK;
        state.received_ranges.grant(to);
        let credit = state.received_ranges.credit();
        drop(state);
        self.transfer.grant(credit);
    }

    /// Enqueues the native writes of a full chunk. After the last chunk, releases the
    /// commands that follow in the queue.
    fn enqueue(&self, number: u64, chunk: Arc<PinnedChunk>) -> Result<(), Status> {
        let transfer = &self.transfer;
        let (from, to) = (number * CHUNK, ((number + 1) * CHUNK).min(self.total));
        let blocks = blocks(&transfer.region, from, to);
        let mut events = enqueue(transfer, chunk, from, blocks, None)?;
        let mut state = self.state.lock();
        state.pieces.add(&mut events);
        if state.pieces.enqueued == chunks(self.total) && !state.over {
            state.over = true;
            let pieces = std::mem::take(&mut state.pieces);
            drop(state);
            transfer.engine.forget(transfer.name());
            transfer.settle(None);
            passed(transfer, &pieces, true);
        }
        Ok(())
    }

    pub(super) fn give_up(&self, status: Status, message: String) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        let filling = std::mem::take(&mut state.filling);
        drop(state);
        self.transfer.fail(status, message);
        drop(filling);
        // The next write in line may use the chunks that this one no longer wants.
        if let Ok(rings) = Rings::of(&self.transfer) {
            rings.grant();
        }
    }
}

impl Incoming for StagedWrite {
    fn far(&self) -> Option<&Far> {
        self.transfer.far()
    }

    fn receive(
        &self,
        stream: &Stream,
        offset: u64,
        length: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError> {
        {
            let mut state = self.state.lock();
            if state.over {
                drop(state);
                return Ok(discard(stream, length, scratch)?);
            }
            state.received_ranges.claim(offset, length.into())?;
        }
        let (mut at, end) = (offset, offset + u64::from(length));
        while at < end {
            let number = at / CHUNK;
            let part = ((number + 1) * CHUNK).min(end) - at;
            let chunk = self
                // The lock is not held while bytes arrive, so that other lanes can receive at the same time.
                .state
                .lock()
                .filling
                .get(&number)
                .map(|(chunk, _)| Arc::clone(chunk));
            let Some(chunk) = chunk else {
                // The write was given up meanwhile.
                discard(stream, (end - at) as u32, scratch)?;
                return Ok(());
            };
            chunk_window(&chunk, CHUNK).receive(stream, at % CHUNK, part, scratch)?;
            drop(chunk);
            self.arrived(number, part);
            at += part;
        }
        Ok(())
    }
}

impl TransferInProgress for StagedWrite {
    fn heard(self: Arc<Self>, offered: u64) {
        if offered == self.total {
            self.line_up();
        } else {
            self.stop(Why::mismatch());
        }
    }

    fn stop(self: Arc<Self>, why: Why) {
        let write = Arc::clone(&self);
        let stop = move || write.give_up(why.status, why.message);
        let transfer = &self.transfer;
        transfer.engine.jobs.later(stop);
    }
}

impl StagedWrite {
    fn arrived(&self, number: u64, part: u64) {
        let full = {
            let mut state = self.state.lock();
            let whole = CHUNK.min(self.total - number * CHUNK);
            match state.filling.get_mut(&number) {
                Some((_, arrived)) => {
                    *arrived += part;
                    if *arrived == whole {
                        state.filling.remove(&number)
                    } else {
                        None
                    }
                }
                None => None,
            }
        };
        if let Some((chunk, _)) = full
            && let Err(status) = self.enqueue(number, chunk)
        {
            self.give_up(status, String::new());
        }
    }
}
