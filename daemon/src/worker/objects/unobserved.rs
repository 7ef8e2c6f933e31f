//! Unobserved commands.
//!
//! Programs ask for no event for most commands. The ends of these matter only together, in `clFinish` and
//! at the next observed command. The client marks them, and the worker handles them more cheaply. If
//! nothing is before them in an in-order queue, they get no graph node and no driver callback each. They
//! gather in their queue. A group has at most [`GROUP`] commands and ends with each batch. The driver is
//! asked to call back for the last of a group. The callback then reports all of the group, each with its
//! own status, and with its times if the program is traced. An observed command without waits that follows
//! them reports their ends as well ([`Earlier`]). Where driver events are expensive, because the worker must poll them, a launch that
//! another follows has no event, unless the program is traced. It gets the status of the next command that
//! has one.
//!
//! This module decides no order. Invariant: every added command is reported. The thread that adds to a
//! queue closes its group before it does anything else.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::command::Kind;
use causeway_proto::command::{Command as WireCommand, Completion};
use causeway_proto::id::EventId;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::command::with_times;
use super::outbox::Outbox;
use super::pace::Ticket;
use crate::accounting::Busy;
use crate::runtime::event::{Event, Listener};

/// Maximum number of commands in a group.
const GROUP: usize = 64;

/// The unobserved commands of one queue that no callback covers yet, in order.
pub(crate) struct Unobserved {
    gathering: Mutex<Gathering>,
    /// Whether completions have the commands' times.
    is_timed: bool,
}

#[derive(Default)]
struct Gathering {
    commands: Vec<Gathered>,
    /// Their room in the driver, if the session has neighbours.
    ticket: Option<Ticket>,
}

/// A command and its native event, if it has one.
type Gathered = (EventId, Option<Event>);

impl Unobserved {
    /// Makes an empty group. With `is_timed`, completions have the commands' times.
    pub(crate) fn new(is_timed: bool) -> Unobserved {
        Unobserved {
            gathering: Mutex::default(),
            is_timed,
        }
    }

    /// Whether completions have the commands' times, so that each command needs an event.
    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Adds a command that is in its native queue. Returns whether the group is full.
    pub(crate) fn add(&self, outbox: &Outbox, id: EventId, event: Option<Event>) -> bool {
        outbox.add_unobserved();
        let mut gathering = self.gathering.lock();
        gathering.commands.push((id, event));
        gathering.commands.len() >= GROUP || gathering.ticket.as_ref().is_some_and(Ticket::is_full)
    }

    /// Adds the room of the command that the caller adds next, if the session has neighbours. Returns whether that
    /// command is the last of its group.
    pub(crate) fn is_nearly_full(&self, ticket: Option<Ticket>) -> bool {
        let mut gathering = self.gathering.lock();
        if let Some(ticket) = ticket {
            match &mut gathering.ticket {
                Some(kept) => kept.add(ticket),
                None => gathering.ticket = Some(ticket),
            }
        }
        gathering.commands.len() + 1 >= GROUP
            || gathering.ticket.as_ref().is_some_and(Ticket::is_full)
    }

    /// Takes the group, for which the caller then listens. If the last command has no event, `marker`
    /// makes one after it. If `marker` fails, the trailing commands without an event end with its error.
    pub(crate) fn close(
        &self,
        outbox: &Arc<Outbox>,
        marker: impl FnOnce() -> Result<Event, Status>,
    ) -> Option<Arc<Group>> {
        let mut gathering = self.gathering.lock();
        let ticket = gathering.ticket.take();
        let commands = &mut gathering.commands;
        let (last, event) = commands.pop()?;
        // The next group is likely to be as large.
        let room = Vec::with_capacity(commands.capacity().min(commands.len() + 1));
        let earlier = std::mem::replace(commands, room);
        drop(gathering);
        let (earlier, last) = match event.map_or_else(marker, Ok) {
            Ok(event) => (earlier, (last, event)),
            Err(status) => give_up_tail(outbox, earlier, last, status)?,
        };
        Some(Arc::new(Group {
            earlier,
            last,
            is_timed: self.is_timed,
            ticket: Mutex::new(ticket),
            outbox: Arc::clone(outbox),
        }))
    }

