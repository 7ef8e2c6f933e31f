//! The events that are busy with one copy of a range.
//!
//! Later commands wait for marks. An older mark is *superseded* and leaves the list when waiting for a
//! newer one is as good. This keeps wait lists short for a program that enqueues far ahead of its
//! devices. The newer mark is as good only if its event cannot end before the older one. An event that
//! fails may end at once, so the older mark is kept in [`Superseded`], and a failure puts it back.
//!
//! Invariants: marks are in the order of planning. A command that overwrites has waited for every
//! `Arrives` and `ReadOut` before it. A transfer that reads out has waited for every `Used` that wrote
//! before it. A transfer that arrives has waited for everything before it.
//!
//! [`Superseded`]: super::superseded::Superseded

use causeway_proto::id::{EventId, QueueId};
use smallvec::SmallVec;

use super::IsDone;

/// Lists up to this length are pruned at every call.
const FEW: usize = 8;

/// An event that is busy with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) event: EventId,
    /// Position in the order of planning.
    pub(super) order: u64,
    pub(super) kind: MarkKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkKind {
    /// A command of the application uses the copy and may change it.
    Used {
        wrote: bool,
        in_order: Option<QueueId>,
    },
    /// A transfer writes the copy. `matters` is false once nothing needs its bytes.
    Arrives { matters: bool },
    /// A transfer reads the copy.
    ReadOut,
}

/// A command, with its position in the application's order.
#[derive(Clone, Copy, Debug)]
pub(super) struct User<'a> {
    pub(super) event: EventId,
    pub(super) order: u64,
    pub(super) in_order: Option<QueueId>,
    pub(super) after: &'a [EventId],
}

/// The marks of one copy; see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    list: SmallVec<[Mark; 2]>,
    // Number of further calls for which pruning a long list is skipped. It starts at the list's length,
    // so pruning costs constant time per call on average.
    put_off: usize,
}

impl PartialEq for Marks {
    fn eq(&self, other: &Marks) -> bool {
        // `put_off` does not count: pieces with equal marks should merge.
        self.list == other.list
    }
}

impl Eq for Marks {}

