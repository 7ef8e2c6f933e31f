//! Sends commands of contexts of one site at once: the fast path of [`Queue::enqueue`].
//!
//! Contexts of several sites plan each command first ([`distributed`](crate::stub::distributed)). How the
//! bytes of a transfer travel is decided here. Small ones travel inside of the command or of its
//! completion. Larger ones, and those that are not available yet, use the bulk connections.
//!
//! Invariants: everything from the event's making to its entry in the outbox happens under the queue's
//! lock, so the order of calls is the order on the wire. Host memory is read or written only between the
//! enqueue and the end of the command.

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::id::EventId;
use causeway_proto::region::Region;
use causeway_proto::status::WireError;
use parking_lot::MutexGuard;

use super::order::{Order, OrderClass};
use super::{Queue, wait_ids};
use crate::error::{ClResult, Status};
use crate::stub::event::{EventSpec, GatedBy, Position, chained};
use crate::stub::memory::host_ranges::{HostRanges, HostWrite};
use crate::stub::memory::transfer::land;
use crate::stub::queue::command::{Enqueue, Enqueued, HostTransfer, NodeCommand};
use crate::stub::queue::encoded::{Encoded, EncodedEnqueue};
use crate::stub::{Command, Event};
use crate::transport::HostRegion;

/// A command whose message is complete.
struct Outgoing<'a> {
    operation: &'a Encoded,
    spec: EventSpec,
    place: OrderClass,
    gated: Option<GatedBy>,
    // Whether the completion alone reports the end, and the client does nothing else then.
    is_plain: bool,
}

impl Queue {
    /// Sends a command; see [`Queue::enqueue`].
    pub(super) fn send(self: &Arc<Self>, enqueue: Enqueue) -> ClResult<Enqueued> {
        let Enqueue { command, event } = enqueue;
        let place = OrderClass::of(&command, event.wait.is_empty());
        let event = match command {
            Command::Read(read) => self.send_read(read, event)?,
            Command::StagedRead { read, to } => self.send_staged_read(read, to, event)?,
            Command::Map(map) if map.fetches => self.send_read(map.transfer, event)?,
            Command::Write(write) | Command::Unmap(write) => return self.send_write(write, event),
            Command::HostCopy { from, to } => self.send_host_copy(from, to, event)?,
            Command::Node(NodeCommand::Nothing) | Command::Map(_) => {
                self.send_nothing(event, |_| ())?
            }
            Command::Node(command) => {
                let (operation, commit) = command.encode(&self.site)?;
                let event = self.put_plain(&operation, place, event, |_| Ok(()))?;
                commit.sent();
                event
            }
        };
        Ok(Enqueued {
            event,
            taken: false,
        })
    }

    /// Sends a launch that is encoded already.
    ///
    /// # Errors
    /// Those of [`Queue::enqueue`].
    pub(in crate::stub) fn send_launch(
        self: &Arc<Self>,
        launch: &Encoded,
        spec: EventSpec,
    ) -> ClResult<Arc<Event>> {
        self.put_plain(launch, OrderClass::Ordinary, spec, |_| Ok(()))
    }

    // Sends a command that needs no bytes of host memory before its end. `prepare` gets the event before
    // anything is sent.
    fn put_plain(
        self: &Arc<Self>,
        operation: &Encoded,
        place: OrderClass,
        mut spec: EventSpec,
        prepare: impl FnOnce(&Arc<Event>) -> ClResult,
    ) -> ClResult<Arc<Event>> {
        spec.wait = self.fold(spec.wait)?;
        let mut order = self.order.lock();
        let outgoing = Outgoing {
            operation,
            place,
            gated: order.gated_by(self.is_in_order(), place, &spec.wait),
            is_plain: spec.finisher.is_none(),
            spec,
        };
        self.put(order, outgoing, prepare)
    }