    /// Takes the group for a command that the caller has just enqueued behind it and that has no waits.
    /// `None` if the group is empty or its last command has no event.
    pub(crate) fn take(&self) -> Option<Earlier> {
        let mut gathering = self.gathering.lock();
        gathering.commands.last()?.1.as_ref()?;
        Some(Earlier {
            commands: std::mem::take(&mut gathering.commands),
            is_timed: self.is_timed,
            ticket: gathering.ticket.take(),
        })
    }
}

/// Commands of an in-order queue that have ended when the next observed command ends, which reports them.
pub(crate) struct Earlier {
    commands: Vec<Gathered>,
    is_timed: bool,
    /// Their room in the driver, if the session has neighbours.
    pub(super) ticket: Option<Ticket>,
}

impl Earlier {
    /// Whether the completions have the commands' times.
    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Returns the completions of these commands in order. Called when the command behind them has ended.
    pub(crate) fn completions(&self) -> Vec<Completion> {
        told(&self.commands, Status::SUCCESS, self.is_timed)
    }
}

// Returns the completions of ended commands, in order. A command without an event gets the status of the
// next command. `behind` is the status of the command after the last.
fn told(commands: &[Gathered], mut behind: Status, is_timed: bool) -> Vec<Completion> {
    let from_last = commands.iter().rev().map(|(id, event)| {
        if let Some(event) = event {
            behind = event.failure().unwrap_or(Status::SUCCESS);
        }
        completion(*id, behind, event.as_ref().filter(|_| is_timed))
    });
    let mut completions: Vec<Completion> = from_last.collect();
    completions.reverse();
    completions
}

// Ends `last` and the commands right before it that have no event, because no native event reports them.
// The rest of the group ends with its last event.
fn give_up_tail(
    outbox: &Outbox,
    mut earlier: Vec<Gathered>,
    last: EventId,
    status: Status,
) -> Option<(Vec<Gathered>, (EventId, Event))> {
    let told = earlier.iter().rposition(|(_, event)| event.is_some());
    let tail = earlier.split_off(told.map_or(0, |place| place + 1));
    outbox.end_unobserved(tail.len() + 1);
    for id in tail.into_iter().map(|(id, _)| id).chain([last]) {
        outbox.complete(ended(id, status), None);
    }
    let (id, event) = earlier.pop()?;
    Some((earlier, (id, event?)))
}

/// Unobserved commands of one in-order queue that one callback reports.
pub(crate) struct Group {
    earlier: Vec<Gathered>,
    last: (EventId, Event),
    is_timed: bool,
    ticket: Mutex<Option<Ticket>>,
    outbox: Arc<Outbox>,
}

impl Listener for Group {
    fn event(&self) -> Option<&Event> {
        Some(&self.last.1)
    }

    fn busy(&self) -> &Busy {
        self.outbox.busy()
    }

    fn ended(self: Arc<Self>, status: Status) {
        if let Some(ticket) = self.ticket.lock().take() {
            ticket.end();
        }
        let (last, event) = &self.last;
        // Before those of earlier commands: the first times of a device may set its clock, by a command that has just
        // ended.
        let last = completion(*last, status, Some(event).filter(|_| self.is_timed));
        let mut completions = told(&self.earlier, status, self.is_timed);
        completions.push(last);
        self.outbox.end_unobserved(completions.len());
        self.outbox.end(1);
        let outbox = Arc::clone(&self.outbox);
        outbox.complete_all(completions, self);
    }
}

/// Whether `behind` follows `command` in the same queue, and both are unobserved.
pub(crate) fn follows(command: &WireCommand, behind: &WireCommand) -> bool {
    let unobserved = |command: &WireCommand| match &command.kind {
        Some(Kind::Enqueue(enqueue)) if enqueue.unobserved && enqueue.wait.is_empty() => {
            Some(enqueue.queue)
        }
        _ => None,
    };
    unobserved(command).is_some_and(|queue| unobserved(behind) == Some(queue))
}

// Returns the completion of an unobserved command, with the times of this event.
fn completion(id: EventId, status: Status, timed: Option<&Event>) -> Completion {
    let times = timed.filter(|_| !status.is_error()).and_then(Event::times);
    let ended = ended(id, status);
    match times {
        Some(times) => with_times(ended, times),
        None => ended,
    }
}

/// Returns the completion of an unobserved command, without times.
pub(crate) fn ended(id: EventId, status: Status) -> Completion {
    Completion {
        event: id.0,
        status: status.0,
        ..Completion::default()
    }
}
