//! Reads into the application's memory take each piece from a place that has it. Copies run where fewest
//! bytes must move.
//!
//! A read leaves no copy that a later command could use, so moving everything to one site first would
//! send bytes twice. Invariant: the pieces of a [`Gather`] are the requested range, in order, without
//! gaps.

use causeway_proto::id::{EventId, MemoryId};

use super::access::{Access, Mode};
use super::marks::User;
use super::place::{Place, SiteIndex, Span};
use super::plan::{Lost, Waits, command_waits, tidy};
use super::source::Sources;
use super::state::RangeState;
use super::{Coherence, IsDone};

/// Part of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes of the root buffer.
    pub span: Span,
    /// The place that reads them. At the client, the read is a copy from its own memory.
    pub place: Place,
    /// Events to wait for, in addition to those of the read itself.
    pub waits: Waits,
}

/// A read in pieces. [`Coherence::commit_gather`] records it once it has been sent.
#[derive(Debug)]
pub struct Gather {
    buffer: MemoryId,
    pieces: Vec<Piece>,
}

impl Gather {
    /// The pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

impl Coherence {
    /// Decides where to read each part of a range. `own` (the queue's site) is preferred where the bytes
    /// are valid there, then the client's copy, then another site. If the result is one piece at `own`,
    /// the caller should plan an ordinary read command there. A rectangle is always read at one site,
    /// after a [`Coherence::plan`].
    ///
    /// # Errors
    /// [`Lost`] when part of the range is lost.
    pub fn gather(
        &self,
        buffer: MemoryId,
        span: Span,
        own: SiteIndex,
        is_done: IsDone<'_>,
    ) -> Result<Gather, Lost> {
        let mut pieces: Vec<Piece> = Vec::new();
        let Some(directory) = self.directories.get(&buffer) else {
            return Ok(Gather { buffer, pieces });
        };
        let own = Place::Site(own);
        // All sites reach the client by the same kind of route, so one `Sources` serves every piece.
        let mut sources = Sources::new(&self.network, Place::Client, is_done);
        for (span, state) in directory.pieces.within(span) {
            let place =
                place_to_read(state, own, span, &mut sources).ok_or(Lost { buffer, span })?;
            let mut waits = Waits::new();
            command_waits(state.marks(place), Mode::Read, is_done, &mut waits);
            match pieces.last_mut().filter(|last| last.place == place) {
                Some(last) => {
                    last.span.end = span.end;
                    last.waits.extend(waits);
                }
                None => pieces.push(Piece { span, place, waits }),
            }
        }
        for piece in &mut pieces {
            piece.waits = tidy(std::mem::take(&mut piece.waits));
        }
        Ok(Gather { buffer, pieces })
    }

    /// Records that the pieces of a read have been sent, with these events in the pieces' order.
    pub fn commit_gather(&mut self, gather: &Gather, events: &[EventId], is_done: IsDone<'_>) {
        self.order += 1;
        let Some(directory) = self.directories.get_mut(&gather.buffer) else {
            return;
        };
        for (piece, event) in gather.pieces.iter().zip(events) {
            // Pieces run at different sites, so no in-order queue orders them.
            let user = User {
                event: *event,
                order: self.order,
                in_order: None,
                after: &[],
            };
            let touch = (piece.span, Mode::Read);
            self.uses.add(*event, gather.buffer, piece.span);
            directory.command(touch, piece.place, &user, &mut self.superseded, is_done);
        }
    }

    /// Chooses the site to which the fewest bytes must move for a copy, or for another command that may
    /// run on any site. Ties go to `own`, the queue's site.
    #[must_use]
    pub fn place_for_copy(&self, accesses: &[Access], own: SiteIndex) -> SiteIndex {
        let touches = self.touches(accesses, self.limits.rows);
        let mut needed = 0;
        // Valid bytes at each site. `own` comes first, so it wins ties.
        let mut present: Vec<(SiteIndex, u64)> = vec![(own, 0)];
        for touch in touches.iter().filter(|touch| touch.mode.needs_bytes()) {
            let Some(directory) = self.directories.get(&touch.buffer) else {
                continue;
            };
            for (span, state) in directory.pieces.within(touch.span) {
                if state.is_fresh() {
                    continue;
                }
                needed += span.length();
                for copy in state.copies().iter().filter(|copy| copy.is_valid()) {
                    if let Place::Site(site) = copy.place {
                        add(&mut present, site, span.length());
                    }
                }
            }
        }
        if present[0].1 == needed {
            return own;
        }
        let most = present.iter().map(|(_, bytes)| *bytes).max();
        let first = present.iter().find(|(_, bytes)| Some(*bytes) == most);
        first.map_or(own, |(site, _)| *site)
    }
}

fn place_to_read(
    state: &RangeState,
    own: Place,
    span: Span,
    sources: &mut Sources<'_>,
) -> Option<Place> {
    [own, Place::Client]
        .into_iter()
        .find(|place| state.is_valid_at(*place))
        .or_else(|| sources.choose(state, span.length()))
}

fn add(present: &mut Vec<(SiteIndex, u64)>, site: SiteIndex, bytes: u64) {
    match present.iter_mut().find(|(known, _)| *known == site) {
        Some((_, sum)) => *sum += bytes,
        None => present.push((site, bytes)),
    }
}
