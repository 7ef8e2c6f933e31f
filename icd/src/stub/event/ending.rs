//! The order in which the ends of commands become visible.
//!
//! Completions arrive in any order: a driver may call back on several threads, and a read's bytes use other
//! connections than completions. But the application may conclude from one end that others have happened:
//! the previous command of an in-order queue, everything before a barrier, the wait list. So a success that
//! arrives early is hidden behind the first of these commands that is still open. It is checked again when
//! that command has ended.
//!
//! A failure is hidden behind nothing but the command's own parts (distributed contexts). The parts know
//! the cause, and may still touch the application's memory. A failure says nothing about other commands,
//! and the application may react to it with an action that an earlier command waits for. But commands
//! behind a failed one must still not overtake the commands before it. So a command is *settled* only when
//! it and everything that its queue puts before it has ended.
//!
//! Invariant: no end stays hidden because of something that the application still has to do. A node reports
//! a success only when everything before has ended there, and then all of those ends are already on their
//! way.

use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::{Event, Phase};
use crate::error::Status;

/// How a command ended.
#[derive(Debug)]
pub(in crate::stub) struct CommandEnd {
    /// `CL_COMPLETE` or the error code.
    pub(in crate::stub) status: Status,
    /// Times when the command was queued, submitted, started, ended and completed; device clock, in
    /// nanoseconds.
    pub(in crate::stub) times: Option<[u64; 5]>,
    /// The bytes of a small read.
    pub(in crate::stub) contents: Bytes,
}

impl CommandEnd {
    /// Makes an end that has only a status.
    pub(in crate::stub) fn of(status: Status) -> CommandEnd {
        CommandEnd {
            status,
            times: None,
            contents: Bytes::new(),
        }
    }
}

/// The commands that the queue's order puts before a command. An event that no longer exists has settled.
#[derive(Debug, Default)]
pub(in crate::stub) struct Precedents {
    /// The previous command (in-order queue) or the last barrier (out-of-order queue). For a command that
    /// follows everything in an out-of-order queue: the last command that did so, too.
    pub(in crate::stub) previous: Weak<Event>,
    /// For a command that follows everything in an out-of-order queue: the incomplete commands since
    /// `previous`. For a map: also the commands whose bytes are still arriving in the client's copy.
    pub(in crate::stub) earlier: Vec<Weak<Event>>,
}

/// A completion that has arrived, until its command is settled.
#[derive(Debug)]
pub(super) struct Arrival {
    event: Arc<Event>,
    // `None` once the end is visible.
    end: Option<CommandEnd>,
    precedents: Precedents,
}

/// An event that an arrival is hidden behind, and the condition that lifts this.
type Awaited = (Arc<Event>, fn(&Event) -> bool);

impl Event {
    /// Takes the end that the node reports. The application sees it as soon as the order permits.
    pub(in crate::stub) fn ended(self: &Arc<Self>, end: CommandEnd) {
        let precedents = self.arrive(end.status).unwrap_or_default();
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
        self.has_reached(Phase::Settled)
    }

    // Marks the event as settled, and returns the arrivals that were hidden behind it.
    fn settle(&self) -> Vec<Arrival> {
        let (order_mirrors, arrivals) = {
            let mut state = self.state.lock();
            self.advance(Phase::Settled);
            (
                state.order_mirrors.clone(),
                std::mem::take(&mut state.arrivals),
            )
        };
        super::tell_order_mirrors(&order_mirrors);
        arrivals
    }

    // Stores `arrival` with this event, or returns it when the condition is already met.
    fn keep(&self, arrival: Arrival, is_over: fn(&Event) -> bool) -> Option<Arrival> {
        let mut state = self.state.lock();
        // Checked under the lock, so that `settle` or `conclude` cannot take the list before the push
        // below.
        if is_over(self) {
            return Some(arrival);
        }
        state.arrivals.push(arrival);
        None
    }
}

impl Arrival {
    // Proceeds as far as the order permits. Arrivals that become free are added to `free`.
    fn proceed(mut self, free: &mut Vec<Arrival>) {
        // First the command's own parts: they know why it failed, and may still touch the application's
        // memory.
        while self.end.is_some()
            && let Some(part) = self.event.open_part()
        {
            match part.keep(self, Event::is_done) {
                Some(back) => self = back,
                None => return,
            }
        }
        // A failure becomes visible now, but settles later.
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
        // No need to look behind a failed one: commands before it that are still open are in this list
        // themselves.
        let mut earlier = self.precedents.earlier.iter().filter_map(Weak::upgrade);
        let open = earlier.find(|event| !event.is_done()).or_else(|| {
            // A visible failure settles without its wait list, because other queues have their own order.
            self.end.as_ref()?;
            let state = self.event.state.lock();
            state.wait.iter().find(|event| !event.is_done()).cloned()
        });
        open.map(|event| (event, Event::is_done as fn(&Event) -> bool))
    }
}

/// Processes the arrivals that an end has freed. This is a loop, not recursion, because whole queues may be
/// hidden behind one another.
pub(super) fn go_on(mut arrivals: Vec<Arrival>) {
    while let Some(arrival) = arrivals.pop() {
        let event = arrival.event.clone();
        arrival.proceed(&mut arrivals);
        // A thread that its completion woke earlier has found the event still open, so it is notified
        // again.
        if let Some(site) = event.site() {
            site.session().tell(event.id);
        }
    }
}
