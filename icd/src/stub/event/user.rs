//! Events that are no command's: the application's own (user events), and gates of ours.
//!
//! Specification: "Event Objects". Not here: what waits for them in contexts of several sites is held back
//! there (`distributed/withheld.rs`). Invariant: each ends once, and the worker that holds back what names it
//! hears of it.

use std::sync::Arc;

use causeway_proto::command::{CreateUserEvent, SetUserEventStatus, command::Kind};
use cl_headers::types::CL_INVALID_OPERATION;

use super::{End, Event, State, ending};
use crate::error::{ClResult, Status, require};
use crate::stub::Context;

impl Event {
    /// `clCreateUserEvent`: starts as `CL_SUBMITTED`.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn user(context: &Arc<Context>) -> ClResult<Arc<Event>> {
        Event::without_queue(context, true)
    }

    /// `clSetUserEventStatus`.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when it was set before.
    pub fn set_user_status(self: &Arc<Self>, status: i32) -> ClResult {
        require(self.finish(Status(status)), CL_INVALID_OPERATION)?;
        // A lost session has failed every dependant already; the application did its part.
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
        self.queue.is_none() && !self.unseen
    }

    /// A user event of our own: what names it in its wait list is held back until [`Event::open`].
    /// `gated`: whether what it stands for may itself wait for the application.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub(in crate::stub) fn gate(context: &Arc<Context>, gated: bool) -> ClResult<Arc<Event>> {
        Event::without_queue(context, gated)
    }

    /// Lets through what a [`Event::gate`] holds back. Only appends to the wire, so that a transport
    /// thread may call it.
    pub(in crate::stub) fn open(self: &Arc<Self>) {
        if self.finish(Status::SUCCESS) {
            // A lost session has failed every dependant already.
            let _ = self.tell_status(Status::SUCCESS);
        }
    }

    fn tell_status(&self, status: Status) -> ClResult {
        let Some(site) = &self.home else {
            // Its mirrors have been told.
            return Ok(());
        };
        site.send(Kind::SetUserEventStatus(SetUserEventStatus {
            event: self.id.0,
            status: status.0,
        }))
    }

    fn without_queue(context: &Arc<Context>, gated: bool) -> ClResult<Arc<Event>> {
        let home = (!context.is_distributed()).then(|| context.site().clone());
        let event = Event::bare(context, home, gated, State::default());
        if let Some(site) = &event.home {
            site.send(Kind::CreateUserEvent(CreateUserEvent { event: event.id.0 }))?;
        }
        Ok(event)
    }

    // Ends a user event; false if it had ended before.
    fn finish(self: &Arc<Self>, status: Status) -> bool {
        let arrivals = self.conclude(End::of(status), true);
        let first = arrivals.is_some();
        if first {
            self.arrive(status);
        }
        ending::go_on(arrivals.unwrap_or_default());
        first
    }
}
