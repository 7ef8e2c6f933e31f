//! Invariants that hold after every step, and the final state that every run must reach.

use std::collections::{BTreeMap, BTreeSet};

use super::super::holding::{GrantPart, Holding, PartState, Phase};
use super::super::manager::Standing;
use super::super::moving::LONGEST;
use super::super::nodes::Node;
use super::*;
use crate::inventory::{Level, Manner, Unit};
use crate::policy::Subject;

impl World {
    /// Checks that `consider` predicts the answer to the same request if it is made at once and does not
    /// wait.
    pub(super) fn check_considered(&self, new: &NewRequest) {
        let mut manager = self.manager.clone();
        manager.handle(self.time, Event::Tick);
        let considered = manager.consider(new);
        let at_once = NewRequest {
            wait: false,
            ..new.clone()
        };
        let transition = manager.handle(self.time, Event::Request(at_once));
        let answer = transition.actions.iter().find_map(|action| match action {
            Action::Tell { lease, outcome } if *lease == new.lease => Some(outcome),
            _ => None,
        });
        match (considered, answer) {
            (Ok(mut units), Some(Outcome::Offered)) => {
                let grants = transition.actions.iter().filter_map(|action| match action {
                    Action::Grant(grant) if grant.lease == new.lease => Some(grant),
                    _ => None,
                });
                let offered =
                    grants.flat_map(|of| of.units.iter().map(|unit| (of.node, unit.unit)));
                let mut offered: Vec<_> = offered.collect();
                offered.sort_unstable();
                units.sort_unstable();
                assert_eq!(units, offered);
            }
            (Err(why), Some(Outcome::Refused(said))) => assert_eq!(why, *said),
            // The use that counts for quotas is not known yet.
            (Ok(_), Some(Outcome::Waiting { .. })) => assert!(manager.settling),
            // Nodes that have not joined yet may have fitting devices, and units that are being released
            // are worth a moment.
            (Err(_), Some(Outcome::Waiting { .. })) => {
                assert!(manager.settling || !manager.ending.is_empty());
            }
            other => panic!("{other:?}"),
        }
    }

    /// Checks that no unit is in two leases: in the manager's state, for the clients, and on the nodes
    /// (which check each grant). Checks that quotas are kept, and that the manager's state agrees with
    /// itself and with the store.
    pub(super) fn check(&self) {
        self.check_units();
        self.check_hopeless();
        self.check_clients();
        self.check_quotas();
        self.check_store();
        self.check_sought();
    }

    /// Checks that exactly the live leases without any node are sought, for a bounded time, by one grant each.
    fn check_sought(&self) {
        let manager = &self.manager;
        let grants = manager.grants.iter();
        let sought = grants
            .filter(|(_, of)| of.is_sought())
            .map(|(epoch, _)| epoch);
        assert!(sought.eq(manager.sought.keys()));
        for (epoch, until) in &manager.sought {
            assert!(*until > manager.now && *until <= manager.now.after(LONGEST));
            let wanted = &manager.grants[epoch].replace;
            assert!(!wanted.is_empty());
            let is_offered = manager.moves.contains_key(epoch);
            let is_free = || manager.cluster.choose_equal(wanted, None).is_some();
            assert!(is_offered || !is_free(), "equal units are free");
        }
        for (from, to) in &manager.moves {
            let is_its =
                |of: &Holding| matches!(of.phase, Phase::Moving { from: of, .. } if of == *from);
            assert!(manager.grants[from].is_live() && is_its(&manager.grants[to]));
        }
    }

    fn check_units(&self) {
        let mut taken: BTreeSet<(NodeId, Unit)> = BTreeSet::new();
        for (epoch, holding) in &self.manager.grants {
            assert!(!holding.parts.is_empty());
            for part in &holding.parts {
                let node = self.manager.nodes.get(&part.node);
                let listed = node.is_some_and(|of| of.grants.contains(epoch));
                assert_eq!(listed, part.state != PartState::Gone, "{epoch:?}");
                if part.state == PartState::Gone {
                    continue;
                }
                for of in &part.units {
                    assert!(
                        taken.insert((part.node, of.unit)),
                        "{of:?} is in two leases"
                    );
                }
            }
        }
        for at in 0..self.nodes.len() {
            let id = self.nodes[at].id;
            let held = taken.iter().filter(|(node, _)| *node == id).count();
            let known: usize = self
                .manager
                .cluster
                .devices(id)
                .iter()
                .map(|of| of.taken.len())
                .sum();
            let aside = self.manager.aside_ready(id);
            let devices = self.manager.cluster.devices(id).len();
            assert!(
                devices == 0 || held + aside == known,
                "{id:?}: {held} + {aside} != {known}"
            );
        }
        for (lease, standing) in &self.manager.leases {
            match standing {
                Standing::Waiting(place) => {
                    assert_eq!(
                        self.manager.queue.get(*place).map(|of| of.demand.lease),
                        Some(*lease)
                    );
                }
                Standing::Granted(epoch) => assert!(!self.manager.grants[epoch].is_ending()),
            }
        }
    }

