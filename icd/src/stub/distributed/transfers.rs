//! The transfers that a plan asks for: between two sites, from the client, to the client.
//!
//! They run on queues of the sequence's own, ordered by events alone. Nobody waits for them but the commands
//! that need them. Invariant: for every transfer of a plan there are events, also when its source is gone:
//! then they fail, and so does what needs the bytes.

use std::sync::Arc;

use causeway_proto::command::{
    ReadBuffer, ReceiveRegion, SendRegion, WriteBuffer, enqueue::Operation,
};
use causeway_proto::id::QueueId;
use causeway_proto::limits::INLINE_PAYLOAD;
use causeway_proto::region::Region;

use super::sequence::{Sequence, Way};
use crate::coherence::{Place, Plan, SiteIndex, Transfer, TransferEvents};
use crate::error::ClResult;
use crate::shadow;
use crate::stub::event::{End, Finisher};
use crate::stub::host_ranges::{HostRanges, HostWrite};
use crate::stub::transfer::land;
use crate::stub::{Buffer, Event, Hold, Site, peer};
use crate::transport::HostRegion;

/// The events of a plan's transfers, in their order.
pub(super) struct Sent {
    /// For the directories.
    pub(super) events: Vec<TransferEvents>,
    /// For whoever needs the bytes.
    pub(super) received: Vec<Arc<Event>>,
}

impl Sequence {
    /// Sends what a plan asks for. To be committed in any case ([`Sequence::begin`]).
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
                // From the client to itself nothing is ever planned.
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

    /// The site at a place of the directories.
    pub(super) fn site(&self, index: SiteIndex) -> Arc<Site> {
        self.sites[usize::from(index.0)].clone()
    }

    // The event of a command of its own that moves these bytes on the site.
    fn part(&self, site: &Arc<Site>, transfer: &Transfer) -> Arc<Event> {
        let hold = self.buffer(transfer.buffer).into_iter().collect::<Hold>();
        let context = hold.first().map(|buffer| buffer.context().clone());
        let context = context.expect("the command that needs the bytes holds the buffer");
        Event::of_part(&context, site, hold)
    }

    /// What could not be sent has failed; the failure is known before the event is seen to have ended.
    pub(super) fn check(&mut self, event: Arc<Event>, result: ClResult) -> Arc<Event> {
        if let Err(status) = result {
            self.open(&event);
            event.ended(End::of(status));
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
        let link = peer::link(from.link(), to.link())?.0;
        let bytes = transfer.region.packed_length();
        let region = Some(transfer.region.to_wire());
        let wait = self.list([], &transfer.destination_waits, to)?;
        let receive = Operation::ReceiveRegion(ReceiveRegion {
            buffer: buffer.id_on(to)?.0,
            region,
            link,
        });
        let queue = self.own_queue(to, Way::In)?;
        self.begin_transfer(received, from, to, bytes);
        self.enqueue(to, queue, received, wait, receive)?;
        let wait = self.list([], &transfer.source_waits, from)?;
        let send = Operation::SendRegion(SendRegion {
            buffer: buffer.id_on(from)?.0,
            region,
            transfer: received.id().0,
            link,
        });
        let queue = self.own_queue(from, Way::Out)?;
        self.enqueue(from, queue, sent, wait, send)
    }

    // From the client's copy.
    fn upload(&mut self, transfer: &Transfer, to: &Arc<Site>, event: &Arc<Event>) -> ClResult {
        let buffer = self.buffer(transfer.buffer)?;
        let wait = self.list([], transfer.waits(), to)?;
        let host = buffer.client_bytes(transfer.region)?;
        // Bytes that a read or map is still bringing must be there first.
        let gate = HostRanges::of_process().gate_of_sent(&host.addresses(), buffer.context())?;
        let target = (to, self.own_queue(to, Way::In)?, event);
        self.write_on(target, (&buffer, transfer.region), host, gate, wait)
    }

    // Into the client's copy.
    fn download(&mut self, transfer: &Transfer, from: &Arc<Site>, event: &Arc<Event>) -> ClResult {
        let buffer = self.buffer(transfer.buffer)?;
        let wait = self.list([], transfer.waits(), from)?;
        let host = buffer.client_bytes(transfer.region)?;
        // Bytes that are still on their way there would land on these.
        let gate = HostRanges::of_process().gate_of_sent(&host.addresses(), buffer.context())?;
        let writing = HostWrite::new(host.addresses());
        writing.beginning()(event);
        let source = (from, self.own_queue(from, Way::Out)?, event);
        let after = Box::new(move |_, _: &_| drop(writing));
        self.read_on(
            source,
            (&buffer, transfer.region),
            (host, gate),
            after,
            wait,
        )
    }

    /// Sends a read of bytes that are all at one site, which leave it when the gate, if there is one, is open;
    /// `after` runs when they are in their place.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost.
    pub(super) fn read_on(
        &mut self,
        (site, queue, event): (&Arc<Site>, QueueId, &Arc<Event>),
        (buffer, region): (&Arc<Buffer>, Region),
        (host, gate): (HostRegion, Option<Arc<Event>>),
        after: Finisher,
        mut wait: Vec<u64>,
    ) -> ClResult {
        event.waits_at(gate, site, &mut wait)?;
        let few = region.packed_length() <= INLINE_PAYLOAD as u64;
        let operation = Operation::ReadBuffer(ReadBuffer {
            buffer: buffer.id_on(site)?.0,
            region: Some(region.to_wire()),
            bulk: !few,
        });
        let (inline, bulk) = if few {
            (Some(host), None)
        } else {
            (None, Some(host))
        };
        event.set_finisher(Box::new(move |status, contents| {
            land(inline.as_ref(), status, contents);
            after(status, contents);
        }));
        if let Some(host) = bulk {
            site.session().download(event.id(), host)?;
        }
        self.enqueue(site, queue, event, wait, operation)
    }

    /// Sends a write to a site, whose bytes are taken when the gate, if there is one, is open.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost.
    pub(super) fn write_on(
        &mut self,
        (site, queue, event): (&Arc<Site>, QueueId, &Arc<Event>),
        (buffer, region): (&Arc<Buffer>, Region),
        host: HostRegion,
        gate: Option<Arc<Event>>,
        mut wait: Vec<u64>,
    ) -> ClResult {
        let free = gate.is_none();
        let few = region.packed_length() <= INLINE_PAYLOAD as u64 && free;
        let grant = if free && !few {
            site.session().eager_grant(region.packed_length())
        } else {
            None
        };
        event.waits_at(gate, site, &mut wait)?;
        let (contents, bulk) = if few {
            (host.copy_out(), None)
        } else {
            (Vec::new(), Some(host))
        };
        let operation = Operation::WriteBuffer(WriteBuffer {
            buffer: buffer.id_on(site)?.0,
            region: Some(region.to_wire()),
            contents: contents.into(),
            bulk: !few,
            eager: grant.is_some(),
        });
        if let Some(host) = bulk {
            site.session()
                .upload(event.id(), host, buffer.clone(), grant)?;
        }
        self.enqueue(site, queue, event, wait, operation)
    }
}

impl Buffer {
    /// Where the client keeps its copy of these bytes of a whole object.
    ///
    /// # Errors
    /// `CL_OUT_OF_HOST_MEMORY` without address space.
    pub(in crate::stub) fn client_bytes(self: &Arc<Self>, region: Region) -> ClResult<HostRegion> {
        Ok(shadow::view(self.client_base()?, region, self.host_rows()))
    }
}
