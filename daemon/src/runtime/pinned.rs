//! Pinned staging memory, for devices that do not share memory with the host.
//!
//! Drivers copy pinned memory without blocking the caller. With pageable memory they may block until all
//! earlier commands have ended (NVIDIA). Small transfers use parts of a slab. A slab is reused when all its
//! parts are free. Invariant: parts never overlap, and a part keeps its slab mapped.

use std::mem::ManuallyDrop;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use causeway_proto::status::Status;
use opencl_sys::{CL_MAP_READ, CL_MAP_WRITE, cl_command_queue};
use parking_lot::Mutex;

use super::buffer::Buffer;
use super::context::Context;
use super::library::{check, cl};
use super::node::Device;

const SLAB: usize = 1 << 20;
const ALIGN: usize = 64;
/// Number of returned chunks after which an allocation that the driver has refused is retried.
const PATIENCE: usize = 64;
/// Minimum number of chunks with which one chunk can be filled while another one is emptied.
const BUSY: usize = 2;

/// One pinned allocation, mapped into the host's memory.
#[derive(Debug)]
struct Slab {
    pointer: *mut u8,
    taken: AtomicUsize,
    // The release of the buffer unmaps it. The queue that mapped it must live as long.
    _buffer: Buffer,
    _queue: Arc<MappingQueue>,
}

// SAFETY: the mapping does not move while the slab lives; parts refer to disjoint bytes.
unsafe impl Send for Slab {}
// SAFETY: as for `Send`.
unsafe impl Sync for Slab {}

/// A native queue that maps slabs, and waits for each mapping. Commands that nobody waits for need a
/// [`Queue`](super::queue::Queue). Released when dropped.
#[derive(Debug)]
pub struct MappingQueue(cl_command_queue);

// SAFETY: OpenCL queues may be used from any thread.
unsafe impl Send for MappingQueue {}
// SAFETY: as for `Send`.
unsafe impl Sync for MappingQueue {}

impl MappingQueue {
    /// Makes the queue.
    pub fn new(context: &Context, device: Device) -> Result<Arc<MappingQueue>, Status> {
        let raw = context.create_queue(device, &[])?;
        Ok(Arc::new(MappingQueue(raw)))
    }

    fn map_slab(self: &Arc<Self>, context: &Context) -> Result<Arc<Slab>, Status> {
        let buffer = Buffer::pinned(context, SLAB)?;
        let mut status = 0;
        // SAFETY: queue and buffer are live, and the range is the whole buffer.
        let pointer = unsafe {
            cl!(clEnqueueMapBuffer(
                self.0,
                buffer.raw,
                1,
                CL_MAP_READ | CL_MAP_WRITE,
                0,
                SLAB,
                0,
                null(),
                null_mut(),
                &raw mut status
            ))
        };
        check(status)?;
        if pointer.is_null() {
            return Err(Status::OUT_OF_RESOURCES);
        }
        Ok(Arc::new(Slab {
            pointer: pointer.cast(),
            taken: AtomicUsize::new(0),
            _buffer: buffer,
            _queue: Arc::clone(self),
        }))
    }
}

impl Drop for MappingQueue {
    fn drop(&mut self) {
        let release = || -> Result<(), Status> {
            // SAFETY: this object owns one reference and gives it up here.
            check(unsafe { cl!(clReleaseCommandQueue(self.0)) })
        };
        // No one can do anything about a refusal.
        let _ = release();
    }
}

/// A part of a slab, exclusively owned.
#[derive(Debug)]
pub struct PinnedPart {
    slab: Arc<Slab>,
    offset: usize,
    length: usize,
}

