//! Decides when a mapping may be unmapped if several mappings have the same pointer.
//!
//! `clEnqueueUnmapMemObject` identifies a mapping by its pointer alone. Mappings of one range, such as
//! those of several readers, have equal pointers. PoCL then unmaps the oldest of them, whichever was
//! meant. If the oldest one's map command has still to run, that command runs on freed memory. So among
//! mappings with equal pointers, none is unmapped before the oldest has ended. The oldest was enqueued
//! first, so it waits for no command that has still to be enqueued.
//!
//! Invariant: an unmap is released only against a mapping that has ended, and once for each mapping.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;

/// A closure that unmaps and then continues.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// The mappings of a session, grouped by pointer.
#[derive(Default)]
pub(super) struct Turns {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    last: u64,
    by_pointer: BTreeMap<usize, MappedPointer>,
}

/// A mapping, and whether its map command has ended.
struct Mapping {
    number: u64,
    ended: bool,
}

/// The mappings that begin at one pointer.
#[derive(Default)]
struct MappedPointer {
    // In the order of their enqueues. Each unmap removes one.
    mappings: VecDeque<Mapping>,
    waiting: VecDeque<Work>,
}

impl MappedPointer {
    fn next(&mut self) -> Option<Work> {
        if self.waiting.is_empty() || !self.mappings.front().is_some_and(|oldest| oldest.ended) {
            return None;
        }
        self.mappings.pop_front();
        self.waiting.pop_front()
    }
}

/// Identifies a mapping among those with the same pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pointer: usize,
    number: u64,
}

impl Turns {
    /// Enqueues a mapping with `map`, which also returns its pointer. The lock is held meanwhile, so that
    /// the order here is the driver's order.
    pub(super) fn map<T, E>(
        &self,
        map: impl FnOnce() -> Result<(T, *mut u8), E>,
    ) -> Result<(T, *mut u8, Turn), E> {
        let mut places = self.places.lock();
        let (event, pointer) = map()?;
        places.last += 1;
        let turn = Turn {
            pointer: pointer.addr(),
            number: places.last,
        };
        let place = places.by_pointer.entry(turn.pointer).or_default();
        place.mappings.push_back(Mapping {
            number: turn.number,
            ended: false,
        });
        Ok((event, pointer, turn))
    }

    /// Notes that a map command has ended. If it `failed`, there is nothing to unmap. Returns
    /// the unmaps whose turn has come.
    pub(super) fn ended(&self, turn: Turn, failed: bool) -> Vec<Work> {
        let mut places = self.places.lock();
        let Some(place) = places.by_pointer.get_mut(&turn.pointer) else {
            return Vec::new();
        };
        if failed {
            place
                .mappings
                .retain(|mapping| mapping.number != turn.number);
        }
        let mut own = place.mappings.iter_mut();
        if let Some(own) = own.find(|mapping| mapping.number == turn.number) {
            own.ended = true;
        }
        let ready = std::iter::from_fn(|| place.next()).collect();
        if place.mappings.is_empty() {
            places.by_pointer.remove(&turn.pointer);
        }
        ready
    }

    /// Asks to run `work`, which unmaps a mapping that has ended. Returns an unmap whose turn has come,
    /// or keeps `work` for later and returns `None`.
    pub(super) fn unmap(&self, turn: Turn, work: Work) -> Option<Work> {
        let mut places = self.places.lock();
        let Some(place) = places.by_pointer.get_mut(&turn.pointer) else {
            return Some(work);
        };
        place.waiting.push_back(work);
        let ready = place.next();
        if place.mappings.is_empty() {
            places.by_pointer.remove(&turn.pointer);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Unmaps that record their names when they run.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<&'static str>>>);

    impl Log {
        fn work(&self, name: &'static str) -> Work {
            let log = self.clone();
            Box::new(move || log.0.lock().push(name))
        }

        fn run(&self, works: impl IntoIterator<Item = Work>) -> Vec<&'static str> {
            works.into_iter().for_each(|work| work());
            std::mem::take(&mut *self.0.lock())
        }
    }

    fn map(turns: &Turns, address: usize) -> Turn {
        let mapped = turns.map(|| Ok::<_, ()>(((), std::ptr::without_provenance_mut(address))));
        mapped.unwrap().2
    }

    #[test]
    fn a_mapping_alone_is_given_back_at_once() {
        let (turns, log) = (Turns::default(), Log::default());
        let turn = map(&turns, 64);
        assert!(turns.ended(turn, false).is_empty());
        assert_eq!(log.run(turns.unmap(turn, log.work("it"))), ["it"]);
        assert!(turns.places.lock().by_pointer.is_empty());
    }

    #[test]
    fn a_younger_one_waits_for_the_oldest_to_end() {
        let (turns, log) = (Turns::default(), Log::default());
        let (old, young) = (map(&turns, 64), map(&turns, 64));
        let other = map(&turns, 128);
        assert!(turns.ended(young, false).is_empty());
        assert!(turns.unmap(young, log.work("young")).is_none());
        // Another pointer has a queue of its own.
        assert!(turns.ended(other, false).is_empty());
        assert_eq!(log.run(turns.unmap(other, log.work("other"))), ["other"]);
        assert_eq!(log.run(turns.ended(old, false)), ["young"]);
        assert_eq!(log.run(turns.unmap(old, log.work("old"))), ["old"]);
        assert!(turns.places.lock().by_pointer.is_empty());
    }

    #[test]
    fn one_that_failed_keeps_nobody() {
        let (turns, log) = (Turns::default(), Log::default());
        let (old, young) = (map(&turns, 64), map(&turns, 64));
        assert!(turns.ended(young, false).is_empty());
        assert!(turns.unmap(young, log.work("young")).is_none());
        assert_eq!(log.run(turns.ended(old, true)), ["young"]);
        assert!(turns.places.lock().by_pointer.is_empty());
    }
}
