//! An event in a context of several sites: where its command is, what it is made of, and what it is called
//! where others wait for it.
//!
//! Invariant: a mirror is told of the end whatever becomes of the word that the workers give each other.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use causeway_proto::command::{CreateMirror, SetUserEventStatus, TellEvent, command::Kind};

use super::{End, Event, Finisher};
use crate::error::{ClResult, Status};
use crate::stub::host_ranges::Follower;
use crate::stub::{Site, next_id, peer};

impl Event {
    /// Says that the command is not sent yet, or that it is about to be.
    pub(in crate::stub) fn set_withheld(&self, withheld: bool) {
        self.withheld.store(withheld, Ordering::Release);
    }

    /// Where its command runs; none where only the client ends it.
    pub(in crate::stub) fn site(&self) -> Option<&Arc<Site>> {
        let of_queue = self.queue.as_ref().map(|queue| queue.site());
        of_queue.or(self.home.as_ref())
    }

    /// Runs before anybody sees the end; for a command whose way was found only after its event was made.
    pub(in crate::stub) fn set_finisher(&self, finisher: Finisher) {
        self.state.lock().finisher = Some(finisher);
    }

    /// The command needs these of our own: their ends come before its own, and a failure of one is its own.
    pub(in crate::stub) fn needs(&self, parts: &[Arc<Event>]) {
        if !parts.is_empty() {
            self.state.lock().parts.extend_from_slice(parts);
        }
    }

    /// The same, and they are all that it does: it starts with the first of them.
    pub(in crate::stub) fn consists_of(&self, parts: &[Arc<Event>]) {
        self.needs(parts);
        self.state.lock().is_composite = true;
    }

    /// The command's end is visible only after these have ended, however they do.
    pub(in crate::stub) fn comes_after(&self, events: Vec<Weak<Event>>) {
        if !events.is_empty() {
            self.state.lock().precedents.earlier.extend(events);
        }
    }

    /// Lets go of it when the command has ended: at once, if it has.
    pub(in crate::stub) fn followed_by(&self, follower: Arc<dyn Follower>) {
        let mut state = self.state.lock();
        if !self.is_done() {
            state.followers.push(follower);
        }
    }

    /// The command, about to be sent to the site with this list, also waits for the gate, if there is one, as for
    /// its wait list.
    ///
    /// # Errors
    /// As [`Event::id_on`].
    pub(in crate::stub) fn waits_at(
        &self,
        gate: Option<Arc<Event>>,
        site: &Arc<Site>,
        list: &mut Vec<u64>,
    ) -> ClResult {
        if let Some(gate) = gate {
            list.extend(gate.id_on(site)?);
            self.state.lock().wait.push(gate);
        }
        Ok(())
    }

    /// A command whose end no node will tell has failed.
    pub(in crate::stub) fn fail(self: &Arc<Self>, status: Status) {
        self.ended(End::of(status));
        if let Some(site) = self.site() {
            // No completion does it.
            site.session().tell(self.id);
        }
    }

    // The end has come: tells its mirrors, since another site's commands wait for no finisher.
    pub(super) fn arrive(&self, status: Status) {
        let Some(distributed) = self.context.distributed() else {
            return;
        };
        let mirrors = {
            let mut state = self.state.lock();
            if state.arrived.replace(status).is_some() {
                return;
            }
            state.mirrors.clone()
        };
        distributed.note_end(self.id, status);
        for (site, mirror) in mirrors {
            tell_mirror(&site, mirror, status);
        }
    }

    /// What the event is called in a wait list on the site, where a mirror is made if it is of another;
    /// none when it has ended well. Under the lock of the context's sequence.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when it has failed, `CL_DEVICE_NOT_AVAILABLE` when the
    /// site's session is lost.
    pub(in crate::stub) fn id_on(&self, site: &Arc<Site>) -> ClResult<Option<u64>> {
        let of_site = |of: &Arc<Site>| Arc::ptr_eq(of, site);
        {
            let state = self.state.lock();
            match state.arrived {
                Some(status) if status.is_error() => return Err(Status::WAIT_LIST_FAILED),
                Some(_) => return Ok(None),
                None => {}
            }
            if self.site().is_some_and(of_site) {
                return Ok(Some(self.id.0));
            }
            let known = state.mirrors.iter().find(|(of, _)| of_site(of));
            if let Some((_, mirror)) = known {
                return Ok(Some(*mirror));
            }
        }
        let mirror = self.mirror_on(site, false)?;
        let ended = {
            let mut state = self.state.lock();
            state.mirrors.push((site.clone(), mirror));
            state.arrived
        };
        if let Some(status) = ended {
            // Whoever saw that did not know of this mirror.
            tell_mirror(site, mirror, status);
        }
        Ok(Some(mirror))
    }

    /// What to name in a wait list on the site to come after the event in order only: it ends well once the
    /// event has ended, however that was, and so has all that its queue puts before it; none when that
    /// is so. Under the lock of the context's sequence.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site's session is lost.
    pub(in crate::stub) fn order_on(&self, site: &Arc<Site>) -> ClResult<Option<u64>> {
        {
            let state = self.state.lock();
            if self.settled.load(Ordering::Acquire) {
                return Ok(None);
            }
            let mut known = state.order_mirrors.iter();
            if let Some((_, mirror)) = known.find(|(of, _)| Arc::ptr_eq(of, site)) {
                return Ok(Some(*mirror));
            }
        }
        let mirror = self.mirror_on(site, true)?;
        let settled = {
            let mut state = self.state.lock();
            state.order_mirrors.push((site.clone(), mirror));
            self.settled.load(Ordering::Acquire)
        };
        if settled {
            tell_mirror(site, mirror, Status::SUCCESS);
        }
        Ok(Some(mirror))
    }

    fn mirror_on(&self, site: &Arc<Site>, order_only: bool) -> ClResult<u64> {
        let owner = self.site();
        // Told to both ends before either names it.
        let link = owner.and_then(|owner| peer::link(owner.link(), site.link()).ok());
        let mirror = next_id();
        site.send(Kind::CreateMirror(CreateMirror {
            mirror,
            link: link.map_or(0, |link| link.0),
        }))?;
        // Whatever becomes of the direct word, the client tells the mirror as well.
        if let (Some(owner), Some(link)) = (owner, link) {
            let _ = owner.send(Kind::TellEvent(TellEvent {
                event: self.id.0,
                mirror,
                link: link.0,
                order_only,
            }));
        }
        Ok(mirror)
    }
}

pub(super) fn tell_mirror(site: &Site, mirror: u64, status: Status) {
    // A lost session has failed every dependant already.
    let _ = site.send(Kind::SetUserEventStatus(SetUserEventStatus {
        event: mirror,
        status: status.0.min(0),
    }));
}
