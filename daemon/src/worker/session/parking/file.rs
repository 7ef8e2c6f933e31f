//! The files with the contents of a parked session.
//!
//! ```text
//! length of the state, 8 bytes, little-endian
//! the state
//! the contents of each memory object, in the order in which the state names them, in pieces of `PIECE` bytes
//! ```
//!
//! A large session that moves has further files. The first file then has the state alone. The further files get the pieces
//! in turns, and a thread each: the kernel lets one thread at a time write to a file. Each further file begins with its
//! number, as a state does.
//!
//! XXH3 with 128 bits, little-endian, follows each state and each piece. It finds a file that was truncated or damaged.
//! The session's process writes the files, or its client sends them ([`super::arriving`]). Either can harm their own session
//! only, so a checksum is enough.
//!
//! Invariant: a session goes on only if all digests are right.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_proto::command::NdRange;
use causeway_proto::id::{DeviceIndex, MemoryId};
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use prost::Message;
use twox_hash::XxHash3_128;

use crate::runtime::block::Blocks;
use crate::runtime::clock;
use crate::runtime::event::{Event, WaitList};
use crate::runtime::host::Host;
use crate::runtime::queue::Queue as NativeQueue;
use crate::worker::objects::arguments::Names;
use crate::worker::objects::{Context, Memory};
use crate::worker::session::tables::Objects;

/// Bytes that are read or written at a time: whole elements of every image, and less than a slab of pinned memory.
const PIECE: u64 = 3 << 18;
/// Pieces that a device has beside the one that a thread has.
const AHEAD: usize = 3;
/// Bytes of contents from which on they are dealt to further files.
const DEALT_FROM: u64 = 64 << 20;
/// Longest state.
const MOST_STATE: u64 = 1 << 30;

/// What a session consists of beside its record and the contents of its memory.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ParkedState {
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
    /// Number of further files that have the contents. 0: they follow in this file.
    #[prost(uint32, tag = "8")]
    pub(super) further: u32,
}

/// How a further file begins.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
struct Further {
    /// The number of the file, from 1.
    #[prost(uint32, tag = "9")]
    number: u32,
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
    /// Another file has a fault.
    #[error("another file cannot be used")]
    Other,
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

/// Writes the session: to the first of these files alone, or, if it is large, to all of them. Calls the driver.
pub(super) fn write(
    files: &[File],
    mut state: ParkedState,
    parts: &[Part],
) -> Result<(), NotMoved> {
    let (file, further) = files.split_first().ok_or(NotMoved::Record)?;
    let bytes: u64 = parts.iter().map(Part::size).sum();
    let further = match bytes < DEALT_FROM {
        true => &[],
        false => further,
    };
    state.further = further.len() as u32;
    let mut out = BufWriter::new(file);
    write_head(&mut out, &state)?;
    if further.is_empty() {
        write_pieces(&mut out, parts, &Share::WHOLE, &AtomicBool::new(false))?;
        return Ok(out.flush()?);
    }
    out.flush()?;
    on_threads(further, |file, share, has_failed| {
        let mut out = BufWriter::new(file);
        write_head(&mut out, &share.head())?;
        write_pieces(&mut out, parts, share, has_failed)?;
        Ok(out.flush()?)
    })
}

fn write_head(out: &mut impl Write, head: &impl Message) -> io::Result<()> {
    let head = head.encode_to_vec();
    out.write_all(&(head.len() as u64).to_le_bytes())?;
    write_checked(out, &head)
}

// Writes a file's share of the contents, unless another one has failed.
fn write_pieces(
    out: &mut impl Write,
    parts: &[Part],
    share: &Share,
    has_failed: &AtomicBool,
) -> Result<(), NotMoved> {
    let (mut copiers, mut first) = (Copiers::default(), 0);
    for part in parts {
        let failed = |status| NotMoved::Memory(part.id.0, status);
        let native = part.memory.native().map_err(failed)?;
        let mut ends = |reading: Event| {
            reading.wait().map_err(failed)?;
            let host = reading.take_host();
            let read = host.ok_or_else(|| failed(Status::OUT_OF_RESOURCES))?;
            Ok::<(), NotMoved>(write_checked(out, read.bytes())?)
        };
        // The device reads the next pieces while this one is written.
        let mut under_way = UnderWay::default();
        for (offset, length) in share.pieces(&mut first, part.size) {
            if has_failed.load(Ordering::Relaxed) {
                return Err(NotMoved::Other);
            }
            let copier = copiers.of(&part.memory).map_err(failed)?;
            let region = Region::linear(offset, length).map_err(|_| NotMoved::Record)?;
            let target = copier.host(length);
            let event = copier
                .queue
                .read(native, &region, target, 0, &WaitList::new());
            under_way.0.push_back(event.map_err(failed)?);
            if under_way.0.len() > AHEAD {
                under_way.0.pop_front().map_or(Ok(()), &mut ends)?;
            }
        }
        while let Some(event) = under_way.0.pop_front() {
            ends(event)?;
        }
    }
    Ok(())
}

/// The pieces that a device copies. Their ends are waited for on every way out: memory that a driver may still use is never
/// given back, and the session may go on.
#[derive(Default)]
struct UnderWay(VecDeque<Event>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        for event in &self.0 {
            // A driver that reports a fault has no end to wait for.
            let _ = event.wait();
        }
    }
}

