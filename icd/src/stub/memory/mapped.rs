//! Where a buffer or image is mapped: in its shadow, or in the memory that it was made to use.
//!
//! All maps of a whole object and its parts use the same memory, so that overlapping maps agree. A shadow
//! holds an image's rows without gaps; the application's memory holds them with its own pitches. Invariant:
//! while something is mapped, or a transfer of a map or unmap is running, the shadow keeps its pages.

use std::ops::Range;
use std::sync::{Arc, Weak};

use causeway_proto::region::Region;
use cl_headers::types::{CL_INVALID_OPERATION, CL_INVALID_VALUE, CL_MAP_FAILURE, CL_MEM_READ_ONLY};
use parking_lot::Mutex;

use crate::error::{ClResult, Status, fail, require};
use crate::shadow::{self, Shadow};
use crate::stub::memory::map_table::{MapTable, Mapping};
use crate::stub::{Buffer, Event, next_id};
use crate::transport::HostRegion;

/// Maximum size in bytes of a shadow that keeps its pages until its buffer is destroyed. For a small map,
/// returning the pages and touching them again would cost more than the transfer.
const KEPT: u64 = 1 << 20;

/// Number of bytes of a fill that are copied at once.
const PORTION: u64 = 1 << 20;

/// The maps of a whole object; part of every [`Buffer`].
#[derive(Debug, Default)]
pub(in crate::stub) struct Mapped(Mutex<MappedState>);

#[derive(Debug, Default)]
struct MappedState {
    maps: MapTable<MapCommand>,
    transfers: usize,
    shadow: Option<Shadow>,
    // Whether the shadow's bytes matter even while nothing is mapped: it is the client's copy, which the
    // directory may consider valid, or it was filled.
    is_copy: bool,
    // Regions that unmaps may still read, each with an id.
    uploads: Vec<(u64, Region)>,
    // The running fills, each with an id and the regions that it leaves out.
    fills: Vec<(u64, Vec<Region>)>,
    // Whether the application's memory can be written; `None` until this was checked.
    is_writable: Option<bool>,
    // Unmaps that may still read the application's memory.
    unmaps: Vec<Weak<Event>>,
}

/// The command of a map.
#[derive(Debug)]
enum MapCommand {
    /// The call has not enqueued the command yet.
    Pending,
    /// The map moves nothing, and has no command.
    LeftOut,
    /// The command's event.
    Enqueued(Arc<Event>),
}

/// A new map: where the application finds the bytes.
#[derive(Debug)]
pub struct NewMap {
    key: u64,
    /// The mapped bytes, as a region of the whole object.
    pub region: Region,
    /// The host memory of the map.
    pub host: HostRegion,
    /// Whether the application may have written these bytes through a map that it still has. A fetch would destroy them. In
    /// contexts of several sites, the directory knows that.
    pub is_written: bool,
    /// Keeps the memory alive while the map's transfer runs.
    pub place: MapReference,
}

/// The work of an unmap.
#[derive(Debug)]
pub struct Unmap {
    /// The map command, if it has not ended yet.
    pub mapped_by: Option<Arc<Event>>,
    /// The bytes to send to the node, if any.
    pub upload: Option<Upload>,
    /// Keeps the memory alive while the unmap's transfer runs.
    pub place: MapReference,
}

/// Bytes that the application may have written.
#[derive(Debug)]
pub struct Upload {
    /// The bytes, as a region of the whole object.
    pub region: Region,
    /// The host memory of the bytes.
    pub host: HostRegion,
}

/// A transfer's reference to the memory where a buffer or image is mapped.
#[derive(Debug)]
pub struct MapReference {
    root: Arc<Buffer>,
    // The id of an unmap's region in `uploads`.
    upload: Option<u64>,
}

impl MapReference {
    fn hold(root: &Arc<Buffer>, state: &mut MappedState, takes: Option<Region>) -> MapReference {
        state.transfers += 1;
        let upload = takes.map(|region| (next_id(), region));
        state.uploads.extend(upload);
        MapReference {
            root: root.clone(),
            upload: upload.map(|(name, _)| name),
        }
    }
}

impl Drop for MapReference {
    fn drop(&mut self) {
        let mut state = self.root.mapped.0.lock();
        state.transfers -= 1;
        state.uploads.retain(|(name, _)| Some(*name) != self.upload);
        state.rest();
    }
}

