//! Transfers through pinned chunks, for devices with memory of their own.
//!
//! Each device of a context has two rings of pinned chunks, which are allocated as they are needed. A write
//! gets credit for a chunk when one is free, receives into it and enqueues a native write from it. The end
//! of that native write frees the chunk. A read enqueues native reads into free chunks. A filled chunk goes
//! to the lanes and is free after it was sent. So network and device copies overlap, and memory is bounded.
//!
//! Whatever waits for a chunk must be able to proceed without the client's help. So a receive from another
//! worker waits only after its sender's offer, and a send waits only for bytes within its credit. Writes get
//! chunks strictly in order. Reads take turns, those without a chunk first. So none blocks another for ever.
//!
//! Threads: the thread that frees a chunk grants the credit, without a driver call. The lane that
//! received the bytes enqueues native writes. The bulk thread enqueues native reads. Invariant: a `PinnedChunk`
//! is never dropped under a lock of this module, because its drop grants credit.

mod read;
mod write;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

pub(super) use self::read::read;
use self::read::{Filling, StagedRead};
use self::write::StagedWrite;
pub(super) use self::write::write;
use super::blocks::Block;
use super::engine::Engine;
use super::memory::Window;
use super::transfer::Transfer;
use crate::accounting::Busy;
use crate::runtime::context::Context;
use crate::runtime::event::{Event, Listener};
use crate::runtime::host::Host;
use crate::runtime::pinned::{MappingQueue, PinnedChunk, Ring};
use crate::worker::objects::Queue;
use crate::worker::objects::command::{Command, native_waits, watch};

const CHUNK: u64 = BULK_CHUNK as u64;
/// Maximum number of chunks in a ring: 16 MiB per direction, device and context.
const MOST_CHUNKS: usize = 16;

/// The two rings of a device in a context, and the transfers that wait for chunks.
struct Rings {
    up: Arc<Ring>,
    down: Arc<Ring>,
    writes: Mutex<VecDeque<Arc<StagedWrite>>>,
    reads: Mutex<VecDeque<Arc<StagedRead>>>,
}

impl Rings {
    /// Makes two rings without chunks.
    fn new(engine: &Arc<Engine>, queue: &Queue) -> Result<Arc<Rings>, Status> {
        let (context, device) = (queue.context.native()?, queue.native()?.device());
        let mapping = MappingQueue::new(context, device)?;
        let up = Ring::new(Arc::clone(&mapping), MOST_CHUNKS);
        let down = Ring::new(mapping, MOST_CHUNKS);
        let rings = Arc::new(Rings {
            up,
            down,
            writes: Mutex::default(),
            reads: Mutex::default(),
        });
        let weak = Arc::downgrade(&rings);
        rings.up.when_freed(Box::new(move || {
            if let Some(rings) = weak.upgrade() {
                rings.grant();
            }
        }));
        let (weak, engine) = (Arc::downgrade(&rings), Arc::downgrade(engine));
        rings.down.when_freed(Box::new(move || {
            if let (Some(rings), Some(engine)) = (Weak::upgrade(&weak), engine.upgrade()) {
                // A native read needs the driver, but a chunk may be freed where the driver must not be called.
                if !rings.reads.lock().is_empty() {
                    engine.jobs.later(move || rings.fill());
                }
            }
        }));
        Ok(rings)
    }

    fn of(transfer: &Transfer) -> Result<Arc<Rings>, Status> {
        let queue = &transfer.queue;
        queue
            .context
            .staging(queue.device, || Rings::new(&transfer.engine, queue))
    }

    /// Grants free chunks to the waiting writes, in order.
    fn grant(&self) {
        // Declared before the lock, so dropped after it: the drop of a write may free chunks
        // and call this function again.
        let mut served = Vec::new();
        let mut writes = self.writes.lock();
        while let Some(first) = writes.front() {
            while first.wants_chunk() {
                let Some(chunk) = self.up.take() else { return };
                first.grant(chunk);
            }
            served.extend(writes.pop_front());
        }
    }

    /// Grants free chunks to the waiting writes, and allocates missing chunks for them. The credit bounds
    /// the bytes in flight. Bulk thread only.
    fn serve_writes(&self) {
        loop {
            self.grant();
            // The first write in line got no chunk.
            let Some(first) = self.writes.lock().front().map(Arc::clone) else {
                return;
            };
            match first.context().and_then(|context| self.up.grow(context)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(status) => first.give_up(status, String::new()),
            }
        }
    }

    /// Adds a read to the line unless it is there already. Bulk thread only.
    fn line_up(&self, read: &Arc<StagedRead>) {
        if !read.set_lined_up(true) {
            self.reads.lock().push_back(Arc::clone(read));
        }
    }

    /// Enqueues native reads into free chunks; the reads take turns. Bulk thread only.
    fn fill(&self) {
        loop {
            // Only this thread removes reads from the line. The lock is for threads that look
            // whether the line is empty.
            let Some(read) = self.first_read() else {
                return;
            };
            if read.wants_chunk() {
                match self.chunk_for(&read) {
                    Ok(Some(chunk)) => read.enqueue(Arc::new(chunk)),
                    Ok(None) => return,
                    Err(status) => read.give_up(status),
                }
            }
            let again = read.wants_chunk();
            read.set_lined_up(again);
            let mut reads = self.reads.lock();
            reads.pop_front();
            if again {
                reads.push_back(read);
            }
        }
    }

