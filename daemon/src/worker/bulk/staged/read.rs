//! Reads through pinned chunks: native reads fill a chunk, which a lane then sends.
//!
//! Invariant: the command ends once, when all its bytes were handed to sockets, or early. A chunk is read
//! natively only if it may be sent.
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use causeway_lane::Stream;
use causeway_proto::bulk::Header;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::{CHUNK, Pieces, Rings, chunk_window, enqueue, passed};
use crate::runtime::context::Context;
use crate::runtime::pinned::PinnedChunk;
use crate::worker::bulk::blocks::blocks;
use crate::worker::bulk::message::{Chunk, Message, data};
use crate::worker::bulk::peers::{TransferInProgress, Why};
use crate::worker::bulk::transfer::Transfer;

/// A read through chunks.
pub(super) struct StagedRead {
    transfer: Transfer,
    total: u64,
    state: Mutex<Reading>,
    sent: AtomicU64,
}

struct Reading {
    pieces: Pieces,
    // Bytes before `enqueued` have native reads. Bytes before `credit` may be sent.
    enqueued: u64,
    credit: u64,
    lined_up: bool,
    // All pieces are enqueued, or no more will be.
    closed: bool,
    // The bytes that were read are no longer wanted.
    stopped: bool,
}

/// Starts a read.
pub(in crate::worker::bulk) fn read(transfer: Transfer) {
    let read = Arc::new(StagedRead {
        total: transfer.total(),
        transfer,
        state: Mutex::new(Reading {
            pieces: Pieces::default(),
            enqueued: 0,
            credit: 0,
            lined_up: false,
            closed: false,
            stopped: false,
        }),
        sent: AtomicU64::new(0),
    });
    let sender: Arc<dyn TransferInProgress> = Arc::clone(&read) as _;
    read.transfer.start_sending(sender);
}

impl StagedRead {
    /// Has the bulk thread put the read into the line for chunks.
    fn go_on(self: &Arc<Self>) {
        let read = Arc::clone(self);
        let transfer = &self.transfer;
        transfer
            .engine
            .jobs
            .later(move || match Rings::of(&read.transfer) {
                Ok(rings) => {
                    rings.line_up(&read);
                    rings.fill();
                }
                Err(status) => read.give_up(status),
            });
    }

    pub(super) fn context(&self) -> Result<&Context, Status> {
        super::context(&self.transfer)
    }

    pub(super) fn wants_chunk(&self) -> bool {
        let state = self.state.lock();
        !state.closed && !state.stopped && state.enqueued < state.credit
    }

    /// Whether a chunk is being filled for this read, or holds unsent bytes of it.
    pub(super) fn is_under_way(&self) -> bool {
        self.state.lock().enqueued > self.sent.load(Ordering::Acquire)
    }

    /// Sets whether the read is in the line. Returns the previous value.
    pub(super) fn set_lined_up(&self, lined_up: bool) -> bool {
        std::mem::replace(&mut self.state.lock().lined_up, lined_up)
    }

    pub(super) fn enqueue(self: &Arc<Self>, chunk: Arc<PinnedChunk>) {
        if let Err(status) = self.enqueue_chunk(chunk) {
            self.give_up(status);
        }
    }

    fn enqueue_chunk(self: &Arc<Self>, chunk: Arc<PinnedChunk>) -> Result<(), Status> {
        let transfer = &self.transfer;
        let (from, to) = {
            let state = self.state.lock();
            // A part of a chunk is sent too, because all granted credit must be usable: the grantor may
            // reserve memory for it.
            let to = (state.enqueued + CHUNK).min(state.credit);
            (state.enqueued, to)
        };
        let found = blocks(&transfer.region, from, to);
        let filling = Arc::new(Filling {
            read: Arc::clone(self),
            chunk: Mutex::new(Some(Arc::clone(&chunk))),
            left: AtomicUsize::new(found.len()),
            offset: from,
            length: (to - from) as u32,
        });
        let mut events = enqueue(transfer, chunk, from, found, Some(&filling))?;
        let mut state = self.state.lock();
        state.pieces.add(&mut events);
        state.enqueued = to;
        if to == self.total && !state.closed {
            state.closed = true;
            let all = std::mem::take(&mut state.pieces);
            drop(state);
            passed(transfer, &all, false);
            self.count_sent(0);
        }
        Ok(())
    }

