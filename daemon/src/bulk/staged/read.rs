//! Reads through pinned chunks: native reads into a chunk, the chunk to a lane.
//!
//! Invariant: the command ends when all its bytes were handed to sockets, or once with its first error.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use causeway_proto::id::EventId;
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::{CHUNK, Piece, Pieces, Rings, Then, chunks, passed, slot_window};
use crate::bulk::Transfer;
use crate::bulk::blocks::blocks;
use crate::bulk::memory::Window;
use crate::runtime::host::Host;
use crate::runtime::pinned::Slot;
use crate::worker::session::Shared;
use crate::worker::session::enqueue::Task;
use crate::worker::session::objects::Memory;
use crate::worker::session::run::{native_waits, watch};

/// A read through chunks.
pub(super) struct StagedRead {
    transfer: Transfer,
    total: u64,
    pieces: Mutex<Pieces>,
    sent: AtomicU64,
}

/// Starts a read, from the bulk thread.
pub(in crate::bulk) fn read(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
) {
    let read = Arc::new(StagedRead {
        transfer: Transfer::new(shared, task, memory, region),
        total: region.packed_length(),
        pieces: Mutex::default(),
        sent: AtomicU64::new(0),
    });
    shared.bulk.later(shared, move |shared| {
        match Rings::of(shared, &read.transfer.queue) {
            Ok(rings) => {
                rings.reads.lock().push_back(read);
                rings.fill();
            }
            Err(status) => read.give_up(status),
        }
    });
}

impl StagedRead {
    pub(super) fn is_enqueued(&self) -> bool {
        let pieces = self.pieces.lock();
        pieces.failed || pieces.enqueued == chunks(self.total)
    }

    pub(super) fn enqueue(self: &Arc<Self>, slot: Arc<Slot>) {
        if let Err(status) = self.enqueue_chunk(slot) {
            self.give_up(status);
        }
    }

    fn enqueue_chunk(self: &Arc<Self>, slot: Arc<Slot>) -> Result<(), Status> {
        let transfer = &self.transfer;
        let chunk = self.pieces.lock().enqueued;
        let (from, to) = (chunk * CHUNK, ((chunk + 1) * CHUNK).min(self.total));
        let queue = transfer.queue.native()?;
        let waits = native_waits(&transfer.waits)?;
        let found = blocks(&transfer.region, from, to);
        let filling = Arc::new(Filling {
            read: Arc::clone(self),
            slot: Mutex::new(Some(Arc::clone(&slot))),
            left: AtomicUsize::new(found.len()),
            offset: from,
            length: (to - from) as u32,
        });
        let mut events = Vec::new();
        for block in found {
            let host = Host::Chunk(Arc::clone(&slot));
            let skip = (block.packed - from) as usize;
            let event = queue.read(transfer.memory.native()?, &block.region, host, skip, &waits)?;
            let event = Arc::new(event);
            watch(&Arc::new(Piece {
                event: Arc::clone(&event),
                then: Then::Filled(Arc::clone(&filling)),
            }));
            events.push(event);
        }
        let _ = queue.flush();
        let mut pieces = self.pieces.lock();
        pieces.add(&mut events);
        if pieces.enqueued == chunks(self.total) {
            let all = Pieces {
                first: pieces.first.take(),
                events: std::mem::take(&mut pieces.events),
                ..Pieces::default()
            };
            drop(pieces);
            passed(transfer, &all);
            self.count_sent(0);
        }
        Ok(())
    }

    pub(super) fn give_up(&self, status: Status) {
        if !std::mem::replace(&mut self.pieces.lock().failed, true) {
            self.transfer.fail(status);
        }
    }

    /// Bytes were handed to a socket. The last ones end the command, once its last piece is enqueued.
    fn count_sent(&self, length: u64) {
        let sent = self.sent.fetch_add(length, Ordering::AcqRel) + length;
        if sent == self.total && self.transfer.command.native().is_some() {
            self.transfer.command.finish(Status::SUCCESS, String::new());
        }
    }
}

/// A chunk that native reads fill.
pub(super) struct Filling {
    read: Arc<StagedRead>,
    slot: Mutex<Option<Arc<Slot>>>,
    left: AtomicUsize,
    offset: u64,
    length: u32,
}

impl Filling {
    pub(super) fn ended(&self, status: Status) {
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        if status.is_error() {
            self.read.pieces.lock().failed = true;
            let slot = self.slot.lock().take();
            drop(slot);
            self.read.transfer.fail_later(status);
            return;
        }
        let slot = self.slot.lock().take_if(|_| last);
        if let Some(slot) = slot {
            self.read
                .transfer
                .shared
                .bulk
                .outgoing()
                .staged(StagedChunk {
                    read: Arc::clone(&self.read),
                    slot,
                    offset: self.offset,
                    length: self.length,
                });
        }
    }
}

/// A filled chunk on its way to a lane.
pub(in crate::bulk) struct StagedChunk {
    read: Arc<StagedRead>,
    slot: Arc<Slot>,
    offset: u64,
    length: u32,
}

impl StagedChunk {
    /// Whose bytes.
    pub(in crate::bulk) fn transfer(&self) -> EventId {
        self.read.transfer.id()
    }

    /// Where they begin in packed order.
    pub(in crate::bulk) fn offset(&self) -> u64 {
        self.offset
    }

    /// How many.
    pub(in crate::bulk) fn length(&self) -> u32 {
        self.length
    }

    /// Where they lie.
    pub(in crate::bulk) fn window(&self) -> Window {
        slot_window(&self.slot, self.length.into())
    }

    /// They were handed to the socket.
    pub(in crate::bulk) fn sent(self) {
        let StagedChunk { read, slot, .. } = self;
        drop(slot);
        read.count_sent(self.length.into());
    }
}
