//! A simulated cluster around the lease manager, with clients and a store. Nodes follow the nodes' rules;
//! links lose, delay and repeat messages. The manager can be killed at any moment.
//!
//! `checks` contains the invariants that hold after every step. `random` and `exhaustive` drive the
//! simulation. `scenarios` tests the order in which requests are served, `membership` tests nodes that
//! join, leave and are forgotten. `several` and `orders` have several managers over one store,
//! `takeovers` managers that lead one after the other.

mod checks;
mod exhaustive;
mod membership;
mod moving;
mod node;
mod orders;
mod random;
mod replacing;
mod scenarios;
mod several;
mod store;
mod takeovers;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::inventory::{NodeId, OfferedDevice};
use crate::policy::UserName;
use crate::time::{Calendar, Span, Time, Wall};
use node::{SimNode, ToNode};
use store::Store;

/// The complete state of the simulation.
#[derive(Clone, Debug, Hash)]
pub(super) struct World {
    pub(super) manager: Manager,
    pub(super) store: Store,
    pub(super) time: Time,
    /// When the manager was started.
    pub(super) started: Time,
    pub(super) wall: Wall,
    pub(super) nodes: Vec<SimNode>,
    /// The leases that clients know of, with the last state that they received.
    pub(super) told: BTreeMap<LeaseId, ClientView>,
    /// The grants that clients had at some time. A grant that only its node knows serves nobody.
    pub(super) held: BTreeSet<Epoch>,
    /// Requests whose clients were told that they wait.
    pub(super) waiting: BTreeSet<LeaseId>,
    /// Grants that nodes have acknowledged at some time.
    pub(super) acknowledged: BTreeSet<(NodeId, Epoch)>,
    pub(super) users: BTreeMap<LeaseId, UserName>,
    /// Nodes that the manager did not know when it was started, because they had been removed before.
    pub(super) unknown: BTreeSet<NodeId>,
    /// Grants that this manager has given up, because an administrator removed their lost node after the start phase.
    pub(super) given_up: BTreeSet<Epoch>,
    /// Where the manager crashes in the next transition, if it does.
    pub(super) crash: Option<Crash>,
}

/// The last state of a lease that its client received.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ClientView {
    Holds(Granted),
    Over,
}

/// The point of a transition at which the manager crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Crash {
    /// Before anything is stored.
    BeforeStore,
    /// After the changes are stored, before any action is carried out.
    BeforeActions,
}

/// A lease that has not ended, or the offer for it.
fn lease_of(manager: &Manager, lease: LeaseId) -> Option<LeaseView<'_>> {
    let is_over = |state| matches!(state, LeaseState::Ending(_));
    let mut leases = manager.leases();
    leases.find(|of| of.lease == lease && !is_over(of.state))
}

impl World {
    pub(super) fn new(nodes: &[Vec<OfferedDevice>], rows: Rows) -> Self {
        let store = Store::from(rows);
        let time = Time(1_000_000);
        let wall = Wall(1_700_000_000_000);
        let calendar = Calendar { time, wall };
        let nodes = nodes.iter().enumerate();
        let mut world = Self {
            manager: Manager::load(store.rows(), calendar),
            store,
            time,
            started: time,
            wall,
            nodes: nodes.map(|(at, of)| SimNode::new(at, of.clone())).collect(),
            told: BTreeMap::new(),
            held: BTreeSet::new(),
            waiting: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            users: BTreeMap::new(),
            unknown: BTreeSet::new(),
            given_up: BTreeSet::new(),
            crash: None,
        };
        for at in 0..world.nodes.len() {
            world.join(at);
        }
        world.deliver_all();
        world
    }