    /// Checks that a request for unknown devices waits for a bounded time only, and takes no turn for its
    /// user.
    fn check_hopeless(&self) {
        let manager = &self.manager;
        for (place, until) in &manager.hopeless {
            let waiting = manager.queue.get(*place).expect("a waiting request");
            let user = &waiting.demand.party.user;
            assert!(waiting.demand.wait && manager.queue.first_of(user) != Some(*place));
            assert!(*until <= manager.now.after(manager.policy.timing.arrival));
            let manner = Manner {
                placement: waiting.demand.devices.placement(),
                assignment: Default::default(),
                memory: u64::MAX,
            };
            let mut cluster = manager.cluster.clone();
            let choice = cluster.choose(Level::Known, &waiting.demand.devices, manner);
            assert!(choice.is_err(), "there is hope for {place}");
        }
    }

    fn check_clients(&self) {
        let mut held: BTreeMap<(NodeId, Unit), LeaseId> = BTreeMap::new();
        for (lease, told) in &self.told {
            let ClientView::Holds(granted) = told else {
                continue;
            };
            for (node, units) in &granted.units {
                for unit in units {
                    let other = held.insert((*node, *unit), *lease);
                    assert_eq!(other, None, "{unit:?} of {node:?} is also {lease:?}'s");
                }
            }
        }
        for node in &self.nodes {
            let mut served = BTreeSet::new();
            for unit in node.serving.values().flat_map(|of| &of.units) {
                assert!(served.insert(unit), "{unit:?} is served twice");
            }
        }
    }

    fn check_quotas(&self) {
        let mut has: BTreeMap<Subject, (u32, u64)> = BTreeMap::new();
        for holding in self.manager.grants.values() {
            let known = !matches!(
                holding.phase,
                Phase::Ending { reason: None } | Phase::Moving { .. }
            );
            // What is to be replaced counts, too.
            let counts = |of: &&GrantPart| of.state != PartState::Gone || holding.is_sought();
            for part in holding.parts.iter().filter(counts) {
                assert_eq!(part.counted, known);
                if known {
                    for subject in holding.demand.party.subjects() {
                        let entry = has.entry(subject).or_default();
                        entry.0 += part.units.len() as u32;
                        entry.1 += part.units.iter().map(|of| of.memory).sum::<u64>();
                    }
                }
            }
        }
        let ledger = &self.manager.ledger;
        for (subject, (devices, memory)) in &has {
            let holdings = ledger.holdings(subject);
            assert_eq!((holdings.devices, holdings.memory), (*devices, *memory));
            let Some(quota) = ledger.quota(subject) else {
                continue;
            };
            assert!(
                quota.devices.is_none_or(|most| *devices <= most),
                "{subject:?}"
            );
            assert!(
                quota.memory.is_none_or(|most| *memory <= most),
                "{subject:?}"
            );
        }
        for subject in self.users.values().map(|user| Subject::User(user.clone())) {
            let Some(most) = ledger.quota(&subject).and_then(|of| of.device_time) else {
                continue;
            };
            let window = self.manager.policy.accounting_window;
            let used = ledger.used(&subject, self.manager.wall(), window);
            let promised = ledger.holdings(&subject).promised;
            assert!(
                used.0 + promised.0 <= most.0,
                "{subject:?}: {used:?}, {promised:?}"
            );
        }
    }

