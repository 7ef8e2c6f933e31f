//! Decides which command may go to its native queue, and when: a pure graph of events.
//!
//! A command is *open* until it is in its native queue (*passed*) or has ended without reaching it
//! (*failed*). It may be enqueued when every event of its wait list has passed and its queue's rule
//! allows it. In an in-order queue, its predecessor must have passed or failed. In an out-of-order queue,
//! so must the last barrier, and, for a marker or barrier without a wait list, all earlier commands. A
//! command that may not go yet is *held*. A failed event also fails the commands that have it in their
//! wait lists. Commands that only follow it in a queue continue.
//!
//! The graph knows no OpenCL, does no I/O and takes no lock. `E` is the caller's data for an event. `C`
//! is the command that the caller gets back when it may run or must be dropped.
//!
//! Invariants: the caller ends each command that it gets with [`Graph::passed`] or [`Graph::failed`]. No
//! command that may run stays in the graph. Commands of an in-order queue are given out in order, even if
//! several threads run them. Every operation is iterative and costs O(1) per edge.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};

use causeway_proto::id::{EventId, QueueId};
use causeway_proto::status::Status;

use crate::worker::objects::hash::ById;

/// How a queue orders its commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each command runs after the one before.
    InOrder,
    /// Only wait lists, markers and barriers order the commands.
    OutOfOrder,
}

/// How a command affects the order of an out-of-order queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    /// The command comes after all earlier ones in its queue: a marker or barrier without a wait list.
    pub(crate) after_all: bool,
    /// All later commands in the queue come after this one: a barrier.
    pub(crate) before_all: bool,
}

impl Role {
    /// A command that only wait lists order.
    pub(crate) const ORDINARY: Role = Role {
        after_all: false,
        before_all: false,
    };
}

/// A held command that the graph has given back, and what the caller must do with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FreedCommand<C> {
    /// The command may go to its native queue now.
    Run(EventId, C),
    /// An event in the command's wait list has failed, so the command has failed too.
    Cancel(EventId, C),
}

