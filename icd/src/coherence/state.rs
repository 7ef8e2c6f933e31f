//! The state of one range of a buffer: where it is valid, and which events are busy with it.
//!
//! In MSI terms: a range whose only valid copy was written there is *Modified*; a range with several
//! valid copies is *Shared*; at a place without a valid copy it is *Invalid*. A dirty copy is shared as
//! it is. MOSI's *Owned* needs no state of its own, because no place is a home that must be kept up to
//! date. There are two more states. *Fresh*: never written, so none of its bytes need moving. *Lost*:
//! written, but the only valid copy went with its site.
//!
//! Each copy, valid or not, also has [`Marks`]: the events that are busy with it.
//!
//! A command may change some bytes at a place to which a transfer is still bringing the others. That
//! place then has the only valid copy, although the command will not run if the transfer fails. Until the
//! bytes are known to have arrived, the invalidated copies are kept as [`Former`] ones, so that a broken
//! connection loses no data.
//!
//! Invariants: a place is listed at most once, and only if its copy is valid or marked. A copy whose
//! bytes depend on a transfer that may still fail is `Arriving`. Former copies exist only while every
//! valid copy is `Arriving`; nothing overwrites them before the transfer they stand in for has succeeded.

use causeway_proto::id::EventId;
use smallvec::SmallVec;

use super::marks::{Mark, Marks};
use super::place::Place;
use super::{Failure, IsDone};

/// The state of one range; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeState {
    written: bool,
    // Sorted by place.
    copies: SmallVec<[Copy; 2]>,
    // Oldest first.
    formers: Vec<Former>,
}

/// A copy that was valid before a command which may never run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Former {
    place: Place,
    validity: Validity,
    // The transfer that the command needs; `None` once it has failed.
    until: Option<EventId>,
    // The command's position in the order of planning.
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
    /// The copy becomes valid when this transfer has been received.
    Arriving(EventId),
    Valid,
}

impl RangeState {
    /// A range that was never written.
    pub(super) fn fresh() -> RangeState {
        RangeState {
            written: false,
            copies: SmallVec::new(),
            formers: Vec::new(),
        }
    }

    /// A written range that is valid at one place only.
    pub(super) fn held_by(place: Place) -> RangeState {
        let mut state = RangeState::fresh();
        state.become_modified(place);
        state
    }

    pub(super) fn is_fresh(&self) -> bool {
        !self.written
    }

    /// Whether a command at the place needs no transfer: the copy there is valid or arriving, or the
    /// range is fresh.
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
            // Copies stay sorted, so that equal states compare equal and neighbouring pieces merge.
            self.copies.insert(at, copy);
        }
        &mut self.copies[at]
    }

    /// Records a command that replaces all bytes at the place.
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

    /// Records a command that changes some bytes at the place.
    pub(super) fn become_modified_in_part(&mut self, place: Place, order: u64) {
        // If the place's copy has fully arrived, no transfer can fail and the older copies are not
        // needed.
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

    /// Records that the contents are undefined from now on.
    pub(super) fn become_fresh(&mut self) {
        self.copies.iter_mut().for_each(Copy::invalidate);
        self.formers.clear();
        self.written = false;
    }

    /// Removes a place that is gone, with its copy and marks.
    pub(super) fn forget(&mut self, place: Place) {
        self.copies.retain(|copy| copy.place != place);
        self.formers.retain(|former| former.place != place);
        self.fall_back();
    }

    /// Records that an event has failed: the bytes that it should have brought are missing, and its marks
    /// go.
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

    /// Drops former copies at a place that a failed transfer may have overwritten. `order` is the time
    /// when the transfer was planned.
    pub(super) fn spoil(&mut self, place: Place, order: u64) {
        spoil(&mut self.formers, place, order);
    }

    // Restores the newest former copies if no valid copy remains. Native OpenCL would have these bytes,
    // because no later command has run.
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
        // A restored copy that has arrived makes older former copies useless.
        self.drop_formers(&|_| false);
    }

    // Drops former copies that a success has made useless.
    fn drop_formers(&mut self, is_done: IsDone<'_>) {
        let valid = |copy: &Copy| copy.validity == Validity::Valid;
        if self.copies.iter().any(valid) {
            self.formers.clear();
        }
        // Once its transfer has succeeded, the command runs. Copies that it or an older command made
        // former are then stale.
        let ran = |former: &&Former| former.until.is_some_and(is_done);
        if let Some(last) = self.formers.iter().rfind(ran).map(|former| former.order) {
            self.formers.retain(|former| former.order > last);
        }
        for former in &mut self.formers {
            former.validity.prune(is_done);
        }
    }

    /// Drops the marks of ended events. With `now`, long lists are pruned too.
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

// Drops the place's former copies that existed when the transfer was planned: the transfer may have
// overwritten them.
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
