//! Events in contexts of several sites: where the command runs, which parts it has, and its mirrors on
//! other sites.
//!
//! Invariant: the client sends a mirror its end in any case, even when the workers' direct message fails.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use causeway_proto::command::{CreateMirror, SetUserEventStatus, TellEvent, command::Kind};

use super::{CommandEnd, Event, Phase, Precedents, chained};
use crate::error::{ClResult, Status};
use crate::stub::memory::host_ranges::Follower;
use crate::stub::{Site, next_id, server::peer};

impl Event {
    /// Marks a withheld command as one that is about to be sent.
    pub(in crate::stub) fn go(&self) {
        self.advance(Phase::Sent);
    }

    /// Returns the site where the command runs; `None` if only the client ends the event.
    pub(in crate::stub) fn site(&self) -> Option<&Arc<Site>> {
        let of_queue = self.queue.as_ref().map(|queue| queue.site());
        of_queue.or(self.home.as_ref())
    }

    /// Runs `first` at the command's end, before the finisher that the event has already. For commands whose
    /// route is chosen only after their event was made.
    pub(in crate::stub) fn finish_first(
        &self,
        first: impl FnOnce(Status, &Bytes) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        let then = state.finisher.take();
        state.finisher = Some(chained(first, then));
    }

    /// Adds parts: internal commands that end before this command, and whose failure fails it.
    pub(in crate::stub) fn needs(&self, parts: &[Arc<Event>]) {
        if !parts.is_empty() {
            self.state.lock().parts.extend_from_slice(parts);
        }
    }

    /// Like [`Event::needs`]; in addition, the command does nothing else, so it starts when the first part
    /// starts.
    pub(in crate::stub) fn consists_of(&self, parts: &[Arc<Event>]) {
        self.needs(parts);
        self.state.lock().is_composite = true;
    }

    /// Hides the command's end until these events have ended, with success or failure.
    pub(in crate::stub) fn comes_after(&self, events: Vec<Weak<Event>>) {
        if !events.is_empty() {
            self.state.lock().precedents.earlier.extend(events);
        }
    }

    /// Drops `follower` when the command has ended, or at once if it already has.
    pub(in crate::stub) fn followed_by(&self, follower: Arc<dyn Follower>) {
        let mut state = self.state.lock();
        if !self.is_done() {
            state.followers.push(follower);
        }
    }

    /// Adds `gate`, if there is one, to the wait list of a command that is about to be sent to the site.
    ///
    /// # Errors
    /// Those of [`Event::id_on`].
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

    /// Fails a command that no node will report the end of.
    pub(in crate::stub) fn fail(self: &Arc<Self>, status: Status) {
        self.ended(CommandEnd::of(status));
        if let Some(site) = self.site() {
            // No completion wakes the waiting threads, so the session is told here.
            site.session().tell(self.id);
        }
    }

    // Notes that the completion has arrived, and returns the commands that its end must follow. Tells the
    // mirrors at once: commands of other sites need not wait for the finisher. `None` if a completion had
    // arrived before.
    pub(super) fn arrive(&self, status: Status) -> Option<Precedents> {
        let (precedents, mirrors) = {
            let mut state = self.state.lock();
            if state.arrived.replace(status).is_some() {
                return None;
            }
            self.advance(Phase::Arrived);
            (std::mem::take(&mut state.precedents), state.mirrors.clone())
        };
        if let Some(distributed) = self.context.distributed() {
            distributed.note_end(self.id, status);
        }
        for (site, mirror) in mirrors {
            tell_mirror(&site, mirror, status);
        }
        Some(precedents)
    }

    /// Returns the event's id for wait lists on `site`. Makes a mirror there when the event belongs to
    /// another site. `None` when the event has succeeded. The caller holds the lock of the context's
    /// sequence.
    ///
    /// # Errors
    /// `CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST` when the event has failed, `CL_DEVICE_NOT_AVAILABLE`
    /// when the site's session is lost.
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
        // Made without the lock, because this sends.
        let mirror = self.mirror_on(site, false)?;
        let ended = {
            let mut state = self.state.lock();
            state.mirrors.push((site.clone(), mirror));
            state.arrived
        };
        if let Some(status) = ended {
            // The thread that delivered the end could not see this mirror.
            tell_mirror(site, mirror, status);
        }
        Ok(Some(mirror))
    }

    /// Returns the id for wait lists on `site` of commands that only follow the event in order. The mirror
    /// succeeds once the event is settled, even if the event failed. `None` when the event is settled
    /// already. The caller holds the lock of the context's sequence.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the site's session is lost.
    pub(in crate::stub) fn order_on(&self, site: &Arc<Site>) -> ClResult<Option<u64>> {
        {
            let state = self.state.lock();
            if self.has_reached(Phase::Settled) {
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
            self.has_reached(Phase::Settled)
        };
        if settled {
            tell_mirror(site, mirror, Status::SUCCESS);
        }
        Ok(Some(mirror))
    }

    fn mirror_on(&self, site: &Arc<Site>, order_only: bool) -> ClResult<u64> {
        let owner = self.site();
        // The link is announced to both workers before a command names it.
        let link = owner.and_then(|owner| peer::link(owner.link(), site.link()).ok());
        let mirror = next_id();
        site.send(Kind::CreateMirror(CreateMirror {
            mirror,
            link: link.map_or(0, |link| link.0),
        }))?;
        // The direct message may fail without harm, because the client tells the mirror as well.
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
    // A lost session has already failed everything that depends on the mirror.
    let _ = site.send(Kind::SetUserEventStatus(SetUserEventStatus {
        event: mirror,
        status: status.0.min(0),
    }));
}
