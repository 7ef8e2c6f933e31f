//! Loads a manager from the store.
//!
//! Nodes report everything else when they join. Until a node has joined, its part of a lease counts as
//! served, because the node may be serving it. Every lease gets its whole renewal time again, because
//! nobody could renew it without a manager. A stored silence shortens that, to 15 s at least
//! ([`silence`](super::silence)). Time limits went on by the host's clock. If that clock was
//! moved meanwhile, a time limit ends that much earlier or later. A time limit never ends later than its
//! whole length from now. Nodes enforce time limits by their own clocks in any case. A start time that
//! cannot be true (1970, or the future) is replaced by the present.
//!
//! Invariant: storing and loading gives the same manager, except for offers and disconnected clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::alarm::{Alarm, Alarms};
use super::change::{LeaseRow, Rows, UnitRow, WaitingRow};
use super::event::NewRequest;
use super::holding::{GrantPart, Holding, PartState, Phase, Queued};
use super::id::Epoch;
use super::manager::{Manager, Over, Standing};
use super::nodes::Node;
use super::silence::Silence;
use crate::inventory::{Chosen, Cluster, NodeId};
use crate::policy::ledger::{Ledger, Party};
use crate::policy::queue::Queue;
use crate::time::{Calendar, Span, Wall};

/// 2020-01-01: no device manager granted anything before.
const FIRST_LEASE: Wall = Wall(1_577_836_800_000);

impl Manager {
    /// Loads a manager from rows. `calendar` is the present.
    #[must_use]
    pub fn load(rows: Rows, calendar: Calendar) -> Self {
        let mut manager = Self {
            policy: rows.policy.unwrap_or_default(),
            calendar,
            now: calendar.time,
            skew: Span(0),
            cluster: Cluster::default(),
            nodes: rows
                .nodes
                .iter()
                .map(|row| (row.node, known(row)))
                .collect(),
            grants: Default::default(),
            leases: Default::default(),
            moves: Default::default(),
            sought: Default::default(),
            queue: Queue::default(),
            ledger: Ledger::default(),
            alarms: Alarms::default(),
            epoch: rows.epochs,
            durable_epoch: rows.epochs,
            aside: None,
            head: None,
            reasons_due: calendar.time,
            awaited: rows.nodes.iter().map(|row| row.node).collect(),
            settling: false,
            unchecked: BTreeSet::new(),
            from_before: BTreeSet::new(),
            hopeless: BTreeMap::new(),
            held_back: BTreeMap::new(),
            over: Over::default(),
            ending: BTreeSet::new(),
            chance: true,
            again: Vec::new(),
            totals: (0, 0),
            transition: Default::default(),
        };
        for (subject, quota) in rows.quotas {
            manager.ledger.set_quota(subject, Some(quota));
        }
        for row in rows.uses {
            manager.ledger.restore(row);
        }
        // Quotas and uses before leases, and leases before requests: a request's fair share counts the
        // user's leases.
        for row in rows.leases {
            manager.load_lease(row);
        }
        manager.load_absences(&rows.absences);
        for row in rows.waiting {
            manager.load_waiting(row);
        }
        manager.start();
        manager
    }

    /// Sets the alarms and the state of the start phase.
    fn start(&mut self) {
        for node in self.nodes.values_mut() {
            // A node that was connected until the restart has its whole autonomy from now on.
            node.lost = Some(self.now);
            node.absent.get_or_insert(self.calendar.wall);
        }
        let nodes: Vec<_> = self.nodes.keys().copied().collect();
        for node in nodes {
            self.arm_node(node);
        }
        self.settling = !self.awaited.is_empty();
        let settle = self.now.after(self.policy.timing.settle);
        self.alarms
            .set(Alarm::Settle, self.settling.then_some(settle));
        self.alarms.set(Alarm::Accounts, Some(self.now));
        self.arm_absences();
        self.settle_if_known();
    }

    /// When a lease began. A time before the first lease ever, or later than now, comes from a clock that
    /// was not set, and is replaced by the present.
    fn begun(&self, since: Wall) -> Wall {
        let can_be = (FIRST_LEASE..=self.calendar.wall).contains(&since);
        if can_be { since } else { self.calendar.wall }
    }

