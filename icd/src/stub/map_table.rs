//! The maps of one whole buffer or image and its parts: a pure table.
//!
//! An unmap names an object and a pointer; the same pair may have been mapped several times, and each
//! unmap ends one of them. Invariant: no two maps for writing share a byte.

use causeway_proto::id::MemoryId;
use causeway_proto::region::Region;

use super::range_table::overlap;

/// One map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping<T> {
    /// Names it, for [`MapTable::cancel`].
    pub(super) key: u64,
    /// The object that was named: the whole one or a part.
    pub(super) owner: MemoryId,
    /// Its pointer, counted from where the whole object is mapped.
    pub(super) at: u64,
    /// The bytes, in the whole object.
    pub(super) region: Region,
    /// Whether the application may write there.
    pub(super) for_writing: bool,
    /// What belongs to it.
    pub(super) value: T,
}

/// See the module.
#[derive(Debug)]
pub(super) struct MapTable<T> {
    // In the order of the calls. Few: programs map a buffer once or twice at a time.
    live: Vec<Mapping<T>>,
}

/// What an unmap ends, and what must go to the node then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unmapped<T> {
    /// The map that is over.
    pub(super) mapping: Mapping<T>,
    /// Those (in the whole object) that the application may have written.
    pub(super) written: Option<Region>,
}

impl<T> Default for MapTable<T> {
    fn default() -> Self {
        MapTable { live: Vec::new() }
    }
}

impl<T> MapTable<T> {
    /// Adds a map; false, and nothing added, when it would write where another one does.
    pub(super) fn insert(&mut self, mapping: Mapping<T>) -> bool {
        let collides =
            |other: &Mapping<T>| other.for_writing && overlap(&mapping.region, &other.region);
        if mapping.for_writing && self.live.iter().any(collides) {
            return false;
        }
        self.live.push(mapping);
        true
    }

    /// The map with this key, to tell it more.
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut Mapping<T>> {
        self.live.iter_mut().find(|mapping| mapping.key == key)
    }

    /// Takes back a map whose command was never enqueued or failed before its pointer was given out.
    pub(super) fn cancel(&mut self, key: u64) -> Option<Mapping<T>> {
        let place = self.live.iter().position(|mapping| mapping.key == key)?;
        Some(self.live.remove(place))
    }

    /// Whether [`MapTable::unmap`] would find one.
    pub(super) fn is_mapped(&self, owner: MemoryId, at: u64) -> bool {
        self.live
            .iter()
            .any(|mapping| mapping.owner == owner && mapping.at == at)
    }

    /// Ends one map of this object at this pointer; none when there is none.
    ///
    /// Where several begin there, nobody can say which one is meant: those for reading end
    /// first, and what is mapped for writing goes to the node each time, so that no order of the
    /// application's unmaps loses bytes.
    pub(super) fn unmap(&mut self, owner: MemoryId, at: u64) -> Option<Unmapped<T>> {
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

    /// What the application may write.
    pub(super) fn for_writing(&self) -> impl Iterator<Item = Region> + '_ {
        let writing = self.live.iter().filter(|mapping| mapping.for_writing);
        writing.map(|mapping| mapping.region)
    }

    /// `CL_MEM_MAP_COUNT` of an object.
    pub(super) fn count(&self, owner: MemoryId) -> usize {
        self.live
            .iter()
            .filter(|mapping| mapping.owner == owner)
            .count()
    }

    /// Whether nothing of the whole object is mapped.
    pub(super) fn is_empty(&self) -> bool {
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
