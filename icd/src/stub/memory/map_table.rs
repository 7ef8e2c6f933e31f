//! The maps of one whole buffer or image and its parts: a pure table.
//!
//! An unmap names an object and a pointer. The same pair may have been mapped several times, and each unmap
//! ends one of these maps. Invariant: no two maps for writing share a byte.

use causeway_proto::id::MemoryId;
use causeway_proto::region::Region;

use crate::stub::memory::range_table::overlap;

/// A map of a buffer or image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stub) struct Mapping<T> {
    /// Identifies the map, for [`MapTable::cancel`].
    pub(in crate::stub) key: u64,
    /// The object that the application mapped: the whole object or a part.
    pub(in crate::stub) owner: MemoryId,
    /// Offset of the map's pointer from the address where the whole object is mapped.
    pub(in crate::stub) at: u64,
    /// The mapped bytes, as a region of the whole object.
    pub(in crate::stub) region: Region,
    /// Whether the application may write to the map.
    pub(in crate::stub) for_writing: bool,
    /// Data of the caller.
    pub(in crate::stub) value: T,
}

/// All maps of one whole object and its parts; see the module.
#[derive(Debug)]
pub(in crate::stub) struct MapTable<T> {
    // In the order of the calls. The list is short, because programs map a buffer once or twice at a time.
    live: Vec<Mapping<T>>,
}

/// The result of an unmap: the map that has ended, and the bytes to send to the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::stub) struct Unmapped<T> {
    /// The map that has ended.
    pub(in crate::stub) mapping: Mapping<T>,
    /// Bytes that the application may have written, as a region of the whole object.
    pub(in crate::stub) written: Option<Region>,
}

impl<T> Default for MapTable<T> {
    fn default() -> Self {
        MapTable { live: Vec::new() }
    }
}

impl<T> MapTable<T> {
    /// Adds a map. Returns false and adds nothing if two maps for writing would overlap.
    pub(in crate::stub) fn insert(&mut self, mapping: Mapping<T>) -> bool {
        let collides =
            |other: &Mapping<T>| other.for_writing && overlap(&mapping.region, &other.region);
        if mapping.for_writing && self.live.iter().any(collides) {
            return false;
        }
        self.live.push(mapping);
        true
    }

    /// Returns the map with this key.
    pub(in crate::stub) fn get_mut(&mut self, key: u64) -> Option<&mut Mapping<T>> {
        self.live.iter_mut().find(|mapping| mapping.key == key)
    }

    /// Removes a map whose command was never enqueued, or failed before the application got the pointer.
    pub(in crate::stub) fn cancel(&mut self, key: u64) -> Option<Mapping<T>> {
        let place = self.live.iter().position(|mapping| mapping.key == key)?;
        Some(self.live.remove(place))
    }

    /// Whether [`MapTable::unmap`] would find a map.
    pub(in crate::stub) fn is_mapped(&self, owner: MemoryId, at: u64) -> bool {
        self.live
            .iter()
            .any(|mapping| mapping.owner == owner && mapping.at == at)
    }

    /// Ends one map of this object at this pointer; `None` if there is none.
    ///
    /// If several maps begin there, the call does not say which one is meant. So maps for reading end
    /// first. The bytes of a map for writing go to the node with each of these unmaps. That way no order of
    /// the application's unmaps loses bytes.
    pub(in crate::stub) fn unmap(&mut self, owner: MemoryId, at: u64) -> Option<Unmapped<T>> {
        let fits = |mapping: &Mapping<T>| mapping.owner == owner && mapping.at == at;
        let written = self
            .live
            .iter()
            .find(|mapping| fits(mapping) && mapping.for_writing)
            .map(|mapping| mapping.region);
        let place = self
            .live
            .iter()
            .rposition(|mapping| fits(mapping) && !mapping.for_writing)
            .or_else(|| self.live.iter().rposition(fits))?;
        Some(Unmapped {
            mapping: self.live.remove(place),
            written,
        })
    }

    /// Returns the maps through which the application may write.
    pub(in crate::stub) fn for_writing(&self) -> impl Iterator<Item = &Mapping<T>> {
        self.live.iter().filter(|mapping| mapping.for_writing)
    }

    /// Returns `CL_MEM_MAP_COUNT` of an object.
    pub(in crate::stub) fn count(&self, owner: MemoryId) -> usize {
        self.live
            .iter()
            .filter(|mapping| mapping.owner == owner)
            .count()
    }

    /// Whether nothing of the whole object is mapped.
    pub(in crate::stub) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: MemoryId = MemoryId(1);
    const PART: MemoryId = MemoryId(2);

    fn mapping(key: u64, owner: MemoryId, first: u64, length: u64, write: bool) -> Mapping<()> {
        Mapping {
            key,
            owner,
            at: first,
            region: Region::linear(first, length).unwrap(),
            for_writing: write,
            value: (),
        }
    }

    fn bytes(first: u64, length: u64) -> Option<Region> {
        Some(Region::linear(first, length).unwrap())
    }

    #[test]
    fn boxes_of_an_image_side_by_side_are_mapped_for_writing_together() {
        let mut table = MapTable::default();
        let column = |key, x| Mapping {
            region: Region::rect(x, [4, 8, 1], 16, 128).unwrap(),
            ..mapping(key, WHOLE, x, 1, true)
        };
        assert!(table.insert(column(1, 0)));
        assert!(table.insert(column(2, 4)));
        assert!(!table.insert(column(3, 7)));
        assert_eq!(
            table.unmap(WHOLE, 4).unwrap().written,
            Some(column(2, 4).region)
        );
    }

    #[test]
    fn maps_for_writing_do_not_overlap_across_sub_buffers() {
        let mut table = MapTable::default();
        assert!(table.insert(mapping(1, WHOLE, 0, 64, true)));
        assert!(!table.insert(mapping(2, PART, 63, 8, true)));
        assert!(table.insert(mapping(3, PART, 64, 8, true)));
        assert!(table.insert(mapping(4, PART, 0, 99, false)));
        assert_eq!((table.count(WHOLE), table.count(PART)), (1, 2));
    }

    #[test]
    fn an_unmap_names_object_and_pointer() {
        let mut table = MapTable::default();
        assert!(table.insert(mapping(1, WHOLE, 8, 8, true)));
        assert!(!table.is_mapped(PART, 8));
        assert_eq!(table.unmap(PART, 8), None);
        assert_eq!(table.unmap(WHOLE, 9), None);
        let unmapped = table.unmap(WHOLE, 8).unwrap();
        assert_eq!((unmapped.mapping.key, unmapped.written), (1, bytes(8, 8)));
        assert!(table.is_empty());
    }

    #[test]
    fn each_unmap_ends_one_of_several_and_no_written_byte_is_lost() {
        let mut table = MapTable::default();
        for (key, length, write) in [(1, 16, false), (2, 8, true), (3, 4, false)] {
            assert!(table.insert(mapping(key, WHOLE, 0, length, write)));
        }
        for key in [3, 1, 2] {
            let unmapped = table.unmap(WHOLE, 0).unwrap();
            assert_eq!((unmapped.mapping.key, unmapped.written), (key, bytes(0, 8)));
        }
        assert_eq!(table.unmap(WHOLE, 0), None);
    }

    #[test]
    fn a_cancelled_map_leaves_no_trace() {
        let mut table = MapTable::default();
        assert!(table.insert(mapping(1, WHOLE, 0, 8, true)));
        assert!(table.get_mut(1).is_some());
        assert!(table.cancel(1).is_some());
        assert!(table.cancel(1).is_none());
        assert!(table.insert(mapping(2, WHOLE, 0, 8, true)));
    }
}
