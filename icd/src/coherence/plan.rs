//! Plans what must happen before a command may run at a place: transfers, and events to wait for.
//!
//! Pure: planning reads the directories and changes nothing. Invariants: a plan names only events of
//! commands and transfers that were committed before it. So every edge goes from an earlier to a later
//! command of the context's one order. No transfer moves bytes to a place where they are already valid or
//! arriving.

use causeway_proto::id::{EventId, MemoryId, QueueId};
use causeway_proto::region::Region;
use smallvec::SmallVec;

use super::access::{Access, Mode};
use super::directory::Directory;
use super::marks::{Mark, MarkKind};
use super::network::{Network, Route};
use super::place::{Place, Span};
use super::runs::Runs;
use super::source::Sources;
use super::state::RangeState;
use super::{Coherence, IsDone};

/// A command that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Where the command will run. At the client, the command is a map or a migration.
    pub place: Place,
    /// The command's queue, if that is an in-order queue.
    pub in_order: Option<QueueId>,
    /// Events that the command waits for in any case ([`Needs::Success`]), and no others. The list may be
    /// empty. Events of commands that use the same buffers keep wait lists short on out-of-order queues.
    pub after: &'a [EventId],
    /// The ranges that the command uses.
    pub accesses: &'a [Access],
}

/// What a wait requires of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Needs {
    /// The event's bytes: if the event fails, the waiting command fails too.
    Success,
    /// Only that the event is over, with or without success: it must not be disturbed.
    End,
}

/// An edge from an earlier event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait {
    /// The event to wait for.
    pub event: EventId,
    /// What the wait requires of the event.
    pub needs: Needs,
}

/// Edges, one for each event, sorted by event id.
pub type Waits = SmallVec<[Wait; 4]>;

/// Bytes that must move for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The root buffer.
    pub buffer: MemoryId,
    /// The bytes, at the same offsets at both ends; at most [`Limits::transfer`](super::Limits) bytes.
    pub region: Region,
    /// The place that sends the bytes.
    pub source: Place,
    /// The place that receives the bytes.
    pub destination: Place,
    /// The path that the bytes take.
    pub route: Route,
    /// Whether the bytes serve the plan's command alone. This is so for many rows: the directory does not
    /// record that they are valid at the destination.
    pub passes: bool,
    /// Events that the send at the source must wait for.
    pub source_waits: Waits,
    /// Events that must be over before bytes may be written at the destination. A transfer from or to the
    /// client is one command, which waits for both lists.
    pub destination_waits: Waits,
}

/// The plan for one command; see the module. [`Coherence::commit`] records it once it has been sent.
#[derive(Debug)]
pub struct Plan {
    pub(super) place: Place,
    pub(super) in_order: Option<QueueId>,
    pub(super) after: SmallVec<[EventId; 4]>,
    pub(super) touches: SmallVec<[Touch; 4]>,
    // Maps of many rows, which run at the client.
    pub(super) maps_of_rows: Vec<Access>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) waits: Waits,
}

/// A command would read bytes whose only valid copy was at a site that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "bytes {} to {} of a buffer are lost with the only node that had them; write them again before reading",
    .span.start,
    .span.end
)]
pub struct Lost {
    /// The root buffer.
    pub buffer: MemoryId,
    /// The first range that is lost.
    pub span: Span,
}

/// One contiguous range that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) buffer: MemoryId,
    pub(super) span: Span,
    pub(super) mode: Mode,
}

impl Transfer {
    /// All waits of a transfer that is one command: those of both ends.
    pub fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.source_waits.iter().chain(&self.destination_waits)
    }
}

impl Plan {
    /// The transfers, in no particular order. None waits for another of the same plan.
    #[must_use]
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// The ranges that the plan assumes the command touches, with their modes. The ranges are disjoint.
    /// Rectangles are split into rows or, beyond the [`Limits`](super::Limits), rounded to their extent.
    /// Maps are always split into rows.
    pub fn touches(&self) -> impl Iterator<Item = (MemoryId, Span, Mode)> {
        let touches = self.touches.iter();
        let touches = touches.map(|touch| (touch.buffer, touch.span, touch.mode));
        let rows = self.maps_of_rows.iter().flat_map(|map| {
            let rows = map.region.segments(0, u64::MAX);
            rows.map(|row| (map.buffer, Span::of(&row), map.mode))
        });
        touches.chain(rows)
    }

