//! The one order of a context's commands, and how they are put on the wire.
//!
//! Invariant: an event whose id the directories know is *open* here until the news of its end were taken in,
//! and a failure is told to them before that.

use std::sync::{Arc, Weak};

use causeway_proto::command::{
    CreateMirror, CreateQueue, Enqueue, Marker, ObjectKind, SetUserEventStatus, command::Kind,
    enqueue::Operation,
};
use causeway_proto::id::{EventId, MemoryId, QueueId};
use causeway_proto::limits::MAX_LIST;
use cl_headers::types::{
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::own_queues::{self, Loads, Pool};
use crate::coherence::{Coherence, Contents, Failure, Needs, SiteIndex, Wait};
use crate::error::{ClResult, Status};
use crate::stub::{Buffer, Event, Hold, Site, next_id, peer};

/// See the module.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) coherence: Coherence,
    pub(super) sites: Vec<Arc<Site>>,
    buffers: FxHashMap<MemoryId, Weak<Buffer>>,
    open: FxHashMap<EventId, Weak<Event>>,
    // Those of them that are transfers between two sites.
    between: FxHashSet<EventId>,
    own: Vec<Own>,
    loads: Loads,
    // Events whose names were given out for a list that may not be on the wire yet.
    named: Vec<Arc<Event>>,
    // Whether somebody may ask when the command that is being sent has run: then its parts must tell.
    pub(super) profiling: bool,
    // The state of all links of which the coherence knows the routes.
    routes_of: Option<u64>,
}

/// What the sequence has of its own on a site.
#[derive(Debug, Default)]
struct Own {
    // For each way, without times and with.
    queues: [[Pool; 2]; 2],
    // An event that is complete, for lists that must not be empty.
    done: Option<u64>,
    is_lost: bool,
}

/// For what its own queues on a site are: both directions run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the site, and work that runs there for another.
    In,
    /// From the site.
    Out,
}

impl Sequence {
    /// Of a context of these sites.
    pub(super) fn new(sites: &[Arc<Site>]) -> Sequence {
        Sequence {
            coherence: Coherence::new(),
            sites: sites.to_vec(),
            buffers: FxHashMap::default(),
            open: FxHashMap::default(),
            between: FxHashSet::default(),
            own: sites.iter().map(|_| Own::default()).collect(),
            loads: Loads::default(),
            named: Vec::new(),
            profiling: false,
            routes_of: None,
        }
    }

    // ---- what is known -----------------------------------------------------------

    /// A new whole buffer.
    pub(super) fn add(&mut self, buffer: &Arc<Buffer>, contents: Contents) {
        self.coherence
            .add_buffer(buffer.id(), buffer.size(), contents);
        self.buffers.insert(buffer.id(), Arc::downgrade(buffer));
    }

    /// A whole buffer is gone.
    pub(super) fn forget(&mut self, buffer: MemoryId) {
        self.coherence.remove_buffer(buffer);
        self.buffers.remove(&buffer);
    }

    /// A whole buffer that a plan names: of a command that holds it.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` should it be gone.
    pub(super) fn buffer(&self, id: MemoryId) -> ClResult<Arc<Buffer>> {
        let found = self.buffers.get(&id).and_then(Weak::upgrade);
        found.ok_or(Status::OUT_OF_RESOURCES)
    }

    /// An event has ended.
    pub(super) fn ended(&mut self, event: EventId, status: Status) {
        if self.open.contains_key(&event) {
            if status.is_error() {
                // What waited in vain has touched nothing.
                let cancelled = status == Status::WAIT_LIST_FAILED;
                let failure = if cancelled {
                    Failure::Cancelled
                } else {
                    Failure::Broken
                };
                self.failed(event, failure);
            } else {
                self.coherence.succeeded(event);
            }
            self.open.remove(&event);
            self.loads.end(event);
            if self.between.remove(&event) {
                peer::end_transfer(event);
            }
        }
    }