/// Has the other threads end if one panics.
struct FailsOnPanic<'a>(&'a AtomicBool);

impl Drop for FailsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// The pieces that a file has.
struct Share {
    /// The number of the file among those with pieces, from 0.
    file: u64,
    files: u64,
}

impl Share {
    /// Of a single file.
    const WHOLE: Share = Share { file: 0, files: 1 };

    fn head(&self) -> Further {
        Further {
            number: self.file as u32 + 1,
        }
    }

    /// The pieces of the next memory object, which has `size` bytes. `first` counts the pieces before it.
    fn pieces(&self, first: &mut u64, size: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let all = *first..*first + size.div_ceil(PIECE);
        *first = all.end;
        let Range { start, end } = all;
        let (file, files) = (self.file, self.files);
        let own = (start..end).filter(move |number| number % files == file);
        own.map(move |number| {
            let offset = (number - start) * PIECE;
            (offset, PIECE.min(size - offset))
        })
    }
}

// Does `work` for each file on a thread of its own. Returns the fault of one that has failed.
fn on_threads(
    files: &[File],
    work: impl Fn(&File, &Share, &AtomicBool) -> Result<(), NotMoved> + Sync,
) -> Result<(), NotMoved> {
    let (has_failed, count) = (AtomicBool::new(false), files.len() as u64);
    let each = |file: &File, number: u64| {
        let share = Share {
            file: number,
            files: count,
        };
        let _fails = FailsOnPanic(&has_failed);
        let done = work(file, &share, &has_failed);
        done.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
    };
    let each = &each;
    let ends = std::thread::scope(|scope| {
        let threads = files.iter().zip(0..).map(|(file, number)| {
            let thread = std::thread::Builder::new().name("contents".into());
            let spawned = thread.spawn_scoped(scope, move || each(file, number));
            spawned.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))
        });
        // All begin before the first one is waited for.
        let threads: Vec<_> = threads.collect();
        let ends = threads.into_iter().map(|thread| match thread?.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect::<Vec<_>>()
    });
    let mut faults: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
    let told = faults.iter().position(|of| !matches!(of, NotMoved::Other));
    match told.map(|at| faults.swap_remove(at)) {
        Some(fault) => Err(fault),
        None => faults.pop().map_or(Ok(()), Err),
    }
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

/// Reads the first file.
pub(super) struct Reader<R> {
    from: BufReader<R>,
    pub(super) state: ParkedState,
}

impl<R: Read> Reader<R> {
    /// Reads the state.
    pub(super) fn open(file: R) -> Result<Reader<R>, NotMoved> {
        let mut from = BufReader::new(file);
        let state = read_head(&mut from)?;
        Ok(Reader { from, state })
    }

    /// Fills the memory objects that the state names with the contents. Calls the driver.
    pub(super) fn fill(
        &mut self,
        memory: &[Arc<Memory>],
        further: &[File],
    ) -> Result<(), NotMoved> {
        let described = &self.state.memory[..];
        if memory.len() != described.len() {
            return Err(NotMoved::Record);
        }
        if self.state.further == 0 {
            let goes_on = AtomicBool::new(false);
            return fill_pieces(&mut self.from, memory, described, &Share::WHOLE, &goes_on);
        }
        let further = further.get(..self.state.further as usize);
        on_threads(
            further.ok_or(NotMoved::Damaged)?,
            |file, share, has_failed| {
                let mut from = BufReader::new(file);
                let head: Further = read_head(&mut from)?;
                if head != share.head() {
                    return Err(NotMoved::Damaged);
                }
                fill_pieces(&mut from, memory, described, share, has_failed)?;
                ends(from)
            },
        )
    }

    /// Returns the state, once all contents were read.
    pub(super) fn finish(self) -> Result<ParkedState, NotMoved> {
        ends(self.from)?;
        Ok(self.state)
    }
}

// Checks that a file ends here.
fn ends(mut from: impl Read) -> Result<(), NotMoved> {
    match from.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(NotMoved::Damaged),
    }
}

fn read_head<Head: Message + Default>(from: &mut impl Read) -> Result<Head, NotMoved> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_STATE {
        return Err(NotMoved::Damaged);
    }
    let mut head = Vec::new();
    // The length is not checked yet, so it allocates nothing.
    from.by_ref().take(length).read_to_end(&mut head)?;
    check(from, &head)?;
    Head::decode(&head[..]).map_err(|_| NotMoved::Damaged)
}

