//! Which copy of which bytes is valid where, and what must move before a command may run: MSI per range.
//!
//! ```text
//! access     what each command reads and writes
//! pieces, state, marks, superseded, directory    who has which range of a buffer, who is busy with it
//! uses       where an event's marks are
//! network, source     ways and loads; from where to take bytes
//! plan, gather        what a command needs first
//! ```
//! [`Coherence`] is a context's view of all its root buffers. For every command the caller makes a
//! [`Plan`], gives its transfers and the command ids, sends them and [commits](Coherence::commit) the
//! plan, all in one critical section per context, so that there is one order of commands. Nothing here
//! knows sockets, clocks, locks or handles.
//!
//! Invariants. *One order*: every edge goes from something planned earlier to something planned later,
//! so that no cycle can arise and all that is sent can end. *One newest version*: a range has no two
//! copies that were modified apart. *Nothing twice*: no transfer brings what its destination has.
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
use state::State;
use superseded::Superseded;
use uses::{Use, Uses};

/// Tells which events have ended, with or without success.
///
/// Once it says so of an event, [`Coherence::failed`] has been called if the event failed. It learns of
/// the events of one site in the order in which they ended there.
pub type IsDone<'a> = &'a dyn Fn(EventId) -> bool;

/// The events of a transfer. From or to the client it is one command, and both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferEvents {
    /// The source's bytes have been taken.
    pub sent: EventId,
    /// The destination has them.
    pub received: EventId,
}

impl TransferEvents {
    /// A transfer from or to the client.
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
    /// What it waited for had failed: it never began (`CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST`).
    Cancelled,
    /// Anything else: what it was to write may be half written.
    Broken,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Coherence {
    directories: FxHashMap<MemoryId, Directory>,
    network: Network,
    superseded: Superseded,
    // Where marks of what has not ended may be: a failure looks nowhere else.
    uses: Uses,
    limits: Limits,
    // Of what was committed last.
    order: u64,
}

impl Coherence {
    /// A context without buffers.
    #[must_use]
    pub fn new() -> Coherence {
        Coherence::default()
    }

    /// The same, with other limits.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Coherence {
        Coherence {
            limits,
            ..Coherence::default()
        }
    }

    /// A new root buffer.
    pub fn add_buffer(&mut self, buffer: MemoryId, size: u64, contents: Contents) {
        let directory = Directory::new(buffer, size, contents);
        self.directories.insert(buffer, directory);
    }

    /// A root buffer is gone.
    pub fn remove_buffer(&mut self, buffer: MemoryId) {
        // What was superseded there goes with its events: to look for it would cost all that is under way.
        self.directories.remove(&buffer);
    }

    /// How two sites reach each other, both ways; directly until told otherwise.
    pub fn set_route(&mut self, one: SiteIndex, other: SiteIndex, route: Route) {
        self.network.set_route(one, other, route);
    }

    /// The plan's transfers (one pair of events each, in their order) and its command have been sent.
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

    /// The plan's transfers have been sent. Without [`Coherence::commit_command`] behind it they only bring
    /// early what may be wanted later: so when the command itself could not be sent.
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
            for event in [events.sent, events.received] {
                self.uses.add(event, transfer.buffer, extent);
            }
            if let Some(directory) = self.directories.get_mut(&transfer.buffer) {
                directory.transfer(transfer, *events, self.order, superseded, is_done);
            }
        }
    }

    /// The plan's command has been sent, after its transfers were committed.
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

    /// An event has ended with success; after that of a transfer's destination, its source has less to
    /// send. Forgetting to say so costs only the balance of loads, and memory for a while.
    pub fn succeeded(&mut self, event: EventId) {
        self.network.end(event);
        self.uses.take(event);
    }

    /// An event has failed: that of a command, or any of a transfer's. Must come before `is_done` says
    /// that it has ended.
    ///
    /// What a transfer should have brought is invalid there, and what would have used it has failed with
    /// it, so that older copies are good again. What a failed command should have written is undefined,
    /// as in native OpenCL, and stays where it was to be written.
    pub fn failed(&mut self, event: EventId, failure: Failure, is_done: IsDone<'_>) {
        self.network.end(event);
        let uses = self.uses.take(event);
        // What is known to have succeeded must not be taken back.
        self.for_each_state(&uses, |state| state.prune(true, is_done));
        for entry in self.superseded.take(event, is_done) {
            if let Some(directory) = self.directories.get_mut(&entry.buffer) {
                directory.put_back(&entry);
            }
        }
        let superseded = self.superseded.take_marks(event, is_done);
        if failure == Failure::Broken {
            for entry in superseded.iter().filter(|entry| entry.mark.lands()) {
                if let Some(directory) = self.directories.get_mut(&entry.buffer) {
                    directory.spoil(entry);
                }
            }
        }
        self.for_each_state(&uses, |state| state.failed(event, failure));
    }

    fn for_each_state(&mut self, uses: &[Use], mut change: impl FnMut(&mut State)) {
        for of_buffer in uses {
            if let Some(directory) = self.directories.get_mut(&of_buffer.buffer) {
                directory.for_span(of_buffer.span, &mut change);
            }
        }
    }

    /// A site is gone, with its copies; what was valid there only is lost until it is overwritten. The
    /// events that it had not reported fail one by one, before or after.
    pub fn site_lost(&mut self, site: SiteIndex, is_done: IsDone<'_>) {
        self.prune(is_done);
        let place = Place::Site(site);
        for directory in self.directories.values_mut() {
            directory.for_all(|state| state.forget(place));
        }
        self.superseded.forget(|entry| entry.place == place);
    }

    /// Forgets all that has ended, which otherwise happens little by little. For idle moments.
    pub fn prune(&mut self, is_done: IsDone<'_>) {
        for directory in self.directories.values_mut() {
            directory.for_all(|state| state.prune(true, is_done));
        }
        self.superseded.prune_now(is_done);
        self.uses.prune_now(is_done);
    }

    /// Where a range is valid (or will be, once its transfer arrives): place by place, and no place for
    /// what is lost or was never written. For diagnosis.
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

    /// Ranges that are told apart, and events remembered beside those in them. For diagnosis: both stay
    /// small however long a program runs.
    #[must_use]
    pub fn footprint(&self) -> (usize, usize) {
        let pieces = self.directories.values().map(|d| d.pieces.len()).sum();
        (pieces, self.superseded.len() + self.uses.len())
    }

    /// The client gives up its copies of a range (a shadow whose pages go back). False, and nothing has
    /// changed, when the only valid copy, or one that a transfer takes bytes from, would go.
    pub fn forget_client_copy(
        &mut self,
        buffer: MemoryId,
        span: Span,
        is_done: IsDone<'_>,
    ) -> bool {
        let Some(directory) = self.directories.get_mut(&buffer) else {
            return true;
        };
        let needed = directory
            .pieces
            .within(span)
            .any(|(_, state)| state.needs(Place::Client, is_done));
        if !needed {
            directory
                .pieces
                .update(span, |_, state| state.forget(Place::Client));
        }
        !needed
    }
}
