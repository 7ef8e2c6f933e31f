//! Where a buffer or image is mapped: its shadow, or the memory it was made to use.
//!
//! All maps of a whole object and its parts share one place, so that overlapping ones agree. A shadow holds an
//! image's rows without gaps; the application's memory holds them with those that it was given with.
//! Invariant: while something is mapped, or a transfer of a map or unmap runs, the shadow's pages stay.

use std::ops::Range;
use std::sync::{Arc, Weak};

use causeway_proto::region::Region;
use cl_headers::types::{CL_INVALID_OPERATION, CL_INVALID_VALUE, CL_MAP_FAILURE, CL_MEM_READ_ONLY};
use parking_lot::Mutex;

use super::map_table::{MapTable, Mapping};
use super::{Buffer, Event, next_id};
use crate::error::{ClResult, Status, fail, require};
use crate::shadow::{self, Shadow};
use crate::transport::HostRegion;

/// A shadow up to this size keeps its pages until its buffer goes: giving them back and touching them
/// anew would cost a small map more than the transfer.
const KEPT: u64 = 1 << 20;

/// So many bytes of a fill are put in place together.
const PORTION: u64 = 1 << 20;

/// Part of every whole buffer.
#[derive(Debug, Default)]
pub(super) struct Mapped(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    // Each with the event of its map command, once there is one.
    maps: MapTable<Option<Arc<Event>>>,
    transfers: usize,
    shadow: Option<Shadow>,
    // What the shadow holds is wanted also while nothing is mapped: it is the client's copy, of which the directory may
    // think that it is valid; or it was filled.
    is_copy: bool,
    // What unmaps may still take, each by its name.
    uploads: Vec<(u64, Region)>,
    // Fills under way, and what else has been mapped for writing since the first of them was enqueued.
    fills: usize,
    mapped_since: Vec<Region>,
    // Whether the application's memory takes bytes, once somebody has looked.
    is_writable: Option<bool>,
    // The unmaps that may still take bytes from the application's memory.
    unmaps: Vec<Weak<Event>>,
}

/// A new map: where the application finds the bytes.
#[derive(Debug)]
pub struct NewMap {
    key: u64,
    /// The bytes in the whole object.
    pub region: Region,
    /// Where they are.
    pub host: HostRegion,
    /// Keeps the place while the map's transfer runs.
    pub place: Place,
}

/// What an unmap has to do.
#[derive(Debug)]
pub struct Unmap {
    /// The map command, if it has not succeeded yet.
    pub mapped_by: Option<Arc<Event>>,
    /// What goes to the node.
    pub upload: Option<Upload>,
    /// Keeps the place while the unmap's transfer runs.
    pub place: Place,
}

/// Bytes that the application may have written.
#[derive(Debug)]
pub struct Upload {
    /// In the whole object.
    pub region: Region,
    /// Where they are.
    pub host: HostRegion,
}

/// A transfer's hold on the place where a buffer or image is mapped.
#[derive(Debug)]
pub struct Place {
    root: Arc<Buffer>,
    // Of an unmap that takes bytes.
    upload: Option<u64>,
}

impl Place {
    fn hold(root: &Arc<Buffer>, state: &mut State, takes: Option<Region>) -> Place {
        state.transfers += 1;
        let upload = takes.map(|region| (next_id(), region));
        state.uploads.extend(upload);
        Place {
            root: root.clone(),
            upload: upload.map(|(name, _)| name),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.root.mapped.0.lock();
        state.transfers -= 1;
        state.uploads.retain(|(name, _)| Some(*name) != self.upload);
        state.rest();
    }
}

impl State {
    // Gives the pages back when nobody is promised them any more.
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
    /// Of a whole object that is always to be here.
    pub(super) fn at(shadow: Shadow) -> Mapped {
        Mapped(Mutex::new(State {
            shadow: Some(shadow),
            ..State::default()
        }))
    }
}

impl Buffer {
    // The address of the whole object's first byte, once something was mapped.
    fn base(self: &Arc<Self>, state: &State) -> Option<usize> {
        let shadow = || state.shadow.as_ref().map(Shadow::address);
        self.root().host_address().or_else(shadow)
    }

    // The same; now something is.
    fn base_made(self: &Arc<Self>, state: &mut State) -> Option<usize> {
        if self.root().host_address().is_none() && state.shadow.is_none() {
            state.shadow = Shadow::new(self.root().size());
            state.is_copy = self.context().is_distributed();
        }
        self.base(state)
    }

    /// The address of the whole object's first byte in the client's copy of it.
    ///
    /// # Errors
    /// `CL_OUT_OF_HOST_MEMORY` without address space.
    pub(super) fn client_base(self: &Arc<Self>) -> ClResult<usize> {
        let mut state = self.root().mapped.0.lock();
        let base = self.base_made(&mut state);
        base.ok_or(Status::OUT_OF_HOST_MEMORY)
    }

    /// Maps a region of this object.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when it would write where another map does, `CL_MAP_FAILURE` without
    /// address space, `CL_INVALID_VALUE` when the region is not inside.
    pub fn map(self: &Arc<Self>, region: &Region, for_writing: bool) -> ClResult<NewMap> {
        let (root, region) = (self.root(), self.in_root(region)?);
        let mut state = root.mapped.0.lock();
        let base = self.base_made(&mut state);
        let base = base.ok_or(Status(CL_MAP_FAILURE))?;
        let host = shadow::view(base, region, root.host_rows());
        let mapping = Mapping {
            key: next_id(),
            owner: self.id(),
            at: (host.address() - base) as u64,
            region,
            for_writing,
            value: None,
        };
        let key = mapping.key;
        require(state.maps.insert(mapping), CL_INVALID_OPERATION)?;
        if for_writing && state.fills > 0 {
            state.mapped_since.push(region);
        }
        Ok(NewMap {
            key,
            region,
            host,
            place: Place::hold(root, &mut state, None),
        })
    }

