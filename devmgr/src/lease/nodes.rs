//! Nodes: which are connected, what they serve, and when one can no longer serve anything.
//!
//! A returning node and the manager agree as follows. The node lists the grants that it serves. Grants
//! that the manager has too, with the same epoch and not ended, go on. The node must withdraw all others,
//! and gets no new grant before that. Grants that the manager has and the node does not list are over.
//! Grants that were in flight are void by the fence in the welcome.
//!
//! Invariant: a node is open to grants only while it is connected, trusted, not draining and not
//! stopping, and serves no unknown grant.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, EndReason};
use super::alarm::Alarm;
use super::change::{Change, NodeRow};
use super::event::{GrantReport, Joined, ServedGrant};
use super::holding::{Holding, PartState, Phase};
use super::id::{Epoch, LeaseId};
use super::manager::Manager;
use super::moving::Leaving;
use crate::inventory::{NodeId, OfferedDevice, Unit};
use crate::policy::UserName;
use crate::time::{Time, Wall};

/// A node in the manager's memory.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) account: Option<UserName>,
    pub(super) connected: bool,
    pub(super) draining: bool,
    /// Set while the leases of the draining node are moved to others.
    pub(super) leaving: Option<Leaving>,
    /// The node was told to shut down. Reset when the connection ends.
    pub(super) stopping: bool,
    /// Until when the node gets no grant, because it refused one or did not answer.
    pub(super) distrusted: Option<Time>,
    /// Since when the node is lost, by this process's clock. The start counts as the earliest such time.
    pub(super) lost: Option<Time>,
    /// Since when the node is absent, by the host's clock and across restarts.
    pub(super) absent: Option<Wall>,
    /// Whether the store has the absence.
    pub(super) absence_stored: bool,
    /// When the node is told again to withdraw its unknown grants.
    pub(super) repeat: Option<Time>,
    /// Grants that the node serves and the manager does not know.
    pub(super) strays: BTreeSet<(LeaseId, Epoch)>,
    /// Grants with a part on this node that is not gone.
    pub(super) grants: BTreeSet<Epoch>,
}

impl Node {
    pub(super) fn is_open(&self) -> bool {
        let wanted = !self.draining && !self.stopping && self.distrusted.is_none();
        self.connected && wanted && self.strays.is_empty()
    }

    /// Whether the node may be forgotten to make room for another.
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
    /// The account under which a node has joined. Other accounts may not join as this node. `None`: it
    /// has no account yet.
    #[must_use]
    pub fn account_of(&self, node: NodeId) -> Option<&UserName> {
        self.nodes.get(&node)?.account.as_ref()
    }

    pub(super) fn node_joined(&mut self, joined: Joined) {
        let id = joined.node;
        // The old connection may not have been noticed as broken yet. Losing the node first fails its
        // open offers.
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
        let was_absent = std::mem::take(&mut node.absence_stored);
        if !same {
            let row = node.row(id);
            self.store(Change::PutNode(row));
        }
        // Now, and not at the next look at absences: a manager that starts before that must know that the node may serve.
        if was_absent {
            self.store(Change::DeleteAbsence(id));
        }
        // Grants so far that the node does not list are void; later ones have larger epochs.
        let fence = self.epoch;
        self.act(Action::Welcome { node: id, fence });
        self.say_drain(id);
        self.agree(id, &joined.running);
        // After `agree`, so that only the grants that go on take their units again.
        self.set_devices(id, &joined.devices);
        self.update_open(id);
        self.not_awaited(id);
    }