    /// Passes an event to the manager, then stores and carries out the transition, unless the manager crashes.
    pub(super) fn event(&mut self, event: Event) {
        let transition = self.manager.handle(self.time, event);
        match self.crash.take() {
            Some(Crash::BeforeStore) => return self.restart(),
            Some(Crash::BeforeActions) => {
                self.store.apply(&transition.changes);
                return self.restart();
            }
            None => self.store.apply(&transition.changes),
        }
        for action in transition.actions {
            self.act(action);
        }
        self.check();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Welcome { node, fence } => self.send(node, ToNode::Welcome(fence)),
            Action::Drain { node, draining } => self.send(node, ToNode::Drain(draining)),
            Action::Grant(grant) => {
                self.check_served_for(grant.lease);
                self.send(grant.node, ToNode::Grant(grant));
            }
            Action::Withdraw {
                node, lease, epoch, ..
            } => self.send(node, ToNode::Withdraw(lease, epoch)),
            Action::Tell { lease, outcome } => self.tell(lease, outcome),
            Action::Ended { lease, .. } => {
                self.told.insert(lease, ClientView::Over);
                self.waiting.remove(&lease);
            }
            Action::Reduced {
                lease,
                node,
                outcome,
            } => self.reduced(lease, node, outcome),
            Action::Move {
                node,
                lease,
                epoch,
                target,
                ..
            } => self.send(node, ToNode::Move(lease, epoch, target.epoch)),
            Action::Stay { node, epoch, .. } => self.send(node, ToNode::Stay(epoch)),
            Action::Moved {
                lease,
                from,
                to,
                outcome,
            } => self.has_moved(lease, from, to, outcome),
        }
    }

    /// Checks a reduced lease: the client's old and new state differ by the named node only. A lease without a node
    /// waits for equal devices, and nothing of it counts as lost.
    fn reduced(&mut self, lease: LeaseId, node: NodeId, outcome: Outcome) {
        let (Outcome::Leased(now) | Outcome::Reserved(now)) = outcome else {
            panic!("{lease:?} goes on, and its client hears {outcome:?}");
        };
        let (held, lost): (Vec<_>, Vec<_>) =
            (now.units.iter().collect(), now.lost.iter().collect());
        assert!(held.iter().all(|(of, _)| *of != node));
        let is_lost = |(of, units): &&(NodeId, Vec<_>)| *of == node && !units.is_empty();
        assert_eq!(held.is_empty(), !lost.iter().any(is_lost));
        if let Some(ClientView::Holds(before)) = self.told.get_mut(&lease) {
            before.units.retain(|(of, _)| *of != node);
            assert_eq!(before.units, now.units);
            before.lost = now.lost;
        }
    }

    /// Checks a lease that has moved: its client has as many units as before, of the other node, by a later grant. A lost
    /// node serves nothing of it any more.
    fn has_moved(&mut self, lease: LeaseId, from: NodeId, to: NodeId, outcome: Outcome) {
        let (Outcome::Leased(now) | Outcome::Reserved(now)) = outcome else {
            panic!("{lease:?} has moved, and its client hears {outcome:?}");
        };
        assert!(self.acknowledged.contains(&(to, now.epoch)));
        let last = now.moves.last().expect("a move");
        assert_eq!((last.from.0, last.to.0), (from, to));
        assert_eq!(now.units, std::slice::from_ref(&last.to));
        self.held.insert(now.epoch);
        if let Some(ClientView::Holds(before)) = self.told.get_mut(&lease) {
            let had: &[_] = match last.replaced {
                true => &[],
                false => std::slice::from_ref(&last.from),
            };
            assert_eq!(before.units, had);
            assert_eq!(last.from.1.len(), last.to.1.len());
            assert!(before.epoch < now.epoch);
            *before = now;
        }
    }

    fn tell(&mut self, lease: LeaseId, outcome: Outcome) {
        self.waiting.remove(&lease);
        match outcome {
            Outcome::Reserved(granted) | Outcome::Leased(granted) => {
                for (node, _) in &granted.units {
                    let served = self.acknowledged.contains(&(*node, granted.epoch));
                    assert!(served, "told of {lease:?} before {node:?} serves it");
                }
                self.held.insert(granted.epoch);
                self.told.insert(lease, ClientView::Holds(granted));
            }
            Outcome::Ended(_) | Outcome::Unknown | Outcome::Refused(_) => {
                self.told.insert(lease, ClientView::Over);
            }
            Outcome::Waiting { position, of, .. } => {
                assert!(1 <= position && position <= of);
                self.waiting.insert(lease);
            }
            Outcome::Offered => {}
        }
    }

    fn send(&mut self, node: NodeId, message: ToNode) {
        let node = self.nodes.iter_mut().find(|of| of.id == node);
        if let Some(link) = node.and_then(|of| of.link.as_mut()) {
            link.to_node.push_back(message);
        }
    }

    /// Kills the manager and starts it again. Every connection breaks.
    pub(super) fn restart(&mut self) {
        let calendar = Calendar {
            time: self.time,
            wall: self.wall,
        };
        self.manager = Manager::load(self.store.rows(), calendar);
        self.started = self.time;
        for node in &mut self.nodes {
            node.break_link();
        }
        let ids = self.nodes.iter().map(|node| node.id);
        let is_unknown = |id: &NodeId| !self.manager.nodes.contains_key(id);
        self.unknown = ids.filter(is_unknown).collect();
        self.given_up.clear();
        // A client learns of a decision that the crash kept from it when it renews the lease. Until then
        // the nodes refuse its sessions.
        for (lease, told) in &mut self.told {
            match (lease_of(&self.manager, *lease), &mut *told) {
                (Some(now), ClientView::Holds(granted)) => {
                    self.held.insert(now.granted.epoch);
                    (granted.units, granted.lost) = (now.granted.units, now.granted.lost);
                }
                _ => *told = ClientView::Over,
            }
        }
        self.check();
    }

    /// Connects a node.
    pub(super) fn join(&mut self, at: usize) {
        if self.nodes[at].link.is_some() {
            return;
        }
        let joined = self.nodes[at].hello();
        self.event(Event::NodeJoined(joined));
    }

    /// Breaks a node's connection.
    pub(super) fn lose(&mut self, at: usize) {
        if self.nodes[at].link.is_some() {
            self.nodes[at].break_link();
            let node = self.nodes[at].id;
            self.event(Event::NodeLost { node });
        }
    }

    /// Delivers the next message to a node.
    pub(super) fn deliver_to_node(&mut self, at: usize) -> bool {
        let (time, node) = (self.time, &mut self.nodes[at]);
        let id = node.id;
        let Some(message) = node.link.as_mut().and_then(|of| of.to_node.pop_front()) else {
            return false;
        };
        if let Some(epoch) = node.on_message(message, time) {
            self.acknowledged.insert((id, epoch));
        }
        true
    }

    /// Delivers a node's next message to the manager.
    pub(super) fn deliver_to_manager(&mut self, at: usize) -> bool {
        let link = self.nodes[at].link.as_mut();
        let Some(event) = link.and_then(|of| of.to_manager.pop_front()) else {
            return false;
        };
        self.event(event);
        true
    }

    /// Loses the next message of a link. A welcome is lost only together with its link.
    pub(super) fn drop_message(&mut self, at: usize, to_manager: bool) {
        let Some(link) = self.nodes[at].link.as_mut() else {
            return;
        };
        if to_manager {
            link.to_manager.pop_front();
        } else if !matches!(link.to_node.front(), Some(ToNode::Welcome(_))) {
            link.to_node.pop_front();
        }
    }

    /// Repeats the next message of a link behind all others.
    pub(super) fn repeat_message(&mut self, at: usize, to_manager: bool) {
        let Some(link) = self.nodes[at].link.as_mut() else {
            return;
        };
        if to_manager {
            link.to_manager.extend(link.to_manager.front().cloned());
        } else {
            link.to_node.extend(link.to_node.front().cloned());
        }
    }

    /// Delivers all messages in flight.
    pub(super) fn deliver_all(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            for at in 0..self.nodes.len() {
                moved |= self.deliver_to_node(at);
                moved |= self.deliver_to_manager(at);
            }
        }
    }

    /// Advances the time, with every tick that the manager asks for.
    pub(super) fn pass(&mut self, span: Span) {
        let end = self.time.after(span);
        while let Some(next) = self.manager.next_deadline().filter(|at| *at <= end) {
            self.move_to(next.max(self.time));
            self.event(Event::Tick);
        }
        self.move_to(end);
    }

    /// Advances the time without ticks, as if the manager was stopped.
    pub(super) fn move_to(&mut self, time: Time) {
        let passed = time.since(self.time);
        self.time = time;
        self.wall.0 += passed.0;
        for node in &mut self.nodes {
            node.time_is(time);
        }
    }
}
