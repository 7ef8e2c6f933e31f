//! Where the bytes of one root buffer are valid, range by range.
//!
//! Sub-buffers (and images made from buffers) are ranges of their root and have no directory.

use causeway_proto::id::{EventId, MemoryId};

use super::access::Mode;
use super::pieces::Pieces;
use super::place::{Place, Span};
use super::plan::{Plan, Touch, Transfer};
use super::state::{State, User, Validity};
use super::{IsDone, TransferEvents};

/// What a buffer holds when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing: every place may make them up.
    Undefined,
    /// The client's bytes (`CL_MEM_COPY_HOST_PTR`, `CL_MEM_USE_HOST_PTR`).
    AtClient,
    /// Bytes that are being put there (contents that travel with the buffer's creation).
    AtPlace(Place),
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub(super) buffer: MemoryId,
    pub(super) pieces: Pieces<State>,
}

impl Directory {
    pub(super) fn new(buffer: MemoryId, size: u64, contents: Contents) -> Directory {
        let state = match contents {
            Contents::Undefined => State::fresh(),
            Contents::AtClient => State::held_by(Place::Client),
            Contents::AtPlace(place) => State::held_by(place),
        };
        Directory {
            buffer,
            pieces: Pieces::new(size, state),
        }
    }

    /// A transfer has been sent.
    pub(super) fn transfer(
        &mut self,
        transfer: &Transfer,
        events: TransferEvents,
        is_done: IsDone<'_>,
    ) {
        for row in transfer.region.segments(0, u64::MAX) {
            let span = Span::new(row.offset, row.offset + row.length);
            self.pieces.update(span, |state| {
                state.prune(is_done);
                state.copy_mut(transfer.source).read_out(events.sent);
                state
                    .copy_mut(transfer.destination)
                    .arrives(events.received);
            });
        }
    }

    /// A command has been sent.
    pub(super) fn command(
        &mut self,
        touch: &Touch,
        plan: &Plan,
        event: EventId,
        is_done: IsDone<'_>,
    ) {
        let user = User {
            in_order: plan.in_order,
            after: &plan.after,
        };
        self.pieces.update(touch.span, |state| {
            state.prune(is_done);
            apply(state, plan.place, touch.mode, event, &user);
        });
    }

    /// A command that only reads has been sent.
    pub(super) fn read(
        &mut self,
        span: Span,
        place: Place,
        event: EventId,
        user: &User<'_>,
        is_done: IsDone<'_>,
    ) {
        self.pieces.update(span, |state| {
            state.prune(is_done);
            state.copy_mut(place).used(event, false, user);
        });
    }

    /// Changes every range.
    pub(super) fn for_all(&mut self, change: impl FnMut(&mut State)) {
        self.pieces.update(Span::new(0, self.pieces.size()), change);
    }
}

fn apply(state: &mut State, place: Place, mode: Mode, event: EventId, user: &User<'_>) {
    match mode {
        Mode::Read | Mode::MapWrite | Mode::MapInvalidate => {
            state.copy_mut(place).used(event, false, user);
        }
        Mode::ReadWrite => {
            state.copy_mut(place).used(event, true, user);
            state.become_modified(place);
        }
        Mode::Write => {
            state.copy_mut(place).replaced();
            state.copy_mut(place).used(event, true, user);
            state.become_modified(place);
        }
        Mode::Upload => {
            let copy = state.copy_mut(place);
            copy.replaced();
            copy.used(event, true, user);
            state.become_modified(place);
            if place != Place::Client {
                let client = state.copy_mut(Place::Client);
                client.replaced();
                client.read_out(event);
                state.share(Place::Client, Validity::Valid);
            }
        }
        Mode::Discard => state.become_fresh(),
    }
}