    fn send_nothing(
        self: &Arc<Self>,
        mut spec: EventSpec,
        prepare: impl FnOnce(&Arc<Event>),
    ) -> ClResult<Arc<Event>> {
        if !self.is_in_order() && spec.wait.is_empty() {
            // A marker without a wait list would wait for everything before it. An event that has already
            // ended avoids that.
            let done = Event::gate(&self.context, false)?;
            done.open();
            spec.wait.push(done);
        }
        self.put_plain(&Encoded::marker(), OrderClass::Ordinary, spec, |event| {
            prepare(event);
            Ok(())
        })
    }

    fn send_read(self: &Arc<Self>, read: HostTransfer, spec: EventSpec) -> ClResult<Arc<Event>> {
        self.send_announced_read(read, spec, |_| ())
    }

    // The end of the read writes further addresses. Until then, bulk reads into them wait.
    fn send_staged_read(
        self: &Arc<Self>,
        read: HostTransfer,
        to: Region,
        mut spec: EventSpec,
    ) -> ClResult<Arc<Event>> {
        let landing = HostWrite::new(to);
        let begin = landing.beginning();
        let land = spec.finisher.take();
        spec.finisher = Some(Box::new(move |status, contents| {
            if let Some(land) = land {
                land(status, contents);
            }
            drop(landing);
        }));
        self.send_announced_read(read, spec, begin)
    }

    // `announce` gets the event just before the command is sent.
    fn send_announced_read(
        self: &Arc<Self>,
        read: HostTransfer,
        mut spec: EventSpec,
        announce: impl FnOnce(&Arc<Event>),
    ) -> ClResult<Arc<Event>> {
        let inline = read.inline_on(&self.site);
        let bulk = inline.is_none();
        let HostTransfer {
            buffer,
            region,
            host,
        } = read;
        let addresses = host.addresses();
        if bulk {
            // The gate delays a bulk read until other commands have finished writing the same memory, so
            // that its bytes arrive last.
            let gate = HostRanges::of_process().gate(&addresses, self, &spec.wait)?;
            spec.wait.extend(gate);
        }
        let writing = HostWrite::new(addresses);
        let begin = writing.beginning();
        let (landing, download) = match inline {
            Some(inline) => (Some((host, inline)), None),
            None => (None, Some(host)),
        };
        let finish = move |status, contents: &Bytes| {
            if let Some((host, _inline)) = landing {
                land(&host, status, contents);
            }
            // The bytes must be in place before other commands may read or overwrite them.
            drop(writing);
        };
        spec.finisher = Some(chained(finish, spec.finisher.take()));
        let operation = Encoded::read(buffer.id_on(&self.site)?, &region, bulk);
        self.put_plain(&operation, OrderClass::Ordinary, spec, |event| {
            begin(event);
            announce(event);
            if let Some(host) = download {
                self.site.session().download(event.id(), host)?;
            }
            Ok(())
        })
    }

    // The bytes are copied at once if they are few, no user event of the application can hold the command
    // back, and no incomplete command writes that memory.
    fn send_write(
        self: &Arc<Self>,
        write: HostTransfer,
        mut spec: EventSpec,
    ) -> ClResult<Enqueued> {
        let is_small = write.is_small();
        let HostTransfer {
            buffer,
            region,
            host,
        } = write;
        let id = buffer.id_on(&self.site)?;
        let gate = HostRanges::of_process().gate(&host.addresses(), self, &spec.wait)?;
        let is_available = gate.is_none();
        spec.wait.extend(gate);
        spec.wait = self.fold(spec.wait)?;
        let session = self.site.session();
        let mut order = self.order.lock();
        let gated = order.gated_by(self.is_in_order(), OrderClass::Ordinary, &spec.wait);
        let free = is_available && gated.is_none();
        let taken = free && is_small;
        let (operation, upload) = if taken {
            let write = Encoded::write(id, &region, |out| host.append_to(out));
            (write, None)
        } else {
            // With a grant, the bytes may be sent right behind the command, without waiting for credit.
            let grant = free.then(|| session.eager_grant(region.packed_length()));
            let grant = grant.flatten();
            let write = Encoded::bulk_write(id, &region, grant.is_some());
            // The application may change this memory once a later blocking call has returned.
            spec.visible = true;
            (write, Some((host, grant)))
        };
        let outgoing = Outgoing {
            operation: &operation,
            place: OrderClass::Ordinary,
            gated,
            is_plain: taken && spec.finisher.is_none(),
            spec,
        };
        let event = self.put(order, outgoing, |event| {
            if let Some((host, grant)) = upload {
                session.upload(event.id(), host, buffer, grant)?;
            }
            Ok(())
        })?;
        Ok(Enqueued { event, taken })
    }

