//! The file with the contents of a parked session.
//!
//! ```text
//! length of the state, 8 bytes, little-endian
//! the state
//! the contents of each memory object, in the order in which the state names them, in pieces of `PIECE` bytes
//! ```
//!
//! XXH3 with 128 bits, little-endian, follows the state and each piece. It finds a file that was truncated or damaged.
//! Nobody else can write the file, so a checksum is enough.
//!
//! Invariant: a session goes on only if all digests are right.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::sync::Arc;

use causeway_proto::command::NdRange;
use causeway_proto::id::MemoryId;
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use prost::Message;
use twox_hash::XxHash3_128;

use crate::runtime::block::Blocks;
use crate::runtime::clock;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;
use crate::runtime::queue::Queue as NativeQueue;
use crate::worker::objects::Memory;
use crate::worker::objects::arguments::Names;
use crate::worker::session::tables::Objects;

/// Bytes that are read or written at a time: whole elements of every image, and two blocks that are used again.
const PIECE: u64 = 3 << 19;
/// Longest state.
const MOST_STATE: u64 = 1 << 30;

/// What a session consists of beside its record and the contents of its memory.
#[derive(Clone, PartialEq, Message)]
pub(super) struct State {
    #[prost(uint64, tag = "1")]
    pub(super) newest_event: u64,
    /// User events that the client has not set.
    #[prost(uint64, repeated, tag = "2")]
    pub(super) open_events: Vec<u64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failed_events: Vec<FailedEvent>,
    /// The arguments of each kernel.
    #[prost(message, repeated, tag = "4")]
    pub(super) kernels: Vec<NdRange>,
    #[prost(message, repeated, tag = "5")]
    pub(super) memory: Vec<Described>,
    /// The node's host clock.
    #[prost(uint64, tag = "6")]
    pub(super) host_ns: u64,
    /// The wall clock at the same time.
    #[prost(uint64, tag = "7")]
    pub(super) wall_ns: u64,
}

/// A failed event that the client has not released.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct FailedEvent {
    #[prost(uint64, tag = "1")]
    pub(super) event: u64,
    #[prost(sint32, tag = "2")]
    pub(super) status: i32,
}

/// A memory object whose contents are in the file.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Described {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    size: u64,
}

impl Described {
    pub(super) fn id(&self) -> MemoryId {
        MemoryId(self.id)
    }
}

/// A memory object whose contents are written.
pub(super) struct Part {
    id: MemoryId,
    memory: Arc<Memory>,
    size: u64,
}

impl Part {
    pub(super) fn id(&self) -> MemoryId {
        self.id
    }