/// The client named an unknown event or queue, or an id that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GraphError {
    #[error("a command waits for {0:?}, which does not exist")]
    Event(EventId),
    #[error("{0:?} does not exist")]
    Queue(QueueId),
    #[error("{0:?} exists already")]
    Taken(EventId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CommandState {
    Open,
    Passed,
    Failed,
}

#[derive(Debug)]
struct Node<E, C> {
    kept: E,
    state: CommandState,
    // The events that wait for this one have been notified of its decision.
    told: bool,
    // The client may still name the event.
    named: bool,
    // Number of unresolved edges in all, and of those among them that come from the queue's order.
    pending: usize,
    order: usize,
    held: Option<C>,
    place: Option<CommandPlace>,
    waiters: Vec<EventId>,
    followers: Vec<EventId>,
}

/// The place of a command in its queue. A stretch lies between two commands that come after everything earlier.
#[derive(Clone, Copy, Debug)]
struct CommandPlace {
    queue: QueueId,
    stretch: u64,
}

#[derive(Debug)]
struct Queue {
    order: Order,
    released: bool,
    // Number of commands whose place in the order is not settled.
    unsettled: usize,
    // The last command (in order) or barrier (out of order).
    last: Option<EventId>,
    // Out of order only: stretches from number `first` on. The newest one is open.
    stretches: VecDeque<Stretch>,
    first: u64,
}

#[derive(Debug, Default)]
struct Stretch {
    unsettled: usize,
    // The command that waits for this stretch and all earlier ones.
    closer: Option<EventId>,
}

/// Work that is left within one operation.
enum Work {
    // The event has passed or failed: notify the events that wait for it.
    Decided(EventId),
    // One order edge into the event is resolved.
    Ordered(EventId),
}

/// The graph of one session.
#[derive(Debug)]
pub(crate) struct Graph<E, C> {
    nodes: HashMap<EventId, Node<E, C>, ById>,
    queues: HashMap<QueueId, Queue, ById>,
    held: usize,
}

impl<E, C> Default for Graph<E, C> {
    fn default() -> Self {
        Graph {
            nodes: HashMap::default(),
            queues: HashMap::default(),
            held: 0,
        }
    }
}

impl<E, C> Graph<E, C> {
    /// Whether commands wait for an event that only the client, or another worker, can end.
    pub(crate) fn waits_for_client(&self) -> bool {
        let mut nodes = self.nodes.values();
        nodes.any(|of| {
            of.place.is_none() && of.state == CommandState::Open && !of.waiters.is_empty()
        })
    }

    /// Returns the caller's data for all events.
    pub(crate) fn each(&self) -> impl Iterator<Item = &E> {
        self.nodes.values().map(|node| &node.kept)
    }

    /// Number of known events.
    pub(crate) fn events(&self) -> usize {
        self.nodes.len()
    }

    /// Number of held commands.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Returns the caller's data for an event that the client may name.
    pub(crate) fn get(&self, event: EventId) -> Option<&E> {
        self.nodes.get(&event).filter(|n| n.named).map(|n| &n.kept)
    }

    /// Returns the caller's data for any event that is still in the graph, even if the client
    /// may not name it any more.
    pub(crate) fn known(&self, event: EventId) -> Option<&E> {
        self.nodes.get(&event).map(|n| &n.kept)
    }

    /// Adds a queue.
    pub(crate) fn add_queue(&mut self, queue: QueueId, order: Order) {
        let begun = Queue {
            order,
            released: false,
            unsettled: 0,
            last: None,
            stretches: VecDeque::from([Stretch::default()]),
            first: 0,
        };
        self.queues.insert(queue, begun);
    }

    /// Whether a command without a wait list may go to this queue at once, without a node in the graph. This
    /// is so for an in-order queue without unsettled commands: later commands then follow in the native queue.
    pub(crate) fn is_clear(&self, queue: QueueId) -> bool {
        let queue = self.queues.get(&queue);
        queue.is_some_and(|q| q.order == Order::InOrder && !q.released && q.unsettled == 0)
    }

    /// Removes a queue, once its commands are settled.
    pub(crate) fn release_queue(&mut self, queue: QueueId) {
        if let Some(found) = self.queues.get_mut(&queue) {
            found.released = true;
            if found.unsettled == 0 {
                self.queues.remove(&queue);
            }
        }
    }

    /// Adds an event that the client ends.
    ///
    /// # Errors
    /// [`GraphError::Taken`] when the id is in use.
    pub(crate) fn add_user_event(&mut self, event: EventId, kept: E) -> Result<(), GraphError> {
        if self.nodes.contains_key(&event) {
            return Err(GraphError::Taken(event));
        }
        self.nodes.insert(event, Node::new(kept, None));
        Ok(())
    }

    /// Adds a command. Returns it if it may run at once; otherwise it is held.
    ///
    /// # Errors
    /// [`GraphError`]; the graph is then unchanged.
    pub(crate) fn submit(
        &mut self,
        event: EventId,
        kept: E,
        queue: QueueId,
        waits: &[EventId],
        role: Role,
        command: C,
    ) -> Result<Option<C>, GraphError> {
        if self.nodes.contains_key(&event) {
            return Err(GraphError::Taken(event));
        }
        // Everything is checked before the first change, so a refused command leaves the graph as it was.
        let unknown = |w: &&EventId| !self.nodes.get(w).is_some_and(|n| n.named);
        if let Some(wait) = waits.iter().find(unknown) {
            return Err(GraphError::Event(*wait));
        }
        if self.queues.get(&queue).is_none_or(|q| q.released) {
            return Err(GraphError::Queue(queue));
        }
        let order = self.enter_queue(event, queue, role);
        let mut pending = order.edges;
        for wait in waits {
            if let Some(node) = self.nodes.get_mut(wait)
                && node.state == CommandState::Open
            {
                node.waiters.push(event);
                pending += 1;
            }
        }
        let place = CommandPlace {
            queue,
            stretch: order.stretch,
        };
        let mut node = Node::new(kept, Some(place));
        node.pending = pending;
        node.order = order.edges;
        let run = if pending == 0 {
            Some(command)
        } else {
            node.held = Some(command);
            self.held += 1;
            None
        };
        // The caller checks the wait list for failed events, because an event may fail after it has passed.
        self.nodes.insert(event, node);
        Ok(run)
    }

    fn enter_queue(&mut self, event: EventId, id: QueueId, role: Role) -> Entered {
        let Some(queue) = self.queues.get_mut(&id) else {
            return Entered::default();
        };
        let mut edges = 0;
        if let Some(node) = queue.last.and_then(|last| self.nodes.get_mut(&last))
            && !node.is_settled()
        {
            node.followers.push(event);
            edges += 1;
        }
        if queue.order == Order::InOrder || role.before_all {
            queue.last = Some(event);
        }
        // The command waits for its stretch as a whole, and not for each command of it. Later commands
        // belong to a new stretch.
        if queue.order == Order::OutOfOrder && role.after_all && queue.unsettled > 0 {
            if let Some(newest) = queue.stretches.back_mut() {
                newest.closer = Some(event);
            }
            queue.stretches.push_back(Stretch::default());
            edges += 1;
        }
        queue.unsettled += 1;
        if let Some(newest) = queue.stretches.back_mut() {
            newest.unsettled += 1;
        }
        Entered {
            edges,
            stretch: queue.first + queue.stretches.len() as u64 - 1,
        }
    }

    /// Notes that a command is in its native queue, or that a user event ended with success.
    pub(crate) fn passed(&mut self, event: EventId, freed: &mut VecDeque<FreedCommand<C>>) {
        self.decide(event, CommandState::Passed, freed);
    }

    /// Notes that an event failed: a command that did not reach its native queue, a user event set to an
    /// error, or a held command that is given up. Returns the held command.
    pub(crate) fn failed(
        &mut self,
        event: EventId,
        freed: &mut VecDeque<FreedCommand<C>>,
    ) -> Option<C> {
        let held = self.nodes.get_mut(&event).and_then(|n| n.held.take());
        self.held -= usize::from(held.is_some());
        self.decide(event, CommandState::Failed, freed);
        held
    }

    /// Notes that a user event or mirror has ended with this status.
    pub(crate) fn end(
        &mut self,
        event: EventId,
        status: Status,
        freed: &mut VecDeque<FreedCommand<C>>,
    ) {
        if status.is_error() {
            self.failed(event, freed);
        } else {
            self.passed(event, freed);
        }
    }

    /// Notes that the client will not name the event again. Returns the caller's data if the graph no
    /// longer needs the event.
    pub(crate) fn release(&mut self, event: EventId) -> Option<E> {
        let node = self.nodes.get_mut(&event)?;
        node.named = false;
        if !node.is_settled() {
            return None;
        }
        self.nodes.remove(&event).map(|node| node.kept)
    }

    fn decide(
        &mut self,
        event: EventId,
        state: CommandState,
        freed: &mut VecDeque<FreedCommand<C>>,
    ) {
        let Some(node) = self.nodes.get_mut(&event) else {
            return;
        };
        // A mirror may be ended twice, by the other worker and by the client. The first end counts.
        if node.state != CommandState::Open {
            return;
        }
        node.state = state;
        let mut work = VecDeque::from([Work::Decided(event)]);
        while let Some(next) = work.pop_front() {
            match next {
                Work::Decided(event) => self.tell_waiters(event, &mut work, freed),
                Work::Ordered(event) => self.resolve_order(event, &mut work, freed),
            }
        }
    }

    fn tell_waiters(
        &mut self,
        event: EventId,
        work: &mut VecDeque<Work>,
        freed: &mut VecDeque<FreedCommand<C>>,
    ) {
        let Some(node) = self.nodes.get_mut(&event) else {
            return;
        };
        let failed = node.state == CommandState::Failed;
        node.told = true;
        for waiter in std::mem::take(&mut node.waiters) {
            if failed {
                self.cancel(waiter, work, freed);
            } else {
                self.resolve_edge(waiter, freed);
            }
        }
        self.settle(event, work);
    }

    fn cancel(
        &mut self,
        event: EventId,
        work: &mut VecDeque<Work>,
        freed: &mut VecDeque<FreedCommand<C>>,
    ) {
        let Some(node) = self.nodes.get_mut(&event) else {
            return;
        };
        if let Some(command) = node.held.take() {
            self.held -= 1;
            node.state = CommandState::Failed;
            freed.push_back(FreedCommand::Cancel(event, command));
            work.push_back(Work::Decided(event));
        }
    }

    fn resolve_edge(&mut self, event: EventId, freed: &mut VecDeque<FreedCommand<C>>) {
        let Some(node) = self.nodes.get_mut(&event) else {
            return;
        };
        node.pending = node.pending.saturating_sub(1);
        if node.pending == 0
            && let Some(command) = node.held.take()
        {
            self.held -= 1;
            freed.push_back(FreedCommand::Run(event, command));
        }
    }

    fn resolve_order(
        &mut self,
        event: EventId,
        work: &mut VecDeque<Work>,
        freed: &mut VecDeque<FreedCommand<C>>,
    ) {
        if let Some(node) = self.nodes.get_mut(&event) {
            node.order = node.order.saturating_sub(1);
        }
        self.resolve_edge(event, freed);
        self.settle(event, work);
    }

    // A command is settled when it is decided, its waiters are notified, and everything before it in its
    // queue is settled. A command that failed early still separates its predecessor from its successors.
    fn settle(&mut self, event: EventId, work: &mut VecDeque<Work>) {
        let Some(node) = self.nodes.get_mut(&event) else {
            return;
        };
        if !node.is_settled() {
            return;
        }
        let (place, named) = (node.place.take(), node.named);
        let followers = std::mem::take(&mut node.followers);
        if !named {
            self.nodes.remove(&event);
        }
        work.extend(followers.into_iter().map(Work::Ordered));
        if let Some(place) = place {
            self.leave_queue(place, work);
        }
    }

    fn leave_queue(&mut self, place: CommandPlace, work: &mut VecDeque<Work>) {
        let Some(queue) = self.queues.get_mut(&place.queue) else {
            return;
        };
        queue.unsettled -= 1;
        let position = (place.stretch - queue.first) as usize;
        if let Some(stretch) = queue.stretches.get_mut(position) {
            stretch.unsettled -= 1;
        }
        while let Some(Stretch {
            unsettled: 0,
            closer: Some(closer),
        }) = queue.stretches.front()
        {
            work.push_back(Work::Ordered(*closer));
            queue.stretches.pop_front();
            queue.first += 1;
        }
        if queue.released && queue.unsettled == 0 {
            self.queues.remove(&place.queue);
        }
    }
}

#[derive(Default)]
struct Entered {
    edges: usize,
    stretch: u64,
}

impl<E, C> Node<E, C> {
    fn new(kept: E, place: Option<CommandPlace>) -> Node<E, C> {
        Node {
            kept,
            state: CommandState::Open,
            told: false,
            named: true,
            pending: 0,
            order: 0,
            held: None,
            place,
            waiters: Vec::new(),
            followers: Vec::new(),
        }
    }

    fn is_settled(&self) -> bool {
        self.told && self.order == 0
    }
}

#[cfg(test)]
#[path = "graph_tests.rs"]
mod tests;
