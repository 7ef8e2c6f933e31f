//! The events that are busy with one copy of a range.
//!
//! A mark is there to be waited for. Where waiting for a newer mark is as good, the older one is
//! *superseded* and leaves the list, so that a program which runs far ahead of its devices has short
//! wait lists. It is as good only while the newer event can end no sooner than the older; one that
//! fails may end at once. So whoever supersedes keeps the older mark in [`Superseded`], and a failure
//! puts it back.
//!
//! Invariants: marks are in the order in which they were planned. A command that overwrites waited for
//! every `Arrives` and `ReadOut` before it; a transfer that reads out waited for every `Used` that wrote
//! before it; one that arrives for everything.
//!
//! [`Superseded`]: super::superseded::Superseded

use causeway_proto::id::{EventId, QueueId};
use smallvec::SmallVec;

use super::IsDone;

/// Lists up to this long are always cleared of what has ended.
const FEW: usize = 8;

/// An event that is busy with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) event: EventId,
    /// Place in the order of planning.
    pub(super) order: u64,
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

/// Where a command stands in the application's order.
#[derive(Clone, Copy, Debug)]
pub(super) struct User<'a> {
    pub(super) event: EventId,
    pub(super) order: u64,
    pub(super) in_order: Option<QueueId>,
    pub(super) after: &'a [EventId],
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    list: SmallVec<[Mark; 2]>,
    // Clearing a long list is put off for as many times as it is long.
    put_off: usize,
}

impl PartialEq for Marks {
    fn eq(&self, other: &Marks) -> bool {
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

    /// Drops the marks of what has ended: not each time, if they are many.
    pub(super) fn prune(&mut self, is_done: IsDone<'_>) {
        if self.put_off > 0 {
            self.put_off -= 1;
        } else if !self.list.is_empty() {
            self.prune_now(is_done);
        }
    }

    /// Drops the marks of what has ended.
    pub(super) fn prune_now(&mut self, is_done: IsDone<'_>) {
        self.list.retain(|mark| !is_done(mark.event));
        let many = self.list.len() > FEW;
        self.put_off = if many { self.list.len() } else { 0 };
    }

    /// A command of the application uses the copy.
    pub(super) fn used(&mut self, wrote: bool, by: &User<'_>, superseded: impl FnMut(Mark)) {
        // It waits for what reads out, and that waited for the writers before it.
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

    /// A transfer that waited for everything here will bring bytes.
    pub(super) fn arrives(&mut self, event: EventId, order: u64, superseded: impl FnMut(Mark)) {
        self.take(|_| true, superseded);
        let kind = MarkKind::Arrives { matters: true };
        self.list.push(Mark { event, order, kind });
    }

    /// A transfer that waited for everything here will bring some of the bytes, which nobody else counts on.
    pub(super) fn passes(&mut self, event: EventId, order: u64, superseded: impl FnMut(Mark)) {
        // Another transfer of the same plan may pass here too.
        self.take(|mark| mark.order < order, superseded);
        let kind = MarkKind::Arrives { matters: false };
        self.list.push(Mark { event, order, kind });
    }

    /// A transfer that waited for the writers takes the bytes elsewhere.
    pub(super) fn read_out(&mut self, event: EventId, order: u64, superseded: impl FnMut(Mark)) {
        // The writers waited for what had read out before them.
        let written = self.last_order(is_writer);
        let replaced = |mark: &Mark| mark.kind == MarkKind::ReadOut && Some(mark.order) < written;
        self.take(replaced, superseded);
        let kind = MarkKind::ReadOut;
        self.list.push(Mark { event, order, kind });
    }

    /// Every byte is replaced: what still lands here is of no interest.
    pub(super) fn replaced(&mut self) {
        for mark in &mut self.list {
            if let MarkKind::Arrives { matters } = &mut mark.kind {
                *matters = false;
            }
        }
    }

    /// When the transfer with this event, which lands here, was planned.
    pub(super) fn landing(&self, event: EventId) -> Option<u64> {
        let mut of_event = self.list.iter().filter(|mark| mark.event == event);
        of_event.find(|mark| mark.lands()).map(|mark| mark.order)
    }

    /// The bytes that this transfer brings are wanted after all.
    pub(super) fn matters_again(&mut self, event: EventId) {
        for mark in &mut self.list {
            if let MarkKind::Arrives { matters } = &mut mark.kind
                && mark.event == event
            {
                *matters = true;
            }
        }
    }

    /// Who superseded the mark has failed; it is waited for again.
    pub(super) fn put_back(&mut self, mut mark: Mark) {
        if let MarkKind::Arrives { matters } = &mut mark.kind {
            // Something newer took its place.
            *matters = false;
        }
        let at = self.list.partition_point(|other| other.order < mark.order);
        if self.list.get(at) != Some(&mark) {
            self.list.insert(at, mark);
        }
    }

    /// The event ended without doing anything that could be disturbed any more.
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
    /// Whether it is of a transfer that lands here.
    pub(super) fn lands(&self) -> bool {
        matches!(self.kind, MarkKind::Arrives { .. })
    }
}

fn is_writer(kind: MarkKind) -> bool {
    matches!(kind, MarkKind::Used { wrote: true, .. })
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
        let same_queue = self.in_order.is_some() && self.in_order == in_order;
        let ordered = same_queue || self.after.contains(&mark.event);
        ordered && (wrote || !mark_wrote)
    }
}