impl Marks {
    pub(super) fn list(&self) -> &[Mark] {
        &self.list
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Drops the marks of ended events. A long list is pruned only now and then.
    pub(super) fn prune(&mut self, is_done: IsDone<'_>) {
        if self.put_off > 0 {
            self.put_off -= 1;
        } else if !self.list.is_empty() {
            self.prune_now(is_done);
        }
    }

    /// Drops the marks of all ended events.
    pub(super) fn prune_now(&mut self, is_done: IsDone<'_>) {
        self.list.retain(|mark| !is_done(mark.event));
        let many = self.list.len() > FEW;
        self.put_off = if many { self.list.len() } else { 0 };
    }

    /// Adds the mark of an application's command that uses the copy.
    pub(super) fn used(&mut self, wrote: bool, by: &User<'_>, superseded: impl FnMut(Mark)) {
        // A command that overwrites waits for transfers that read out, and those have waited for the
        // writers before them.
        let read_out = self.last_order(|kind| kind == MarkKind::ReadOut);
        let replaced = |mark: &Mark| {
            let covered = wrote && is_writer(mark.kind) && Some(mark.order) < read_out;
            covered || by.comes_after(mark, wrote)
        };
        self.take(replaced, superseded);
        self.list.push(Mark {
            event: by.event,
            order: by.order,
            kind: MarkKind::Used {
                wrote,
                in_order: by.in_order,
            },
        });
    }

    /// Adds the mark of a transfer that will write the copy. The transfer has waited for all marks here.
    pub(super) fn arrives(&mut self, event: EventId, order: u64, superseded: impl FnMut(Mark)) {
        self.take(|_| true, superseded);
        let kind = MarkKind::Arrives { matters: true };
        self.list.push(Mark { event, order, kind });
    }

    /// Adds the mark of a transfer that writes some of the bytes, for its own command alone. The transfer
    /// has waited for all marks here.
    pub(super) fn passes(&mut self, event: EventId, order: u64, superseded: impl FnMut(Mark)) {
        // Another transfer of the same plan has the same order and may use this copy too. Its mark must
        // stay.
        self.take(|mark| mark.order < order, superseded);
        let kind = MarkKind::Arrives { matters: false };
        self.list.push(Mark { event, order, kind });
    }

    /// Adds the mark of a transfer that reads the copy. The transfer has waited for the writers.
    pub(super) fn read_out(&mut self, event: EventId, order: u64, superseded: impl FnMut(Mark)) {
        // The writers have waited for the transfers that read out before them, so those marks are
        // covered.
        let written = self.last_order(is_writer);
        let replaced = |mark: &Mark| mark.kind == MarkKind::ReadOut && Some(mark.order) < written;
        self.take(replaced, superseded);
        let kind = MarkKind::ReadOut;
        self.list.push(Mark { event, order, kind });
    }

    /// Records that every byte is replaced: the bytes of pending transfers to this copy no longer matter.
    pub(super) fn replaced(&mut self) {
        for mark in &mut self.list {
            if let MarkKind::Arrives { matters } = &mut mark.kind {
                *matters = false;
            }
        }
    }

    /// Returns the planning order of the transfer with this event, if it writes this copy.
    pub(super) fn landing(&self, event: EventId) -> Option<u64> {
        let mut of_event = self.list.iter().filter(|mark| mark.event == event);
        of_event.find(|mark| mark.lands()).map(|mark| mark.order)
    }

    /// Records that the bytes of this transfer are needed after all.
    pub(super) fn matters_again(&mut self, event: EventId) {
        for mark in &mut self.list {
            if let MarkKind::Arrives { matters } = &mut mark.kind
                && mark.event == event
            {
                *matters = true;
            }
        }
    }

    /// Restores a mark because the event that superseded it has failed.
    pub(super) fn put_back(&mut self, mut mark: Mark) {
        if let MarkKind::Arrives { matters } = &mut mark.kind {
            // A newer command or transfer has overwritten these bytes, so only the end of the event
            // counts.
            *matters = false;
        }
        let at = self.list.partition_point(|other| other.order < mark.order);
        if self.list.get(at) != Some(&mark) {
            self.list.insert(at, mark);
        }
    }

    /// Removes the marks of an event that has ended and can no longer be disturbed.
    pub(super) fn remove(&mut self, event: EventId) {
        self.list.retain(|mark| mark.event != event);
    }

    fn last_order(&self, of: impl Fn(MarkKind) -> bool) -> Option<u64> {
        let mut newest_first = self.list.iter().rev();
        let found = newest_first.find(|mark| of(mark.kind));
        found.map(|mark| mark.order)
    }

    fn take(&mut self, which: impl Fn(&Mark) -> bool, mut taken: impl FnMut(Mark)) {
        self.list.retain(|mark| {
            let goes = which(mark);
            if goes {
                taken(*mark);
            }
            !goes
        });
    }
}

impl Mark {
    /// Whether the mark belongs to a transfer that writes this copy.
    pub(super) fn lands(&self) -> bool {
        matches!(self.kind, MarkKind::Arrives { .. })
    }
}

fn is_writer(kind: MarkKind) -> bool {
    matches!(kind, MarkKind::Used { wrote: true, .. })
}

impl User<'_> {
    // Whether waiting for this user is as good as waiting for the mark. A reader cannot replace a writer:
    // transfers wait for writers, but not for readers.
    fn comes_after(&self, mark: &Mark, wrote: bool) -> bool {
        let MarkKind::Used {
            wrote: mark_wrote,
            in_order,
        } = mark.kind
        else {
            return false;
        };
        let same_queue = self.in_order.is_some() && self.in_order == in_order;
        let ordered = same_queue || self.after.contains(&mark.event);
        ordered && (wrote || !mark_wrote)
    }
}