impl MappedState {
    // Whether the application has a complete map through which it may have written all of this region.
    fn is_written(&self, region: &Region) -> bool {
        let mut maps = self.maps.for_writing();
        maps.any(|mapping| {
            let is_complete = match &mapping.value {
                MapCommand::Pending => false,
                MapCommand::LeftOut => true,
                MapCommand::Enqueued(event) => event.status() == 0,
            };
            is_complete && covers(&mapping.region, region)
        })
    }

    // Returns the shadow's pages to the system when nothing needs them any more.
    fn rest(&mut self) {
        if !self.is_copy
            && self.transfers == 0
            && self.maps.is_empty()
            && let Some(shadow) = &self.shadow
            && shadow.length() > KEPT
        {
            shadow.give_back();
        }
    }
}

impl Mapped {
    /// Makes the state of a whole object that always uses `shadow`.
    pub(in crate::stub) fn at(shadow: Shadow) -> Mapped {
        Mapped(Mutex::new(MappedState {
            shadow: Some(shadow),
            ..MappedState::default()
        }))
    }
}

impl Buffer {
    // The address of the whole object's first byte, if it has one already.
    fn base(self: &Arc<Self>, state: &MappedState) -> Option<usize> {
        let shadow = || state.shadow.as_ref().map(Shadow::address);
        self.root().host_address().or_else(shadow)
    }

    // Like `base`, but makes the shadow if necessary.
    fn base_made(self: &Arc<Self>, state: &mut MappedState) -> Option<usize> {
        if self.root().host_address().is_none() && state.shadow.is_none() {
            state.shadow = Shadow::new(self.root().size());
            state.is_copy = self.context().is_distributed();
        }
        self.base(state)
    }

    /// Returns the address of the first byte in the client's copy of the whole object.
    ///
    /// # Errors
    /// `CL_OUT_OF_HOST_MEMORY` when the client has no address space for the copy.
    pub(in crate::stub) fn client_base(self: &Arc<Self>) -> ClResult<usize> {
        let mut state = self.root().mapped.0.lock();
        let base = self.base_made(&mut state);
        base.ok_or(Status::OUT_OF_HOST_MEMORY)
    }

    /// Maps a region of this object.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when two maps for writing would overlap, `CL_MAP_FAILURE` when the client has
    /// no address space, `CL_INVALID_VALUE` when the region is not inside.
    pub fn map(self: &Arc<Self>, region: &Region, for_writing: bool) -> ClResult<NewMap> {
        let (root, region) = (self.root(), self.in_root(region)?);
        let mut state = root.mapped.0.lock();
        let base = self.base_made(&mut state);
        // clEnqueueMapBuffer, clEnqueueMapImage: CL_MAP_FAILURE when the region cannot be mapped.
        let base = base.ok_or(Status(CL_MAP_FAILURE))?;
        let is_written = !self.context().is_distributed() && state.is_written(&region);
        let host = shadow::view(base, region, root.host_rows());
        let mapping = Mapping {
            key: next_id(),
            owner: self.id(),
            at: (host.address() - base) as u64,
            region,
            for_writing,
            value: MapCommand::Pending,
        };
        let key = mapping.key;
        // clEnqueueMapBuffer, clEnqueueMapImage: CL_INVALID_OPERATION when two regions that are mapped for
        // writing would overlap.
        require(state.maps.insert(mapping), CL_INVALID_OPERATION)?;
        // A running fill must not overwrite what the application writes through this map.
        if for_writing {
            for (_, left_out) in &mut state.fills {
                left_out.push(region);
            }
        }
        Ok(NewMap {
            key,
            region,
            host,
            is_written,
            place: MapReference::hold(root, &mut state, None),
        })
    }

    /// Whether a map may copy bytes to the memory of this object. False if the object was made to use
    /// read-only memory: the copy would crash the program, and only a kernel can have changed the bytes.
    /// `is_writable` checks an address. It is called once for a whole object, before the application has a
    /// map of it.
    pub fn takes_bytes(self: &Arc<Self>, is_writable: impl FnOnce(usize) -> bool) -> bool {
        let root = self.root();
        if self.context().is_distributed() {
            // Transfers of other commands may be writing the client's copy already, so it is not tested.
            return true;
        }
        let Some(address) = root.host_address() else {
            return true;
        };
        let known = root.mapped.0.lock().is_writable;
        known.unwrap_or_else(|| {
            let takes = is_writable(address);
            root.mapped.0.lock().is_writable = Some(takes);
            if !takes && root.flags() & CL_MEM_READ_ONLY == 0 {
                tracing::warn!(
                    "CL_MEM_USE_HOST_PTR memory of a buffer or image is read-only, so maps of it do not show what \
                     kernels write; pass writable memory or CL_MEM_READ_ONLY"
                );
            }
            takes
        })
    }

