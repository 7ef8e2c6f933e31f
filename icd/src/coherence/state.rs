//! The state of one range of a buffer: who has it, and who is busy with it.
//!
//! In the words of MSI: a range whose only valid copy was written there is *Modified*; a range with
//! several valid copies is *Shared*; at a place without a valid copy it is *Invalid*. A dirty copy is
//! shared as it is (MOSI's *Owned* needs no state of its own, because no place is a home that must be
//! brought up to date). Two more: *fresh*, never written, so that no byte of it need be moved anywhere;
//! and *lost*, written, but the only valid copy went with its site.
//!
//! Beside validity, each copy carries [`Marks`]: the events that are busy with it, valid or not.
//! Invariants: a place is in the list at most once, and only if its copy is valid or marked; a copy
//! brought by a transfer that may still fail is `Arriving`.

use causeway_proto::id::EventId;
use smallvec::SmallVec;

use super::IsDone;
use super::marks::{Mark, Marks};
use super::place::Place;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    written: bool,
    // In the order of places.
    copies: SmallVec<[Copy; 2]>,
}

/// The copy at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub(super) place: Place,
    pub(super) validity: Validity,
    pub(super) marks: Marks,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    Invalid,
    /// Will be valid when this transfer has been received.
    Arriving(EventId),
    Valid,
}

impl State {
    /// Never written.
    pub(super) fn fresh() -> State {
        State {
            written: false,
            copies: SmallVec::new(),
        }
    }

    /// Written, valid at one place only.
    pub(super) fn held_by(place: Place) -> State {
        let mut state = State::fresh();
        state.become_modified(place);
        state
    }

    pub(super) fn is_fresh(&self) -> bool {
        !self.written
    }

    /// Whether a command at the place finds the bytes there.
    pub(super) fn is_valid_at(&self, place: Place) -> bool {
        self.is_fresh() || self.copy(place).is_some_and(Copy::is_valid)
    }

    pub(super) fn copies(&self) -> &[Copy] {
        &self.copies
    }

    pub(super) fn copy(&self, place: Place) -> Option<&Copy> {
        self.copies.iter().find(|copy| copy.place == place)
    }

    pub(super) fn marks(&self, place: Place) -> &[Mark] {
        self.copy(place).map_or(&[], |copy| copy.marks.list())
    }

    pub(super) fn copy_mut(&mut self, place: Place) -> &mut Copy {
        let at = self.copies.partition_point(|copy| copy.place < place);
        if self.copies.get(at).is_none_or(|copy| copy.place != place) {
            let copy = Copy {
                place,
                validity: Validity::Invalid,
                marks: Marks::default(),
            };
            self.copies.insert(at, copy);
        }
        &mut self.copies[at]
    }

    /// The place has the newest bytes, nobody else.
    pub(super) fn become_modified(&mut self, place: Place) {
        for copy in &mut self.copies {
            if copy.place != place {
                copy.invalidate();
            }
        }
        self.written = true;
        self.copy_mut(place).validity = Validity::Valid;
    }

    /// Nobody wants the bytes any more.
    pub(super) fn become_fresh(&mut self) {
        self.copies.iter_mut().for_each(Copy::invalidate);
        self.written = false;
    }

    /// The place is gone, with its copy and all that was busy there.
    pub(super) fn forget(&mut self, place: Place) {
        self.copies.retain(|copy| copy.place != place);
    }

    /// Whether the copy at the place is the only valid one, or something is busy with it.
    pub(super) fn needs(&self, place: Place, is_done: IsDone<'_>) -> bool {
        let Some(copy) = self.copy(place) else {
            return false;
        };
        let valid = |other: &Copy| other.place != place && other.is_valid();
        let only = copy.is_valid() && !self.copies.iter().any(valid);
        only || copy.marks.list().iter().any(|mark| !is_done(mark.event))
    }

    /// The event failed: what it should have brought is not there, and it is busy with nothing.
    pub(super) fn failed(&mut self, event: EventId) {
        for copy in &mut self.copies {
            copy.marks.remove(event);
            if copy.validity == Validity::Arriving(event) {
                copy.validity = Validity::Invalid;
            }
        }
        self.tidy();
    }

    /// Drops the marks of what has ended.
    pub(super) fn prune(&mut self, is_done: IsDone<'_>) {
        for copy in &mut self.copies {
            copy.marks.prune(is_done);
            if let Validity::Arriving(event) = copy.validity
                && is_done(event)
            {
                copy.validity = Validity::Valid;
            }
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        self.copies
            .retain(|copy| copy.is_valid() || !copy.marks.is_empty());
    }
}

impl Copy {
    pub(super) fn is_valid(&self) -> bool {
        self.validity != Validity::Invalid
    }

    fn invalidate(&mut self) {
        self.validity = Validity::Invalid;
        self.marks.replaced();
    }
}
