//! The lease manager: its state, its clock, and the dispatch of events.
//!
//! `nodes` joins and loses nodes. `grants` moves a grant through its phases. `requests` handles clients'
//! events. `serving` decides which request is served next. Invariant: after every event no alarm is due,
//! and the rules of `serving` could serve no waiting request.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::action::{Action, EndReason, Outcome, Transition};
use super::alarm::{Alarm, Alarms};
use super::change::Change;
use super::event::{Event, NewRequest};
use super::holding::{Holding, Waiting};
use super::id::{Epoch, LeaseId};
use super::nodes::Node;
use super::reasons::Head;
use super::serving::Aside;
use crate::inventory::{Cluster, NodeId};
use crate::policy::ledger::Ledger;
use crate::policy::queue::{Queue, QueuePlace};
use crate::policy::{Policy, UserName};
use crate::time::{Calendar, Span, Time, Wall};

/// How late an alarm may be handled. If it is later, the manager itself did not run: it was stopped, or
/// the clock jumped. That time does not count, because nobody could renew anything in it.
const STALL: Span = Span::seconds(1);

/// Number of epochs that one write to the store makes durable in advance.
const EPOCHS: u64 = 1 << 12;

/// The state machine of a cluster's leases, requests and nodes. See the module [`lease`](super).
#[derive(Clone, Debug, Hash)]
pub struct Manager {
    pub(super) policy: Policy,
    pub(super) calendar: Calendar,
    /// Time for which the manager ran: the caller's clock less `skew`.
    pub(super) now: Time,
    /// How far the caller's clock is ahead of `now`.
    pub(super) skew: Span,
    pub(super) cluster: Cluster,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) grants: BTreeMap<Epoch, Holding>,
    pub(super) leases: BTreeMap<LeaseId, Standing>,
    /// Grants whose leases are being moved, with the grants that take over.
    pub(super) moves: BTreeMap<Epoch, Epoch>,
    /// Grants without any node, for whose lost units equal ones are sought, until these times.
    pub(super) sought: BTreeMap<Epoch, Time>,
    pub(super) queue: Queue<Waiting>,
    pub(super) ledger: Ledger,
    pub(super) alarms: Alarms,
    pub(super) epoch: Epoch,
    pub(super) durable_epoch: Epoch,
    pub(super) aside: Option<Aside>,
    /// The head of the queue, for monitoring.
    pub(super) head: Option<Head>,
    /// When changed reasons are reported again.
    pub(super) reasons_due: Time,
    /// Known nodes that have not joined since the start. Their devices are unknown. In the start phase, a forgotten node
    /// that may serve units still is one of them.
    pub(super) awaited: BTreeSet<NodeId>,
    /// Whether the start phase is on. It lasts until all awaited nodes have joined and have withdrawn what this manager
    /// does not know, `Timing::settle` at most. Requests that do not fit are not refused yet, and quotas of units leave
    /// no room, because nodes may serve units that are not counted.
    pub(super) settling: bool,
    /// Queued requests that arrived in the start phase. Whether any known device fits them is not checked
    /// yet.
    pub(super) unchecked: BTreeSet<QueuePlace>,
    /// Requests from before this start, until all known nodes have joined or are forgotten.
    pub(super) from_before: BTreeSet<QueuePlace>,
    /// Waiting requests that no known device fits, free or in use, with the time at which they are
    /// refused. Suitable devices may still join. Such requests take no turn for their user.
    pub(super) hopeless: BTreeMap<QueuePlace, Time>,
    /// Queued requests that do not wait, and when they are refused at the latest. Known nodes have not joined yet, or
    /// suitable units are just being released.
    pub(super) held_back: BTreeMap<QueuePlace, Time>,
    /// Leases that ended recently.
    pub(super) over: Over,
    /// Grants that have ended, with units that their nodes have not released yet.
    pub(super) ending: BTreeSet<Epoch>,
    /// Whether a waiting request may have become servable since the last pass.
    pub(super) chance: bool,
    /// Requests that do not wait and whose offer failed.
    pub(super) again: Vec<Arc<NewRequest>>,
    /// The cluster's units and memory for which the fair order was computed.
    pub(super) totals: (u64, u64),
    pub(super) transition: Transition,
}

/// The leases that ended last, so that their holders can be told why. The manager bases no decision on
/// them: after a restart it reports such leases as unknown.
#[derive(Clone, Debug, Default)]
pub(super) struct Over {
    order: VecDeque<LeaseId>,
    of: BTreeMap<LeaseId, (UserName, EndReason)>,
}

/// Maximum number of ended leases that are remembered.
const MOST_OVER: usize = 1 << 12;

impl Over {
    pub(super) fn remember(&mut self, lease: LeaseId, user: UserName, reason: EndReason) {
        if self.of.insert(lease, (user, reason)).is_none() {
            self.order.push_back(lease);
        }
        if self.order.len() > MOST_OVER
            && let Some(oldest) = self.order.pop_front()
        {
            self.of.remove(&oldest);
        }
    }

    /// Why a lease of this user ended.
    pub(super) fn reason(&self, lease: LeaseId, user: &UserName) -> Option<EndReason> {
        let (of, reason) = self.of.get(&lease)?;
        (of == user).then_some(*reason)
    }
}

