//! In which order ends become visible.
//!
//! Ends come in any order: a node's driver may call back on several threads, and a read's bytes travel on
//! other connections than completions. But from an end the application may conclude that what came before
//! has ended too: the command before in an in-order queue, everything before a barrier, the wait list. So a
//! success that comes early stays with the first of those that is still open, and is looked at again when
//! that has ended.
//!
//! A failure stays with nobody but the command's own parts (distributed contexts), which say why and may still
//! touch the application's memory: it says nothing of other commands, and upon it the application may do what
//! an earlier one waits for. What follows a failed command in its queue must still not overtake what that
//! one came after; so a command is *settled* only when it has ended and what its queue puts before it is.
//!
//! Invariant: nothing is kept from the application that waits for the application. A node tells of a
//! success only when all that came before has ended there, and then each of those ends is on its way.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::Event;
use crate::error::Status;

/// How a command has ended.
#[derive(Debug)]
pub(in crate::stub) struct End {
    /// `CL_COMPLETE` or the error.
    pub(in crate::stub) status: Status,
    /// Queued, submitted, started, ended, completed in device nanoseconds.
    pub(in crate::stub) times: Option<[u64; 5]>,
    /// What a small read brought.
    pub(in crate::stub) contents: Bytes,
}

impl End {
    /// One that brings nothing but its status.
    pub(in crate::stub) fn of(status: Status) -> End {
        End {
            status,
            times: None,
            contents: Bytes::new(),
        }
    }
}

/// What its queue's order puts before a command. What is gone has settled.
#[derive(Debug, Default)]
pub(in crate::stub) struct Precedents {
    /// The command before (in-order queue) or the last barrier (out-of-order queue); for what comes after
    /// everything in an out-of-order queue, the last that did so.
    pub(in crate::stub) previous: Weak<Event>,
    /// All that came in since and was incomplete, for what comes after everything in an out-of-order queue; and what is still
    /// bringing the bytes of a map to the client's copy.
    pub(in crate::stub) earlier: Vec<Weak<Event>>,
}

/// A command whose end has come, until it is settled.
#[derive(Debug)]
pub(super) struct Arrival {
    event: Arc<Event>,
    // Not yet visible.
    end: Option<End>,
    precedents: Precedents,
}

/// An event that something stays with, and how that is over.
type Awaited = (Arc<Event>, fn(&Event) -> bool);

impl Event {
    /// The node says how the command ended; the application hears of it when it may.
    pub(in crate::stub) fn ended(self: &Arc<Self>, end: End) {
        self.arrive(end.status);
        let precedents = std::mem::take(&mut self.state.lock().precedents);
        let mut arrivals = Vec::new();
        let arrival = Arrival {
            event: self.clone(),
            end: Some(end),
            precedents,
        };
        arrival.proceed(&mut arrivals);
        go_on(arrivals);
    }

    fn open_part(&self) -> Option<Arc<Event>> {
        let state = self.state.lock();
        state.parts.iter().find(|part| !part.is_done()).cloned()
    }

    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    // Everything before it is settled: what stayed with it.
    fn settle(&self) -> Vec<Arrival> {
        let (order_mirrors, arrivals) = {
            let mut state = self.state.lock();
            self.settled.store(true, Ordering::Release);
            (
                state.order_mirrors.clone(),
                std::mem::take(&mut state.arrivals),
            )
        };
        super::tell_order_mirrors(&order_mirrors);
        arrivals
    }

    // Gives it back when there is nothing to stay for any more.
    fn keep(&self, arrival: Arrival, is_over: fn(&Event) -> bool) -> Option<Arrival> {
        let mut state = self.state.lock();
        if is_over(self) {
            return Some(arrival);
        }
        state.arrivals.push(arrival);
        None
    }
}

impl Arrival {
    // Goes as far as it may; what that sets free is added to `free`.
    fn proceed(mut self, free: &mut Vec<Arrival>) {
        // The command's own parts, which say why it failed, and may still touch the application's memory.
        while self.end.is_some()
            && let Some(part) = self.event.open_part()
        {
            match part.keep(self, Event::is_done) {
                Some(back) => self = back,
                None => return,
            }
        }
        if let Some(end) = self.end.take_if(|end| end.status.is_error()) {
            free.extend(self.event.conclude(end, false).into_iter().flatten());
        }
        while let Some((on, is_over)) = self.awaits() {
            match on.keep(self, is_over) {
                Some(back) => self = back,
                None => return,
            }
        }
        free.extend(match self.end {
            Some(end) => self.event.conclude(end, true).unwrap_or_default(),
            None => self.event.settle(),
        });
    }

    fn awaits(&self) -> Option<Awaited> {
        let previous = self.precedents.previous.upgrade();
        if let Some(previous) = previous.filter(|previous| !previous.is_settled()) {
            return Some((previous, Event::is_settled));
        }
        // What is open behind one of these that has failed is itself among them.
        let mut earlier = self.precedents.earlier.iter().filter_map(Weak::upgrade);
        let open = earlier.find(|event| !event.is_done()).or_else(|| {
            // A failure is visible already, and settles without its wait list: other queues have their own order.
            self.end.as_ref()?;
            let state = self.event.state.lock();
            state.wait.iter().find(|event| !event.is_done()).cloned()
        });
        open.map(|event| (event, Event::is_done as fn(&Event) -> bool))
    }
}

/// Lets go on what an end has set free. A loop, since whole queues may have stayed with one another.
pub(super) fn go_on(mut arrivals: Vec<Arrival>) {
    while let Some(arrival) = arrivals.pop() {
        let event = arrival.event.clone();
        arrival.proceed(&mut arrivals);
        // Whoever was woken by its completion has found it open.
        if let Some(site) = event.site() {
            site.session().tell(event.id);
        }
    }
}
