//! The nodes' side of the protocol.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::*;
use crate::inventory::{NodeId, OfferedDevice, Unit};
use crate::time::{Span, Time};

/// A message from the manager to a node.
#[derive(Clone, Debug, Hash)]
pub(super) enum ToNode {
    Welcome(Epoch),
    Drain(bool),
    Grant(Grant),
    Withdraw(LeaseId, Epoch),
    Move(LeaseId, Epoch, Epoch),
    Stay(Epoch),
}

/// A connection, with its messages in flight.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Link {
    pub(super) to_node: VecDeque<ToNode>,
    pub(super) to_manager: VecDeque<Event>,
}

/// A grant that a node serves.
#[derive(Clone, Debug, Hash)]
pub(super) struct Served {
    pub(super) lease: LeaseId,
    pub(super) units: Vec<Unit>,
    pub(super) ends: Option<Time>,
    pub(super) sessions: u32,
    /// The grant of the node that has taken the sessions, which wait here for the end of this grant.
    pub(super) sent: Option<Epoch>,
}

#[derive(Clone, Debug, Hash)]
pub(in super::super) struct SimNode {
    pub(super) id: NodeId,
    pub(super) addresses: Vec<String>,
    pub(super) devices: Vec<OfferedDevice>,
    pub(super) link: Option<Link>,
    pub(super) serving: BTreeMap<Epoch, Served>,
    /// Whether the node was told to take no new grants.
    pub(super) draining: bool,
    /// Whether the node was told to shut down.
    pub(super) stopping: bool,
    /// Grants up to this epoch are void unless the node serves them.
    fence: Epoch,
    /// Grants that were withdrawn.
    void: BTreeSet<Epoch>,
    /// Messages of earlier connections that still arrive.
    late: Vec<ToNode>,
    /// When the node was last connected to the manager.
    heard: Time,
    autonomy: Span,
}

impl SimNode {
    pub(super) fn new(at: usize, devices: Vec<OfferedDevice>) -> Self {
        Self {
            id: NodeId([at as u8 + 1; 16]),
            addresses: vec![format!("n{at}:1")],
            devices,
            link: None,
            serving: BTreeMap::new(),
            draining: false,
            stopping: false,
            fence: Epoch(0),
            void: BTreeSet::new(),
            late: Vec::new(),
            heard: Time(0),
            autonomy: Span(u64::MAX),
        }
    }

    pub(super) fn hello(&mut self) -> Joined {
        let sent = self.serving.iter();
        let sent = sent.filter_map(|(epoch, of)| {
            let word = self.word(of.lease, *epoch);
            Some(Event::MoveEnded(word, of.sent?, MoveResult::Moved))
        });
        self.link = Some(Link {
            to_manager: sent.collect(),
            ..Link::default()
        });
        let running = self.serving.iter().map(|(epoch, of)| ServedGrant {
            lease: of.lease,
            epoch: *epoch,
            sessions: of.sessions,
        });
        Joined {
            node: self.id,
            account: None,
            name: format!("{:?}", self.id),
            addresses: self.addresses.clone(),
            devices: self.devices.clone(),
            running: running.collect(),
            stopping: self.stopping,
        }
    }

    /// The event for changed devices or addresses.
    pub(super) fn changed(&self) -> Event {
        Event::NodeChanged {
            node: self.id,
            addresses: self.addresses.clone(),
            devices: self.devices.clone(),
        }
    }

    pub(super) fn break_link(&mut self) {
        if let Some(link) = self.link.take() {
            // Messages that concern the connection itself end with it.
            let of_link = |of: &ToNode| matches!(of, ToNode::Welcome(_) | ToNode::Drain(_));
            let grants = link.to_node.into_iter();
            self.late.extend(grants.filter(|of| !of_link(of)));
        }
    }

    /// Restarts the daemon, which loses its grants.
    pub(super) fn reboot(&mut self) {
        self.serving.clear();
        self.void.clear();
        (self.draining, self.stopping) = (false, false);
        self.fence = Epoch(0);
    }