    fn send_host_copy(
        self: &Arc<Self>,
        from: HostRegion,
        to: HostRegion,
        mut spec: EventSpec,
    ) -> ClResult<Arc<Event>> {
        let ranges = HostRanges::of_process();
        // The copy waits for incomplete commands that still write either range.
        for addresses in [from.addresses(), to.addresses()] {
            let gate = ranges.gate(&addresses, self, &spec.wait)?;
            spec.wait.extend(gate);
        }
        // The bytes are copied when the end is handled. Until then a later read into the source waits as if the copy wrote it:
        // its bytes come by lanes, which do not wait for the ends of earlier commands.
        let announced = [&from, &to].map(|range| HostWrite::new(range.addresses()));
        let begin = announced.each_ref().map(HostWrite::beginning);
        let finish = move |status: Status, _: &Bytes| {
            if !status.is_error() && !to.copy_from(&from) {
                tracing::error!(
                    "internal error: SVM copy between ranges of different lengths; nothing was copied"
                );
            }
            drop(announced);
        };
        spec.finisher = Some(chained(finish, spec.finisher.take()));
        self.send_nothing(spec, |event| {
            begin.into_iter().for_each(|begin| begin(event))
        })
    }

    // Makes the event, tells the session to expect the completion, and appends the command to the outbox.
    // `prepare` gets the event before anything is sent.
    fn put(
        self: &Arc<Self>,
        mut order: MutexGuard<'_, Order>,
        outgoing: Outgoing<'_>,
        prepare: impl FnOnce(&Arc<Event>) -> ClResult,
    ) -> ClResult<Arc<Event>> {
        let Outgoing {
            operation,
            spec,
            place,
            gated,
            is_plain,
        } = outgoing;
        let in_order = self.is_in_order();
        let on = wait_ids(&spec.wait);
        let is_gated = gated.is_some();
        // Nobody can observe the end of such a command, so the worker may report it together with others.
        let unobserved = is_plain && in_order && !spec.visible && !is_gated && on.is_empty();
        // Counted before the send, because the command may end before `send` returns.
        if spec.visible {
            self.count_in();
        }
        let position = Position {
            gated,
            precedents: order.precedents(in_order, place),
            unobserved,
            withheld: false,
        };
        let event = if unobserved {
            order.unobserved_event(self, spec, position)
        } else {
            Event::of_command(self, spec, position)
        };
        let link = self.site.link();
        if let Err(error) = prepare(&event) {
            // Unlock first: the finisher may open gates, and so send.
            drop(order);
            event.discard();
            return Err(error);
        }
        // Registered before the send for the same reason.
        link.expect(event.clone(), unobserved.then(|| self.clone()));
        if let Err(error) = self.append(event.id(), &on, unobserved, operation) {
            // Unlock first, as above. Withdrawing a transfer may also wait for a bulk lane.
            drop(order);
            link.forget(event.id());
            link.session().withdraw(event.id());
            event.discard();
            return Err(error.into());
        }
        event.submitted();
        order.push(&event, in_order, is_gated, place);
        if unobserved {
            order.unobserved.keep(&event);
        }
        Ok(event)
    }

    fn append(
        &self,
        event: EventId,
        wait: &[u64],
        unobserved: bool,
        operation: &Encoded,
    ) -> Result<(), WireError> {
        self.site.session().send(&EncodedEnqueue {
            event,
            queue: self.id,
            wait,
            unobserved,
            operation,
        })
    }
}