    /// A transfer between two sites is about to be sent; `received` is the event at its destination.
    pub(super) fn begin_transfer(
        &mut self,
        received: &Arc<Event>,
        from: &Arc<Site>,
        to: &Arc<Site>,
        bytes: u64,
    ) {
        peer::begin_transfer(received.id(), from.link(), to.link(), bytes);
        self.between.insert(received.id());
    }

    /// Takes in which sites have been lost.
    pub(super) fn look_for_losses(&mut self) {
        let Sequence {
            coherence,
            open,
            sites,
            own,
            ..
        } = self;
        let is_done = |event| !open.contains_key(&event);
        for (site, own) in sites.iter().zip(own) {
            if !own.is_lost && site.session().is_lost().is_some() {
                own.is_lost = true;
                coherence.site_lost(index(site), &is_done);
            }
        }
    }

    /// Whether a site is known to be lost.
    pub(super) fn is_lost(&self, site: &Site) -> bool {
        self.own[site.index()].is_lost
    }

    /// An event has failed, and is still open.
    fn failed(&mut self, event: EventId, failure: Failure) {
        let (coherence, is_done) = self.split();
        coherence.failed(event, failure, &is_done);
    }

    /// How two sites reach each other now.
    pub(super) fn look_at_routes(&mut self) {
        let changes = peer::changes();
        if self.routes_of.replace(changes) == Some(changes) {
            return;
        }
        for (at, one) in self.sites.iter().enumerate() {
            for other in &self.sites[at + 1..] {
                let route = peer::route(one.link(), other.link());
                self.coherence.set_route(index(one), index(other), route);
            }
        }
    }