    /// Clears the memory if new memory is cleared. Calls the driver.
    pub(super) fn clear(&self) -> Result<(), NotMoved> {
        let cleared = self
            .memory
            .native()
            .and_then(|native| self.memory.context.clear(native));
        cleared.map_err(|status| NotMoved::Memory(self.id.0, status))
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn described(&self) -> Described {
        Described {
            id: self.id.0,
            size: self.size,
        }
    }
}

/// Why contents are not written to a file, or read from it.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotMoved {
    #[error("the file with the contents cannot be used: {0}")]
    Io(#[from] io::Error),
    #[error("the file with the contents is damaged")]
    Damaged,
    #[error("the client's record does not fit the contents")]
    Record,
    #[error("the driver does not move the contents of memory object {0}: {1}")]
    Memory(u64, Status),
}

/// Returns the memory whose contents belong to the session. What shares the bytes of another object is left out.
pub(super) fn parts(objects: &Objects) -> Vec<Part> {
    let is_whole = |memory: &Memory| {
        let parent = memory.parent;
        !parent.is_some_and(|parent| objects.memory.contains_key(&parent))
    };
    let whole = objects.memory.iter().filter(|(_, memory)| is_whole(memory));
    let parts = whole.map(|(id, memory)| Part {
        id: *id,
        memory: Arc::clone(memory),
        size: memory.native().map_or(0, |native| native.size()),
    });
    parts.collect()
}

/// Returns the ids of what may be an argument.
pub(super) fn names(objects: &Objects) -> Names {
    let memory = objects.memory.iter();
    let samplers = objects.samplers.iter();
    Names {
        memory: memory.map(|(id, of)| (Arc::as_ptr(of), *id)).collect(),
        samplers: samplers.map(|(id, of)| (Arc::as_ptr(of), *id)).collect(),
    }
}

/// Writes the file. Calls the driver.
pub(super) fn write(file: &File, state: &State, parts: &[Part]) -> Result<(), NotMoved> {
    let mut out = BufWriter::new(file);
    let blocks = Blocks::default();
    let state = state.encode_to_vec();
    out.write_all(&(state.len() as u64).to_le_bytes())?;
    write_checked(&mut out, &state)?;
    for part in parts {
        let failed = |status| NotMoved::Memory(part.id.0, status);
        let queue = queue_for(&part.memory).map_err(failed)?;
        let native = part.memory.native().map_err(failed)?;
        let mut ends = |reading: Event| {
            reading.wait().map_err(failed)?;
            Ok::<(), NotMoved>(write_checked(&mut out, &reading.take_contents())?)
        };
        // The device reads the next piece while this one is written.
        let mut last: Option<Event> = None;
        for (offset, length) in pieces(part.size) {
            let region = Region::linear(offset, length).map_err(|_| NotMoved::Record)?;
            let target = Host::Block(blocks.take(length as usize));
            let event = queue.read(native, &region, target, 0, &WaitList::new());
            if let Some(before) = last.replace(event.map_err(failed)?) {
                ends(before)?;
            }
        }
        last.map_or(Ok(()), ends)?;
    }
    out.flush()?;
    Ok(())
}

/// Sets the host clock by the state. A file that cannot be read is reported when it is read whole.
pub(super) fn set_clock(file: &File) {
    if let Ok(reader) = Reader::open(file) {
        clock::goes_on(reader.state.host_ns, reader.state.wall_ns);
    }
    let mut file = file;
    // If this fails, the contents are found to be damaged.
    let _ = file.rewind();
}

/// Reads the file.
pub(super) struct Reader<R> {
    from: BufReader<R>,
    blocks: Blocks,
    pub(super) state: State,
}

impl<R: Read> Reader<R> {
    /// Reads the state.
    pub(super) fn open(file: R) -> Result<Reader<R>, NotMoved> {
        let mut from = BufReader::new(file);
        let mut length = [0; 8];
        from.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        if length > MOST_STATE {
            return Err(NotMoved::Damaged);
        }
        let mut state = Vec::new();
        // The length is not checked yet, so it allocates nothing.
        from.by_ref().take(length).read_to_end(&mut state)?;
        check(&mut from, &state)?;
        let state = State::decode(&state[..]).map_err(|_| NotMoved::Damaged)?;
        Ok(Reader {
            from,
            blocks: Blocks::default(),
            state,
        })
    }

    /// Fills a memory object with the contents that come next. Calls the driver.
    pub(super) fn fill(&mut self, memory: &Memory, described: &Described) -> Result<(), NotMoved> {
        let failed = |status| NotMoved::Memory(described.id, status);
        let native = memory.native().map_err(failed)?;
        if native.size() != described.size {
            return Err(NotMoved::Record);
        }
        let queue = queue_for(memory).map_err(failed)?;
        // The device gets a piece while the next one is read.
        let mut last: Option<Event> = None;
        for (offset, length) in pieces(described.size) {
            let mut block = self.blocks.take(length as usize);
            self.from.read_exact(block.as_mut())?;
            check(&mut self.from, block.as_ref())?;
            let region = Region::linear(offset, length).map_err(|_| NotMoved::Record)?;
            let event = queue.write(native, &region, Host::Block(block), 0, &WaitList::new());
            if let Some(before) = last.replace(event.map_err(failed)?) {
                before.wait().map_err(failed)?;
            }
        }
        last.map_or(Ok(()), |last| last.wait().map_err(failed))
    }

    /// Returns the state, once all contents were read.
    pub(super) fn finish(mut self) -> Result<State, NotMoved> {
        match self.from.read(&mut [0])? {
            0 => Ok(self.state),
            _ => Err(NotMoved::Damaged),
        }
    }
}

fn write_checked(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.write_all(&XxHash3_128::oneshot(bytes).to_le_bytes())
}

// Reads the digest of `bytes`, which were read before.
fn check(from: &mut impl Read, bytes: &[u8]) -> Result<(), NotMoved> {
    let mut digest = [0; 16];
    from.read_exact(&mut digest)?;
    match XxHash3_128::oneshot(bytes) == u128::from_le_bytes(digest) {
        true => Ok(()),
        false => Err(NotMoved::Damaged),
    }
}

// The session's own queues may have an order of their own, so this one is apart.
fn queue_for(memory: &Memory) -> Result<NativeQueue, Status> {
    let (_, device) = memory
        .context
        .devices
        .first()
        .ok_or(Status::INVALID_VALUE)?;
    NativeQueue::new(memory.context.native()?, *device, &[])
}

fn pieces(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let starts = (0..size.div_ceil(PIECE)).map(|number| number * PIECE);
    starts.map(move |start| (start, PIECE.min(size - start)))
}