// Ended leases influence no decision, so two states that differ only in them are equal in the simulation.
impl Hash for Over {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Where a request is: in the queue, or granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Standing {
    /// In the queue, at this place.
    Waiting(QueuePlace),
    /// The request has a grant that is not ending.
    Granted(Epoch),
}

impl Manager {
    /// Handles one event that arrived at `now`, and returns the changes to store and the actions to carry
    /// out then.
    pub fn handle(&mut self, now: Time, event: Event) -> Transition {
        self.advance(now);
        // Alarms come first, so that the event meets a state in which nothing is overdue.
        while let Some(alarm) = self.alarms.take_due(self.now) {
            self.ring(alarm);
        }
        // Before a request that arrives now takes what the alarms have freed.
        if self.chance {
            self.begin_replacements();
        }
        self.apply(event);
        if self.chance {
            self.begin_takeovers();
        }
        self.serve();
        // At most once per interval, because a report goes over the whole queue.
        if !self.queue.is_empty() && !self.alarms.is_set(Alarm::Positions) {
            let next = self.now.after(self.policy.timing.position);
            self.alarms.set(Alarm::Positions, Some(next));
        }
        std::mem::take(&mut self.transition)
    }

    /// When the manager needs [`Event::Tick`] at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.alarms.next().map(|at| at.after(self.skew))
    }

    /// Advances the manager's time, unless the manager did not run since the last event.
    fn advance(&mut self, now: Time) {
        let ran = Time(now.0.saturating_sub(self.skew.0));
        if ran <= self.now {
            return;
        }
        let next = self.alarms.next().map(|at| at.max(self.now).after(STALL));
        // The manager overslept an alarm. The lost time goes into `skew`, so that no deadline passes in
        // it.
        if next.is_some_and(|latest| ran > latest) {
            self.skew = now.since(self.now);
            return;
        }
        self.now = ran;
    }

    fn ring(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Grant(epoch) => self.grant_due(epoch),
            Alarm::Node(node) => self.node_due(node),
            Alarm::Waiting(place) => self.waiting_due(place),
            Alarm::Settle => self.settled(),
            Alarm::Positions => self.tell_positions(),
            Alarm::Accounts => self.clean_accounts(),
            Alarm::Absences => self.look_at_absences(),
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::NodeJoined(joined) => self.node_joined(joined),
            Event::NodeChanged {
                node,
                addresses,
                devices,
            } => self.node_changed(node, addresses, &devices),
            Event::NodeLost { node } => self.node_lost(node),
            Event::NodeStopping { node } => self.node_stopping(node),
            Event::Drain { node, draining } => self.drain(node, draining),
            Event::Migrate { node, within } => self.migrate(node, within),
            Event::MoveEnded(word, target, result) => self.move_ended(word, target, result),
            Event::ForgetNode { node, force } => {
                if self.may_forget(node, force).is_ok() {
                    // An administrator gives these leases up with their node.
                    for epoch in self.sought_for(node) {
                        self.end(epoch, EndReason::NodeLost);
                    }
                    self.forget_node(node);
                }
            }
            Event::Request(new) => self.request(new),
            Event::RequestLost { lease } => self.request_lost(lease),
            Event::Release { lease, user } => self.release(lease, &user),
            Event::Confirm { lease, user } => self.renewed(lease, &user, true),
            Event::Renew { lease, user } => self.renewed(lease, &user, false),
            Event::Revoke { lease } => self.over(lease, EndReason::Revoked),
            Event::GrantAcknowledged(word) => self.acknowledged(word),
            Event::GrantRefused(word) => self.refused(word),
            Event::Withdrawn(word) => self.withdrawn(word),
            Event::Sessions { of, count } => self.sessions(of, count),
            Event::QuotaChanged { subject, quota } => {
                self.store(match &quota {
                    Some(quota) => Change::PutQuota(subject.clone(), quota.clone()),
                    None => Change::DeleteQuota(subject.clone()),
                });
                self.ledger.set_quota(subject, quota);
                self.chance = true;
            }
            Event::PolicyChanged(policy) => {
                self.store(Change::PutPolicy(policy.clone()));
                self.policy = policy;
                self.arm_absences();
                self.chance = true;
            }
            Event::Tick => {}
        }
    }

    pub(super) fn store(&mut self, change: Change) {
        self.transition.changes.push(change);
    }

    pub(super) fn act(&mut self, action: Action) {
        self.transition.actions.push(action);
    }

    pub(super) fn tell(&mut self, lease: LeaseId, outcome: Outcome) {
        self.act(Action::Tell { lease, outcome });
    }

    /// The current time by the host's clock.
    pub(super) fn wall(&self) -> Wall {
        self.calendar.wall_at(self.now.after(self.skew))
    }

    /// Returns the next epoch. The bound in the store covers it before any node or client receives it.
    pub(super) fn next_epoch(&mut self) -> Epoch {
        self.epoch.0 += 1;
        if self.epoch > self.durable_epoch {
            // Epochs are reserved in blocks, so that most grants need no write for theirs.
            self.durable_epoch = Epoch(self.epoch.0 + EPOCHS);
            self.store(Change::Epochs(self.durable_epoch));
        }
        self.epoch
    }

    /// Removes hours outside of every accounting window, and moves hours that lie in the future back to
    /// now.
    fn clean_accounts(&mut self) {
        let (gone, rows) = self.ledger.bring_back(self.wall());
        for (subject, hour) in gone {
            self.store(Change::DeleteUse(subject, hour));
        }
        for row in rows {
            self.store(Change::PutUse(row));
        }
        let window = self.policy.accounting_window;
        for (subject, hour) in self.ledger.forget(self.wall(), window) {
            self.store(Change::DeleteUse(subject, hour));
        }
        let next = self.now.after(Span::seconds(3600));
        self.alarms.set(Alarm::Accounts, Some(next));
    }

    /// Updates a user's place in the fair order.
    pub(super) fn refresh(&mut self, user: &UserName) {
        use crate::policy::{Subject, fairness};
        let (ledger, totals) = (&self.ledger, self.totals);
        self.queue.refresh(user, |waiting| {
            let has = ledger.holdings(&Subject::User(user.clone()));
            fairness::share(has, totals, waiting.demand.class)
        });
    }
}