    /// Whether an event that a plan may name has ended.
    pub(super) fn is_done(&self) -> impl Fn(EventId) -> bool + '_ {
        |event| !self.open.contains_key(&event)
    }

    /// Whether it has been sent and its end is not known yet.
    pub(super) fn is_open(&self, event: &Event) -> bool {
        self.open.contains_key(&event.id())
    }

    /// The directories will know this event.
    pub(super) fn open(&mut self, event: &Arc<Event>) {
        self.open.insert(event.id(), Arc::downgrade(event));
    }

    /// The open events, as `is_done` asks for them, beside the directories.
    pub(super) fn split(&mut self) -> (&mut Coherence, impl Fn(EventId) -> bool + '_) {
        let Sequence {
            coherence, open, ..
        } = self;
        (coherence, |event| !open.contains_key(&event))
    }

    // ---- wait lists --------------------------------------------------------------

    /// A wait list on a site: what these events are called there, and those of a plan's waits; what has ended
    /// well is left out. The latter stay until [`Sequence::forget_named`]: one that ends meanwhile would else be
    /// released on the wire before the list that names it.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when one has failed, `CL_DEVICE_NOT_AVAILABLE` when the
    /// site is lost.
    pub(super) fn list<'a>(
        &mut self,
        events: impl IntoIterator<Item = &'a Arc<Event>>,
        waits: impl IntoIterator<Item = &'a Wait>,
        site: &Arc<Site>,
    ) -> ClResult<Vec<u64>> {
        let mut names = Vec::new();
        for event in events {
            names.extend(event.id_on(site)?);
        }
        for wait in waits {
            let Some(event) = self.open.get(&wait.event).and_then(Weak::upgrade) else {
                continue;
            };
            let name = match wait.needs {
                Needs::Success => event.id_on(site)?,
                Needs::End => event.order_on(site)?,
            };
            names.extend(name);
            self.named.push(event);
        }
        // Some may be the application's own.
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// All lists whose names were asked for are on the wire.
    pub(super) fn forget_named(&mut self) {
        self.named.clear();
    }

    /// A list that is not empty, by an event that is complete: to a marker an empty one means everything before
    /// it.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost.
    pub(super) fn not_empty(&mut self, mut list: Vec<u64>, site: &Arc<Site>) -> ClResult<Vec<u64>> {
        if list.is_empty() {
            list.push(self.done_on(site)?);
        }
        Ok(list)
    }

    fn done_on(&mut self, site: &Arc<Site>) -> ClResult<u64> {
        let own = &mut self.own[site.index()];
        if let Some(done) = own.done {
            return Ok(done);
        }
        let done = next_id();
        site.send(Kind::CreateMirror(CreateMirror {
            mirror: done,
            link: 0,
        }))?;
        site.send(Kind::SetUserEventStatus(SetUserEventStatus {
            event: done,
            status: 0,
        }))?;
        own.done = Some(done);
        Ok(done)
    }

    // ---- the wire ----------------------------------------------------------------

    /// One of its own queues on a site, where least is before the next command; with times where the command
    /// that is being sent shall have them.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost.
    pub(super) fn own_queue(&mut self, site: &Arc<Site>, way: Way) -> ClResult<QueueId> {
        let profiling = self.profiling;
        let pool = &mut self.own[site.index()].queues[way as usize][usize::from(profiling)];
        if let Some(queue) = pool.choose(&self.loads) {
            return Ok(queue);
        }
        let (device, is_out_of_order) = own_queues::device(site);
        let mut properties = 0;
        if is_out_of_order {
            properties |= CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        }
        if profiling {
            properties |= CL_QUEUE_PROFILING_ENABLE;
        }
        let queue = QueueId(next_id());
        site.send(Kind::CreateQueue(CreateQueue {
            queue: queue.0,
            context: site.context().0,
            device: device.index().0,
            properties: vec![u64::from(CL_QUEUE_PROPERTIES), properties],
        }))?;
        pool.add(queue, !is_out_of_order, &mut self.loads);
        Ok(queue)
    }

    /// Sends a command that its event stands for.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost; then it was not sent.
    pub(super) fn enqueue(
        &mut self,
        site: &Arc<Site>,
        queue: QueueId,
        event: &Arc<Event>,
        wait: Vec<u64>,
        operation: Operation,
    ) -> ClResult {
        let wait = self.fold(site, event, wait)?;
        self.open(event);
        let link = site.link();
        link.expect(event.clone(), None);
        let kind = Kind::Enqueue(Enqueue {
            event: event.id().0,
            queue: queue.0,
            wait,
            unseen: false,
            operation: Some(operation),
        });
        if let Err(status) = site.send(kind) {
            link.forget(event.id());
            link.session().withdraw(event.id());
            self.ended(event.id(), status);
            return Err(status);
        }
        self.loads.begin(event.id(), queue);
        event.submitted();
        Ok(())
    }

    // A list longer than a command takes, what the plan adds included, is waited for by markers, which are
    // waited for in its place.
    fn fold(&mut self, site: &Arc<Site>, event: &Arc<Event>, wait: Vec<u64>) -> ClResult<Vec<u64>> {
        if wait.len() <= MAX_LIST {
            return Ok(wait);
        }
        let queue = self.own_queue(site, Way::In)?;
        let mut markers = Vec::new();
        for part in wait.chunks(MAX_LIST) {
            let marker = Event::of_part(event.context(), site, Hold::new());
            let operation = Operation::Marker(Marker {});
            self.enqueue(site, queue, &marker, part.to_vec(), operation)?;
            markers.push(marker.id().0);
            self.named.push(marker);
        }
        Ok(markers)
    }

    /// Releases what it made.
    pub(super) fn close(self) {
        // Their events held the context, so they have ended; nobody has looked since.
        for transfer in self.between {
            peer::end_transfer(transfer);
        }
        for (site, own) in self.sites.iter().zip(self.own) {
            let pools = own.queues.into_iter().flatten();
            for queue in pools.flat_map(Pool::into_queues) {
                site.release(ObjectKind::Queue, queue.0);
            }
            if let Some(done) = own.done {
                site.release(ObjectKind::Event, done);
            }
        }
    }
}

/// A site's place in the directories.
pub(super) fn index(site: &Site) -> SiteIndex {
    // A context has no more devices than a wire's list takes (2^16).
    SiteIndex(site.index() as u16)
}