    /// Sets the command of a map; `None` if the map needs none.
    pub fn mapped_by(self: &Arc<Self>, map: MapKey, event: Option<&Arc<Event>>) {
        if let Some(mapping) = self.root().mapped.0.lock().maps.get_mut(map.0) {
            mapping.value = match event {
                Some(event) => MapCommand::Enqueued(event.clone()),
                None => MapCommand::LeftOut,
            };
        }
    }

    /// Removes a map whose pointer the application never gets.
    pub fn cancel_map(self: &Arc<Self>, map: MapKey) {
        let cancelled = {
            let mut state = self.root().mapped.0.lock();
            let cancelled = state.maps.cancel(map.0);
            state.rest();
            cancelled
        };
        // Dropped without the lock: the map's event may be the last reference to other objects.
        drop(cancelled);
    }

    // The offset of an address from the start of the mapped memory; `None` for an address before it.
    fn place_of(self: &Arc<Self>, state: &MappedState, address: usize) -> Option<u64> {
        let at = address.checked_sub(self.base(state)?)?;
        Some(at as u64)
    }

    /// Whether this object is mapped at this address.
    #[must_use]
    pub fn is_mapped_at(self: &Arc<Self>, address: usize) -> bool {
        let state = self.root().mapped.0.lock();
        self.place_of(&state, address)
            .is_some_and(|at| state.maps.is_mapped(self.id(), at))
    }

    /// Ends a map of this object at this address.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` when there is no such map.
    pub fn unmap(self: &Arc<Self>, address: usize) -> ClResult<Unmap> {
        let mut state = self.root().mapped.0.lock();
        let unmapped = self
            .place_of(&state, address)
            .and_then(|at| state.maps.unmap(self.id(), at));
        let Some(unmapped) = unmapped else {
            // clEnqueueUnmapMemObject: CL_INVALID_VALUE when the pointer is not one that a map of this
            // object returned.
            return fail(CL_INVALID_VALUE);
        };
        let place = MapReference::hold(self.root(), &mut state, unmapped.written);
        let base = self.base(&state);
        // Dropping an event may send, so the lock is released first.
        drop(state);
        let mapped_by = match unmapped.mapping.value {
            MapCommand::Enqueued(event) => Some(event),
            MapCommand::Pending | MapCommand::LeftOut => None,
        };
        // The bytes of a failed map never arrived, so they must not overwrite the node's.
        let failed = mapped_by.as_ref().is_some_and(|event| event.status() < 0);
        let upload = unmapped.written.zip(base).map(|(region, base)| Upload {
            region,
            host: shadow::view(base, region, self.root().host_rows()),
        });
        Ok(Unmap {
            upload: upload.filter(|_| !failed),
            mapped_by: mapped_by.filter(|event| !event.is_done()),
            place,
        })
    }

    /// Records the command of an unmap that may read the application's memory.
    pub fn unmapped_by(self: &Arc<Self>, event: &Arc<Event>) {
        if self.root().host_address().is_none() {
            return;
        }
        let mut unmaps = std::mem::take(&mut self.root().mapped.0.lock().unmaps);
        // Dropping an event may send, so the list is taken out of the lock.
        unmaps.retain(|unmap| unmap.upgrade().is_some_and(|unmap| !unmap.is_done()));
        unmaps.push(Arc::downgrade(event));
        self.root().mapped.0.lock().unmaps.append(&mut unmaps);
    }

    /// Waits until no unmap reads the application's memory any more, because the application may free it
    /// after releasing the object. Ignores unmaps that wait for the application itself.
    pub fn leave_host_memory(self: &Arc<Self>) {
        let unmaps = std::mem::take(&mut self.root().mapped.0.lock().unmaps);
        for unmap in unmaps.iter().filter_map(Weak::upgrade) {
            if !unmap.is_done() && !unmap.is_gated() {
                // The application can see a failure in the unmap's own event.
                let _ = unmap.outcome();
            }
        }
    }