    /// Events that the command must wait for, in addition to the application's wait list and to the
    /// received events of [`Plan::transfers`] (with [`Needs::Success`]).
    #[must_use]
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }
}

impl Coherence {
    /// Plans a command. Accesses to buffers that were never added are ignored.
    ///
    /// # Errors
    /// [`Lost`] when the command would read lost bytes.
    pub fn plan(&self, command: &Command<'_>, is_done: IsDone<'_>) -> Result<Plan, Lost> {
        let limit = self.limits.rows;
        let planned = self.plan_with(command, limit, is_done);
        planned.or_else(|lost| {
            let is_rounded = |access: &Access| {
                !self.is_map_of_rows(command.place, access, limit)
                    && access.has_many_rows(self.rows_of(access, limit))
            };
            if command.accesses.iter().any(is_rounded) {
                // Perhaps only bytes between the rows are lost, which the command does not need. The
                // second attempt takes every row by itself.
                self.plan_with(command, u64::MAX, is_done)
            } else {
                Err(lost)
            }
        })
    }

    fn plan_with(
        &self,
        command: &Command<'_>,
        rows: u64,
        is_done: IsDone<'_>,
    ) -> Result<Plan, Lost> {
        let is_map_of_rows = |access: &&Access| self.is_map_of_rows(command.place, access, rows);
        let maps_of_rows: Vec<Access> = command
            .accesses
            .iter()
            .filter(is_map_of_rows)
            .copied()
            .collect();
        let others = command.accesses.iter();
        let touches = self.touches(others.filter(|access| !is_map_of_rows(access)), rows);
        let mut planner = Planner {
            place: command.place,
            is_done,
            network: &self.network,
            piece: self.limits.transfer.max(1),
            sources: Sources::new(&self.network, command.place, is_done),
            runs: SmallVec::new(),
            transfers: Vec::new(),
            waits: SmallVec::new(),
        };
        // The touches are sorted by buffer (see `make_disjoint`).
        for of_buffer in touches.chunk_by(|one, next| one.buffer == next.buffer) {
            if let Some(directory) = self.directories.get(&of_buffer[0].buffer) {
                planner.add_buffer(directory, of_buffer)?;
            }
        }
        for map in &maps_of_rows {
            if let Some(directory) = self.directories.get(&map.buffer) {
                planner.add_rows(directory, map)?;
            }
        }
        Ok(Plan {
            place: command.place,
            in_order: command.in_order,
            after: SmallVec::from_slice(command.after),
            touches,
            maps_of_rows,
            transfers: planner.transfers,
            waits: tidy(planner.waits),
        })
    }

    // Up to how many rows this access is split into rows, if the caller's limit is `rows`. `u64::MAX`
    // always splits.
    fn rows_of(&self, access: &Access, rows: u64) -> u64 {
        match self.directories.get(&access.buffer) {
            Some(directory) if directory.pieces.len() <= self.limits.pieces => rows,
            _ if rows == u64::MAX => rows,
            _ => 0,
        }
    }

    // Whether the access is a map of more than `rows` rows, for which only the rows are fetched.
    fn is_map_of_rows(&self, place: Place, access: &Access, rows: u64) -> bool {
        let is_map = matches!(
            access.mode,
            Mode::Read | Mode::MapWrite | Mode::MapInvalidate
        );
        is_map && place == Place::Client && access.has_many_rows(self.rows_of(access, rows))
    }

    // Splits the accesses into disjoint spans, in the order of buffers and bytes.
    pub(super) fn touches<'a>(
        &self,
        accesses: impl IntoIterator<Item = &'a Access>,
        rows: u64,
    ) -> SmallVec<[Touch; 4]> {
        let mut touches = SmallVec::new();
        for access in accesses {
            let buffer = access.buffer;
            access.for_each_span(self.rows_of(access, rows), |span, mode| {
                touches.push(Touch { buffer, span, mode });
            });
        }
        make_disjoint(touches)
    }
}