impl PinnedPart {
    /// Returns the address of the part. Before a caller forms a reference from it, neither the driver nor a
    /// socket may be using the part.
    pub fn pointer(&self) -> *mut u8 {
        // SAFETY: `offset` lies within the slab's mapping.
        unsafe { self.slab.pointer.add(self.offset) }
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for PinnedPart {
    fn drop(&mut self) {
        self.slab.taken.fetch_sub(1, Ordering::Release);
    }
}

/// The pinned memory of one context's device. It grows up to a limit and is not returned to the driver.
#[derive(Debug)]
pub struct PinnedPool {
    queue: Arc<MappingQueue>,
    most: usize,
    state: Mutex<Slabs>,
}

#[derive(Debug, Default)]
struct Slabs {
    all: Vec<Arc<Slab>>,
    current: usize,
    used: usize,
}

impl PinnedPool {
    /// Makes a pool with one slab, which may grow to `most` slabs of 1 MiB. Maps them with a queue of its
    /// own. Blocks while the driver maps.
    pub fn new(context: &Context, device: Device, most: usize) -> Result<PinnedPool, Status> {
        let queue = MappingQueue::new(context, device)?;
        let pool = PinnedPool {
            queue,
            most,
            state: Mutex::default(),
        };
        let slab = pool.queue.map_slab(context)?;
        pool.state.lock().all.push(slab);
        Ok(pool)
    }

    /// Takes `length` bytes; `None` if no memory is free, or if the part would be larger than a slab.
    #[must_use]
    pub fn take(&self, context: &Context, length: usize) -> Option<PinnedPart> {
        let room = length.checked_next_multiple_of(ALIGN)?.max(ALIGN);
        if room > SLAB {
            return None;
        }
        let mut slabs = self.state.lock();
        // The current slab is full. A slab without any used part becomes the current one.
        if slabs.used + room > SLAB {
            let free = slabs
                .all
                .iter()
                .position(|s| s.taken.load(Ordering::Acquire) == 0);
            slabs.current = match free {
                Some(free) => free,
                None if slabs.all.len() < self.most => {
                    let slab = self.queue.map_slab(context).ok()?;
                    slabs.all.push(slab);
                    slabs.all.len() - 1
                }
                None => return None,
            };
            slabs.used = 0;
        }
        let slab = Arc::clone(slabs.all.get(slabs.current)?);
        slab.taken.fetch_add(1, Ordering::Relaxed);
        let offset = slabs.used;
        slabs.used += room;
        Some(PinnedPart {
            slab,
            offset,
            length,
        })
    }
}

/// A ring of pinned chunks of 1 MiB, which return to it when dropped. The chunk returned last is reused
/// first, because its pages are mapped and perhaps cached. [`Ring::grow`] adds chunks one at a time.
/// Pinning takes a driver up to a millisecond each, and the first bytes should not wait for all of them.
pub struct Ring {
    queue: Arc<MappingQueue>,
    chunks: Mutex<Chunks>,
    freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Chunks {
    free: Vec<PinnedPart>,
    // Current and maximum number of chunks.
    count: usize,
    most: usize,
    // Number of chunks returned since the latest one was added.
    returned: usize,
    refusals: Refusals,
}

/// Tracks refusals of the driver to pin more memory.
#[derive(Debug, Default)]
struct Refusals {
    still: usize,
    said: bool,
}

impl Refusals {
    /// Returns whether it is too early to retry.
    fn hold(&self) -> bool {
        self.still > 0
    }

    /// Records a refusal. Returns whether it is the first one.
    fn add(&mut self) -> bool {
        self.still = PATIENCE;
        !std::mem::replace(&mut self.said, true)
    }

    fn returned(&mut self) {
        self.still = self.still.saturating_sub(1);
    }
}

/// A chunk of a ring; returns to the ring when dropped.
pub struct PinnedChunk {
    part: ManuallyDrop<PinnedPart>,
    ring: Arc<Ring>,
}

impl Ring {
    /// Makes an empty ring of at most `most` chunks, which are mapped with `queue`.
    #[must_use]
    pub fn new(queue: Arc<MappingQueue>, most: usize) -> Arc<Ring> {
        Arc::new(Ring {
            queue,
            chunks: Mutex::new(Chunks {
                most,
                ..Chunks::default()
            }),
            freed: OnceLock::new(),
        })
    }

    /// Allocates and maps one more chunk, in the context of the ring's queue. Returns whether it did. After
    /// a refusal of the driver, the next attempt is made only when many chunks have been returned. Blocks.
    /// Must be called by one thread at a time.
    ///
    /// # Errors
    /// The driver's error if the ring has no chunk yet, because then no chunk will be returned.
    pub fn grow(&self, context: &Context) -> Result<bool, Status> {
        {
            let chunks = self.chunks.lock();
            if chunks.count == chunks.most || chunks.refusals.hold() {
                return Ok(false);
            }
        }
        // The lock is not held here, because mapping takes long and chunks must be returnable meanwhile.
        let slab = self.queue.map_slab(context);
        let mut chunks = self.chunks.lock();
        match slab {
            Ok(slab) => {
                slab.taken.fetch_add(1, Ordering::Relaxed);
                chunks.free.push(PinnedPart {
                    slab,
                    offset: 0,
                    length: SLAB,
                });
                chunks.count += 1;
                chunks.returned = 0;
                Ok(true)
            }
            Err(status) if chunks.count == 0 => Err(status),
            Err(status) => {
                if chunks.refusals.add() {
                    let chunks = chunks.count;
                    tracing::warn!(
                        ?status,
                        chunks,
                        "the driver refuses more pinned memory; transfers use the chunks that exist"
                    );
                }
                Ok(false)
            }
        }
    }

    /// Returns whether one more chunk is worth its cost. That is the case if the ring has fewer chunks than
    /// it takes to overlap device and network. It is also the case if that many were returned since the
    /// latest one was added.
    pub fn is_busy(&self) -> bool {
        let chunks = self.chunks.lock();
        chunks.count < BUSY || chunks.returned >= BUSY
    }

    /// Sets a callback that runs whenever a chunk is returned. It must not call the driver.
    pub fn when_freed(&self, then: Box<dyn Fn() + Send + Sync>) {
        let _ = self.freed.set(then);
    }

    /// Takes a free chunk, if there is one.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<PinnedChunk> {
        let part = self.chunks.lock().free.pop()?;
        Some(PinnedChunk {
            part: ManuallyDrop::new(part),
            ring: Arc::clone(self),
        })
    }
}

impl std::fmt::Debug for PinnedChunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PinnedChunk").field(&*self.part).finish()
    }
}

impl PinnedChunk {
    /// Returns the address of the chunk; see [`PinnedPart::pointer`].
    pub fn pointer(&self) -> *mut u8 {
        self.part.pointer()
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.part.length()
    }
}

impl Drop for PinnedChunk {
    fn drop(&mut self) {
        // SAFETY: the part is taken once, here; the field is not used afterwards.
        let part = unsafe { ManuallyDrop::take(&mut self.part) };
        {
            let mut chunks = self.ring.chunks.lock();
            chunks.free.push(part);
            chunks.returned += 1;
            chunks.refusals.returned();
        }
        // The lock is released before the callback, which may take a chunk.
        if let Some(then) = self.ring.freed.get() {
            then();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once_and_holds_for_a_while() {
        let mut refusals = Refusals::default();
        assert!(!refusals.hold());
        assert!(refusals.add());
        for _ in 0..PATIENCE {
            assert!(refusals.hold());
            refusals.returned();
        }
        assert!(!refusals.hold());
        assert!(!refusals.add());
        assert!(refusals.hold());
    }
}
