//! What must happen before a command may run at a place: transfers, and events to wait for.
//!
//! Pure: a plan is made from the directories and changes nothing. Invariants: a plan names only events
//! of commands and transfers that were committed before it, so that every edge goes from an earlier
//! command of the context's one order to a later one; no transfer moves bytes that are valid (or
//! arriving) where it would bring them.

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
use super::state::State;
use super::{Coherence, IsDone};

/// A command that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Where it will run. At the client that is a map or a migration.
    pub place: Place,
    /// Its queue, if it is enqueued on an in-order one.
    pub in_order: Option<QueueId>,
    /// Events that it waits for anyway ([`Needs::Success`]), never others. May be left empty; events of
    /// commands that use the same buffers keep wait lists short where no in-order queue does.
    pub after: &'a [EventId],
    /// What it uses.
    pub accesses: &'a [Access],
}

/// What a wait asks of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Needs {
    /// Bytes: when the event fails, so must who waits.
    Success,
    /// Only that the event is over, whether it fails or not: it must not be disturbed.
    End,
}

/// An edge from an earlier event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait {
    /// What to wait for.
    pub event: EventId,
    /// What for.
    pub needs: Needs,
}

/// Edges, each event once, in the order of their ids.
pub type Waits = SmallVec<[Wait; 4]>;

/// Bytes that must move for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The root buffer.
    pub buffer: MemoryId,
    /// Which bytes, at both ends; at most the piece size.
    pub region: Region,
    /// From where.
    pub source: Place,
    /// To where.
    pub destination: Place,
    /// By which way.
    pub route: Route,
    /// Whether the bytes serve the plan's command alone: they are too many rows for the directory to note
    /// that they are at the destination.
    pub passes: bool,
    /// What the send at the source must wait for.
    pub source_waits: Waits,
    /// What must be over before the bytes may land at the destination. A transfer from or to the client
    /// is one command, which waits for both.
    pub destination_waits: Waits,
}

/// See the module; becomes true by [`Coherence::commit`].
#[derive(Debug)]
pub struct Plan {
    pub(super) place: Place,
    pub(super) in_order: Option<QueueId>,
    pub(super) after: SmallVec<[EventId; 4]>,
    pub(super) touches: SmallVec<[Touch; 4]>,
    // Maps of many rows, at the client.
    pub(super) maps_of_rows: Vec<Access>,
    pub(super) transfers: Vec<Transfer>,
    pub(super) waits: Waits,
}

/// A command would read bytes whose only valid copy was at a site that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "bytes {} to {} of a buffer were lost with the only node that had them (until they are overwritten)",
    .span.start,
    .span.end
)]
pub struct Lost {
    /// The root buffer.
    pub buffer: MemoryId,
    /// The first range that is lost.
    pub span: Span,
}

/// One contiguous use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) buffer: MemoryId,
    pub(super) span: Span,
    pub(super) mode: Mode,
}

impl Transfer {
    /// What a transfer that is one command waits for: all that its two ends do.
    pub fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.source_waits.iter().chain(&self.destination_waits)
    }
}

impl Plan {
    /// The transfers, in no particular order: none waits for another of the same plan.
    #[must_use]
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// What the command is taken to touch and how: the accesses as disjoint ranges, rectangles row by
    /// row or, beyond the [`Limits`](super::Limits), as their extent. Maps are always row by row.
    pub fn touches(&self) -> impl Iterator<Item = (MemoryId, Span, Mode)> {
        let touches = self.touches.iter();
        let touches = touches.map(|touch| (touch.buffer, touch.span, touch.mode));
        let rows = self.maps_of_rows.iter().flat_map(|map| {
            let rows = map.region.segments(0, u64::MAX);
            rows.map(|row| (map.buffer, Span::of(&row), map.mode))
        });
        touches.chain(rows)
    }

    /// What the command must wait for in addition to what the application asked for, and to the
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
    /// [`Lost`] when it would read what is lost; nothing has changed then.
    pub fn plan(&self, command: &Command<'_>, is_done: IsDone<'_>) -> Result<Plan, Lost> {
        let limit = self.limits.rows;
        let planned = self.plan_with(command, limit, is_done);
        planned.or_else(|lost| {
            let is_rounded = |access: &Access| {
                !self.is_map_of_rows(command.place, access, limit)
                    && access.has_many_rows(self.rows_of(access, limit))
            };
            if command.accesses.iter().any(is_rounded) {
                // Perhaps only what lies between the rows is lost.
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

    // How many rows of this access are taken one by one, if `rows` are at most.
    fn rows_of(&self, access: &Access, rows: u64) -> u64 {
        match self.directories.get(&access.buffer) {
            Some(directory) if directory.pieces.len() <= self.limits.pieces => rows,
            _ if rows == u64::MAX => rows,
            _ => 0,
        }
    }

    // Whether what it fetches is cut at its rows, since they are more than `rows`.
    fn is_map_of_rows(&self, place: Place, access: &Access, rows: u64) -> bool {
        let is_map = matches!(
            access.mode,
            Mode::Read | Mode::MapWrite | Mode::MapInvalidate
        );
        is_map && place == Place::Client && access.has_many_rows(self.rows_of(access, rows))
    }

    // Disjoint spans, in the order of buffers and bytes.
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
    // Of the buffer at hand, by source.
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

    // A map of many rows: what is fetched is cut at the rows, all else is done piece by piece.
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

    // The bytes (of these rows, if there are any) are not there: from where, and in which portions. The
    // transfer waits for whatever is busy with the stale copy, and the command for the transfer.
    fn fetch(
        &mut self,
        directory: &Directory,
        span: Span,
        state: &State,
        rows: Option<&Region>,
    ) -> Result<(), Lost> {
        let mut start = span.start;
        while start < span.end {
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

    fn wait(&mut self, state: &State, mode: Mode) {
        command_waits(state.marks(self.place), mode, self.is_done, &mut self.waits);
        if mode == Mode::Upload {
            // It takes the bytes from the client's copy.
            let client = state.marks(Place::Client);
            command_waits(client, Mode::Read, self.is_done, &mut self.waits);
        }
    }

    // Of many rows the directory does not know which of the bytes that land at the client they are: it is
    // enough that they have landed.
    fn wait_for_landings(&mut self, state: &State) {
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

/// What a command waits for at its own place: bytes on their way to it, and, before it overwrites, bytes
/// on their way from it. Other commands of the place are the application's to order.
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

// What a transfer that takes bytes from a copy waits for: whoever brings or writes them.
fn send_waits(marks: &[Mark], is_done: IsDone<'_>, waits: &mut Waits) {
    for mark in marks {
        let needs = match mark.kind {
            MarkKind::Arrives { matters: true } => Needs::Success,
            // What a failed command leaves is undefined, but it is what native OpenCL would leave.
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
    // Neighbouring pieces mostly wait for the same.
    if waits.last() != Some(&wait) {
        waits.push(wait);
    }
}

/// Each event once, with the stronger need.
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

// The touches of one buffer cut at each other's ends, with what all uses of a part come to.
fn sweep(touches: &[Touch]) -> Vec<Touch> {
    let mut cuts: Vec<u64> = touches
        .iter()
        .flat_map(|touch| [touch.span.start, touch.span.end])
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut disjoint = Vec::new();
    // Of the touches that begin before a part, those that reach it.
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