struct Planner<'a> {
    place: Place,
    is_done: IsDone<'a>,
    network: &'a Network,
    piece: u64,
    sources: Sources<'a>,
    // Runs of bytes of the current buffer, by source.
    runs: SmallVec<[(Place, Runs); 2]>,
    transfers: Vec<Transfer>,
    waits: Waits,
}

impl Planner<'_> {
    fn add_buffer(&mut self, directory: &Directory, touches: &[Touch]) -> Result<(), Lost> {
        for touch in touches {
            for (span, state) in directory.pieces.within(touch.span) {
                let missing = touch.mode.needs_bytes() && !state.is_valid_at(self.place);
                if missing {
                    self.fetch(directory, span, state, None)?;
                } else {
                    // Bytes that are present need no transfer, but may still be arriving or being read
                    // out.
                    self.wait(state, touch.mode);
                }
                if touch.mode == Mode::UploadRows {
                    self.wait_for_landings(state);
                }
            }
        }
        self.finish(directory, false);
        Ok(())
    }

    // Plans a map of many rows. Only the bytes of the rows are fetched; waits are added piece by piece.
    fn add_rows(&mut self, directory: &Directory, map: &Access) -> Result<(), Lost> {
        let rows = &map.region;
        for (span, state) in directory.pieces.within(Span::enclosing(rows)) {
            if !span.meets(rows) {
                continue;
            }
            if map.mode.needs_bytes() && !state.is_valid_at(self.place) {
                self.fetch(directory, span, state, Some(rows))?;
            } else {
                self.wait(state, map.mode);
            }
        }
        self.finish(directory, true);
        Ok(())
    }

    fn finish(&mut self, directory: &Directory, passes: bool) {
        for (source, mut runs) in std::mem::take(&mut self.runs) {
            for region in runs.finish() {
                self.add_transfer(directory, region, source, passes);
            }
        }
    }

    // Plans transfers of bytes that are not valid at the place (only the bytes of `rows`, if given).
    // Chooses their sources and cuts them into portions. The transfer waits for the events that are busy
    // with the stale copy. The command waits for the transfer, so this function adds no waits to it.
    fn fetch(
        &mut self,
        directory: &Directory,
        span: Span,
        state: &RangeState,
        rows: Option<&Region>,
    ) -> Result<(), Lost> {
        let mut start = span.start;
        while start < span.end {
            // Portions end at multiples of the transfer size, as `Runs::push` requires.
            let boundary = (start / self.piece + 1).saturating_mul(self.piece);
            let portion = Span::new(start, span.end.min(boundary));
            start = portion.end;
            if rows.is_some_and(|rows| !portion.meets(rows)) {
                continue;
            }
            let buffer = directory.buffer;
            let source = self
                .sources
                .choose(state, portion.length())
                .ok_or(Lost { buffer, span })?;
            let mut push = |span| {
                if let Some(region) = self.runs_from(source).push(span) {
                    self.add_transfer(directory, region, source, rows.is_some());
                }
            };
            match rows {
                None => push(portion),
                Some(rows) => {
                    let rows = rows.within(portion.start, portion.end);
                    rows.for_each(|row| push(Span::of(&row)));
                }
            }
        }
        Ok(())
    }

    fn runs_from(&mut self, source: Place) -> &mut Runs {
        let known = self.runs.iter().position(|(place, _)| *place == source);
        let at = known.unwrap_or_else(|| {
            self.runs.push((source, Runs::new(self.piece)));
            self.runs.len() - 1
        });
        &mut self.runs[at].1
    }

    fn wait(&mut self, state: &RangeState, mode: Mode) {
        command_waits(state.marks(self.place), mode, self.is_done, &mut self.waits);
        if mode == Mode::Upload {
            // The unmap reads the client's copy.
            let client = state.marks(Place::Client);
            command_waits(client, Mode::Read, self.is_done, &mut self.waits);
        }
    }

    // Adds waits for all transfers that write the client's copy of a range. The directory does not know
    // which bytes of many rows they bring. Waiting for their end is enough.
    fn wait_for_landings(&mut self, state: &RangeState) {
        let landing = state
            .marks(Place::Client)
            .iter()
            .filter(|mark| mark.lands());
        for event in landing.map(|mark| mark.event) {
            if !(self.is_done)(event) {
                add(&mut self.waits, event, Needs::End);
            }
        }
    }

    fn add_transfer(&mut self, directory: &Directory, region: Region, source: Place, passes: bool) {
        let (mut source_waits, mut destination_waits) = (Waits::new(), Waits::new());
        for (span, state) in directory.pieces.within(Span::enclosing(&region)) {
            if !span.meets(&region) {
                continue;
            }
            send_waits(state.marks(source), self.is_done, &mut source_waits);
            let busy = state.marks(self.place).iter().map(|mark| mark.event);
            for event in busy.filter(|event| !(self.is_done)(*event)) {
                add(&mut destination_waits, event, Needs::End);
            }
        }
        self.transfers.push(Transfer {
            buffer: directory.buffer,
            region,
            source,
            destination: self.place,
            route: self.network.route(source, self.place),
            passes,
            source_waits: tidy(source_waits),
            destination_waits: tidy(destination_waits),
        });
    }
}