    /// Tells the node to shut down.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.report(Event::NodeStopping { node: self.id });
    }

    /// Withdraws all grants, as a node does before it disconnects.
    pub(super) fn let_go(&mut self) {
        for (epoch, of) in std::mem::take(&mut self.serving) {
            self.void.insert(epoch);
            self.report(Event::Withdrawn(self.word(of.lease, epoch)));
        }
    }

    fn report(&mut self, event: Event) {
        if let Some(link) = &mut self.link {
            link.to_manager.push_back(event);
        }
    }

    fn word(&self, lease: LeaseId, epoch: Epoch) -> GrantReport {
        GrantReport {
            node: self.id,
            lease,
            epoch,
        }
    }

    /// Handles a message from the manager, and returns the epoch of a grant that the node has
    /// acknowledged.
    pub(super) fn on_message(&mut self, message: ToNode, now: Time) -> Option<Epoch> {
        match message {
            ToNode::Welcome(fence) => {
                self.fence = self.fence.max(fence);
                if let Some(link) = &mut self.link {
                    link.to_node.extend(self.late.drain(..));
                }
                None
            }
            ToNode::Drain(draining) => {
                self.draining = draining;
                None
            }
            ToNode::Withdraw(lease, epoch) => {
                self.serving.remove(&epoch);
                self.void.insert(epoch);
                self.report(Event::Withdrawn(self.word(lease, epoch)));
                None
            }
            // The old node's sessions move if it still has the lease. A node refuses, or cannot reach the other one.
            ToNode::Move(lease, epoch, target) => {
                let result = match (self.serving.get_mut(&epoch), epoch.0 % 3) {
                    (Some(served), 0) => {
                        served.sent = None;
                        MoveResult::NotTaken("no way".to_owned())
                    }
                    (Some(served), _) => {
                        served.sent = Some(target);
                        MoveResult::Moved
                    }
                    (None, _) => MoveResult::Stays("no such lease".to_owned()),
                };
                self.report(Event::MoveEnded(self.word(lease, epoch), target, result));
                None
            }
            ToNode::Stay(epoch) => {
                if let Some(served) = self.serving.get_mut(&epoch) {
                    served.sent = None;
                }
                None
            }
            ToNode::Grant(grant) => self.grant(grant, now),
        }
    }

    fn grant(&mut self, grant: Grant, now: Time) -> Option<Epoch> {
        let word = self.word(grant.lease, grant.epoch);
        let again = self.serving.contains_key(&grant.epoch);
        let is_void = grant.epoch <= self.fence || self.void.contains(&grant.epoch);
        if !again && (is_void || self.draining || self.stopping) {
            self.report(Event::GrantRefused(word));
            return None;
        }
        let units: Vec<Unit> = grant.units.iter().map(|of| of.unit).collect();
        if !again {
            for (epoch, of) in &self.serving {
                let clash = of.units.iter().any(|unit| units.contains(unit));
                assert!(
                    !clash,
                    "{:?} granted while {epoch:?} is served",
                    grant.epoch
                );
            }
            self.autonomy = grant.autonomy;
            let served = Served {
                lease: grant.lease,
                units,
                ends: grant.limit.map(|limit| now.after(limit)),
                sessions: 0,
                sent: None,
            };
            self.serving.insert(grant.epoch, served);
        }
        self.report(Event::GrantAcknowledged(word));
        Some(grant.epoch)
    }

    /// Advances the node's clock, and ends grants whose time is over.
    pub(super) fn time_is(&mut self, now: Time) {
        if self.link.is_some() {
            self.heard = now;
        } else if now.since(self.heard) >= self.autonomy {
            for epoch in std::mem::take(&mut self.serving).into_keys() {
                self.void.insert(epoch);
            }
        }
        let over = |of: &Served| of.ends.is_some_and(|ends| ends <= now);
        let ended: Vec<_> = self
            .serving
            .iter()
            .filter(|(_, of)| over(of))
            .map(|(epoch, of)| (*epoch, of.lease))
            .collect();
        for (epoch, lease) in ended {
            self.serving.remove(&epoch);
            self.void.insert(epoch);
            self.report(Event::Withdrawn(self.word(lease, epoch)));
        }
    }

    /// Sets the number of sessions of a grant.
    pub(super) fn use_grant(&mut self, epoch: Epoch, sessions: u32) {
        if let Some(served) = self.serving.get_mut(&epoch) {
            served.sessions = sessions;
            let of = self.word(self.serving[&epoch].lease, epoch);
            self.report(Event::Sessions {
                of,
                count: sessions,
            });
        }
    }
}
