//! Buffer coherence: tracks which copy of each byte range is valid where (MSI per range), and plans the
//! transfers that a command needs first.
//!
//! ```text
//! access     what each command reads and writes
//! pieces, state, marks, superseded, directory    valid copies and busy events, by range of a buffer
//! uses       the ranges in which an event has marks
//! network, source     routes and loads; the choice of a transfer's source
//! plan, gather        the transfers and waits that a command needs first
//! ```
//! [`Coherence`] covers all root buffers of one context. For every command the caller makes a [`Plan`],
//! assigns event ids to its transfers and its command, sends them and [commits](Coherence::commit) the
//! plan. All of this happens in one critical section per context, so all commands have one order. The
//! module is pure: no sockets, clocks, locks or handles.
//!
//! Invariants. *One order*: every edge goes from an item planned earlier to one planned later, so no
//! cycle can arise and everything sent can end. *One newest version*: no two copies of a range were
//! modified independently. *Nothing twice*: no transfer brings bytes that its destination already has.
#![forbid(unsafe_code)]

mod access;
mod directory;
mod gather;
mod marks;
mod network;
mod pieces;
mod place;
mod plan;
mod runs;
mod source;
mod state;
mod superseded;
mod uses;

use causeway_proto::id::{EventId, MemoryId};
use rustc_hash::FxHashMap;

pub use access::{Access, ArgumentKind, Limits, MapKind, Mode};
pub use directory::Contents;
pub use gather::{Gather, Piece};
pub use network::Route;
pub use place::{Place, SiteIndex, Span};
pub use plan::{Command, Lost, Needs, Plan, Transfer, Wait, Waits};

use directory::Directory;
use marks::User;
use network::Network;
use state::RangeState;
use superseded::Superseded;
use uses::{Use, Uses};

/// Tells which events have ended, with or without success.
///
/// Before it returns true for a failed event, the caller must have called [`Coherence::failed`]. The
/// events of one site become done in the order in which they ended there.
pub type IsDone<'a> = &'a dyn Fn(EventId) -> bool;

/// The events of a transfer. A transfer from or to the client is one command, so both fields are the same
/// event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferEvents {
    /// The source's bytes have been taken.
    pub sent: EventId,
    /// The bytes have arrived at the destination.
    pub received: EventId,
}

impl TransferEvents {
    /// The events of a transfer from or to the client.
    #[must_use]
    pub fn one(event: EventId) -> TransferEvents {
        TransferEvents {
            sent: event,
            received: event,
        }
    }
}

/// How an event failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command never began, because an event it waited for had failed
    /// (`CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`).
    Cancelled,
    /// Any other failure. The command's destination may be partly written.
    Broken,
}

/// The coherence state of one context; see the module.
#[derive(Debug, Default)]
pub struct Coherence {
    directories: FxHashMap<MemoryId, Directory>,
    network: Network,
    superseded: Superseded,
    // The ranges in which events that have not ended may have marks. A failure looks only there.
    uses: Uses,
    limits: Limits,
    // The position of the last commit in the order of planning.
    order: u64,
}

impl Coherence {
    /// A context without buffers.
    #[must_use]
    pub fn new() -> Coherence {
        Coherence::default()
    }

