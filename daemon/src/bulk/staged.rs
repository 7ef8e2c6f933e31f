//! Transfers through pinned chunks, for devices with memory of their own.
//!
//! Each device of a context has two rings of pinned chunks. A write gets credit for a chunk when the
//! chunk is free, receives into it, and enqueues a native write from it; its end frees the chunk. A read
//! enqueues native reads into free chunks; a filled one goes to the lanes and is free when it was sent.
//! So network and device copy overlap, and memory stays bounded. Transfers get chunks strictly in the
//! order in which they were started: the first always can go on, so none blocks for ever.
//!
//! Threads: credit is granted by whoever frees a chunk (no driver call in it); native writes are
//! enqueued by the lane that received the bytes, native reads by the bulk thread. Invariant: `Slot`s are
//! never dropped under a lock of this module, because their drop grants credit.

use std::collections::{HashMap, VecDeque};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::blocks::blocks;
use super::claims::Claims;
use super::lane::{LaneError, discard};
use super::memory::Window;
use super::{Incoming, Transfer};
use crate::runtime::event::{Event, Listener};
use crate::runtime::host::Host;
use crate::runtime::pinned::{Ring, Slot};
use crate::worker::session::Shared;
use crate::worker::session::enqueue::Task;
use crate::worker::session::objects::{Memory, Queue};
use crate::worker::session::run::{Runner, native_waits, watch};

const CHUNK: u64 = BULK_CHUNK as u64;
/// Chunks of each ring: 16 MiB a direction, device and context.
const SLOTS: usize = 16;

/// The two rings of a device in a context, and who waits for their chunks.
pub(crate) struct Rings {
    up: Arc<Ring>,
    down: Arc<Ring>,
    writes: Mutex<VecDeque<Arc<StagedWrite>>>,
    reads: Mutex<VecDeque<Arc<StagedRead>>>,
}

