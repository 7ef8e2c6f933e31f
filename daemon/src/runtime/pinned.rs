//! Pinned staging memory for devices with memory of their own.
//!
//! Drivers copy pinned memory without blocking the caller; with pageable memory they may block until
//! everything before has run (NVIDIA). Small transfers take parts of a slab; a slab is used again when
//! all its parts are free. Invariant: parts never overlap, and a part keeps its slab mapped.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::buffer::Buffer;
use super::context::Context;
use super::node::Device;
use super::queue::{Access, Queue};

const SLAB: usize = 1 << 20;
const ALIGN: usize = 64;
/// What the driver has refused is asked of it again after so many chunks came back.
const PATIENCE: usize = 64;
/// Chunks of a ring with which one can be filled while another is emptied.
const BUSY: usize = 2;

/// One mapped, pinned allocation.
#[derive(Debug)]
struct Slab {
    pointer: *mut u8,
    taken: AtomicUsize,
    // Unmapped by its release; the queue that mapped it lives as long.
    _buffer: Buffer,
    _queue: Arc<Queue>,
}

// SAFETY: the mapping stays where it is for the slab's life; parts hand out disjoint bytes.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

fn map_slab(context: &Context, queue: &Arc<Queue>) -> Result<Arc<Slab>, Status> {
    let buffer = Buffer::pinned(context, SLAB)?;
    let pointer = queue.map_blocking(&buffer, 0, SLAB, Access::ReadWrite)?;
    Ok(Arc::new(Slab {
        pointer,
        taken: AtomicUsize::new(0),
        _buffer: buffer,
        _queue: Arc::clone(queue),
    }))
}

/// Bytes of a slab, exclusively the holder's.
#[derive(Debug)]
pub struct PinnedPart {
    slab: Arc<Slab>,
    offset: usize,
    length: usize,
}

impl PinnedPart {
    /// Where it lies. Who forms a reference from it must know that neither driver nor socket uses it.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        // SAFETY: `offset` lies within the slab's mapping.
        unsafe { self.slab.pointer.add(self.offset) }
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }
}

impl Drop for PinnedPart {
    fn drop(&mut self) {
        self.slab.taken.fetch_sub(1, Ordering::Release);
    }
}

/// The pinned memory of one context's device: grows to a limit, is never given back.
#[derive(Debug)]
pub struct PinnedPool {
    queue: Arc<Queue>,
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
    /// A pool of one slab, at most `most` (1 MiB each), mapped from a queue of its own. Blocks for the
    /// driver's mapping.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Context, device: Device, most: usize) -> Result<PinnedPool, Status> {
        let queue = Arc::new(Queue::new(context, device, &[])?);
        let pool = PinnedPool {
            queue,
            most,
            state: Mutex::default(),
        };
        let slab = map_slab(context, &pool.queue)?;
        pool.state.lock().all.push(slab);
        Ok(pool)
    }

    /// `length` bytes, or `None` when all is in use or a part would be larger than a slab.
    #[must_use]
    pub fn take(&self, context: &Context, length: usize) -> Option<PinnedPart> {
        let room = length.checked_next_multiple_of(ALIGN)?.max(ALIGN);
        if room > SLAB {
            return None;
        }
        let mut slabs = self.state.lock();
        if slabs.used + room > SLAB {
            let free = slabs
                .all
                .iter()
                .position(|s| s.taken.load(Ordering::Acquire) == 0);
            slabs.current = match free {
                Some(free) => free,
                None if slabs.all.len() < self.most => {
                    let slab = map_slab(context, &self.queue).ok()?;
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

/// Equal pinned chunks of 1 MiB, used again as they are dropped, the last dropped first: its pages are there,
/// and perhaps in a cache. There are as many as were [asked for](Ring::grow): pinning costs a driver up to
/// a millisecond each, and the first bytes shall not wait for all.
pub struct Ring {
    queue: Arc<Queue>,
    chunks: Mutex<Chunks>,
    freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Chunks {
    free: Vec<PinnedPart>,
    // All, and how many there may be.
    count: usize,
    most: usize,
    // Came back since the last was added.
    returned: usize,
    refusals: Refusals,
}

/// What a driver has refused, and how long ago in chunks that came back.
#[derive(Debug, Default)]
struct Refusals {
    still: usize,
    said: bool,
}

impl Refusals {
    /// Whether it is too early to ask again.
    fn hold(&self) -> bool {
        self.still > 0
    }

    /// Another one. Whether it is the first.
    fn add(&mut self) -> bool {
        self.still = PATIENCE;
        !std::mem::replace(&mut self.said, true)
    }

    fn returned(&mut self) {
        self.still = self.still.saturating_sub(1);
    }
}

/// A chunk of a ring, back in it when dropped.
pub struct Slot {
    part: ManuallyDrop<PinnedPart>,
    ring: Arc<Ring>,
}

impl Ring {
    /// A ring without a chunk, which may get `most`, mapped from `queue`.
    #[must_use]
    pub fn new(queue: Arc<Queue>, most: usize) -> Arc<Ring> {
        Arc::new(Ring {
            queue,
            chunks: Mutex::new(Chunks {
                most,
                ..Chunks::default()
            }),
            freed: OnceLock::new(),
        })
    }

    /// Allocates and maps one more chunk, of the context of the ring's queue; says whether. What the driver
    /// refuses is asked of it again only after many chunks have come back. Blocks. For one thread at a time.
    ///
    /// # Errors
    /// What the driver says to the first chunk: then there is none to wait for.
    pub fn grow(&self, context: &Context) -> Result<bool, Status> {
        {
            let chunks = self.chunks.lock();
            if chunks.count == chunks.most || chunks.refusals.hold() {
                return Ok(false);
            }
        }
        let slab = map_slab(context, &self.queue);
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
                    tracing::warn!(?status, chunks, "no more pinned memory for now");
                }
                Ok(false)
            }
        }
    }

    /// Whether as many have come back since the last one was added as a transfer needs at least to overlap
    /// device and network: then one more is worth its price.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let chunks = self.chunks.lock();
        chunks.count < BUSY || chunks.returned >= BUSY
    }

    /// What to do whenever a chunk comes back; it must not enter the driver.
    pub fn when_freed(&self, then: Box<dyn Fn() + Send + Sync>) {
        let _ = self.freed.set(then);
    }

    /// A free chunk, if there is one.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Slot> {
        let part = self.chunks.lock().free.pop()?;
        Some(Slot {
            part: ManuallyDrop::new(part),
            ring: Arc::clone(self),
        })
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Slot").field(&*self.part).finish()
    }
}

impl Slot {
    /// As [`PinnedPart::pointer`].
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.part.pointer()
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.part.length()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the field is not used afterwards.
        let part = unsafe { ManuallyDrop::take(&mut self.part) };
        {
            let mut chunks = self.ring.chunks.lock();
            chunks.free.push(part);
            chunks.returned += 1;
            chunks.refusals.returned();
        }
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
