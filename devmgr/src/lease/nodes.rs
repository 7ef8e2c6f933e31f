//! Nodes: who is there, what they still serve, and when one cannot serve any more.
//!
//! The rule by which a returning node and the manager agree: the node lists the grants that it serves.
//! Those that the manager has as well, with the same epoch and not ended, go on. All others the node is
//! told to withdraw, and until it has done so it gets no new grant. What the manager has there and the
//! node does not list is over. Grants that were under way are void by the welcome's fence.
//!
//! Invariant: a node is open to grants only while it is connected, trusted, neither draining nor stopping, and serves
//! nothing that the manager does not know.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, EndReason};
use super::alarm::Alarm;
use super::change::{Change, NodeRow};
use super::event::{GrantWord, Joined, Running};
use super::holding::{PartState, Phase};
use super::id::{Epoch, LeaseId};
use super::manager::Manager;
use super::time::{Time, Wall};
use crate::inventory::{NodeId, OfferedDevice, Unit};
use crate::policy::UserName;

/// A node in the machine's memory.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) account: Option<UserName>,
    pub(super) connected: bool,
    pub(super) draining: bool,
    /// It was told to end; forgotten with the connection.
    pub(super) stopping: bool,
    /// Until when it gets no grant because it refused one or did not answer.
    pub(super) distrusted: Option<Time>,
    /// Since when it is lost: by this process's clock, before whose start it is not counted.
    pub(super) lost: Option<Time>,
    /// Since when it is absent, which is the same but for restarts.
    pub(super) absent: Option<Wall>,
    /// Whether a row says so.
    pub(super) absence_stored: bool,
    /// When it is told again to withdraw what nobody knows.
    pub(super) repeat: Option<Time>,
    /// What it serves and nobody knows.
    pub(super) strays: BTreeSet<(LeaseId, Epoch)>,
    /// Grants with a part there that is not gone.
    pub(super) grants: BTreeSet<Epoch>,
}

impl Node {
    pub(super) fn is_open(&self) -> bool {
        let wanted = !self.draining && !self.stopping && self.distrusted.is_none();
        self.connected && wanted && self.strays.is_empty()
    }

    /// Whether it may be forgotten for another's sake.
    pub(super) fn is_dispensable(&self) -> bool {
        !self.connected && !self.draining && self.grants.is_empty()
    }

    fn row(&self, node: NodeId) -> NodeRow {
        NodeRow {
            node,
            name: self.name.clone(),
            addresses: self.addresses.clone(),
            draining: self.draining,
            account: self.account.clone(),
        }
    }
}

impl Manager {
    /// As whom a node has joined: another account is not believed to be that node. `None`: it is nobody's yet.
    #[must_use]
    pub fn account_of(&self, node: NodeId) -> Option<&UserName> {
        self.nodes.get(&node)?.account.as_ref()
    }

    pub(super) fn node_joined(&mut self, joined: Joined) {
        let id = joined.node;
        if self.nodes.get(&id).is_some_and(|node| node.connected) {
            self.node_lost(id);
        }
        let new = !self.nodes.contains_key(&id);
        let account = joined.account.or_else(|| self.account_of(id).cloned());
        self.make_room(id, account.as_ref(), &joined.devices);
        let node = self.nodes.entry(id).or_default();
        let now = (joined.name, joined.addresses, account);
        let before = (&node.name, &node.addresses, &node.account);
        let same = !new && before == (&now.0, &now.1, &now.2);
        (node.name, node.addresses, node.account) = now;
        node.connected = true;
        (node.lost, node.absent) = (None, None);
        node.distrusted = None;
        node.stopping = joined.stopping;
        if !same {
            let row = node.row(id);
            self.store(Change::PutNode(row));
        }
        let fence = self.epoch;
        self.act(Action::Welcome { node: id, fence });
        self.say_drain(id);
        self.agree(id, &joined.running);
        self.set_devices(id, &joined.devices);
        self.update_open(id);
        self.not_awaited(id);
    }