    /// Whether a map may bring bytes to where this object is mapped. Not so where the object was made to use
    /// memory that is read-only: nobody but a kernel can have changed them, and bringing them would end the
    /// program. `is_writable` looks at an address, once for a whole object, before the application has had a map of it.
    pub fn takes_bytes(self: &Arc<Self>, is_writable: impl FnOnce(usize) -> bool) -> bool {
        let root = self.root();
        let Some(address) = root.host_address() else {
            return true;
        };
        let known = root.mapped.0.lock().is_writable;
        known.unwrap_or_else(|| {
            let takes = is_writable(address);
            root.mapped.0.lock().is_writable = Some(takes);
            if !takes && root.flags() & CL_MEM_READ_ONLY == 0 {
                tracing::warn!(
                    "a buffer or image uses memory that cannot be written: maps of it show what the program put there, \
                     and nothing that kernels write"
                );
            }
            takes
        })
    }

    /// A map got its command.
    pub fn mapped_by(self: &Arc<Self>, map: MapKey, event: &Arc<Event>) {
        if let Some(mapping) = self.root().mapped.0.lock().maps.get_mut(map.0) {
            mapping.value = Some(event.clone());
        }
    }

    /// A map whose pointer the application never gets.
    pub fn cancel_map(self: &Arc<Self>, map: MapKey) {
        let cancelled = {
            let mut state = self.root().mapped.0.lock();
            let cancelled = state.maps.cancel(map.0);
            state.rest();
            cancelled
        };
        // Its event may be the last that holds others: not under the lock.
        drop(cancelled);
    }

    // Where an address of a map lies in the place, if it can be in it.
    fn place_of(self: &Arc<Self>, state: &State, address: usize) -> Option<u64> {
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
    /// `CL_INVALID_VALUE` when there is none.
    pub fn unmap(self: &Arc<Self>, address: usize) -> ClResult<Unmap> {
        let mut state = self.root().mapped.0.lock();
        let unmapped = self
            .place_of(&state, address)
            .and_then(|at| state.maps.unmap(self.id(), at));
        let Some(unmapped) = unmapped else {
            return fail(CL_INVALID_VALUE);
        };
        let place = Place::hold(self.root(), &mut state, unmapped.written);
        let base = self.base(&state);
        // Letting go of an event sends: not under the lock.
        drop(state);
        let mapped_by = unmapped.mapping.value;
        // What a failed map never fetched must not overwrite what is there.
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

    /// An unmap got its command, which takes what was written.
    pub fn unmapped_by(self: &Arc<Self>, event: &Arc<Event>) {
        if self.root().host_address().is_none() {
            return;
        }
        let mut unmaps = std::mem::take(&mut self.root().mapped.0.lock().unmaps);
        // Letting go of an event sends: not under the lock.
        unmaps.retain(|unmap| unmap.upgrade().is_some_and(|unmap| !unmap.is_done()));
        unmaps.push(Arc::downgrade(event));
        self.root().mapped.0.lock().unmaps.append(&mut unmaps);
    }

    /// Waits until no unmap takes bytes from the application's memory any more, which it may give back once it
    /// has released the object. Not for what waits for the application itself.
    pub fn leave_host_memory(self: &Arc<Self>) {
        let unmaps = std::mem::take(&mut self.root().mapped.0.lock().unmaps);
        for unmap in unmaps.iter().filter_map(Weak::upgrade) {
            if !unmap.is_done() && !unmap.is_gated() {
                // How it ends is told to whoever asks for its event.
                let _ = unmap.outcome();
            }
        }
    }

    /// Bytes of the whole object, which is always here, are about to come without a map.
    pub(super) fn fill(self: &Arc<Self>, region: Region) -> Fill {
        let root = self.root().clone();
        {
            let mut state = root.mapped.0.lock();
            state.fills += 1;
            state.is_copy = true;
            let mapped: Vec<Region> = state.maps.for_writing().collect();
            state.mapped_since.extend(mapped);
        }
        Fill { root, region }
    }

    /// `CL_MEM_MAP_COUNT`.
    #[must_use]
    pub fn map_count(self: &Arc<Self>) -> usize {
        self.root().mapped.0.lock().maps.count(self.id())
    }
}

/// Bytes on their way to where an object always is, though nobody has mapped them.
#[derive(Debug)]
pub(super) struct Fill {
    root: Arc<Buffer>,
    region: Region,
}

impl Fill {
    /// The bytes have come; `bytes` gives a part of them, counted from the first. What the application may write now, has
    /// written since, or has given back to be taken, stays as it is.
    pub(super) fn land(&self, bytes: impl Fn(u64, u64) -> Option<Vec<u8>>) {
        // Under the lock: nobody maps meanwhile.
        let state = self.root.mapped.0.lock();
        let Some(base) = self.root.base(&state) else {
            return;
        };
        let kept = state.maps.for_writing();
        let kept = kept.chain(state.mapped_since.iter().copied());
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
                    tracing::error!("the node answered a migration with too few bytes");
                    return;
                }
            }
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let mut state = self.root.mapped.0.lock();
        state.fills -= 1;
        if state.fills == 0 {
            state.mapped_since = Vec::new();
        }
    }
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

/// Names a map of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapKey(u64);

impl NewMap {
    /// Its name.
    #[must_use]
    pub fn key(&self) -> MapKey {
        MapKey(self.key)
    }

    /// What the application gets.
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
