//! The machine: its state, its clock, and which file handles which event.
//!
//! `nodes` joins and loses nodes, `grants` takes a grant through its life, `requests` hears clients,
//! `serving` decides who is next. Invariant: every event leaves the machine settled: no alarm is due,
//! and nobody who waits could be served by the rules of `serving`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::action::{Action, EndReason, Outcome, Refusal, Step};
use super::alarm::{Alarm, Alarms};
use super::change::Change;
use super::event::Event;
use super::holding::{Demand, Holding, Waiting};
use super::id::{Epoch, LeaseId};
use super::nodes::Node;
use super::serving::Aside;
use super::time::{Calendar, Span, Time, Wall};
use crate::inventory::{Cluster, NodeId};
use crate::policy::ledger::Ledger;
use crate::policy::queue::{Place, Queue};
use crate::policy::{Policy, UserName};

/// So late may an alarm be handled. Later than that the manager itself did not run (it was stopped, or
/// the clock jumped): that time does not count, because nobody could renew anything.
const STALL: Span = Span::seconds(1);

/// Epochs that are made durable at a time.
const EPOCHS: u64 = 1 << 12;

/// Leases, requests and nodes of a cluster. See the module [`lease`](super).
#[derive(Clone, Debug, Hash)]
pub struct Manager {
    pub(super) policy: Policy,
    pub(super) calendar: Calendar,
    /// Time in which the manager ran.
    pub(super) now: Time,
    /// What the outside's clock is ahead of it.
    pub(super) skew: Span,
    pub(super) cluster: Cluster,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) grants: BTreeMap<Epoch, Holding>,
    pub(super) leases: BTreeMap<LeaseId, Standing>,
    pub(super) queue: Queue<Waiting>,
    pub(super) ledger: Ledger,
    pub(super) alarms: Alarms,
    pub(super) epoch: Epoch,
    pub(super) durable_epoch: Epoch,
    pub(super) aside: Option<Aside>,
    /// Known nodes that have not come yet since the start: what devices they have, nobody knows.
    pub(super) awaited: BTreeSet<NodeId>,
    /// The start: what does not fit is not refused yet.
    pub(super) settling: bool,
    /// Requests in the queue that came meanwhile: perhaps they can never be served.
    pub(super) unjudged: BTreeSet<Place>,
    /// Requests of before this start, as long as a known node has not come since.
    pub(super) from_before: BTreeSet<Place>,
    /// Requests that wait although no known device, free or not, will do, and until when: such devices may come.
    /// They stand for nobody.
    pub(super) hopeless: BTreeMap<Place, Time>,
    /// Requests that do not wait and are not refused yet.
    pub(super) held_back: BTreeMap<Place, HeldBack>,
    /// Leases that ended lately.
    pub(super) over: Over,
    /// Grants whose units are on their way back.
    pub(super) ending: BTreeSet<Epoch>,
    /// Someone who waits may have a chance that he had not before.
    pub(super) chance: bool,
    /// Requests that do not wait and whose offer came to nothing.
    pub(super) again: Vec<Arc<Demand>>,
    /// The cluster's units and memory by which the fair order was made.
    pub(super) totals: (u64, u64),
    pub(super) step: Step,
}

/// A request that does not wait, in the queue nevertheless: known nodes have not come yet, or what it asks for is
/// just being given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldBack {
    /// For so long at most.
    pub(super) until: Time,
    /// What it is told then.
    pub(super) why: Refusal,
}

/// The last leases that ended, so that their holders can be told why. Nothing is decided by it: a manager that was
/// started anew says that there is no such lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Over {
    order: VecDeque<LeaseId>,
    of: BTreeMap<LeaseId, (UserName, EndReason)>,
}

/// As many as are remembered.
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

    /// Why a lease of this user's ended.
    pub(super) fn reason(&self, lease: LeaseId, user: &UserName) -> Option<EndReason> {
        let (of, reason) = self.of.get(&lease)?;
        (of == user).then_some(*reason)
    }
}

// It makes no difference to what follows.
impl Hash for Over {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Standing {
    /// In the queue.
    Waiting(Place),
    /// It has a grant that is not ending.
    Granted(Epoch),
}

impl Manager {
    /// Takes in one event that came at `now`: what is to be stored, and then done.
    pub fn handle(&mut self, now: Time, event: Event) -> Step {
        self.advance(now);
        while let Some(alarm) = self.alarms.take_due(self.now) {
            self.ring(alarm);
        }
        self.apply(event);
        self.serve();
        if !self.queue.is_empty() && !self.alarms.is_set(Alarm::Positions) {
            let next = self.now.after(self.policy.timing.position);
            self.alarms.set(Alarm::Positions, Some(next));
        }
        std::mem::take(&mut self.step)
    }

    /// When [`Event::Tick`] is wanted at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.alarms.next().map(|at| at.after(self.skew))
    }

    /// Moves the clock, unless the manager did not run.
    fn advance(&mut self, now: Time) {
        let ran = Time(now.0.saturating_sub(self.skew.0));
        if ran <= self.now {
            return;
        }
        let next = self.alarms.next().map(|at| at.max(self.now).after(STALL));
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
            Event::ForgetNode { node, force } => {
                if self.may_forget(node, force).is_ok() {
                    self.forget_node(node);
                }
            }
            Event::Request(new) => self.request(new),
            Event::RequestLost { lease } => self.request_lost(lease),
            Event::Cancel { lease, user } | Event::Release { lease, user } => {
                self.release(lease, &user);
            }
            Event::Confirm { lease, user } => self.confirm(lease, &user),
            Event::Renew { lease, user } => self.renew(lease, &user),
            Event::Revoke { lease } => self.revoke(lease),
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
        self.step.changes.push(change);
    }

    pub(super) fn act(&mut self, action: Action) {
        self.step.actions.push(action);
    }

    pub(super) fn tell(&mut self, lease: LeaseId, outcome: Outcome) {
        self.act(Action::Tell { lease, outcome });
    }

    /// The host's clock.
    pub(super) fn wall(&self) -> Wall {
        self.calendar.wall_at(self.now.after(self.skew))
    }

    /// The next epoch; durable before anybody hears of it.
    pub(super) fn next_epoch(&mut self) -> Epoch {
        self.epoch.0 += 1;
        if self.epoch > self.durable_epoch {
            self.durable_epoch = Epoch(self.epoch.0 + EPOCHS);
            self.store(Change::Epochs(self.durable_epoch));
        }
        self.epoch
    }

    /// Forgets what no accounting window has in it any more, and brings back what is in none yet.
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

    /// Puts a user where he belongs in the fair order.
    pub(super) fn refresh(&mut self, user: &UserName) {
        use crate::policy::{Subject, fairness};
        let (ledger, totals) = (&self.ledger, self.totals);
        self.queue.refresh(user, |waiting| {
            let has = ledger.holdings(&Subject::User(user.clone()));
            fairness::share(has, totals, waiting.demand.class)
        });
    }
}
