//! Reads and maps, whose bytes may be on several sites.
//!
//! A read takes each piece from where it is, directly to the application's memory. Two markers keep the
//! command's place on its own queue: the pieces begin after the first, and the second follows them. Without
//! earlier commands the first marker is left out. The read is an ordinary one on the queue's site when all
//! bytes are there, or are in very many small pieces. A map brings missing bytes into the client's copy.

use std::sync::Arc;

use causeway_proto::region::Region;
use smallvec::smallvec;

use super::copier::Copier;
use super::issue::Command;
use super::sequence::{Sequence, Way, index};
use crate::coherence::{Access, Gather, Place, Span};
use crate::error::{ClResult, Status};
use crate::stub::event::Finisher;
use crate::stub::host_ranges::HostRanges;
use crate::stub::work::{Map, Read};
use crate::stub::{Buffer, Event};
use crate::transport::HostRegion;

/// A read of more pieces than this, if they are small (such as the rows of a box), first moves the bytes to
/// the queue's site. Many equal pieces are one transfer, but each would be a separate read.
const MOST_PIECES: usize = 64;

/// In bytes. Moving a piece of this size twice costs more than a separate read.
const LARGE_PIECE: u64 = 16 << 10;

impl Sequence {
    /// Sends a read.
    ///
    /// # Errors
    /// Those of [`Sequence::issue`].
    pub(super) fn read(&mut self, command: &Command<'_>, read: Read) -> ClResult {
        let Read {
            buffer,
            region,
            host,
            writing,
            keep,
        } = read;
        // Commands that still write that host memory come first; otherwise their bytes might arrive last.
        let context = command.queue.context();
        let gate = HostRanges::of_process().gate_of_sent(&host.addresses(), context)?;
        let begin = writing.beginning();
        begin(command.event);
        let after: Finisher = Box::new(move |_, _| {
            // The order matters: the bytes must be in place before other commands may read or overwrite
            // them.
            drop(writing);
            drop(keep);
        });
        let root = buffer.in_root(&region)?;
        let span = Span::enclosing(&root);
        let own = index(command.site());
        let gather = if region.is_linear() && root.is_linear() && host.is_linear() {
            let (coherence, is_done) = (&self.coherence, self.is_done());
            let gather = coherence.gather(buffer.root().id(), span, own, &is_done);
            Some(gather.map_err(|lost| command.lost(&lost))?)
        } else {
            None
        };
        let is_worth_it =
            |pieces: usize| pieces <= MOST_PIECES || span.length() / pieces as u64 >= LARGE_PIECE;
        let Some(gather) = gather.filter(|gather| is_worth_it(gather.pieces().len())) else {
            let accesses = [Access::read(buffer.root().id(), root)];
            return self.at_site(command, &accesses, |sequence, wait| {
                let source = (command.site(), command.queue.id(), command.event);
                sequence.read_on(source, (&buffer, region), (host, gate), after, wait)
            });
        };
        // All bytes are at the queue's own site: an ordinary read, without markers.
        if let [piece] = gather.pieces()
            && piece.place == Place::Site(own)
        {
            let wait = self.list(command.wait, &piece.waits, command.site())?;
            let source = (command.site(), command.queue.id(), command.event);
            self.read_on(source, (&buffer, region), (host, gate), after, wait)?;
            let (coherence, is_done) = self.split();
            coherence.commit_gather(&gather, &[command.event.id()], &is_done);
            return Ok(());
        }
        self.read_pieces(command, &buffer, (span, host, gate), after, &gather)
    }

    fn read_pieces(
        &mut self,
        command: &Command<'_>,
        buffer: &Arc<Buffer>,
        (span, host, gate): (Span, HostRegion, Option<Arc<Event>>),
        after: Finisher,
        gather: &Gather,
    ) -> ClResult {
        let regions = regions(gather, span, &host)?;
        let at_client = gather.pieces().iter().zip(&regions);
        let at_client = at_client.filter(|(piece, _)| piece.place == Place::Client);
        let copies = at_client.map(|(_, (region, to))| {
            let to = to.part(0, to.length()).ok_or(Status::OUT_OF_RESOURCES)?;
            Ok((buffer.root().client_bytes(*region)?, to))
        });
        let copies = copies.collect::<ClResult<Vec<_>>>()?;
        let done = Event::gate(buffer.context(), false)?;
        let start = self.start_marker(command)?;
        // From here on the command counts as enqueued, because parts of it may be sent.
        let (mut ids, mut parts, mut waits) = (Vec::new(), Vec::new(), Vec::new());
        for (piece, (region, to)) in gather.pieces().iter().zip(regions) {
            let Place::Site(at) = piece.place else {
                ids.push(done.id());
                waits.extend_from_slice(&piece.waits);
                continue;
            };
            let site = self.site(at);
            let hold = smallvec![buffer.root().clone()];
            let event = Event::of_part(buffer.context(), &site, hold);
            let wait = self.list(&start, &piece.waits, &site);
            let result = wait.and_then(|wait| {
                let source = (&site, self.own_queue(&site, Way::Out)?, &event);
                let after = Box::new(|_, _: &_| ());
                let to = (to, gate.clone());
                self.read_on(source, (buffer.root(), region), to, after, wait)
            });
            ids.push(event.id());
            parts.push(self.check(event, result));
        }
        if !copies.is_empty() {
            self.open(&done);
            parts.push(done.clone());
            Copier::new(copies, done).begin(start.iter().chain(&gate));
        }
        command.event.set_finisher(after);
        self.end(command, start.as_ref(), &parts, &waits);
        let (coherence, is_done) = self.split();
        coherence.commit_gather(gather, &ids, &is_done);
        Ok(())
    }

    /// Sends a map.
    ///
    /// # Errors
    /// Those of [`Sequence::issue`].
    pub(super) fn map(&mut self, command: &Command<'_>, map: Map) -> ClResult {
        let Map {
            buffer,
            region,
            kind,
            keep,
        } = map;
        let root = buffer.in_root(&region)?;
        let accesses = [Access::map(buffer.root().id(), root, kind)];
        command.event.set_finisher(Box::new(move |_, _| drop(keep)));
        self.at_client(command, &accesses)
    }

    /// Sends transfers that bring bytes to the client, and a marker on the command's queue that follows
    /// them.
    ///
    /// # Errors
    /// Those of [`Sequence::issue`].
    pub(super) fn at_client(&mut self, command: &Command<'_>, accesses: &[Access]) -> ClResult {
        let plan = self.plan(command, Place::Client, accesses)?;
        // A node knows when bytes have left it, but only the client knows when they have arrived.
        for access in accesses {
            let host = self.buffer(access.buffer)?.client_bytes(access.region)?;
            let writers = HostRanges::of_process().writers(&host.addresses());
            command.event.comes_after(writers);
        }
        let sent = self.begin(&plan);
        command.event.consists_of(&sent.received);
        self.end_marker(command, None, &sent.received, plan.waits())?;
        self.commit(&plan, command.event);
        Ok(())
    }
}

// Returns the region in the buffer and the destination of each piece.
fn regions(gather: &Gather, span: Span, host: &HostRegion) -> ClResult<Vec<(Region, HostRegion)>> {
    let pieces = gather.pieces().iter().map(|piece| {
        let length = piece.span.length();
        let region = Region::linear(piece.span.start, length).ok();
        region.zip(host.part(piece.span.start - span.start, length))
    });
    let pieces: Option<Vec<_>> = pieces.collect();
    pieces.ok_or(Status::OUT_OF_RESOURCES)
}
