//! A grant in the machine's memory: from the offer until its last unit is free.
//!
//! ```text
//! Offered ─ all parts acknowledged ─► Reserved ─ confirmed ─► Active ◄─ renewed ─► Lapsed
//!    │                                    └──────────┬─────────┴────────────────────┘
//!    └─ refused, late, node lost ─► Ending ◄─────────┘ released, expired, revoked, …
//! Ending ─ every part gone ─► forgotten
//! ```
//!
//! Invariant: a part's units are taken until it is gone, and it is gone only by its node's word or
//! when its node cannot serve it any more.

use std::sync::Arc;

use causeway_proto::request::DeviceRequest;

use super::action::{EndReason, Granted, Outcome};
use super::event::NewRequest;
use super::id::{Epoch, LeaseId};
use super::lack::Lack;
use super::time::{Span, Time, Wall};
use crate::inventory::{Chosen, NodeId};
use crate::policy::Class;
use crate::policy::ledger::Party;
use crate::policy::queue::Place;

/// What was asked for.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Demand {
    pub(super) lease: LeaseId,
    pub(super) party: Party,
    pub(super) devices: DeviceRequest,
    pub(super) class: Class,
    pub(super) limit: Option<Span>,
    pub(super) wait: bool,
    pub(super) reserve: bool,
}

impl From<NewRequest> for Demand {
    fn from(new: NewRequest) -> Self {
        Self {
            lease: new.lease,
            party: Party {
                user: new.user,
                groups: new.groups,
            },
            devices: new.devices,
            class: new.class,
            limit: new.limit,
            wait: new.wait,
            reserve: new.reserve,
        }
    }
}

/// A request in the queue.
#[derive(Clone, Debug, Hash)]
pub(super) struct Waiting {
    pub(super) demand: Arc<Demand>,
    pub(super) since: Wall,
    /// From when on units are set aside for it.
    pub(super) overdue: Time,
    /// Its client is away, and this is how long its place is kept.
    pub(super) away: Option<Time>,
    /// Whether a row says that it waits.
    pub(super) stored: bool,
    /// The position that its client knows, and what it lacks.
    pub(super) told: (u32, Option<Lack>),
}

/// A request's place in the queue, and what it keeps there while it has an offer.
#[derive(Clone, Debug, Hash)]
pub(super) struct Queued {
    pub(super) place: Place,
    pub(super) since: Wall,
    pub(super) overdue: Time,
    pub(super) away: Option<Time>,
    pub(super) stored: bool,
}

/// See the module.
#[derive(Clone, Debug, Hash)]
pub(super) struct Holding {
    pub(super) epoch: Epoch,
    pub(super) demand: Arc<Demand>,
    /// Where it waited.
    pub(super) queued: Option<Queued>,
    pub(super) phase: Phase,
    pub(super) parts: Vec<Part>,
    /// How long it may last.
    pub(super) limit: Option<Span>,
    /// When that is over.
    pub(super) ends: Option<Time>,
    pub(super) since: Wall,
}

/// Where in its life a grant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Offered { until: Time },
    Reserved { until: Time },
    Active { until: Time },
    Lapsed { until: Time },
    Ending { reason: Option<EndReason> },
}

/// What a grant has of one node.
#[derive(Clone, Debug, Hash)]
pub(super) struct Part {
    pub(super) node: NodeId,
    pub(super) units: Vec<Chosen>,
    pub(super) state: PartState,
    pub(super) sessions: u32,
    /// Its units count for the party.
    pub(super) counted: bool,
    /// Its time is promised to the party.
    pub(super) promised: Span,
}

/// What the machine knows of a node's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PartState {
    /// Asked to serve it.
    Asked,
    /// It serves it.
    Serving,
    /// Told not to serve it any more, or to be told so when it is back.
    Withdrawing,
    /// It does not serve it, and never will.
    Gone,
}

impl Holding {
    /// Whether its client has been told of it, and it has not ended.
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Offered { .. } | Phase::Ending { .. })
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    /// Sessions on all its nodes.
    pub(super) fn sessions(&self) -> u32 {
        let sessions = self.parts.iter().map(|of| of.sessions);
        sessions.fold(0, u32::saturating_add)
    }

    pub(super) fn part(&mut self, node: NodeId) -> Option<&mut Part> {
        self.parts.iter_mut().find(|of| of.node == node)
    }

    /// Whether no node has anything of it.
    pub(super) fn is_gone(&self) -> bool {
        self.parts.iter().all(|of| of.state == PartState::Gone)
    }

    /// When it ends by itself, renewed or not.
    pub(super) fn until(&self) -> Option<Time> {
        match self.phase {
            Phase::Offered { until } => Some(until),
            Phase::Reserved { until } | Phase::Active { until } | Phase::Lapsed { until } => {
                Some(self.ends.map_or(until, |ends| ends.min(until)))
            }
            Phase::Ending { .. } => None,
        }
    }

    /// What its client has had and has no more, though it has not ended.
    pub(super) fn lost(&self) -> impl Iterator<Item = &Part> {
        let is_live = self.is_live();
        let gone = self.parts.iter().filter(|of| of.state == PartState::Gone);
        gone.filter(move |_| is_live)
    }

    /// How a live one stands.
    pub(super) fn outcome(&self, skew: Span) -> Outcome {
        match self.phase {
            Phase::Reserved { .. } => Outcome::Reserved(self.granted(skew)),
            _ => Outcome::Leased(self.granted(skew)),
        }
    }

    /// As its client is told; `skew` makes times the outside's.
    pub(super) fn granted(&self, skew: Span) -> Granted {
        let there = self.parts.iter().filter(|of| of.state != PartState::Gone);
        let units = |of: &Part| of.units.iter().map(|of| of.unit).collect();
        Granted {
            epoch: self.epoch,
            units: there.map(|of| (of.node, units(of))).collect(),
            lost: self.lost().map(|of| (of.node, units(of))).collect(),
            until: self.until().unwrap_or_default().after(skew),
            ends: self.ends.map(|ends| ends.after(skew)),
        }
    }
}
