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
use super::issue::Issue;
use super::sequence::{QueuePurpose, Sequence, index};
use crate::coherence::{Access, Gather, Place, Span};
use crate::error::{ClResult, Status};
use crate::stub::Event;
use crate::stub::memory::host_ranges::{HostRanges, HostWrite};
use crate::stub::queue::command::HostTransfer;
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
    pub(super) fn read(
        &mut self,
        issue: &Issue<'_>,
        accesses: &[Access],
        read: HostTransfer,
    ) -> ClResult {
        // Commands that still write that host memory come first; otherwise their bytes might arrive last.
        let context = issue.queue.context();
        let addresses = read.host.addresses();
        let gate = HostRanges::of_process().gate_of_sent(&addresses, context)?;
        let writing = HostWrite::new(addresses);
        // Entered behind the command's own transfers: they may come from the same memory, and must not wait for this read.
        let begin = writing.beginning();
        // Dropped only when the bytes are in place: then other commands may read or overwrite them.
        issue.event.finish_first(move |_, _| drop(writing));
        let HostTransfer { buffer, region, .. } = &read;
        let root = buffer.in_root(region)?;
        let span = Span::enclosing(&root);
        let own = index(issue.site());
        let gather = if region.is_linear() && root.is_linear() && read.host.is_linear() {
            let (coherence, is_done) = (&self.coherence, self.is_done());
            let gather = coherence.gather(buffer.root().id(), span, own, &is_done);
            Some(gather.map_err(|lost| issue.lost(&lost))?)
        } else {
            None
        };
        let is_worth_it =
            |pieces: usize| pieces <= MOST_PIECES || span.length() / pieces as u64 >= LARGE_PIECE;
        let Some(gather) = gather.filter(|gather| is_worth_it(gather.pieces().len())) else {
            return self.at_site(issue, accesses, |sequence, wait| {
                let source = (issue.site(), issue.queue.id(), issue.event);
                begin(issue.event);
                sequence.read_on(source, read, gate, wait)
            });
        };
        // All bytes are at the queue's own site: an ordinary read, without markers.
        if let [piece] = gather.pieces()
            && piece.place == Place::Site(own)
        {
            let wait = self.list(issue.wait, &piece.waits, issue.site())?;
            let source = (issue.site(), issue.queue.id(), issue.event);
            begin(issue.event);
            self.read_on(source, read, gate, wait)?;
            let (coherence, is_done) = self.split();
            coherence.commit_gather(&gather, &[issue.event.id()], &is_done);
            return Ok(());
        }
        self.read_pieces(issue, read, span, gate, &gather, begin)
    }

    fn read_pieces(
        &mut self,
        issue: &Issue<'_>,
        read: HostTransfer,
        span: Span,
        gate: Option<Arc<Event>>,
        gather: &Gather,
        begin: impl FnOnce(&Arc<Event>),
    ) -> ClResult {
        let buffer = &read.buffer;
        let regions = regions(gather, span, &read.host)?;
        let at_client = gather.pieces().iter().zip(&regions);
        let at_client = at_client.filter(|(piece, _)| piece.place == Place::Client);
        let copies = at_client.map(|(_, (region, to))| {
            let to = to.part(0, to.length()).ok_or(Status::OUT_OF_RESOURCES)?;
            Ok((buffer.root().client_bytes(*region)?, to))
        });
        let copies = copies.collect::<ClResult<Vec<_>>>()?;
        let done = Event::gate(buffer.context(), false)?;
        let start = self.start_marker(issue)?;
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
                let source = (&site, self.own_queue(&site, QueuePurpose::Out)?, &event);
                let piece = HostTransfer {
                    buffer: buffer.root().clone(),
                    region,
                    host: to,
                };
                self.read_on(source, piece, gate.clone(), wait)
            });
            ids.push(event.id());
            parts.push(self.check(event, result));
        }
        if !copies.is_empty() {
            self.open(&done);
            parts.push(done.clone());
            Copier::new(copies, done).begin(start.iter().chain(&gate));
        }
        begin(issue.event);
        self.end(issue, start.as_ref(), &parts, &waits);
        let (coherence, is_done) = self.split();
        coherence.commit_gather(gather, &ids, &is_done);
        Ok(())
    }

    /// Sends transfers that bring bytes to the client, and a marker on the command's queue that follows
    /// them.
    ///
    /// # Errors
    /// Those of [`Sequence::issue`].
    pub(super) fn at_client(&mut self, issue: &Issue<'_>, accesses: &[Access]) -> ClResult {
        let plan = self.plan(issue, Place::Client, accesses)?;
        // A node knows when bytes have left it, but only the client knows when they have arrived.
        for access in accesses {
            let host = self.buffer(access.buffer)?.client_bytes(access.region)?;
            let writers = HostRanges::of_process().writers(&host.addresses());
            issue.event.comes_after(writers);
        }
        let sent = self.begin(&plan);
        issue.event.consists_of(&sent.received);
        self.end_marker(issue, None, &sent.received, plan.waits())?;
        self.commit(&plan, issue.event);
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