    /// Checks, when nodes are asked to serve a lease, that its user has not more units than their quota, of grants that the
    /// user's clients have or had, whatever the manager knows. Nodes that were away for the whole start phase do not count,
    /// nor do those that were removed before it. A grant of a node that was removed after it does not count either: an
    /// administrator has ended its lease, and the manager waits for the node no more. The phase may last less than
    /// `Timing::settle`.
    pub(super) fn check_served_for(&self, lease: LeaseId) {
        let manager = &self.manager;
        let user = &self.users[&lease];
        let quota = manager.ledger.quota(&Subject::User(user.clone()));
        let Some(most) = quota.and_then(|of| of.devices) else {
            return;
        };
        let settle = manager.policy.timing.settle;
        let is_settled = self.time.since(self.started) >= settle;
        let is_known = |node: &SimNode, epoch: &Epoch| {
            let strays = manager.nodes.get(&node.id).map(|of| &of.strays);
            let is_stray = strays.is_some_and(|of| of.iter().any(|(_, of)| of == epoch));
            node.link.is_some() && !is_stray
        };
        let mut units: BTreeMap<LeaseId, BTreeMap<Epoch, usize>> = BTreeMap::new();
        for node in &self.nodes {
            for (epoch, of) in &node.serving {
                let is_theirs = self.held.contains(epoch) && self.users[&of.lease] == *user;
                let is_excused = self.unknown.contains(&node.id) || self.given_up.contains(epoch);
                let counts_unseen = !is_settled && !is_excused;
                if is_theirs && of.lease != lease && (counts_unseen || is_known(node, epoch)) {
                    *units
                        .entry(of.lease)
                        .or_default()
                        .entry(*epoch)
                        .or_default() += of.units.len();
                }
            }
        }
        let own = manager
            .grants
            .values()
            .filter(|of| of.demand.lease == lease);
        let own = own.flat_map(|of| &of.parts).map(|of| of.units.len()).max();
        // A lease that moves is served by two grants for a moment.
        let others: usize = units.values().filter_map(|of| of.values().max()).sum();
        let all = others + own.unwrap_or(0);
        assert!(
            all <= most as usize,
            "{user:?} is served {all} units of {most}"
        );
    }

    fn check_store(&self) {
        let known: Vec<_> = self.manager.nodes.keys().collect();
        assert!(known.into_iter().eq(self.store.nodes.keys()));
        let absent = |(_, node): &(_, &Node)| node.absence_stored;
        let absent = self.manager.nodes.iter().filter(absent).map(|(id, _)| id);
        assert!(absent.eq(self.store.absences.keys()));
        let live = self.manager.grants.values().filter(|of| of.is_live());
        let live: BTreeSet<LeaseId> = live.map(|of| of.demand.lease).collect();
        let stored: BTreeSet<LeaseId> = self.store.leases.keys().copied().collect();
        assert_eq!(live, stored);
        for (_, waiting) in self.manager.queue.iter() {
            let row = self.store.waiting.contains_key(&waiting.demand.lease);
            assert_eq!(row, waiting.demand.wait);
        }
    }

    /// Heals all faults and releases all leases, then checks that everything is free and stays free.
    pub(super) fn check_in_the_end(mut self) {
        self.crash = None;
        for at in 0..self.nodes.len() {
            let node = self.nodes[at].id;
            self.event(Event::Drain {
                node,
                draining: false,
            });
            if self.nodes[at].stopping {
                self.lose(at);
                self.nodes[at].reboot();
            }
            self.join(at);
        }
        self.deliver_all();
        for (lease, user) in self.users.clone() {
            self.event(Event::Release { lease, user });
            self.deliver_all();
        }
        for _ in 0..60 {
            self.pass(Span::seconds(20));
            self.deliver_all();
        }
        let manager = &self.manager;
        assert!(manager.grants.is_empty(), "{:?}", manager.grants);
        assert!(manager.queue.is_empty() && manager.leases.is_empty());
        assert!(self.store.leases.is_empty() && self.store.waiting.is_empty());
        for node in &self.nodes {
            assert!(node.serving.is_empty(), "{:?}", node.serving);
            assert!(!node.draining, "the node got the opposite message");
            let row = self.store.nodes.get(&node.id);
            assert_eq!(row.map(|of| &of.addresses), Some(&node.addresses));
            let known = manager.cluster.devices(node.id);
            assert_eq!(known.len(), node.devices.len());
            assert!(known.iter().all(|of| of.taken.is_empty()));
        }
        for user in self.users.values() {
            let has = manager.ledger.holdings(&Subject::User(user.clone()));
            assert_eq!(has, Default::default());
        }
        let all: usize = self.nodes.iter().map(|of| of.devices.len()).sum();
        let every = format!("{all}").parse().unwrap();
        let manner = Manner {
            placement: Default::default(),
            assignment: Default::default(),
            memory: u64::MAX,
        };
        let chosen = self.manager.cluster.choose(Level::Free, &every, manner);
        assert!(chosen.is_ok(), "not all devices can be had again");
    }
}