    fn load_lease(&mut self, row: LeaseRow) {
        let since = self.begun(row.since);
        let demand = Arc::new(NewRequest {
            lease: row.lease,
            party: Party {
                user: row.user,
                groups: row.groups,
            },
            devices: row.devices,
            // The class matters only while a request waits.
            class: Default::default(),
            limit: row.limit,
            wait: false,
            reserve: !row.confirmed,
            replace: !row.replace.is_empty(),
        });
        let is_sought = row.units.is_empty();
        let parts = self.load_parts(row.epoch, &demand, row.units, row.lost);
        let timing = &self.policy.timing;
        let passed = self.calendar.since(since);
        let left = |limit: Span| Span(limit.0.saturating_sub(passed.0));
        let silence = Silence::taken_over(self.now, row.silence);
        let holding = Holding {
            epoch: row.epoch,
            demand,
            queued: None,
            phase: match row.confirmed {
                true => Phase::Active {
                    until: silence.until(timing, row.epoch),
                },
                false => Phase::Reserved {
                    until: self.now.after(timing.reservation),
                },
            },
            parts,
            limit: row.limit,
            ends: row.limit.map(|limit| self.now.after(left(limit))),
            since,
            moved: row.moved,
            replace: row.replace,
            silence,
        };
        self.leases.insert(row.lease, Standing::Granted(row.epoch));
        self.grants.insert(row.epoch, holding);
        if is_sought {
            self.begin_search(row.epoch);
        }
        self.arm_grant(row.epoch);
    }

    fn load_parts(
        &mut self,
        epoch: Epoch,
        demand: &NewRequest,
        there: Vec<(NodeId, Vec<UnitRow>)>,
        lost: Vec<(NodeId, Vec<UnitRow>)>,
    ) -> Vec<GrantPart> {
        let is_sought = there.is_empty();
        let mut parts = Vec::with_capacity(there.len() + lost.len());
        for (node, units) in there {
            parts.push(self.load_part(epoch, demand, node, chosen(node, units)));
        }
        for (node, units) in lost {
            let lost = GrantPart::uncounted(node, chosen(node, units), PartState::Gone);
            // Lost units count until they are replaced.
            parts.push(match is_sought {
                true => self.counted(demand, lost),
                false => lost,
            });
        }
        parts
    }

    /// Counts a node's part of a lease, and notes it with the node.
    fn load_part(
        &mut self,
        epoch: Epoch,
        demand: &NewRequest,
        node: NodeId,
        units: Vec<Chosen>,
    ) -> GrantPart {
        // The node may be missing from the rows; its lease must still be fenced.
        self.nodes.entry(node).or_default().grants.insert(epoch);
        self.counted(
            demand,
            GrantPart::uncounted(node, units, PartState::Serving),
        )
    }

    /// The part, which counts for the quotas from now on.
    fn counted(&mut self, demand: &NewRequest, part: GrantPart) -> GrantPart {
        let units = &part.units;
        let promised = demand
            .limit
            .map_or(0, |of| of.0.saturating_mul(units.len() as u64));
        let memory = units
            .iter()
            .map(|of| of.memory)
            .fold(0, u64::saturating_add);
        self.ledger
            .add(&demand.party, units.len() as u32, memory, Span(promised));
        GrantPart {
            counted: true,
            promised: Span(promised),
            ..part
        }
    }

    fn load_waiting(&mut self, row: WaitingRow) {
        let timing = &self.policy.timing;
        let waited = self.calendar.since(row.since);
        let patience = Span(timing.patience.0.saturating_sub(waited.0));
        let queued = Queued {
            place: row.place,
            since: row.since,
            overdue: self.now.after(patience),
            // Its client has not reconnected to this process yet.
            away: Some(self.now.after(timing.place)),
            stored: true,
        };
        let demand = Arc::new(NewRequest {
            lease: row.lease,
            party: Party {
                user: row.user,
                groups: row.groups,
            },
            devices: row.devices,
            class: row.class,
            limit: row.limit,
            wait: true,
            reserve: row.reserve,
            replace: row.replace,
        });
        self.from_before.insert(row.place);
        self.enqueue(&demand, queued);
    }
}

fn chosen(node: NodeId, units: Vec<UnitRow>) -> Vec<Chosen> {
    let chosen = units.into_iter().map(|of| Chosen {
        node,
        unit: of.unit,
        memory: of.memory,
        // Memory limits are part of the grant, which the node has already received.
        limit: None,
    });
    chosen.collect()
}

fn known(row: &super::change::NodeRow) -> Node {
    Node {
        name: row.name.clone(),
        addresses: row.addresses.clone(),
        draining: row.draining,
        account: row.account.clone(),
        ..Node::default()
    }
}
