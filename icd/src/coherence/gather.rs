//! Reads to the application's memory take each piece from where it is; copies run where fewest bytes move.
//!
//! A read makes no copy that a later command could use, so moving everything to one site first would
//! send bytes twice. Invariant: the pieces of a [`Gather`] are the range that was asked for, in order,
//! without gaps.

use causeway_proto::id::{EventId, MemoryId};

use super::access::{Access, Mode};
use super::marks::User;
use super::place::{Place, SiteIndex, Span};
use super::plan::{Lost, Waits, command_waits, tidy};
use super::source::Sources;
use super::state::State;
use super::{Coherence, IsDone};

/// Part of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which bytes of the root buffer.
    pub span: Span,
    /// Where they are read; at the client it is a copy from its own memory.
    pub place: Place,
    /// What it waits for, besides what the read itself waits for.
    pub waits: Waits,
}

/// A read in pieces; becomes true by [`Coherence::commit_gather`].
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
    /// Where to read the bytes of a range: at `own` (the queue's site) what is valid there, else in the
    /// client's copy, else at another site. If that is one piece at `own`, the read is an ordinary command
    /// there, to be planned as one. A rectangle is always read at one site, after a [`Coherence::plan`].
    ///
    /// # Errors
    /// [`Lost`] when part of it is lost.
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
        // To the client, every site's way is the same.
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

    /// The pieces of a read have been sent, with these events.
    pub fn commit_gather(&mut self, gather: &Gather, events: &[EventId], is_done: IsDone<'_>) {
        self.order += 1;
        let Some(directory) = self.directories.get_mut(&gather.buffer) else {
            return;
        };
        for (piece, event) in gather.pieces.iter().zip(events) {
            // Not in the order of one queue.
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

    /// The site where a copy (or what else may run anywhere) has fewest bytes brought to it; `own`, the
    /// queue's site, if none is better.
    #[must_use]
    pub fn place_for_copy(&self, accesses: &[Access], own: SiteIndex) -> SiteIndex {
        let touches = self.touches(accesses, self.limits.rows);
        let mut needed = 0;
        // Bytes that are valid, by site.
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
    state: &State,
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
