//! Records where the bytes of one root buffer are valid, range by range.
//!
//! Sub-buffers (and images made from buffers) are ranges of their root and have no directory. Invariant:
//! the state from which a [`Plan`](super::Plan) was made changes only by a commit, a failure or a loss.

use causeway_proto::id::{EventId, MemoryId};

use super::access::Mode;
use super::marks::{Mark, User};
use super::pieces::Pieces;
use super::place::{Place, Span};
use super::plan::Transfer;
use super::state::{RangeState, Validity};
use super::superseded::{Superseded, SupersededMark};
use super::{IsDone, TransferEvents};

/// Contents of a new buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Undefined: no place needs to fetch them.
    Undefined,
    /// The client's bytes (`CL_MEM_COPY_HOST_PTR`, `CL_MEM_USE_HOST_PTR`).
    AtClient,
    /// Bytes that are being written at this place: initial contents that travel with the buffer's
    /// creation.
    AtPlace(Place),
}

/// The state of one root buffer; see the module.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub(super) buffer: MemoryId,
    pub(super) pieces: Pieces<RangeState>,
}

impl Directory {
    pub(super) fn new(buffer: MemoryId, size: u64, contents: Contents) -> Directory {
        let state = match contents {
            Contents::Undefined => RangeState::fresh(),
            Contents::AtClient => RangeState::held_by(Place::Client),
            Contents::AtPlace(place) => RangeState::held_by(place),
        };
        Directory {
            buffer,
            pieces: Pieces::new(size, state),
        }
    }

    /// Records a transfer that has been sent.
    pub(super) fn transfer(
        &mut self,
        transfer: &Transfer,
        events: TransferEvents,
        order: u64,
        superseded: &mut Superseded,
        is_done: IsDone<'_>,
    ) {
        let buffer = self.buffer;
        if transfer.passes {
            return self.pass(transfer, events, order, superseded, is_done);
        }
        for row in transfer.region.segments(0, u64::MAX) {
            self.pieces.update(Span::of(&row), |span, state| {
                state.prune(false, is_done);
                let (from, to) = (transfer.source, transfer.destination);
                let source = &mut state.copy_mut(from).marks;
                let sink = entries(superseded, events.sent, buffer, from, span);
                source.read_out(events.sent, order, sink);
                let destination = state.copy_mut(to);
                let sink = entries(superseded, events.received, buffer, to, span);
                destination.marks.arrives(events.received, order, sink);
                destination.validity = Validity::Arriving(events.received);
            });
        }
    }

    // A transfer of many rows only marks every piece that holds one of its rows as busy. Recording where
    // its bytes are valid would cut the directory into as many pieces as there are rows.
    fn pass(
        &mut self,
        transfer: &Transfer,
        events: TransferEvents,
        order: u64,
        superseded: &mut Superseded,
        is_done: IsDone<'_>,
    ) {
        let buffer = self.buffer;
        let (from, to) = (transfer.source, transfer.destination);
        let extent = Span::enclosing(&transfer.region);
        self.pieces.update(extent, |span, state| {
            if !span.meets(&transfer.region) {
                return;
            }
            state.prune(false, is_done);
            let sink = entries(superseded, events.sent, buffer, from, span);
            state
                .copy_mut(from)
                .marks
                .read_out(events.sent, order, sink);
            let sink = entries(superseded, events.received, buffer, to, span);
            state
                .copy_mut(to)
                .marks
                .passes(events.received, order, sink);
        });
    }

    /// Records a command that has been sent to a place.
    pub(super) fn command(
        &mut self,
        (span, mode): (Span, Mode),
        place: Place,
        user: &User<'_>,
        superseded: &mut Superseded,
        is_done: IsDone<'_>,
    ) {
        let buffer = self.buffer;
        self.pieces.update(span, |span, state| {
            state.prune(false, is_done);
            if mode == Mode::Discard {
                return state.become_fresh();
            }
            let replaces = matches!(mode, Mode::Write | Mode::Upload);
            let writes = replaces || matches!(mode, Mode::ReadWrite | Mode::UploadRows);
            let marks = &mut state.copy_mut(place).marks;
            // Pending transfers to this copy no longer matter before the command's own mark is added: it
            // overwrites all their bytes.
            if replaces {
                marks.replaced();
            }
            let sink = entries(superseded, user.event, buffer, place, span);
            marks.used(writes, user, sink);
            if replaces {
                state.become_modified(place);
            } else if writes {
                state.become_modified_in_part(place, user.order);
            }
            // The unmap sends the client's copy, which stays valid and must not change until it has been
            // read.
            if mode == Mode::Upload && place != Place::Client {
                let client = state.copy_mut(Place::Client);
                client.marks.replaced();
                let sink = entries(superseded, user.event, buffer, Place::Client, span);
                client.marks.read_out(user.event, user.order, sink);
                client.validity = Validity::Valid;
            }
            if mode == Mode::UploadRows && place != Place::Client {
                let client = &mut state.copy_mut(Place::Client).marks;
                let sink = entries(superseded, user.event, buffer, Place::Client, span);
                client.read_out(user.event, user.order, sink);
            }
        });
    }

    /// Restores a mark whose superseding event has failed.
    pub(super) fn put_back(&mut self, entry: &SupersededMark) {
        self.pieces.update(entry.span, |_, state| {
            state.copy_mut(entry.place).marks.put_back(entry.mark);
        });
    }

    /// Records that a superseded transfer failed after it had begun to write its destination.
    pub(super) fn spoil(&mut self, landed: &SupersededMark) {
        self.pieces.update(landed.span, |_, state| {
            state.spoil(landed.place, landed.mark.order);
        });
    }

    /// Changes every range.
    pub(super) fn for_all(&mut self, change: impl FnMut(&mut RangeState)) {
        self.for_span(Span::new(0, self.pieces.size()), change);
    }

    /// Changes every range of a span.
    pub(super) fn for_span(&mut self, span: Span, mut change: impl FnMut(&mut RangeState)) {
        self.pieces.update(span, |_, state| change(state));
    }
}

// Returns a sink that keeps the marks which `by` supersedes at the place.
fn entries(
    superseded: &mut Superseded,
    by: EventId,
    buffer: MemoryId,
    place: Place,
    span: Span,
) -> impl FnMut(Mark) {
    move |mark| {
        superseded.push(SupersededMark {
            by,
            mark,
            buffer,
            place,
            span,
        });
    }
}
