//! The order of one queue: which commands a command follows, and whether the application may hold it back.
//!
//! This module knows only events, and sends nothing. Invariant: an event that was forgotten here is done,
//! or no longer held back.

use std::sync::{Arc, Weak};

use causeway_proto::id::EventId;

use super::unobserved::UnobservedEvents;
use crate::stub::event::{EventSpec, GatedBy, Position, Precedents};
use crate::stub::queue::command::NodeCommand;
use crate::stub::queue::recent::Recent;
use crate::stub::{Command, Event, Queue};

/// Where a command stands relative to the others of an out-of-order queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::stub) enum OrderClass {
    /// The command follows barriers only.
    Ordinary,
    /// The command follows everything before it (a marker without a wait list).
    AfterAll,
    /// Everything later follows the command. With `after_all`, the command follows everything before it.
    Barrier { after_all: bool },
}

impl OrderClass {
    pub(in crate::stub) fn of(command: &Command, waits_for_none: bool) -> OrderClass {
        match command {
            Command::Node(NodeCommand::Barrier) => OrderClass::Barrier {
                after_all: waits_for_none,
            },
            Command::Node(NodeCommand::Marker) if waits_for_none => OrderClass::AfterAll,
            _ => OrderClass::Ordinary,
        }
    }

    pub(in crate::stub) fn is_after_all(self) -> bool {
        matches!(
            self,
            OrderClass::AfterAll | OrderClass::Barrier { after_all: true }
        )
    }
}

/// The position of a command at the time it enters a queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::stub) struct Standing {
    /// Whether an unset user event of the application holds the command back.
    pub(in crate::stub) is_gated: bool,
    /// Whether no incomplete command is before it.
    pub(in crate::stub) is_first: bool,
    /// The newest gated command that the queue's order puts before it.
    pub(in crate::stub) behind: Option<EventId>,
}

/// The commands of a queue that later commands may have to follow.
#[derive(Debug)]
pub(super) struct Order {
    // The last command (in order) or the last barrier (out of order), done or not.
    last: Weak<Event>,
    // Incomplete commands.
    pub(super) pending: Recent,
    // Out-of-order queues only: the last command that follows everything, and the commands since. A command
    // that follows these follows everything.
    last_after_all: Weak<Event>,
    since: Recent,
    // The incomplete commands that the application may hold back, and the barriers among them.
    pub(super) gated: Recent,
    gated_barriers: Recent,
    pub(super) unobserved: UnobservedEvents,
}

impl Default for Order {
    fn default() -> Order {
        Order {
            last: Weak::new(),
            pending: Recent::new(|event| !event.is_done()),
            last_after_all: Weak::new(),
            since: Recent::new(|event| !event.is_done()),
            gated: Recent::new(Event::is_gated),
            gated_barriers: Recent::new(Event::is_gated),
            unobserved: UnobservedEvents::default(),
        }
    }
}

impl Order {
    /// Whether an unset user event of the application may hold back a command at `place`.
    pub(super) fn would_gate(
        &mut self,
        in_order: bool,
        place: OrderClass,
        wait: &[Arc<Event>],
    ) -> bool {
        wait.iter().any(|event| event.is_gated()) || self.earlier_gated(in_order, place).any()
    }

    // The gated commands of this queue that a command at `place` follows.
    pub(super) fn earlier_gated(&mut self, in_order: bool, place: OrderClass) -> &mut Recent {
        if in_order || place.is_after_all() {
            &mut self.gated
        } else {
            &mut self.gated_barriers
        }
    }

    /// Returns the gated commands that a command at `place` must follow; `None` if the command is not gated
    /// itself. In an in-order queue, the order covers the queue's own commands.
    pub(super) fn gated_by(
        &mut self,
        in_order: bool,
        place: OrderClass,
        wait: &[Arc<Event>],
    ) -> Option<GatedBy> {
        if !self.would_gate(in_order, place, wait) {
            return None;
        }
        let mut gated_by: Vec<Weak<Event>> = wait
            .iter()
            .filter(|event| event.is_gated())
            .map(Arc::downgrade)
            .collect();
        if !in_order {
            gated_by.extend(self.earlier_gated(in_order, place).all_weak());
        }
        Some(gated_by.into())
    }

    // Whether the queue's order puts no incomplete command before a command enqueued now.
    pub(super) fn is_first(&mut self, in_order: bool) -> bool {
        if in_order {
            !self.pending.any()
        } else {
            self.last.upgrade().is_none_or(|barrier| barrier.is_done())
        }
    }

    pub(super) fn precedents(&self, in_order: bool, place: OrderClass) -> Precedents {
        if !in_order && place.is_after_all() {
            // Only the commands since the last such command: otherwise, in a series of barriers, each would
            // list all before it.
            Precedents {
                previous: self.last_after_all.clone(),
                earlier: self.since.all_weak().collect(),
            }
        } else {
            Precedents {
                previous: self.last.clone(),
                earlier: Vec::new(),
            }
        }
    }

    /// Returns an event for an unobserved command that is about to be sent.
    pub(super) fn unobserved_event(
        &mut self,
        queue: &Arc<Queue>,
        spec: EventSpec,
        position: Position,
    ) -> Arc<Event> {
        // Drops references to events that have ended, so that the events can be reused.
        self.pending.any();
        self.unobserved.make(queue, spec, position)
    }

    pub(super) fn push(
        &mut self,
        event: &Arc<Event>,
        in_order: bool,
        gated: bool,
        place: OrderClass,
    ) {
        self.pending.push(event);
        if !in_order && place.is_after_all() {
            self.last_after_all = Arc::downgrade(event);
            self.since.clear();
        } else if !in_order {
            self.since.push(event);
        }
        if in_order || matches!(place, OrderClass::Barrier { .. }) {
            self.last = Arc::downgrade(event);
        }
        if gated {
            self.gated.push(event);
            if matches!(place, OrderClass::Barrier { .. }) {
                self.gated_barriers.push(event);
            }
        }
    }
}