    /// A context without buffers, with limits of the caller's choice.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Coherence {
        Coherence {
            limits,
            ..Coherence::default()
        }
    }

    /// Adds a root buffer.
    pub fn add_buffer(&mut self, buffer: MemoryId, size: u64, contents: Contents) {
        let directory = Directory::new(buffer, size, contents);
        self.directories.insert(buffer, directory);
    }

    /// Removes a root buffer.
    pub fn remove_buffer(&mut self, buffer: MemoryId) {
        // Superseded entries of the buffer are pruned when their events end. Searching for them here
        // would cost time in proportion to everything in flight.
        self.directories.remove(&buffer);
    }

    /// Sets how two sites reach each other, in both directions. The default is [`Route::Direct`].
    pub fn set_route(&mut self, one: SiteIndex, other: SiteIndex, route: Route) {
        self.network.set_route(one, other, route);
    }

    /// Records that a plan's transfers and its command have been sent. `transfers` has one pair of events
    /// for each transfer of the plan, in the same order.
    pub fn commit(
        &mut self,
        plan: &Plan,
        transfers: &[TransferEvents],
        command: EventId,
        is_done: IsDone<'_>,
    ) {
        self.commit_transfers(plan, transfers, is_done);
        self.commit_command(plan, command, is_done);
    }

    /// Records that a plan's transfers have been sent. [`Coherence::commit_command`] need not follow: if
    /// the command itself could not be sent, the transfers have only moved bytes early.
    pub fn commit_transfers(
        &mut self,
        plan: &Plan,
        transfers: &[TransferEvents],
        is_done: IsDone<'_>,
    ) {
        self.superseded.prune(is_done);
        self.uses.prune(is_done);
        let superseded = &mut self.superseded;
        self.order += 1;
        for (transfer, events) in plan.transfers.iter().zip(transfers) {
            let bytes = transfer.region.packed_length();
            self.network.begin(events.received, transfer.source, bytes);
            let extent = Span::enclosing(&transfer.region);
            // Either event may fail, and each must find the marks that it has at both places.
            for event in [events.sent, events.received] {
                self.uses.add(event, transfer.buffer, extent);
            }
            if let Some(directory) = self.directories.get_mut(&transfer.buffer) {
                directory.transfer(transfer, *events, self.order, superseded, is_done);
            }
        }
    }

    /// Records that a plan's command has been sent. The plan's transfers must have been committed before.
    pub fn commit_command(&mut self, plan: &Plan, command: EventId, is_done: IsDone<'_>) {
        self.order += 1;
        let user = User {
            event: command,
            order: self.order,
            in_order: plan.in_order,
            after: &plan.after,
        };
        for touch in &plan.touches {
            self.uses.add(command, touch.buffer, touch.span);
            if let Some(directory) = self.directories.get_mut(&touch.buffer) {
                let how = (touch.span, touch.mode);
                directory.command(how, plan.place, &user, &mut self.superseded, is_done);
            }
        }
        for map in &plan.maps_of_rows {
            let extent = Span::enclosing(&map.region);
            self.uses.add(command, map.buffer, extent);
            if let Some(directory) = self.directories.get_mut(&map.buffer) {
                let how = (extent, map.mode);
                directory.command(how, plan.place, &user, &mut self.superseded, is_done);
            }
        }
    }

    /// Records that an event has succeeded. After a transfer's received event, the source's load
    /// decreases. A missing call costs only load balance, and memory until the next prune.
    pub fn succeeded(&mut self, event: EventId) {
        self.network.end(event);
        self.uses.take(event);
    }

    /// Records that an event has failed: a command's event, or either event of a transfer. The call must
    /// come before `is_done` returns true for the event.
    ///
    /// The range that a failed transfer should have filled becomes invalid there. Commands that needed it
    /// fail too, so older copies become valid again. The bytes that a failed command should have written
    /// are undefined, as in native OpenCL. They stay at the place where the command should have written
    /// them.
    pub fn failed(&mut self, event: EventId, failure: Failure, is_done: IsDone<'_>) {
        self.network.end(event);
        let uses = self.uses.take(event);
        // Events known to have succeeded must not be rolled back, so they are pruned first.
        self.for_each_state(&uses, |state| state.prune(true, is_done));
        for entry in self.superseded.take(event, is_done) {
            if let Some(directory) = self.directories.get_mut(&entry.buffer) {
                directory.put_back(&entry);
            }
        }
        let superseded = self.superseded.take_marks(event, is_done);
        // A transfer that broke may have overwritten part of its destination, even where a newer mark
        // superseded its own. No former copy there can be used.
        if failure == Failure::Broken {
            for entry in superseded.iter().filter(|entry| entry.mark.lands()) {
                if let Some(directory) = self.directories.get_mut(&entry.buffer) {
                    directory.spoil(entry);
                }
            }
        }
        self.for_each_state(&uses, |state| state.failed(event, failure));
    }

    fn for_each_state(&mut self, uses: &[Use], mut change: impl FnMut(&mut RangeState)) {
        for of_buffer in uses {
            if let Some(directory) = self.directories.get_mut(&of_buffer.buffer) {
                directory.for_span(of_buffer.span, &mut change);
            }
        }
    }

    /// Removes a site and its copies. A range that was valid only there is lost until it is overwritten.
    /// The site's unreported events fail one by one, before or after this call.
    pub fn site_lost(&mut self, site: SiteIndex, is_done: IsDone<'_>) {
        self.prune(is_done);
        let place = Place::Site(site);
        for directory in self.directories.values_mut() {
            directory.for_all(|state| state.forget(place));
        }
        self.superseded.forget(|entry| entry.place == place);
    }

    /// Forgets all events that have ended. This also happens gradually; callers use it in idle moments.
    pub fn prune(&mut self, is_done: IsDone<'_>) {
        for directory in self.directories.values_mut() {
            directory.for_all(|state| state.prune(true, is_done));
        }
        self.superseded.prune_now(is_done);
        self.uses.prune_now(is_done);
    }

    /// Lists the places where a range is valid, or will be once its transfer arrives. Lost and never
    /// written ranges have no place. For diagnosis.
    pub fn valid_places(
        &self,
        buffer: MemoryId,
        span: Span,
    ) -> impl Iterator<Item = (Span, Place)> {
        let directory = self.directories.get(&buffer).into_iter();
        directory
            .flat_map(move |directory| directory.pieces.within(span))
            .flat_map(|(span, state)| {
                let valid = state.copies().iter().filter(|copy| copy.is_valid());
                valid.map(move |copy| (span, copy.place))
            })
    }

    /// Returns the number of pieces in all directories, and the number of events remembered outside of
    /// them. For diagnosis: both stay small however long a program runs.
    #[must_use]
    pub fn footprint(&self) -> (usize, usize) {
        let pieces = self.directories.values().map(|d| d.pieces.len()).sum();
        (pieces, self.superseded.len() + self.uses.len())
    }
}