    /// Ends the read with an error, once.
    pub(super) fn give_up(&self, status: Status) {
        if !std::mem::replace(&mut self.state.lock().closed, true) {
            self.transfer.fail(status, String::new());
        }
    }

    /// Counts bytes that were handed to a socket. The last bytes end the command if its last piece is enqueued.
    fn count_sent(&self, length: u64) {
        let sent = self.sent.fetch_add(length, Ordering::AcqRel) + length;
        if sent == self.total && self.transfer.command.native().is_some() {
            self.transfer.settle(None);
            self.transfer.command.finish(Status::SUCCESS, String::new());
        }
    }

    /// Ends the read without its remaining bytes. Bulk thread only, as is everything that enqueues pieces.
    fn stop_now(&self, status: Status) {
        let mut state = self.state.lock();
        let closed = std::mem::replace(&mut state.closed, true);
        let pieces = std::mem::take(&mut state.pieces);
        drop(state);
        let transfer = &self.transfer;
        transfer.settle(Some(status));
        if closed {
            // All pieces are in the native queue. Chunks that no lane sends end no command, so it ends here.
            return transfer.command.finish(Status::SUCCESS, String::new());
        }
        if pieces.events.is_empty() {
            transfer.command.finish(Status::SUCCESS, String::new());
            return transfer.passed();
        }
        passed(transfer, &pieces, true);
    }
}

impl TransferInProgress for StagedRead {
    fn heard(self: Arc<Self>, credit: u64) {
        if credit > self.total {
            return self.stop(Why::mismatch());
        }
        let mut state = self.state.lock();
        let more = credit > state.credit;
        state.credit = state.credit.max(credit);
        drop(state);
        if more {
            self.go_on();
        }
    }

    fn stop(self: Arc<Self>, why: Why) {
        let read = Arc::clone(&self);
        let transfer = &self.transfer;
        transfer.log_stop(&why);
        self.state.lock().stopped = true;
        let stop = move || read.stop_now(why.status);
        transfer.engine.jobs.later(stop);
    }
}

/// A chunk that native reads are filling.
pub(super) struct Filling {
    read: Arc<StagedRead>,
    chunk: Mutex<Option<Arc<PinnedChunk>>>,
    left: AtomicUsize,
    offset: u64,
    length: u32,
}

impl Filling {
    pub(super) fn ended(&self, status: Status) {
        let last = self.left.fetch_sub(1, Ordering::AcqRel) == 1;
        if status.is_error() {
            self.read.state.lock().closed = true;
            let chunk = self.chunk.lock().take();
            drop(chunk);
            self.read.transfer.fail_later(status, String::new());
            return;
        }
        let chunk = self.chunk.lock().take_if(|_| last);
        let stopped = self.read.state.lock().stopped;
        if let Some(chunk) = chunk
            && !stopped
        {
            let filled = Box::new(StagedChunk {
                read: Arc::clone(&self.read),
                chunk,
                offset: self.offset,
                length: self.length,
            });
            self.read.transfer.put(|queue| queue.chunk(filled));
        }
    }
}

/// A filled chunk on its way to a lane.
struct StagedChunk {
    read: Arc<StagedRead>,
    chunk: Arc<PinnedChunk>,
    offset: u64,
    length: u32,
}

impl Chunk for StagedChunk {
    fn header(&self) -> Header {
        data(self.read.transfer.name(), self.offset, self.length)
    }

    fn is_wanted(&self) -> bool {
        !self.read.state.lock().stopped
    }

    fn put(
        &self,
        stream: &Stream,
        before: &[u8],
        skip: u64,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        let window = chunk_window(&self.chunk, self.length.into());
        window.send(stream, before, skip, u64::from(self.length) - skip, scratch)
    }

    fn sent(&mut self) {
        // This comes before the chunk is freed: the callback for the freed chunk must see that this read no longer
        // uses it.
        self.read.count_sent(self.length.into());
    }

    fn copied(&self, _: bool) -> Option<Message> {
        // The ring has few chunks. Small pieces would hold all of them until the other end has received a MiB.
        (self.offset == 0 && u64::from(self.length) < CHUNK).then(|| {
            let window = chunk_window(&self.chunk, self.length.into());
            let copy = |to: &mut [u8]| window.copy_out(0, to);
            let blocks = &self.read.transfer.engine.blocks;
            Message::copy(blocks, self.header(), copy)
        })
    }
}