    /// Begins a fill: bytes are about to arrive without a map, for a whole object that always has its
    /// shadow.
    pub(in crate::stub) fn fill(self: &Arc<Self>, region: Region) -> Fill {
        let (root, id) = (self.root().clone(), next_id());
        {
            let mut state = root.mapped.0.lock();
            state.is_copy = true;
            let mapped = state.maps.for_writing().map(|mapping| mapping.region);
            let left_out = mapped.collect();
            state.fills.push((id, left_out));
        }
        Fill { root, id, region }
    }

    /// Whether the application has a map of the whole object, or of a part, through which it may write.
    #[must_use]
    pub(in crate::stub) fn is_mapped_for_writing(self: &Arc<Self>) -> bool {
        let state = self.root().mapped.0.lock();
        state.maps.for_writing().next().is_some()
    }

    /// Returns `CL_MEM_MAP_COUNT`.
    #[must_use]
    pub fn map_count(self: &Arc<Self>) -> usize {
        self.root().mapped.0.lock().maps.count(self.id())
    }
}

/// Bytes that will be copied to an object's shadow without a map.
#[derive(Debug)]
pub(in crate::stub) struct Fill {
    root: Arc<Buffer>,
    id: u64,
    region: Region,
}

impl Fill {
    /// Copies the bytes into place; `bytes` returns a part of them, by offset and length. Leaves out regions that were mapped
    /// for writing when the fill was enqueued or since, or that an unmap still reads.
    pub(in crate::stub) fn land(&self, bytes: impl Fn(u64, u64) -> Option<Vec<u8>>) {
        // The lock stays held, so that nobody maps during the copy.
        let state = self.root.mapped.0.lock();
        let Some(base) = self.root.base(&state) else {
            return;
        };
        let own = state.fills.iter().find(|(id, _)| *id == self.id);
        let kept = own
            .into_iter()
            .flat_map(|(_, left_out)| left_out.iter().copied());
        let kept = kept.chain(state.uploads.iter().map(|(_, region)| *region));
        let begin = self.region.offset();
        for (from, to) in without(begin..self.region.end(), kept) {
            for at in (from..to).step_by(PORTION as usize) {
                let length = PORTION.min(to - at);
                let portion = Region::linear(at, length).ok();
                let landed = portion.zip(bytes(at - begin, length));
                let landed =
                    landed.is_some_and(|(at, bytes)| shadow::view(base, at, None).copy_in(&bytes));
                if !landed {
                    tracing::error!(
                        "the node returned too few bytes for an SVM migration to the host (protocol error); \
                         the rest of the range is unchanged"
                    );
                    return;
                }
            }
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let mut state = self.root.mapped.0.lock();
        state.fills.retain(|(id, _)| *id != self.id);
    }
}

fn covers(whole: &Region, part: &Region) -> bool {
    whole == part
        || whole.is_linear() && whole.offset() <= part.offset() && part.end() <= whole.end()
}

// The parts of a range outside of these regions, in order.
fn without(range: Range<u64>, regions: impl Iterator<Item = Region>) -> Vec<(u64, u64)> {
    let mut taken: Vec<(u64, u64)> = regions.map(|of| (of.offset(), of.end())).collect();
    taken.sort_unstable();
    let (mut from, mut parts) = (range.start, Vec::new());
    for (begin, end) in taken {
        if begin > from {
            parts.push((from, begin.min(range.end)));
        }
        from = from.max(end);
        if from >= range.end {
            return parts;
        }
    }
    parts.push((from, range.end));
    parts
}

/// Identifies a map of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapKey(u64);

impl NewMap {
    /// Returns the key of the map.
    #[must_use]
    pub fn key(&self) -> MapKey {
        MapKey(self.key)
    }

    /// Returns the address that the application gets.
    #[must_use]
    pub fn address(&self) -> usize {
        self.host.address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_leaves_out_what_is_taken() {
        let region = |from, to| Region::linear(from, to - from).expect("a region");
        let parts = |taken: &[(u64, u64)]| {
            let taken = taken.iter().map(|&(from, to)| region(from, to));
            without(10..20, taken)
        };
        assert_eq!(parts(&[]), [(10, 20)]);
        assert_eq!(parts(&[(0, 5), (30, 40)]), [(10, 20)]);
        assert_eq!(parts(&[(0, 12), (18, 25)]), [(12, 18)]);
        assert_eq!(
            parts(&[(16, 17), (11, 13), (12, 14)]),
            [(10, 11), (14, 16), (17, 20)]
        );
        assert_eq!(parts(&[(10, 15), (15, 20)]), []);
        assert_eq!(parts(&[(0, 100), (12, 13)]), []);
    }
}
