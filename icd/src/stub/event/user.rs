//! Events without a command: the application's user events, and the client's internal gates.
//!
//! Specification: "Event Objects". Not here: in contexts of several sites, `distributed/withheld.rs` holds
//! back the commands that wait for user events. Invariant: each event ends once. A worker that holds back
//! commands for it is told.

use std::sync::Arc;

use causeway_proto::command::{CreateUserEvent, SetUserEventStatus, command::Kind};
use cl_headers::types::CL_INVALID_OPERATION;

use super::{CommandEnd, Event, EventState, ending};
use crate::error::{ClResult, Status, require};
use crate::stub::Context;

impl Event {
    /// `clCreateUserEvent`: makes a user event with status `CL_SUBMITTED`.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn user(context: &Arc<Context>) -> ClResult<Arc<Event>> {
        Event::without_queue(context, true)
    }

    /// `clSetUserEventStatus`: ends the user event.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when it was set before.
    pub fn set_user_status(self: &Arc<Self>, status: i32) -> ClResult {
        // clSetUserEventStatus: CL_INVALID_OPERATION when the status was set before.
        require(self.finish(Status(status)), CL_INVALID_OPERATION)?;
        // A lost session has already failed everything that depends on the event, so the call succeeds.
        let _ = self.tell_status(Status(status));
        if let Some(distributed) = self.context.distributed() {
            distributed.release_withheld(self.id);
        }
        let _ = self.context.flush();
        Ok(())
    }

    /// Whether it is a user event.
    #[must_use]
    pub fn is_user(&self) -> bool {
        self.queue.is_none() && !self.unobserved
    }

    /// Makes an internal user event. Commands with this event in their wait list are held back until
    /// [`Event::open`]. `gated` says whether the gate itself may depend on the application.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub(in crate::stub) fn gate(context: &Arc<Context>, gated: bool) -> ClResult<Arc<Event>> {
        Event::without_queue(context, gated)
    }

    /// Releases the commands that an [`Event::gate`] holds back. Only appends to the outbox, so a transport
    /// thread may call this.
    pub(in crate::stub) fn open(self: &Arc<Self>) {
        if self.finish(Status::SUCCESS) {
            // A lost session has already failed everything that depends on the gate.
            let _ = self.tell_status(Status::SUCCESS);
        }
    }

    fn tell_status(&self, status: Status) -> ClResult {
        let Some(site) = &self.home else {
            // Without a home site there are only mirrors, which `arrive` has told.
            return Ok(());
        };
        site.send(Kind::SetUserEventStatus(SetUserEventStatus {
            event: self.id.0,
            status: status.0,
        }))
    }

    fn without_queue(context: &Arc<Context>, gated: bool) -> ClResult<Arc<Event>> {
        let home = (!context.is_distributed()).then(|| context.site().clone());
        let event = Event::bare(context, home, gated, EventState::default());
        if let Some(site) = &event.home {
            site.send(Kind::CreateUserEvent(CreateUserEvent { event: event.id.0 }))?;
        }
        Ok(event)
    }

    // Ends a user event. Returns false if the event had ended before.
    fn finish(self: &Arc<Self>, status: Status) -> bool {
        let Some(arrivals) = self.conclude(CommandEnd::of(status), true) else {
            return false;
        };
        // After the status is visible, because a command that fails with this event is hidden behind
        // nothing.
        self.arrive(status);
        ending::go_on(arrivals);
        true
    }
}
