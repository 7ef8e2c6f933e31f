//! The one order of a context's commands, and how they are sent.
//!
//! Invariant: an event that the directories know stays *open* here until the report of its end is applied.
//! A failure is passed to the directories before that.

use std::sync::{Arc, Weak};

use causeway_proto::command::{
    CreateMirror, CreateQueue, ObjectKind, SetUserEventStatus, command::Kind,
};
use causeway_proto::id::{EventId, LinkId, MemoryId, QueueId};
use causeway_proto::limits::MAX_LIST;
use cl_headers::types::{
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::own_queues::{self, Loads, Pool};
use crate::coherence::{Coherence, Contents, Failure, Needs, SiteIndex, Wait};
use crate::error::{ClResult, Status};
use crate::stub::queue::encoded::{Encoded, EncodedEnqueue};
use crate::stub::{Buffer, Event, Hold, Site, next_id, server::peer};

/// The sequence of one context; see the module.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) coherence: Coherence,
    pub(super) sites: Vec<Arc<Site>>,
    buffers: FxHashMap<MemoryId, Weak<Buffer>>,
    open: FxHashMap<EventId, Weak<Event>>,
    // The open events that are transfers between two sites.
    between: FxHashSet<EventId>,
    own: Vec<SiteQueues>,
    loads: Loads,
    // Events whose ids were put into a list that may not be sent yet. They are kept alive until then.
    named: Vec<Arc<Event>>,
    // Whether the command being sent may be asked for profiling times; then its parts must record them.
    pub(super) profiling: bool,
    // The change count of all links at the time when the coherence last got the routes.
    routes_of: Option<u64>,
}

/// The sequence's internal objects on a site.
#[derive(Debug, Default)]
struct SiteQueues {
    // Indexed by way, then by whether the queue records times.
    queues: [[Pool; 2]; 2],
    // An event that has succeeded, for wait lists that must not be empty.
    done: Option<u64>,
    is_lost: bool,
}

/// The purpose of an internal queue. Separate queues let both directions run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePurpose {
    /// Bytes to the site, and commands that run there for another site.
    In,
    /// Bytes from the site.
    Out,
}

impl Sequence {
    /// Makes the sequence for a context of these sites.
    pub(super) fn new(sites: &[Arc<Site>]) -> Sequence {
        Sequence {
            coherence: Coherence::new(),
            sites: sites.to_vec(),
            buffers: FxHashMap::default(),
            open: FxHashMap::default(),
            between: FxHashSet::default(),
            own: sites.iter().map(|_| SiteQueues::default()).collect(),
            loads: Loads::default(),
            named: Vec::new(),
            profiling: false,
            routes_of: None,
        }
    }

    // ---- state -------------------------------------------------------------------

    /// Adds a new whole buffer.
    pub(super) fn add(&mut self, buffer: &Arc<Buffer>, contents: Contents) {
        self.coherence
            .add_buffer(buffer.id(), buffer.size(), contents);
        self.buffers.insert(buffer.id(), Arc::downgrade(buffer));
    }

    /// Removes a whole buffer that was destroyed.
    pub(super) fn forget(&mut self, buffer: MemoryId) {
        self.coherence.remove_buffer(buffer);
        self.buffers.remove(&buffer);
    }

    /// Returns a whole buffer that a plan names. The command keeps it alive.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` if the buffer no longer exists.
    pub(super) fn buffer(&self, id: MemoryId) -> ClResult<Arc<Buffer>> {
        let found = self.buffers.get(&id).and_then(Weak::upgrade);
        found.ok_or(Status::OUT_OF_RESOURCES)
    }

    /// Applies the end of an event.
    pub(super) fn ended(&mut self, event: EventId, status: Status) {
        if self.open.contains_key(&event) {
            if status.is_error() {
                // A command whose wait list failed has not run, so it has changed no bytes.
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
            // Removed last: the event must still be open while the directories handle its failure.
            self.open.remove(&event);
            self.loads.end(event);
            if self.between.remove(&event) {
                peer::end_transfer(event);
            }
        }
    }

    /// Records a transfer over `link` between two sites that is about to be sent. `received` is the event at the
    /// destination.
    pub(super) fn begin_transfer(
        &mut self,
        received: &Arc<Event>,
        link: LinkId,
        from: &Arc<Site>,
        to: &Arc<Site>,
        bytes: u64,
    ) {
        peer::begin_transfer(received.id(), link, from.link(), to.link(), bytes);
        self.between.insert(received.id());
    }

    /// Checks which sites have been lost, and updates the directories.
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

    /// Whether the sequence knows that the site is lost.
    pub(super) fn is_lost(&self, site: &Site) -> bool {
        self.own[site.index()].is_lost
    }

    /// Records the failure of an event that is still open.
    fn failed(&mut self, event: EventId, failure: Failure) {
        let (coherence, is_done) = self.split();
        coherence.failed(event, failure, &is_done);
    }

    /// Updates the coherence with the current routes between sites, if any link has changed.
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

    /// Returns a function that tells whether an event has ended.
    pub(super) fn is_done(&self) -> impl Fn(EventId) -> bool + '_ {
        |event| !self.open.contains_key(&event)
    }

