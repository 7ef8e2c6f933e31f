//! The transfers of a plan: between two sites, from the client, and to the client.
//!
//! Transfers run on the sequence's internal queues, ordered by events alone. Only the commands that need
//! the bytes wait for them. Invariant: every transfer of a plan has events, even if its source is lost. The
//! events then fail, and so do the commands that need the bytes.

use std::sync::Arc;

use causeway_proto::command::{ReceiveRegion, SendRegion, enqueue::Operation};
use causeway_proto::id::QueueId;
use causeway_proto::region::Region;

use super::sequence::{QueuePurpose, Sequence};
use crate::coherence::{Place, Plan, SiteIndex, Transfer, TransferEvents};
use crate::error::ClResult;
use crate::shadow;
use crate::stub::event::{CommandEnd, transfer_enqueued};
use crate::stub::memory::host_ranges::{HostRanges, HostWrite};
use crate::stub::memory::transfer::land;
use crate::stub::queue::command::HostTransfer;
use crate::stub::queue::encoded::Encoded;
use crate::stub::{Buffer, Event, Hold, Site, server::peer};
use crate::trace;
use crate::transport::HostRegion;

/// The events of a plan's transfers, in the order of the plan.
pub(super) struct Sent {
    /// For the directories.
    pub(super) events: Vec<TransferEvents>,
    /// For the commands that need the bytes.
    pub(super) received: Vec<Arc<Event>>,
}

impl Sequence {
    /// Sends the transfers of a plan. The caller must commit them in any case ([`Sequence::begin`]).
    pub(super) fn send_transfers(&mut self, plan: &Plan) -> Sent {
        let mut sent = Sent {
            events: Vec::with_capacity(plan.transfers().len()),
            received: Vec::with_capacity(plan.transfers().len()),
        };
        for transfer in plan.transfers() {
            let (events, received) = self.send_transfer(transfer);
            sent.events.push(events);
            sent.received.push(received);
        }
        sent
    }

    fn send_transfer(&mut self, transfer: &Transfer) -> (TransferEvents, Arc<Event>) {
        match (transfer.source, transfer.destination) {
            (Place::Site(source), Place::Site(destination)) => {
                let (from, to) = (self.site(source), self.site(destination));
                self.between(transfer, &from, &to)
            }
            (Place::Client, Place::Site(destination)) => {
                let to = self.site(destination);
                let event = self.part(&to, transfer);
                let result = self.upload(transfer, &to, &event);
                (TransferEvents::one(event.id()), self.check(event, result))
            }
            (source, Place::Client) => {
                // No plan has a transfer from the client to the client; the client case only completes the
                // match.
                let from = match source {
                    Place::Site(source) => self.site(source),
                    Place::Client => self.sites[0].clone(),
                };
                let event = self.part(&from, transfer);
                let result = self.download(transfer, &from, &event);
                (TransferEvents::one(event.id()), self.check(event, result))
            }
        }
    }

    /// Returns the site at an index of the directories.
    pub(super) fn site(&self, index: SiteIndex) -> Arc<Site> {
        self.sites[usize::from(index.0)].clone()
    }

    // The event of an internal command on the site that moves the transfer's bytes.
    fn part(&self, site: &Arc<Site>, transfer: &Transfer) -> Arc<Event> {
        let hold = self.buffer(transfer.buffer).into_iter().collect::<Hold>();
        let context = hold.first().map(|buffer| buffer.context().clone());
        let context = context.expect("the command that needs the bytes keeps the buffer alive");
        Event::of_part(&context, site, hold)
    }

    /// Fails the event if its command could not be sent. The event is opened first, so that the directories
    /// learn of the failure before the end is visible.
    pub(super) fn check(&mut self, event: Arc<Event>, result: ClResult) -> Arc<Event> {
        if let Err(status) = result {
            self.open(&event);
            event.ended(CommandEnd::of(status));
        }
        event
    }

    fn between(
        &mut self,
        transfer: &Transfer,
        from: &Arc<Site>,
        to: &Arc<Site>,
    ) -> (TransferEvents, Arc<Event>) {
        let sent = self.part(from, transfer);
        let received = self.part(to, transfer);
        let result = self.send_both(transfer, (from, &sent), (to, &received));
        let events = TransferEvents {
            sent: sent.id(),
            received: received.id(),
        };
        if let Err(status) = result {
            // An event that is open belongs to a command that was sent; a completion will end it.
            for event in [&sent, &received] {
                if !self.is_open(event) {
                    let _ = self.check(event.clone(), Err(status));
                }
            }
        }
        (events, received)
    }