// Fills memory objects with a file's share of the contents, unless another one has failed.
fn fill_pieces(
    from: &mut impl Read,
    memory: &[Arc<Memory>],
    described: &[Described],
    share: &Share,
    has_failed: &AtomicBool,
) -> Result<(), NotMoved> {
    let (mut copiers, mut first) = (Copiers::default(), 0);
    for (memory, described) in memory.iter().zip(described) {
        let failed = |status| NotMoved::Memory(described.id, status);
        let native = memory.native().map_err(failed)?;
        if native.size() != described.size {
            return Err(NotMoved::Record);
        }
        let ends = |event: Event| event.wait().map_err(failed);
        // The device gets pieces while the next one is read.
        let mut under_way = UnderWay::default();
        for (offset, length) in share.pieces(&mut first, described.size) {
            if has_failed.load(Ordering::Relaxed) {
                return Err(NotMoved::Other);
            }
            let copier = copiers.of(memory).map_err(failed)?;
            let mut piece = copier.host(length);
            from.read_exact(piece.bytes_mut())?;
            check(from, piece.bytes())?;
            let region = Region::linear(offset, length).map_err(|_| NotMoved::Record)?;
            let event = copier
                .queue
                .write(native, &region, piece, 0, &WaitList::new());
            under_way.0.push_back(event.map_err(failed)?);
            if under_way.0.len() > AHEAD {
                under_way.0.pop_front().map_or(Ok(()), ends)?;
            }
        }
        while let Some(event) = under_way.0.pop_front() {
            ends(event)?;
        }
    }
    Ok(())
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

/// How a thread copies memory of one context. The session's own queues may have an order of their own, so its queue is
/// apart.
struct Copier {
    context: Arc<Context>,
    device: DeviceIndex,
    queue: NativeQueue,
    blocks: Blocks,
}

impl Copier {
    fn new(context: &Arc<Context>) -> Result<Copier, Status> {
        let (device, native) = context.devices.first().ok_or(Status::INVALID_VALUE)?;
        Ok(Copier {
            context: Arc::clone(context),
            device: *device,
            queue: NativeQueue::new(context.native()?, *native, &[])?,
            blocks: Blocks::default(),
        })
    }

    /// Memory for a piece: pinned, if the device needs that and there is some, so that it copies by itself.
    fn host(&self, length: u64) -> Host {
        let length = length as usize;
        let pinned = match self.queue.device().has_direct_memory() {
            true => None,
            false => self.context.pinned(self.device, length),
        };
        pinned.map_or_else(|| Host::Block(self.blocks.take(length)), Host::Pinned)
    }
}

/// A thread's copier. Objects of one context in turn have the same.
#[derive(Default)]
struct Copiers(Option<Copier>);

impl Copiers {
    fn of(&mut self, memory: &Memory) -> Result<&Copier, Status> {
        let context = &memory.context;
        let is_its = |copier: &Copier| Arc::ptr_eq(&copier.context, context);
        let copier = match self.0.take().filter(is_its) {
            Some(copier) => copier,
            None => Copier::new(context)?,
        };
        Ok(self.0.insert(copier))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_several_files_are_all_pieces_in_turns() {
        let sizes = [1, 5 * PIECE, 0, PIECE + 7, 2 * PIECE];
        let of = |file, files| {
            let (share, mut first) = (Share { file, files }, 0);
            let objects = sizes.iter().enumerate();
            let pieces = objects.flat_map(|(object, size)| {
                let pieces = share.pieces(&mut first, *size);
                pieces.map(move |(offset, length)| (object, offset, length))
            });
            pieces.collect::<Vec<_>>()
        };
        let whole = of(0, 1);
        let bytes = |object| whole.iter().filter(move |of| of.0 == object);
        for (object, size) in sizes.iter().enumerate() {
            assert_eq!(bytes(object).map(|of| of.2).sum::<u64>(), *size);
        }
        for files in [2, 3, 4] {
            let shares: Vec<_> = (0..files).map(|file| of(file, files)).collect();
            let longest = shares.iter().map(Vec::len).max().unwrap();
            let rounds = 0..longest;
            let turns = rounds.flat_map(|at| shares.iter().filter_map(move |of| of.get(at)));
            assert_eq!(turns.copied().collect::<Vec<_>>(), whole);
        }
    }

    #[test]
    fn each_of_several_files_has_a_thread_and_the_others_end_when_one_fails() {
        let file = || tempfile::tempfile().unwrap();
        let files = [file(), file(), file()];
        let all = std::sync::Barrier::new(files.len());
        let fails = |_: &File, share: &Share, has_failed: &AtomicBool| {
            all.wait();
            if share.file == 1 {
                return Err(NotMoved::Damaged);
            }
            while !has_failed.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Err(NotMoved::Other)
        };
        let failed = on_threads(&files, fails);
        assert!(matches!(failed, Err(NotMoved::Damaged)), "{failed:?}");
        let panics = |_: &File, share: &Share, has_failed: &AtomicBool| {
            assert_ne!(share.file, 1, "as a fault of the program");
            while !has_failed.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Err(NotMoved::Other)
        };
        let all_end = || on_threads(&files, panics);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(all_end)).is_err());
    }
}
