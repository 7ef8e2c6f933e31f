//! Transfers through pinned chunks, for devices with memory of their own.
//!
//! Each device of a context has two rings of pinned chunks, which get their chunks as they are needed. A write gets credit for a chunk when the
//! chunk is free, receives into it, and enqueues a native write from it; its end frees the chunk. A read
//! enqueues native reads into free chunks; a filled one goes to the lanes and is free when it was sent.
//! So network and device copy overlap, and memory stays bounded.
//!
//! Who stands in line for chunks can go on with nobody's help but that of who made the rings: a receive
//! from another worker only once its sender has offered, a send to one only as far as its credit goes.
//! Writes get chunks strictly in the order in which they stood in line, reads take turns, those first that
//! have no chunk; so none blocks another for ever.
//!
//! Threads: credit is granted by whoever frees a chunk (no driver call in it); native writes are
//! enqueued by the lane that received the bytes, native reads by the bulk thread. Invariant: `Slot`s are
//! never dropped under a lock of this module, because their drop grants credit.

mod read;
mod write;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use self::read::{Filling, StagedRead};
pub(super) use self::read::{StagedChunk, read};
use self::write::StagedWrite;
pub(super) use self::write::write;
use super::Transfer;
use super::memory::Window;
use crate::runtime::context::Context;
use crate::runtime::event::{Event, Listener};
use crate::runtime::pinned::{Ring, Slot};
use crate::runtime::queue::Queue as NativeQueue;
use crate::worker::session::Shared;
use crate::worker::session::objects::Queue;
use crate::worker::session::run::Runner;

const CHUNK: u64 = BULK_CHUNK as u64;
/// Chunks of each ring at most: 16 MiB a direction, device and context.
const SLOTS: usize = 16;

/// The two rings of a device in a context, and who waits for their chunks.
pub(crate) struct Rings {
    up: Arc<Ring>,
    down: Arc<Ring>,
    writes: Mutex<VecDeque<Arc<StagedWrite>>>,
    reads: Mutex<VecDeque<Arc<StagedRead>>>,
}

impl Rings {
    /// Two rings without chunks.
    fn new(shared: &Arc<Shared>, queue: &Queue) -> Result<Arc<Rings>, Status> {
        let (context, device) = (queue.context.native()?, queue.native()?.device());
        let mapping = Arc::new(NativeQueue::new(context, device, &[])?);
        let up = Ring::new(Arc::clone(&mapping), SLOTS);
        let down = Ring::new(mapping, SLOTS);
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
        let (weak, shared) = (Arc::downgrade(&rings), Arc::downgrade(shared));
        rings.down.when_freed(Box::new(move || {
            if let (Some(rings), Some(shared)) = (Weak::upgrade(&weak), shared.upgrade()) {
                // Reading needs the driver, and a chunk may be freed anywhere.
                if !rings.reads.lock().is_empty() {
                    shared.bulk.later(&shared, move |_| rings.fill());
                }
            }
        }));
        Ok(rings)
    }

    fn of(shared: &Arc<Shared>, queue: &Queue) -> Result<Arc<Rings>, Status> {
        queue
            .context
            .rings(queue.device, || Rings::new(shared, queue))
    }

    /// Grants free chunks to waiting writes, first come, first served.
    fn grant(&self) {
        // Declared first, so dropped last: a write's drop may free chunks and come here again.
        let mut served = Vec::new();
        let mut writes = self.writes.lock();
        while let Some(first) = writes.front() {
            while first.wants_slot() {
                let Some(slot) = self.up.take() else { return };
                first.grant(slot);
            }
            served.extend(writes.pop_front());
        }
    }

    /// The same, and gives the ring the chunks that it still lacks for them: how much credit there is bounds
    /// what is on its way here. Bulk thread only.
    fn serve_writes(&self) {
        loop {
            self.grant();
            // It got no chunk.
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

    /// A read stands in line, unless it does. Bulk thread only.
    fn line_up(&self, read: &Arc<StagedRead>) {
        if !read.set_lined_up(true) {
            self.reads.lock().push_back(Arc::clone(read));
        }
    }

    /// Enqueues native reads into free chunks, by turns. Bulk thread only.
    fn fill(&self) {
        loop {
            // Only this thread takes from the line, so the lock is for those who look.
            let Some(read) = self.first_read() else {
                return;
            };
            if read.wants_slot() {
                match self.slot_for(&read) {
                    Ok(Some(slot)) => read.enqueue(Arc::new(slot)),
                    Ok(None) => return,
                    Err(status) => read.give_up(status),
                }
            }
            let again = read.wants_slot();
            read.set_lined_up(again);
            let mut reads = self.reads.lock();
            reads.pop_front();
            if again {
                reads.push_back(read);
            }
        }
    }

    // Whose turn it is, now at the front of the line: the first that has no chunk, because those of others may
    // lie behind a long kernel of their queue.
    fn first_read(&self) -> Option<Arc<StagedRead>> {
        let mut reads = self.reads.lock();
        let without = reads
            .iter()
            .position(|read| read.wants_slot() && !read.is_under_way());
        if let Some(read) = without.and_then(|place| reads.remove(place)) {
            reads.push_front(read);
        }
        reads.front().map(Arc::clone)
    }

    // A free chunk, or a new one if those that there are go round all the time, or this read has none.
    fn slot_for(&self, read: &StagedRead) -> Result<Option<Slot>, Status> {
        if let Some(slot) = self.down.take() {
            return Ok(Some(slot));
        }
        if (self.down.is_busy() || !read.is_under_way()) && self.down.grow(read.context()?)? {
            return Ok(self.down.take());
        }
        Ok(None)
    }
}

/// What both directions know of their native pieces.
#[derive(Default)]
struct Pieces {
    first: Option<Arc<Event>>,
    // Those that may still run, and the last.
    events: Vec<Arc<Event>>,
    enqueued: u64,
}

impl Pieces {
    fn add(&mut self, events: &mut Vec<Arc<Event>>) {
        if self.first.is_none() {
            self.first = events.first().map(Arc::clone);
        }
        // Thousands of unreleased events slow some drivers down. One that failed stays, for the marker.
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

/// All pieces are in the native queue: a marker stands for them.
fn passed(transfer: &Transfer, pieces: &Pieces) {
    let command = &transfer.command;
    let mut runner = Runner::new(&transfer.shared);
    runner.touch(&transfer.queue);
    // Drivers differ in what they make of a list with an event that has failed.
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
            runner.passed(command);
        }
        Err(status) => {
            command.finish(status, String::new());
            runner.failed(command);
        }
    }
}

/// One native transfer between a chunk and the device.
struct Piece {
    event: Arc<Event>,
    then: Then,
}

enum Then {
    Nothing,
    Filled(Arc<Filling>),
}

impl Listener for Piece {
    fn event(&self) -> Option<&Event> {
        Some(&self.event)
    }

    fn ended(self: Arc<Self>, status: Status) {
        // Frees the chunk when this was its last piece.
        self.event.drop_host();
        if let Then::Filled(filling) = &self.then {
            filling.ended(status);
        }
    }
}

fn slot_window(slot: &Slot, length: u64) -> Window {
    // Cannot fail: a chunk's length.
    let region = Region::linear(0, length.min(slot.length() as u64));
    let region = region.unwrap_or_else(|_| unreachable!("a chunk's region does not overflow"));
    // SAFETY: the slot holds the chunk; whoever has the window has the slot.
    unsafe { Window::new(slot.pointer(), region) }
}
