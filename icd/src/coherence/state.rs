//! The state of one range of a buffer: who has it, and who is busy with it.
//!
//! In the words of MSI: a range whose only valid copy was written there is *Modified*; a range with
//! several valid copies is *Shared*; at a place without a valid copy it is *Invalid*. A dirty copy is
//! shared as it is (MOSI's *Owned* needs no state of its own, because no place is a home that must be
//! brought up to date). Two more: *fresh*, never written, so that no byte of it need be moved anywhere;
//! and *lost*, written, but the only valid copy went with its site.
//!
//! Beside validity, each copy carries [`Marks`]: the events that are busy with it, valid or not.
//!
//! A command that changes some bytes at a place to which the others are still being brought makes that
//! place the only valid one, although it will not even run if the transfer fails. Until it is known that
//! the bytes have arrived, the copies it made invalid are remembered as [`Former`] ones: a broken link
//! takes no data with it.
//!
//! Invariants: a place is in the list at most once, and only if its copy is valid or marked; a copy
//! whose bytes depend on a transfer that may still fail is `Arriving`; former copies exist only while
//! every valid one is, and nothing overwrites them before the transfer they stand in for has succeeded.

use causeway_proto::id::EventId;
use smallvec::SmallVec;

use super::marks::{Mark, Marks};
use super::place::Place;
use super::{Failure, IsDone};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    written: bool,
    // In the order of places.
    copies: SmallVec<[Copy; 2]>,
    // Oldest first.
    formers: Vec<Former>,
}

/// A copy that was valid before a command that may never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Former {
    place: Place,
    validity: Validity,
    // The transfer without which the command does not run; none once it has failed.
    until: Option<EventId>,
    // When the command was planned.
    order: u64,
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
            formers: Vec::new(),
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

    /// A command replaces all bytes at the place.
    pub(super) fn become_modified(&mut self, place: Place) {
        for copy in &mut self.copies {
            if copy.place != place {
                copy.invalidate();
            }
        }
        self.formers.clear();
        self.written = true;
        self.copy_mut(place).validity = Validity::Valid;
    }

    /// A command changes some bytes at the place.
    pub(super) fn become_modified_in_part(&mut self, place: Place, order: u64) {
        let Some(Validity::Arriving(until)) = self.copy(place).map(|copy| copy.validity) else {
            return self.become_modified(place);
        };
        for copy in &mut self.copies {
            if copy.place != place && copy.is_valid() {
                self.formers.push(Former {
                    place: copy.place,
                    validity: copy.validity,
                    until: Some(until),
                    order,
                });
                copy.validity = Validity::Invalid;
            }
        }
    }

    /// Nobody wants the bytes any more.
    pub(super) fn become_fresh(&mut self) {
        self.copies.iter_mut().for_each(Copy::invalidate);
        self.formers.clear();
        self.written = false;
    }

    /// The place is gone, with its copy and all that was busy there.
    pub(super) fn forget(&mut self, place: Place) {
        self.copies.retain(|copy| copy.place != place);
        self.formers.retain(|former| former.place != place);
        self.fall_back();
    }

    /// Whether the copy at the place is the only valid one, or something is busy with it.
    pub(super) fn needs(&self, place: Place, is_done: IsDone<'_>) -> bool {
        if self.formers.iter().any(|former| former.place == place) {
            return true;
        }
        let Some(copy) = self.copy(place) else {
            return false;
        };
        let valid = |other: &Copy| other.place != place && other.is_valid();
        let only = copy.is_valid() && !self.copies.iter().any(valid);
        only || copy.marks.list().iter().any(|mark| !is_done(mark.event))
    }

    /// The event failed: what it should have brought is not there, and it is busy with nothing.
    pub(super) fn failed(&mut self, event: EventId, failure: Failure) {
        let failed = Validity::Arriving(event);
        for copy in &mut self.copies {
            if failure == Failure::Broken
                && let Some(order) = copy.marks.landing(event)
            {
                spoil(&mut self.formers, copy.place, order);
            }
            copy.marks.remove(event);
            if copy.validity == failed {
                copy.validity = Validity::Invalid;
            }
        }
        self.formers.retain(|former| former.validity != failed);
        for former in &mut self.formers {
            former.until = former.until.filter(|until| *until != event);
        }
        self.fall_back();
        self.tidy();
    }

    /// A transfer that was planned at this time may have left anything at the place.
    pub(super) fn spoil(&mut self, place: Place, order: u64) {
        spoil(&mut self.formers, place, order);
    }

    // When no valid copy remains, the newest former ones are what natively would be there: what came
    // after them has not run.
    fn fall_back(&mut self) {
        if self.copies.iter().any(Copy::is_valid) {
            return;
        }
        let Some(order) = self.formers.last().map(|former| former.order) else {
            return;
        };
        while let Some(former) = self.formers.pop_if(|former| former.order == order) {
            let copy = self.copy_mut(former.place);
            copy.validity = former.validity;
            if let Validity::Arriving(event) = former.validity {
                copy.marks.matters_again(event);
            }
        }
        self.drop_formers(&|_| false);
    }

    // What a success has made useless.
    fn drop_formers(&mut self, is_done: IsDone<'_>) {
        let valid = |copy: &Copy| copy.validity == Validity::Valid;
        if self.copies.iter().any(valid) {
            self.formers.clear();
        }
        let ran = |former: &&Former| former.until.is_some_and(is_done);
        if let Some(last) = self.formers.iter().rfind(ran).map(|former| former.order) {
            self.formers.retain(|former| former.order > last);
        }
        for former in &mut self.formers {
            former.validity.prune(is_done);
        }
    }

    /// Drops the marks of what has ended, all of them if `now`.
    pub(super) fn prune(&mut self, now: bool, is_done: IsDone<'_>) {
        for copy in &mut self.copies {
            if now {
                copy.marks.prune_now(is_done);
            } else {
                copy.marks.prune(is_done);
            }
            copy.validity.prune(is_done);
        }
        if !self.formers.is_empty() {
            self.drop_formers(is_done);
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        self.copies
            .retain(|copy| copy.is_valid() || !copy.marks.is_empty());
    }
}

// What was former before the transfer was planned is what the transfer overwrote.
fn spoil(formers: &mut Vec<Former>, place: Place, order: u64) {
    formers.retain(|former| former.place != place || former.order > order);
}

impl Validity {
    fn prune(&mut self, is_done: IsDone<'_>) {
        if let Validity::Arriving(event) = *self
            && is_done(event)
        {
            *self = Validity::Valid;
        }
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