/// Adds what a command waits for at its own place: bytes that are arriving there and, if the command
/// overwrites, bytes that are being read out. The application orders the other commands of the place.
pub(super) fn command_waits(marks: &[Mark], mode: Mode, is_done: IsDone<'_>, waits: &mut Waits) {
    for mark in marks {
        let needs = match mark.kind {
            MarkKind::Arrives { matters: true } if mode.needs_bytes() => Needs::Success,
            MarkKind::Arrives { .. } | MarkKind::ReadOut if mode.overwrites() => Needs::End,
            _ => continue,
        };
        if !is_done(mark.event) {
            add(waits, mark.event, needs);
        }
    }
}

// Adds what a transfer waits for at its source: transfers that bring the bytes, and commands that write
// them.
fn send_waits(marks: &[Mark], is_done: IsDone<'_>, waits: &mut Waits) {
    for mark in marks {
        let needs = match mark.kind {
            MarkKind::Arrives { matters: true } => Needs::Success,
            // The bytes that a failed command leaves are undefined, but native OpenCL would leave the
            // same ones.
            MarkKind::Used { wrote: true, .. } => Needs::End,
            _ => continue,
        };
        if !is_done(mark.event) {
            add(waits, mark.event, needs);
        }
    }
}

fn add(waits: &mut Waits, event: EventId, needs: Needs) {
    let wait = Wait { event, needs };
    // Neighbouring pieces mostly have the same waits. `tidy` removes the other duplicates.
    if waits.last() != Some(&wait) {
        waits.push(wait);
    }
}

/// Keeps each event once, with the stronger need. `Needs::Success` sorts before `Needs::End`.
pub(super) fn tidy(mut waits: Waits) -> Waits {
    waits.sort_unstable();
    waits.dedup_by_key(|wait| wait.event);
    waits
}

fn make_disjoint(mut touches: SmallVec<[Touch; 4]>) -> SmallVec<[Touch; 4]> {
    touches.sort_by_key(|touch| (touch.buffer, touch.span.start));
    let overlap =
        |pair: &[Touch]| pair[0].buffer == pair[1].buffer && pair[1].span.start < pair[0].span.end;
    if !touches.windows(2).any(overlap) {
        return touches;
    }
    touches
        .chunk_by(|one, next| one.buffer == next.buffer)
        .flat_map(sweep)
        .collect()
}

// Cuts the touches of one buffer at each other's ends, and combines the modes of each part.
fn sweep(touches: &[Touch]) -> Vec<Touch> {
    let mut cuts: Vec<u64> = touches
        .iter()
        .flat_map(|touch| [touch.span.start, touch.span.end])
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut disjoint = Vec::new();
    // The touches that begin before the current part and reach it.
    let mut active: Vec<Touch> = Vec::new();
    let mut rest = touches.iter().peekable();
    for part in cuts.windows(2) {
        let span = Span::new(part[0], part[1]);
        active.retain(|touch| touch.span.end > span.start);
        while let Some(touch) = rest.next_if(|touch| touch.span.start <= span.start) {
            active.push(*touch);
        }
        let modes = active.iter().map(|touch| touch.mode);
        if let Some(mode) = modes.reduce(Mode::and) {
            let buffer = touches[0].buffer;
            disjoint.push(Touch { buffer, span, mode });
        }
    }
    disjoint
}