    /// Whether the event was sent and its end is not known yet.
    pub(super) fn is_open(&self, event: &Event) -> bool {
        self.open.contains_key(&event.id())
    }

    /// Records an event that the directories will know.
    pub(super) fn open(&mut self, event: &Arc<Event>) {
        self.open.insert(event.id(), Arc::downgrade(event));
    }

    /// Returns the directories, and separately the function of [`Sequence::is_done`]; both borrow different
    /// fields.
    pub(super) fn split(&mut self) -> (&mut Coherence, impl Fn(EventId) -> bool + '_) {
        let Sequence {
            coherence, open, ..
        } = self;
        (coherence, |event| !open.contains_key(&event))
    }

    // ---- wait lists --------------------------------------------------------------

    /// Returns a wait list for `site`, with the ids of `events` and of the events in `waits`. Events that
    /// have succeeded are left out. The latter events are kept alive until [`Sequence::forget_named`]: if
    /// they ended and were dropped earlier, their release would be sent before the list that names them.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when one has failed, `CL_DEVICE_NOT_AVAILABLE` when
    /// the site is lost.
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
        // An event may be both in the application's list and in the plan.
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Drops the events kept by [`Sequence::list`]: all lists that name them have been sent.
    pub(super) fn forget_named(&mut self) {
        self.named.clear();
    }

    /// Adds an event that has succeeded to an empty list. For a marker, an empty list would mean everything
    /// before it.
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

    // ---- sending -----------------------------------------------------------------

    /// Returns the least loaded internal queue on a site. The queue records times if the command being sent
    /// needs them.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost.
    pub(super) fn own_queue(&mut self, site: &Arc<Site>, way: QueuePurpose) -> ClResult<QueueId> {
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
            traced: false,
        }))?;
        pool.add(queue, !is_out_of_order, &mut self.loads);
        Ok(queue)
    }

    /// Sends a command with its event.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site is lost; the command was not sent then.
    pub(super) fn enqueue(
        &mut self,
        site: &Arc<Site>,
        queue: QueueId,
        event: &Arc<Event>,
        wait: Vec<u64>,
        operation: &Encoded,
    ) -> ClResult {
        let wait = self.fold(site, event, wait)?;
        self.open(event);
        let link = site.link();
        // Registered before the send: the completion may arrive before `send` returns.
        link.expect(event.clone(), None);
        let message = EncodedEnqueue {
            event: event.id(),
            queue,
            wait: &wait,
            unobserved: false,
            operation,
        };
        if let Err(error) = site.session().send(&message) {
            let status = Status::from(error);
            link.forget(event.id());
            link.session().withdraw(event.id());
            self.ended(event.id(), status);
            return Err(status);
        }
        self.loads.begin(event.id(), queue);
        event.submitted();
        Ok(())
    }

    // Replaces a list that is too long for one command by markers, each of which waits for a part of it.
    // The list includes the waits of the plan.
    fn fold(&mut self, site: &Arc<Site>, event: &Arc<Event>, wait: Vec<u64>) -> ClResult<Vec<u64>> {
        if wait.len() <= MAX_LIST {
            return Ok(wait);
        }
        let queue = self.own_queue(site, QueuePurpose::In)?;
        let mut markers = Vec::new();
        for part in wait.chunks(MAX_LIST) {
            let marker = Event::of_part(event.context(), site, Hold::new());
            self.enqueue(site, queue, &marker, part.to_vec(), &Encoded::marker())?;
            markers.push(marker.id().0);
            self.named.push(marker);
        }
        Ok(markers)
    }

    /// Releases the queues and events that the sequence made.
    pub(super) fn close(self) {
        // These transfers have ended, because their events kept the context alive. Nobody has applied their
        // ends yet.
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

/// Returns the site's index in the directories.
pub(super) fn index(site: &Site) -> SiteIndex {
    // No truncation: a context has at most as many devices as a list on the wire may have entries (2^16).
    SiteIndex(site.index() as u16)
}