impl Rings {
    /// Allocates and maps all chunks. Blocks.
    fn new(shared: &Arc<Shared>, queue: &Queue) -> Result<Arc<Rings>, Status> {
        let (context, device) = (queue.context.native()?, queue.native()?.device());
        let up = Ring::new(context, device, SLOTS)?;
        let down = Ring::new(context, device, SLOTS)?;
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

    /// Enqueues native reads into free chunks, first come, first served. Bulk thread only.
    fn fill(&self) {
        loop {
            let Some(read) = self.reads.lock().front().map(Arc::clone) else {
                return;
            };
            if read.is_enqueued() {
                self.reads.lock().pop_front();
                continue;
            }
            let Some(slot) = self.down.take() else { return };
            read.enqueue(Arc::new(slot));
        }
    }
}

/// What both directions know of their native pieces.
#[derive(Default)]
struct Pieces {
    first: Option<Arc<Event>>,
    // Those that may still run, and the last.
    events: Vec<Arc<Event>>,
    enqueued: u64,
    failed: bool,
}

impl Pieces {
    fn add(&mut self, events: &mut Vec<Arc<Event>>) {
        if self.first.is_none() {
            self.first = events.first().map(Arc::clone);
        }
        // Thousands of unreleased events slow some drivers down.
        self.events.retain(|e| !e.has_ended());
        self.events.append(events);
        self.enqueued += 1;
    }
}

fn chunks(total: u64) -> u64 {
    total.div_ceil(CHUNK)
}

/// All pieces are in the native queue: a marker stands for them.
fn passed(transfer: &Transfer, pieces: &Pieces) {
    let command = &transfer.command;
    let mut runner = Runner::new(&transfer.shared);
    runner.touch(&transfer.queue);
    let marker = transfer
        .queue
        .native()
        .and_then(|queue| queue.marker(&pieces.events.iter().map(|e| &**e).collect()));
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

// ---- writes ---------------------------------------------------------------

/// A write through chunks.
pub(super) struct StagedWrite {
    transfer: Transfer,
    total: u64,
    state: Mutex<Writing>,
}

struct Writing {
    claims: Claims,
    granted: u64,
    filling: HashMap<u64, (Arc<Slot>, u64)>,
    pieces: Pieces,
    over: bool,
}

/// Starts a write, from the bulk thread.
pub(super) fn write(shared: &Arc<Shared>, task: &Task, memory: &Arc<Memory>, region: Region) {
    let total = region.packed_length();
    let write = Arc::new(StagedWrite {
        transfer: Transfer::new(shared, task, memory, region),
        total,
        state: Mutex::new(Writing {
            claims: Claims::new(total),
            granted: 0,
            filling: HashMap::new(),
            pieces: Pieces::default(),
            over: false,
        }),
    });
    shared
        .bulk
        .expect(task.command.id(), Arc::<StagedWrite>::clone(&write));
    shared.bulk.later(shared, move |shared| {
        match Rings::of(shared, &write.transfer.queue) {
            Ok(rings) => {
                rings.writes.lock().push_back(write);
                rings.grant();
            }
            Err(status) => write.give_up(status),
        }
    });
}

impl StagedWrite {
    fn wants_slot(&self) -> bool {
        let state = self.state.lock();
        !state.over && state.granted < chunks(self.total)
    }

    fn grant(&self, slot: Slot) {
        let mut state = self.state.lock();
        let chunk = state.granted;
        state.granted += 1;
        state.filling.insert(chunk, (Arc::new(slot), 0));
        let to = state.granted * CHUNK;
        state.claims.grant(to);
        let credit = state.claims.credit();
        drop(state);
        self.transfer
            .shared
            .bulk
            .outgoing()
            .credit(self.transfer.id(), credit);
    }

    /// Enqueues the native writes of a full chunk; after the last one the queue's successors may go.
    fn enqueue(&self, chunk: u64, slot: Arc<Slot>) -> Result<(), Status> {
        let transfer = &self.transfer;
        let (from, to) = (chunk * CHUNK, ((chunk + 1) * CHUNK).min(self.total));
        let queue = transfer.queue.native()?;
        let waits = native_waits(&transfer.waits)?;
        let mut events = Vec::new();
        for block in blocks(&transfer.region, from, to) {
            let host = Host::Chunk(Arc::clone(&slot));
            let skip = (block.packed - from) as usize;
            let event =
                queue.write(transfer.memory.native()?, &block.region, host, skip, &waits)?;
            let event = Arc::new(event);
            watch(&Arc::new(Piece {
                event: Arc::clone(&event),
                then: Then::Nothing,
            }));
            events.push(event);
        }
        drop(slot);
        let _ = queue.flush();
        let mut state = self.state.lock();
        state.pieces.add(&mut events);
        if state.pieces.enqueued == chunks(self.total) {
            state.over = true;
            let pieces = std::mem::take(&mut state.pieces);
            drop(state);
            transfer.shared.bulk.forget(transfer.id());
            passed(transfer, &pieces);
            if transfer.command.native().is_some() {
                Runner::new(&transfer.shared).watch_command(&transfer.command);
            }
        }
        Ok(())
    }

    fn give_up(&self, status: Status) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        let filling = std::mem::take(&mut state.filling);
        drop(state);
        self.transfer.fail(status);
        drop(filling);
        // The next in line may have what this one no longer wants.
        if let Ok(rings) = Rings::of(&self.transfer.shared, &self.transfer.queue) {
            rings.grant();
        }
    }
}

impl Incoming for StagedWrite {
    fn receive(
        &self,
        socket: &TcpStream,
        offset: u64,
        length: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError> {
        {
            let mut state = self.state.lock();
            if state.over {
                drop(state);
                return Ok(discard(socket, length, scratch)?);
            }
            state.claims.claim(offset, length.into())?;
        }
        let (mut at, end) = (offset, offset + u64::from(length));
        while at < end {
            let chunk = at / CHUNK;
            let part = ((chunk + 1) * CHUNK).min(end) - at;
            let slot = self
                .state
                .lock()
                .filling
                .get(&chunk)
                .map(|(slot, _)| Arc::clone(slot));
            let Some(slot) = slot else {
                // Given up meanwhile.
                discard(socket, (end - at) as u32, scratch)?;
                return Ok(());
            };
            slot_window(&slot, CHUNK).receive(socket, at % CHUNK, part, scratch)?;
            drop(slot);
            self.arrived(chunk, part);
            at += part;
        }
        Ok(())
    }

    fn cancelled(&self) {
        self.give_up(Status::OUT_OF_RESOURCES);
    }
}

impl StagedWrite {
    fn arrived(&self, chunk: u64, part: u64) {
        let full = {
            let mut state = self.state.lock();
            let whole = CHUNK.min(self.total - chunk * CHUNK);
            match state.filling.get_mut(&chunk) {
                Some((_, arrived)) => {
                    *arrived += part;
                    if *arrived == whole {
                        state.filling.remove(&chunk)
                    } else {
                        None
                    }
                }
                None => None,
            }
        };
        if let Some((slot, _)) = full
            && let Err(status) = self.enqueue(chunk, slot)
        {
            self.give_up(status);
        }
    }
}

// ---- reads ----------------------------------------------------------------

/// A read through chunks.
pub(super) struct StagedRead {
    transfer: Transfer,
    total: u64,
    pieces: Mutex<Pieces>,
    sent: AtomicU64,
}

/// Starts a read, from the bulk thread.
pub(super) fn read(shared: &Arc<Shared>, task: &Task, memory: &Arc<Memory>, region: Region) {
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
    fn is_enqueued(&self) -> bool {
        let pieces = self.pieces.lock();
        pieces.failed || pieces.enqueued == chunks(self.total)
    }

    fn enqueue(self: &Arc<Self>, slot: Arc<Slot>) {
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

    fn give_up(&self, status: Status) {
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
struct Filling {
    read: Arc<StagedRead>,
    slot: Mutex<Option<Arc<Slot>>>,
    left: AtomicUsize,
    offset: u64,
    length: u32,
}

impl Filling {
    fn ended(&self, status: Status) {
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
pub(super) struct StagedChunk {
    read: Arc<StagedRead>,
    slot: Arc<Slot>,
    offset: u64,
    length: u32,
}

impl StagedChunk {
    /// Whose bytes.
    pub(super) fn transfer(&self) -> EventId {
        self.read.transfer.id()
    }

    /// Where they begin in packed order.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// How many.
    pub(super) fn length(&self) -> u32 {
        self.length
    }

    /// Where they lie.
    pub(super) fn window(&self) -> Window {
        slot_window(&self.slot, self.length.into())
    }

    /// They were handed to the socket.
    pub(super) fn sent(self) {
        let StagedChunk { read, slot, .. } = self;
        drop(slot);
        read.count_sent(self.length.into());
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
