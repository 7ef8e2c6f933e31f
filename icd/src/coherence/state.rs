//! The state of one range of a buffer: who has it, and who is busy with it.
//!
//! In the words of MSI: a range whose only valid copy was written there is *Modified*; a range with
//! several valid copies is *Shared*; at a place without a valid copy it is *Invalid*. A dirty copy is
//! shared as it is (MOSI's *Owned* needs no state of its own, because no place is a home that must be
//! brought up to date). Two more: *fresh*, never written, so that no byte of it need be moved anywhere;
//! and *lost*, written, but the only valid copy went with its site.
//!
//! Beside validity, each copy carries *marks*: the events that are busy with it, valid or not.
//! Invariants: a fresh range has no valid copy and needs none; a place is in the list at most once, and
//! only if its copy is valid or marked; a copy brought by a transfer that may still fail has the
//! transfer's mark.

use causeway_proto::id::{EventId, QueueId};
use smallvec::SmallVec;

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
    pub(super) marks: SmallVec<[Mark; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    Invalid,
    /// Will be valid when this transfer has been received.
    Arriving(EventId),
    Valid,
}

/// An event that is busy with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) event: EventId,
    pub(super) kind: MarkKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkKind {
    /// An application's command uses the copy; it may change it.
    Used {
        wrote: bool,
        in_order: Option<QueueId>,
    },
    /// A transfer lands in the copy; its bytes may still matter.
    Arrives { matters: bool },
    /// A transfer reads the copy.
    ReadOut,
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
        self.copy(place).map_or(&[], |copy| &copy.marks)
    }

    pub(super) fn copy_mut(&mut self, place: Place) -> &mut Copy {
        let at = self.copies.partition_point(|copy| copy.place < place);
        if self.copies.get(at).is_none_or(|copy| copy.place != place) {
            let copy = Copy {
                place,
                validity: Validity::Invalid,
                marks: SmallVec::new(),
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

    /// The place has the newest bytes too.
    pub(super) fn share(&mut self, place: Place, validity: Validity) {
        self.copy_mut(place).validity = validity;
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
    pub(super) fn needs(&self, place: Place, is_done: &dyn Fn(EventId) -> bool) -> bool {
        let Some(copy) = self.copy(place) else {
            return false;
        };
        let valid = |other: &Copy| other.place != place && other.is_valid();
        let only = copy.is_valid() && !self.copies.iter().any(valid);
        only || copy.marks.iter().any(|mark| !is_done(mark.event))
    }

    /// A transfer that should have brought the bytes to the place has not.
    pub(super) fn failed(&mut self, event: EventId) {
        for copy in &mut self.copies {
            if copy.validity == Validity::Arriving(event) {
                copy.validity = Validity::Invalid;
            }
        }
    }

    /// Drops the marks of what has ended.
    pub(super) fn prune(&mut self, is_done: &dyn Fn(EventId) -> bool) {
        for copy in &mut self.copies {
            copy.prune(is_done);
        }
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
        self.replaced();
    }

    fn prune(&mut self, is_done: &dyn Fn(EventId) -> bool) {
        self.marks.retain(|mark| !is_done(mark.event));
        if let Validity::Arriving(event) = self.validity
            && is_done(event)
        {
            self.validity = Validity::Valid;
        }
    }

    /// A command of the application uses the copy.
    pub(super) fn used(&mut self, event: EventId, wrote: bool, by: &User<'_>) {
        self.marks.retain(|mark| !by.comes_after(mark, wrote));
        self.marks.push(Mark {
            event,
            kind: MarkKind::Used {
                wrote,
                in_order: by.in_order,
            },
        });
    }

    /// Every byte is replaced: what still lands here is of no interest.
    pub(super) fn replaced(&mut self) {
        for mark in &mut self.marks {
            if let MarkKind::Arrives { matters } = &mut mark.kind {
                *matters = false;
            }
        }
    }

    /// A transfer that waits for everything busy here will bring the bytes.
    pub(super) fn arrives(&mut self, event: EventId) {
        self.marks.clear();
        self.marks.push(Mark {
            event,
            kind: MarkKind::Arrives { matters: true },
        });
        self.validity = Validity::Arriving(event);
    }

    /// A transfer takes the bytes elsewhere.
    pub(super) fn read_out(&mut self, event: EventId) {
        self.marks.push(Mark {
            event,
            kind: MarkKind::ReadOut,
        });
    }
}

/// Where a command stands in the application's order.
#[derive(Clone, Copy, Debug)]
pub(super) struct User<'a> {
    pub(super) in_order: Option<QueueId>,
    pub(super) after: &'a [EventId],
}

impl User<'_> {
    // Whether waiting for this user is as good as waiting for the mark. One that only reads does not
    // stand for a writer: a transfer waits for writers, and need not wait for a reader after it.
    fn comes_after(&self, mark: &Mark, wrote: bool) -> bool {
        let MarkKind::Used {
            wrote: mark_wrote,
            in_order,
        } = mark.kind
        else {
            return false;
        };
        let ordered = (self.in_order.is_some() && self.in_order == in_order)
            || self.after.contains(&mark.event);
        ordered && (wrote || !mark_wrote)
    }
}