    /// Compares a node's grants with the manager's, by the rule of the module.
    fn agree(&mut self, id: NodeId, running: &[ServedGrant]) {
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
            let (phase, is_replaceable) = (holding.phase, holding.is_replaceable());
            let Some(part) = holding.part(id) else {
                continue;
            };
            // A grant that is ending is withdrawn again, because the node still lists it.
            match phase {
                Phase::Ending { reason } => {
                    part.state = PartState::Withdrawing;
                    self.withdraw(id, lease, epoch, reason);
                    self.arm_grant(epoch);
                }
                // The part was withdrawn from a lease that goes on with other nodes, or is to be replaced.
                _ if part.state == PartState::Withdrawing => {
                    let reason = match is_replaceable {
                        true => EndReason::DevicesChanged,
                        false => EndReason::Drained,
                    };
                    self.withdraw(id, lease, epoch, Some(reason));
                }
                _ => self.acknowledged(GrantReport {
                    node: id,
                    lease,
                    epoch,
                }),
            }
            self.sessions(
                GrantReport {
                    node: id,
                    lease,
                    epoch,
                },
                sessions,
            );
        }
        // The node also lists grants that the manager has ended without it, or never had.
        for of in running {
            if !self.knows(id, of.lease, of.epoch) {
                self.stray(id, of.lease, of.epoch);
            }
        }
    }

    /// Whether a node has a part of this grant that is not gone.
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

    /// Withdraws a grant that the manager does not know. The node gets no new grant until it has
    /// withdrawn this one.
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

    /// Replaces a node's devices, and ends or replaces leases whose devices have changed or are gone.
    fn set_devices(&mut self, id: NodeId, devices: &[OfferedDevice]) {
        self.drop_aside_on(id);
        // `replace` frees all units of the node, so none of them may be set aside any more.
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
            // The replaced inventory counts all units as free again, so those of running grants are taken
            // again.
            for unit in units {
                self.cluster.take(id, unit);
                there &= !changed.contains(&unit) && self.cluster.has(id, unit);
            }
            if !there {
                self.devices_changed(epoch, id);
            }
        }
        self.look_for_hope();
    }

    /// Devices of a grant have changed or are gone: ends the grant, or takes it from the node to replace it.
    fn devices_changed(&mut self, epoch: Epoch, id: NodeId) {
        let Some(holding) = self.grants.get_mut(&epoch).filter(|of| !of.is_ending()) else {
            return;
        };
        if !holding.is_replaceable() {
            self.end_any(epoch, EndReason::DevicesChanged);
            return;
        }
        // The node's other units may be in use until it says that it has withdrawn the grant.
        let lease = holding.demand.lease;
        if let Some(part) = holding.part(id) {
            part.state = PartState::Withdrawing;
        }
        self.withdraw(id, lease, epoch, Some(EndReason::DevicesChanged));
    }

    /// Whether a node may serve units that no quota counts: of leases that the manager before has ended.
    pub(super) fn may_serve_uncounted(&self) -> bool {
        let mut awaited = self.awaited.iter().map(|id| self.nodes.get(id));
        // An awaited node that is forgotten may serve until the start phase is over.
        awaited.any(|node| node.is_none_or(|node| self.may_serve(node))) || self.has_strays()
    }

    /// Whether a node may serve anything. One that was lost long before this manager started does not. An absence from
    /// before the start is a stored one, so it was long enough whatever has become of the host's clock.
    pub(super) fn may_serve(&self, node: &Node) -> bool {
        let fenced = self.policy.timing.fenced_after();
        let since = node.absent.map(|since| self.wall().since(since));
        since.is_none_or(|absent| absent < fenced)
    }

    pub(super) fn has_strays(&self) -> bool {
        self.nodes.values().any(|node| !node.strays.is_empty())
    }

    pub(super) fn node_lost(&mut self, id: NodeId) {
        let (now, wall) = (self.now, self.wall());
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.connected) else {
            return;
        };
        (node.connected, node.stopping) = (false, false);
        (node.lost, node.absent) = (Some(now), Some(wall));
        // What the node serves without the manager's knowledge is unknown again.
        let has_strays = !std::mem::take(&mut node.strays).is_empty();
        node.repeat = None;
        let epochs: Vec<Epoch> = node.grants.iter().copied().collect();
        if self.settling && has_strays {
            self.awaited.insert(id);
        }
        self.update_open(id);
        for epoch in epochs {
            // Leases stay: the node may serve them without the manager for its autonomy.
            let offered = |of: &super::holding::Holding| matches!(of.phase, Phase::Offered { .. });
            if self.grants.get(&epoch).is_some_and(offered) {
                self.offer_failed(epoch);
            }
            // The old node still has the sessions, or cannot reach this one.
            if self.grants.get(&epoch).is_some_and(Holding::is_moving) {
                self.move_failed(epoch);
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
        node.leaving = None;
        let row = node.row(id);
        self.store(Change::PutNode(row));
        // Sent before the node is open again, so that the node learns of its state before the next grant.
        self.say_drain(id);
        self.update_open(id);
    }

    fn say_drain(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get(&id).filter(|node| node.connected) {
            let draining = node.draining;
            self.act(Action::Drain { node: id, draining });
        }
    }

    /// Gives a node no grants for `Timing::distrust`.
    pub(super) fn distrust(&mut self, id: NodeId) {
        let until = self.now.after(self.policy.timing.distrust);
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.connected) {
            node.distrusted = Some(until);
            self.update_open(id);
        }
    }

    /// Opens or closes a node to grants according to its state, and sets its alarm.
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

    /// When a lost node can no longer serve its leases: after its autonomy, plus a margin for its clock.
    pub(super) fn fenced_at(&self, node: &Node) -> Option<Time> {
        let lost = node.lost.filter(|_| !node.grants.is_empty())?;
        Some(lost.after(self.policy.timing.fenced_after()))
    }

    pub(super) fn arm_node(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let leaves = node.leaving.as_ref().and_then(|of| of.until);
        let due = [node.distrusted, node.repeat, self.fenced_at(node), leaves];
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
        self.leaving_due(id);
        // By its own clock the lost node has stopped serving its leases.
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
