//! Commands whose ends nobody looks at.
//!
//! Of most commands a program asks for no event; their ends matter only all together, in `clFinish` and at the
//! next command that somebody looks at. The client marks them, and here they take a shorter way: no node in the
//! graph where nothing is before them in their in-order queue, no call back of the driver for each. They gather with their
//! queue; the driver is asked to call back for the last of a group, of at most [`GROUP`] and at the end of
//! each batch of commands, and then all of the group are told, each with its own status. If a command comes behind them
//! that waits for nothing else and that somebody looks at, its own end tells of them too ([`Earlier`]). Where the driver's events are
//! dear (those that we must look at ourselves), launches with another behind them have none; they end as the next that has one.
//!
//! What it is not: it decides no order. Invariant: what was added is told: whoever adds to a queue closes its
//! group before the thread goes on to something else.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_proto::command::command::Kind;
use causeway_proto::command::{Command as WireCommand, Completion};
use causeway_proto::id::EventId;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::Shared;
use super::outbox::Outbox;
use crate::runtime::event::{Event, Listener};

/// So many commands are told together at most.
const GROUP: usize = 64;

/// The commands of one queue that nobody has been asked to look at yet, in their order.
#[derive(Default)]
pub(crate) struct Unseen(Mutex<Vec<Gathered>>);

/// A command and its native event, if it has one.
type Gathered = (EventId, Option<Event>);

impl Unseen {
    /// A command is in its native queue. Says whether the group is full.
    pub(crate) fn add(&self, shared: &Shared, id: EventId, event: Option<Event>) -> bool {
        shared.unseen.fetch_add(1, Ordering::Relaxed);
        let mut commands = self.0.lock();
        commands.push((id, event));
        commands.len() >= GROUP
    }

    /// Whether the next command would be the last of its group.
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.0.lock().len() + 1 >= GROUP
    }

    /// What has gathered, to be listened for; the next command begins another group. Should the last have no
    /// event, `marker` makes one that comes after it; if it cannot, those that nothing tells of end with its error.
    pub(crate) fn close(
        &self,
        shared: &Shared,
        marker: impl FnOnce() -> Result<Event, Status>,
    ) -> Option<Arc<Group>> {
        let mut commands = self.0.lock();
        let (last, event) = commands.pop()?;
        // The next group is likely to be as large.
        let room = Vec::with_capacity(commands.capacity().min(commands.len() + 1));
        let earlier = std::mem::replace(&mut *commands, room);
        drop(commands);
        let (earlier, last) = match event.map_or_else(marker, Ok) {
            Ok(event) => (earlier, (last, event)),
            Err(status) => give_up_tail(shared, earlier, last, status)?,
        };
        Some(Arc::new(Group {
            earlier,
            last,
            outbox: Arc::clone(&shared.outbox),
            count: Arc::clone(&shared.unseen),
        }))
    }
}

impl Unseen {
    /// What has gathered, for a command that the caller has just enqueued behind it and that waits for nothing else. The
    /// next command begins another group. None if nothing has, or if the last has no event of its own.
    pub(crate) fn take(&self, shared: &Shared) -> Option<Earlier> {
        let mut commands = self.0.lock();
        commands.last()?.1.as_ref()?;
        Some(Earlier {
            commands: std::mem::take(&mut *commands),
            count: Arc::clone(&shared.unseen),
        })
    }
}

/// Commands of an in-order queue that have ended when the command behind them ends, which tells of them.
pub(crate) struct Earlier {
    commands: Vec<Gathered>,
    count: Arc<AtomicUsize>,
}

impl Earlier {
    /// What the client hears of them, in their order. The command behind them has ended.
    pub(crate) fn completions(&self) -> Vec<Completion> {
        let completions = told(&self.commands, Status::SUCCESS);
        self.count.fetch_sub(completions.len(), Ordering::Relaxed);
        completions
    }
}

// What the client hears of commands that have ended, in their order. One without an event ended as the one behind it;
// `behind` is the status of the one behind them all.
fn told(commands: &[Gathered], mut behind: Status) -> Vec<Completion> {
    let from_last = commands.iter().rev().map(|(id, event)| {
        if let Some(event) = event {
            behind = event.failure().unwrap_or(Status::SUCCESS);
        }
        ended(*id, behind)
    });
    let mut completions: Vec<Completion> = from_last.collect();
    completions.reverse();
    completions
}

// Nothing tells of `last`, nor of those before it that have no event: they end now. What is left of the group ends in
// one that has.
fn give_up_tail(
    shared: &Shared,
    mut earlier: Vec<Gathered>,
    last: EventId,
    status: Status,
) -> Option<(Vec<Gathered>, (EventId, Event))> {
    let told = earlier.iter().rposition(|(_, event)| event.is_some());
    let tail = earlier.split_off(told.map_or(0, |place| place + 1));
    shared.unseen.fetch_sub(tail.len() + 1, Ordering::Relaxed);
    for id in tail.into_iter().map(|(id, _)| id).chain([last]) {
        shared.outbox.complete(ended(id, status), None);
    }
    let (id, event) = earlier.pop()?;
    Some((earlier, (id, event?)))
}

/// Commands of one in-order queue that are told together.
pub(crate) struct Group {
    earlier: Vec<Gathered>,
    last: (EventId, Event),
    outbox: Arc<Outbox>,
    count: Arc<AtomicUsize>,
}

impl Listener for Group {
    fn event(&self) -> Option<&Event> {
        Some(&self.last.1)
    }

    fn ended(self: Arc<Self>, status: Status) {
        let mut completions = told(&self.earlier, status);
        completions.push(ended(self.last.0, status));
        self.count.fetch_sub(completions.len(), Ordering::Relaxed);
        self.outbox.end(1);
        let outbox = Arc::clone(&self.outbox);
        outbox.complete_all(completions, self);
    }
}

/// Whether `behind` comes next after `command` in one queue, and nobody looks at the end of either.
pub(crate) fn follows(command: &WireCommand, behind: &WireCommand) -> bool {
    let unseen = |command: &WireCommand| match &command.kind {
        Some(Kind::Enqueue(enqueue)) if enqueue.unseen && enqueue.wait.is_empty() => {
            Some(enqueue.queue)
        }
        _ => None,
    };
    unseen(command).is_some_and(|queue| unseen(behind) == Some(queue))
}

/// What the client hears of such a command.
pub(crate) fn ended(id: EventId, status: Status) -> Completion {
    Completion {
        event: id.0,
        status: status.0,
        ..Completion::default()
    }
}