    /// The rule of the module.
    fn agree(&mut self, id: NodeId, running: &[Running]) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let known: Vec<Epoch> = node.grants.iter().copied().collect();
        let listed: BTreeMap<(LeaseId, Epoch), u32> = running
            .iter()
            .map(|of| ((of.lease, of.epoch), of.sessions))
            .collect();
        for epoch in known {
            let Some(holding) = self.grants.get_mut(&epoch) else {
                continue;
            };
            let lease = holding.demand.lease;
            let Some(sessions) = listed.get(&(lease, epoch)).copied() else {
                self.part_lost(epoch, id);
                continue;
            };
            let phase = holding.phase;
            let Some(part) = holding.part(id) else {
                continue;
            };
            match phase {
                Phase::Ending { reason } => {
                    part.state = PartState::Withdrawing;
                    self.withdraw(id, lease, epoch, reason);
                    self.arm_grant(epoch);
                }
                _ => self.acknowledged(GrantWord {
                    node: id,
                    lease,
                    epoch,
                }),
            }
            self.sessions(
                GrantWord {
                    node: id,
                    lease,
                    epoch,
                },
                sessions,
            );
        }
        for of in running {
            if !self.knows(id, of.lease, of.epoch) {
                self.stray(id, of.lease, of.epoch);
            }
        }
    }

    /// Whether a node's part of a grant is not gone.
    pub(super) fn knows(&self, node: NodeId, lease: LeaseId, epoch: Epoch) -> bool {
        let holding = self.grants.get(&epoch);
        let mine = holding.filter(|of| of.demand.lease == lease);
        mine.is_some_and(|of| {
            let parts = of.parts.iter();
            parts
                .filter(|part| part.node == node)
                .any(|part| part.state != PartState::Gone)
        })
    }

    /// A node serves what nobody knows of: it gets nothing new before that is withdrawn.
    pub(super) fn stray(&mut self, id: NodeId, lease: LeaseId, epoch: Epoch) {
        let repeat = self.now.after(self.policy.timing.repeat);
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.connected) else {
            return;
        };
        node.strays.insert((lease, epoch));
        node.repeat = Some(repeat);
        self.withdraw(id, lease, epoch, None);
        self.update_open(id);
    }

    pub(super) fn withdraw(
        &mut self,
        node: NodeId,
        lease: LeaseId,
        epoch: Epoch,
        reason: Option<EndReason>,
    ) {
        self.act(Action::Withdraw {
            node,
            lease,
            epoch,
            reason,
        });
    }

    pub(super) fn node_changed(
        &mut self,
        id: NodeId,
        addresses: Vec<String>,
        devices: &[OfferedDevice],
    ) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.connected) else {
            return;
        };
        if node.addresses != addresses {
            node.addresses = addresses;
            let row = node.row(id);
            self.store(Change::PutNode(row));
        }
        self.set_devices(id, devices);
        self.update_open(id);
    }

    /// A node's devices are these. Leases of devices that are others now end.
    fn set_devices(&mut self, id: NodeId, devices: &[OfferedDevice]) {
        self.drop_aside_on(id);
        let changed: BTreeSet<Unit> = self.cluster.replace(id, devices).into_iter().collect();
        let epochs: Vec<Epoch> = self
            .nodes
            .get(&id)
            .map_or_else(Vec::new, |node| node.grants.iter().copied().collect());
        for epoch in epochs {
            let Some(holding) = self.grants.get(&epoch) else {
                continue;
            };
            let part = holding.parts.iter().find(|part| part.node == id);
            let units: Vec<Unit> = part.map_or_else(Vec::new, |part| {
                part.units.iter().map(|of| of.unit).collect()
            });
            let mut there = true;
            for unit in units {
                self.cluster.take(id, unit);
                there &= !changed.contains(&unit) && self.cluster.has(id, unit);
            }
            if !there && self.grants.get(&epoch).is_some_and(|of| !of.is_ending()) {
                self.end_any(epoch, EndReason::DevicesChanged);
            }
        }
        self.look_for_hope();
    }

    pub(super) fn node_lost(&mut self, id: NodeId) {
        let (now, wall) = (self.now, self.wall());
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.connected) else {
            return;
        };
        (node.connected, node.stopping) = (false, false);
        (node.lost, node.absent) = (Some(now), Some(wall));
        node.strays.clear();
        node.repeat = None;
        let epochs: Vec<Epoch> = node.grants.iter().copied().collect();
        self.update_open(id);
        for epoch in epochs {
            let offered = |of: &super::holding::Holding| matches!(of.phase, Phase::Offered { .. });
            if self.grants.get(&epoch).is_some_and(offered) {
                self.offer_failed(epoch);
            }
        }
    }

    pub(super) fn node_stopping(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.connected) {
            node.stopping = true;
            self.update_open(id);
        }
    }

    pub(super) fn drain(&mut self, id: NodeId, draining: bool) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.draining = draining;
        let row = node.row(id);
        self.store(Change::PutNode(row));
        // Before it is granted anything again.
        self.say_drain(id);
        self.update_open(id);
    }

    fn say_drain(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get(&id).filter(|node| node.connected) {
            let draining = node.draining;
            self.act(Action::Drain { node: id, draining });
        }
    }

    /// A node gets no grant for a while.
    pub(super) fn distrust(&mut self, id: NodeId) {
        let until = self.now.after(self.policy.timing.distrust);
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.connected) {
            node.distrusted = Some(until);
            self.update_open(id);
        }
    }

    /// Opens or closes a node as its state says, and sets its alarm.
    pub(super) fn update_open(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let open = node.is_open();
        self.cluster.set_open(id, open);
        if open {
            self.chance = true;
        } else {
            self.drop_aside_on(id);
        }
        self.arm_node(id);
    }

    /// When a lost node's leases cannot be served any more, by its own clock.
    pub(super) fn fenced_at(&self, node: &Node) -> Option<Time> {
        let timing = &self.policy.timing;
        let lost = node.lost.filter(|_| !node.grants.is_empty())?;
        Some(lost.after(timing.autonomy).after(timing.margin))
    }

    pub(super) fn arm_node(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let due = [node.distrusted, node.repeat, self.fenced_at(node)];
        let due = due.into_iter().flatten().min();
        self.alarms.set(Alarm::Node(id), due);
    }

    pub(super) fn node_due(&mut self, id: NodeId) {
        let (now, repeat) = (self.now, self.policy.timing.repeat);
        let Some(fenced) = self.nodes.get(&id).map(|node| self.fenced_at(node)) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.distrusted = node.distrusted.filter(|until| *until > now);
        if node.repeat.is_some_and(|at| at <= now) {
            node.repeat = (!node.strays.is_empty()).then(|| now.after(repeat));
            for (lease, epoch) in node.strays.clone() {
                self.withdraw(id, lease, epoch, None);
            }
        }
        if fenced.is_some_and(|at| at <= now) {
            let node = self.nodes.get(&id);
            let epochs: Vec<Epoch> =
                node.map_or_else(Vec::new, |node| node.grants.iter().copied().collect());
            for epoch in epochs {
                self.part_lost(epoch, id);
            }
        }
        self.update_open(id);
    }
}