    fn send_both(
        &mut self,
        transfer: &Transfer,
        (from, sent): (&Arc<Site>, &Arc<Event>),
        (to, received): (&Arc<Site>, &Arc<Event>),
    ) -> ClResult {
        let buffer = self.buffer(transfer.buffer)?;
        let link = peer::link(from.link(), to.link())?;
        let bytes = transfer.region.packed_length();
        if trace::is_on() {
            let name = |site: &Site| site.session().location().name.clone();
            let from_node = format!("from {}", name(from));
            transfer_enqueued(received, to, from_node.into(), bytes);
            transfer_enqueued(sent, from, format!("to {}", name(to)).into(), bytes);
        }
        let region = Some(transfer.region.to_wire());
        let to_wait = self.list([], &transfer.destination_waits, to)?;
        let from_wait = self.list([], &transfer.source_waits, from)?;
        // A transfer that waits for other commands says nothing about the link.
        if to_wait.is_empty() && from_wait.is_empty() {
            peer::learn(received, link, from.link(), to.link(), bytes);
        }
        let receive = Operation::ReceiveRegion(ReceiveRegion {
            buffer: buffer.id_on(to)?.0,
            region,
            link: link.0,
        });
        let queue = self.own_queue(to, QueuePurpose::In)?;
        self.begin_transfer(received, link, from, to, bytes);
        self.enqueue(to, queue, received, to_wait, &Encoded::of(&receive))?;
        let send = Operation::SendRegion(SendRegion {
            buffer: buffer.id_on(from)?.0,
            region,
            transfer: received.id().0,
            link: link.0,
        });
        let queue = self.own_queue(from, QueuePurpose::Out)?;
        self.enqueue(from, queue, sent, from_wait, &Encoded::of(&send))
    }

    // Sends bytes of the client's copy to a site.
    fn upload(&mut self, transfer: &Transfer, to: &Arc<Site>, event: &Arc<Event>) -> ClResult {
        if trace::is_on() {
            let bytes = transfer.region.packed_length();
            transfer_enqueued(event, to, "from the client's copy".into(), bytes);
        }
        let buffer = self.buffer(transfer.buffer)?;
        let wait = self.list([], transfer.waits(), to)?;
        let host = buffer.client_bytes(transfer.region)?;
        // Bytes that a read or map is still bringing to the client's copy must arrive first.
        let gate = HostRanges::of_process().gate_of_sent(&host.addresses(), buffer.context())?;
        let target = (to, self.own_queue(to, QueuePurpose::In)?, event);
        let write = HostTransfer {
            buffer,
            region: transfer.region,
            host,
        };
        self.write_on(target, write, gate, wait)
    }

    // Brings bytes from a site to the client's copy.
    fn download(&mut self, transfer: &Transfer, from: &Arc<Site>, event: &Arc<Event>) -> ClResult {
        if trace::is_on() {
            let bytes = transfer.region.packed_length();
            transfer_enqueued(event, from, "to the client's copy".into(), bytes);
        }
        let buffer = self.buffer(transfer.buffer)?;
        let wait = self.list([], transfer.waits(), from)?;
        let host = buffer.client_bytes(transfer.region)?;
        // Bytes that are still arriving in the same range would overwrite the new ones.
        let gate = HostRanges::of_process().gate_of_sent(&host.addresses(), buffer.context())?;
        let writing = HostWrite::new(host.addresses());
        writing.beginning()(event);
        let source = (from, self.own_queue(from, QueuePurpose::Out)?, event);
        event.finish_first(move |_, _| drop(writing));
        let read = HostTransfer {
            buffer,
            region: transfer.region,
            host,
        };
        self.read_on(source, read, gate, wait)
    }

    /// Sends a read of bytes that are all at one site. The bytes leave the site when `gate`, if there is
    /// one, is open. They are in place before the event's finisher runs.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost.
    pub(super) fn read_on(
        &mut self,
        (site, queue, event): (&Arc<Site>, QueueId, &Arc<Event>),
        read: HostTransfer,
        gate: Option<Arc<Event>>,
        mut wait: Vec<u64>,
    ) -> ClResult {
        let inline = read.inline_on(site);
        let HostTransfer {
            buffer,
            region,
            host,
        } = read;
        event.waits_at(gate, site, &mut wait)?;
        let operation = Encoded::read(buffer.id_on(site)?, &region, inline.is_none());
        match inline {
            None => site.session().download(event.id(), host)?,
            Some(inline) => event.finish_first(move |status, contents| {
                land(&host, status, contents);
                drop(inline);
            }),
        }
        self.enqueue(site, queue, event, wait, &operation)
    }

    /// Sends a write to a site. Host memory is read when `gate`, if there is one, is open.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost.
    pub(super) fn write_on(
        &mut self,
        (site, queue, event): (&Arc<Site>, QueueId, &Arc<Event>),
        write: HostTransfer,
        gate: Option<Arc<Event>>,
        mut wait: Vec<u64>,
    ) -> ClResult {
        let is_small = write.is_small();
        let HostTransfer {
            buffer,
            region,
            host,
        } = write;
        let free = gate.is_none();
        event.waits_at(gate, site, &mut wait)?;
        let id = buffer.id_on(site)?;
        if free && is_small {
            let operation = Encoded::write(id, &region, |out| host.append_to(out));
            return self.enqueue(site, queue, event, wait, &operation);
        }
        let session = site.session();
        let grant = free.then(|| session.eager_grant(region.packed_length()));
        let grant = grant.flatten();
        let operation = Encoded::bulk_write(id, &region, grant.is_some());
        session.upload(event.id(), host, buffer, grant)?;
        self.enqueue(site, queue, event, wait, &operation)
    }
}

impl Buffer {
    /// Returns the client's copy of a region of a whole object.
    ///
    /// # Errors
    /// `CL_OUT_OF_HOST_MEMORY` when the client has no address space for the copy.
    pub(in crate::stub) fn client_bytes(self: &Arc<Self>, region: Region) -> ClResult<HostRegion> {
        Ok(shadow::view(self.client_base()?, region, self.host_rows()))
    }
}