    // Moves the read whose turn it is to the front and returns it. Reads without a chunk come first,
    // because the chunks of the others may wait behind a long kernel.
    fn first_read(&self) -> Option<Arc<StagedRead>> {
        let mut reads = self.reads.lock();
        let without = reads
            .iter()
            .position(|read| read.wants_chunk() && !read.is_under_way());
        if let Some(read) = without.and_then(|place| reads.remove(place)) {
            reads.push_front(read);
        }
        reads.front().map(Arc::clone)
    }

    // Returns a free chunk. Allocates one if all existing chunks are in constant use, or if this read has none.
    fn chunk_for(&self, read: &StagedRead) -> Result<Option<PinnedChunk>, Status> {
        if let Some(chunk) = self.down.take() {
            return Ok(Some(chunk));
        }
        if (self.down.is_busy() || !read.is_under_way()) && self.down.grow(read.context()?)? {
            return Ok(self.down.take());
        }
        Ok(None)
    }
}

/// The native pieces of a staged transfer, in either direction.
#[derive(Default)]
struct Pieces {
    first: Option<Arc<Event>>,
    // The pieces that may still run, and those that failed.
    events: Vec<Arc<Event>>,
    enqueued: u64,
}

impl Pieces {
    fn add(&mut self, events: &mut Vec<Arc<Event>>) {
        if self.first.is_none() {
            self.first = events.first().map(Arc::clone);
        }
        // Thousands of unreleased events slow some drivers down. A failed event stays, for [`passed`].
        self.events.retain(|e| !e.has_succeeded());
        self.events.append(events);
        self.enqueued += 1;
    }
}

fn context(transfer: &Transfer) -> Result<&Context, Status> {
    transfer.queue.context.native()
}

fn chunks(total: u64) -> u64 {
    total.div_ceil(CHUNK)
}

/// Handles that all pieces are in the native queue: a marker becomes the command's native event. If
/// `watched`, the end of the marker ends the command.
fn passed(transfer: &Transfer, pieces: &Pieces, watched: bool) {
    let command = &transfer.command;
    // Drivers differ in how they treat a wait list with a failed event.
    let has_failed = |event: &Arc<Event>| event.has_ended() && !event.has_succeeded();
    let native = if pieces.events.iter().any(has_failed) {
        Err(Status::OUT_OF_RESOURCES)
    } else {
        transfer.queue.native()
    };
    let marker =
        native.and_then(|queue| queue.marker(&pieces.events.iter().map(|e| &**e).collect()));
    if let (Some(first), Some(last)) = (&pieces.first, pieces.events.last()) {
        command.began(Arc::clone(first));
        command.closed(Arc::clone(last));
    }
    match marker {
        Ok(event) => {
            command.enqueued(event);
            if watched {
                command.watch_end();
            }
            transfer.passed();
        }
        Err(status) => transfer.fail_command(status, String::new()),
    }
}

/// Enqueues the native transfers between a chunk, whose bytes begin at packed offset `from`, and the device:
/// reads if the chunk is `filling`, else writes.
fn enqueue(
    transfer: &Transfer,
    chunk: Arc<PinnedChunk>,
    from: u64,
    blocks: Vec<Block>,
    filling: Option<&Arc<Filling>>,
) -> Result<Vec<Arc<Event>>, Status> {
    let (queue, memory) = (transfer.queue.native()?, transfer.memory.native()?);
    let waits = native_waits(&transfer.waits)?;
    let mut events = Vec::new();
    for block in blocks {
        let host = Host::Chunk(Arc::clone(&chunk));
        let skip = (block.packed - from) as usize;
        let event = match filling {
            Some(_) => queue.read(memory, &block.region, host, skip, &waits)?,
            None => queue.write(memory, &block.region, host, skip, &waits)?,
        };
        let event = Arc::new(event);
        watch(&Arc::new(Piece {
            event: Arc::clone(&event),
            filling: filling.map(Arc::clone),
            command: Arc::clone(&transfer.command),
        }));
        events.push(event);
    }
    drop(chunk);
    let _ = queue.flush();
    Ok(events)
}

/// One native transfer between a chunk and the device.
struct Piece {
    event: Arc<Event>,
    filling: Option<Arc<Filling>>,
    command: Arc<Command>,
}

impl Listener for Piece {
    fn event(&self) -> Option<&Event> {
        Some(&self.event)
    }

    fn busy(&self) -> &Busy {
        self.command.busy()
    }

    fn ended(self: Arc<Self>, status: Status) {
        // Frees the chunk when this was its last piece.
        self.event.drop_host();
        if let Some(filling) = &self.filling {
            filling.ended(status);
        }
    }
}

fn chunk_window(chunk: &PinnedChunk, length: u64) -> Window {
    // This cannot fail: a chunk's length does not overflow.
    let region = Region::linear(0, length.min(chunk.length() as u64));
    let region = region.unwrap_or_else(|_| unreachable!("a chunk's region does not overflow"));
    // SAFETY: a `PinnedChunk` owns its memory, and every holder of the window holds the chunk.
    unsafe { Window::new(chunk.pointer(), region) }
}
