//! A grant in the manager's memory: from the offer until its last unit is free.
//!
//! ```text
//! Offered ─ all parts acknowledged ─► Reserved ─ confirmed ─► Active ◄─ renewed ─► Lapsed
//!    │                                    └──────────┬─────────┴────────────────────┘
//!    └─ refused, late, node lost ─► Ending ◄─────────┘ released, expired, revoked, …
//! Ending ─ every part gone ─► forgotten
//! Moving ─ the sessions have moved ─► as the grant before, which becomes Ending (`moving`)
//! Active, Lapsed ─ the only part is lost ─► unchanged, and another grant is Moving (`replacing`)
//! ```
//!
//! Invariant: a part's units are taken until the part is gone. A part is gone only when its node says so,
//! or when its node can no longer serve it.

use std::sync::Arc;

use super::action::{EndReason, Granted, Outcome, UnitsMoved};
use super::event::NewRequest;
use super::id::Epoch;
use super::reasons::Reasons;
use super::shortfall::Shortfall;
use super::silence::Silence;
use crate::inventory::{Chosen, DeviceClass, NodeId, Unit};
use crate::policy::queue::QueuePlace;
use crate::time::{Span, Time, Wall};

/// A request in the queue.
#[derive(Clone, Debug, Hash)]
pub(super) struct Waiting {
    pub(super) demand: Arc<NewRequest>,
    pub(super) since: Wall,
    /// From when on units may be set aside for the request.
    pub(super) overdue: Time,
    /// The client is disconnected; its place is kept until this time.
    pub(super) away: Option<Time>,
    /// Whether the store has a row for this request.
    pub(super) stored: bool,
    /// The position and the shortfall that were last reported to the client.
    pub(super) told: (u32, Option<Shortfall>),
    /// Why the request waits, as it was last reported, without times. `None`: it was not.
    pub(super) told_reasons: Option<Reasons>,
}

/// A request's queue state, kept while the request has an offer.
#[derive(Clone, Debug, Hash)]
pub(super) struct Queued {
    pub(super) place: QueuePlace,
    pub(super) since: Wall,
    pub(super) overdue: Time,
    pub(super) away: Option<Time>,
    pub(super) stored: bool,
}

/// A grant, from the offer until its last unit is free. See the module.
#[derive(Clone, Debug, Hash)]
pub(super) struct Holding {
    pub(super) epoch: Epoch,
    pub(super) demand: Arc<NewRequest>,
    /// The queue state to return to if the offer fails.
    pub(super) queued: Option<Queued>,
    pub(super) phase: Phase,
    pub(super) parts: Vec<GrantPart>,
    /// Time limit of the lease.
    pub(super) limit: Option<Span>,
    /// When the time limit is over.
    pub(super) ends: Option<Time>,
    pub(super) since: Wall,
    /// All moves of the lease, the latest last.
    pub(super) moved: Vec<UnitsMoved>,
    /// The classes of the units' devices, if equal ones take their place when the node is lost.
    pub(super) replace: Vec<DeviceClass>,
    /// For how long nothing was heard of the holder.
    pub(super) silence: Silence,
}

/// The state of a grant; see the diagram of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Offered {
        until: Time,
    },
    Reserved {
        until: Time,
    },
    Active {
        until: Time,
    },
    Lapsed {
        until: Time,
    },
    /// The grant takes over from the lease's grant `from`, which is the lease's until then.
    Moving {
        from: Epoch,
        until: Time,
    },
    Ending {
        reason: Option<EndReason>,
    },
}

/// A grant's part on one node.
#[derive(Clone, Debug, Hash)]
pub(super) struct GrantPart {
    pub(super) node: NodeId,
    pub(super) units: Vec<Chosen>,
    pub(super) state: PartState,
    pub(super) sessions: u32,
    /// Whether the part's units count for the party.
    pub(super) counted: bool,
    /// Unit time that is reserved in the party's quota for this part.
    pub(super) promised: Span,
}

/// The manager's knowledge of a node's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PartState {
    /// The node was asked to serve the part.
    Asked,
    /// The node serves the part.
    Serving,
    /// The node was told to withdraw the part, or will be told when it reconnects.
    Withdrawing,
    /// The node does not serve the part, and never will.
    Gone,
}

impl GrantPart {
    /// The node, and the units there.
    pub(super) fn units_by_node(&self) -> (NodeId, Vec<Unit>) {
        (self.node, self.units.iter().map(|of| of.unit).collect())
    }
}

impl Holding {
    /// Whether its client knows of the grant, and the grant has not ended.
    pub(super) fn is_live(&self) -> bool {
        !matches!(
            self.phase,
            Phase::Offered { .. } | Phase::Moving { .. } | Phase::Ending { .. }
        )
    }

    /// Whether the grant is to take over from another one.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self.phase, Phase::Moving { .. })
    }

    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    /// Sessions on all nodes of the grant.
    pub(super) fn sessions(&self) -> u32 {
        let sessions = self.parts.iter().map(|of| of.sessions);
        sessions.fold(0, u32::saturating_add)
    }

    pub(super) fn part(&mut self, node: NodeId) -> Option<&mut GrantPart> {
        self.parts.iter_mut().find(|of| of.node == node)
    }

    /// Whether no node has any part of the grant.
    pub(super) fn is_gone(&self) -> bool {
        self.parts.iter().all(|of| of.state == PartState::Gone)
    }

    /// Whether the lease has lost its only part, and equal units are sought.
    pub(super) fn is_sought(&self) -> bool {
        self.is_live() && self.is_gone()
    }

    /// When the grant ends unless it is confirmed or renewed, at the latest at its time limit.
    pub(super) fn until(&self) -> Option<Time> {
        match self.phase {
            Phase::Offered { until } | Phase::Moving { until, .. } => Some(until),
            Phase::Reserved { until } | Phase::Active { until } | Phase::Lapsed { until } => {
                Some(self.ends.map_or(until, |ends| ends.min(until)))
            }
            Phase::Ending { .. } => None,
        }
    }

    /// The parts that a live lease has lost.
    pub(super) fn lost(&self) -> impl Iterator<Item = &GrantPart> {
        let is_live = self.is_live();
        let gone = self.parts.iter().filter(|of| of.state == PartState::Gone);
        gone.filter(move |_| is_live)
    }

    /// The state of a live grant, as its client is told.
    pub(super) fn outcome(&self, skew: Span) -> Outcome {
        match self.phase {
            Phase::Reserved { .. } => Outcome::Reserved(self.granted(skew)),
            _ => Outcome::Leased(self.granted(skew)),
        }
    }

    /// The grant as its client is told. `skew` converts the manager's time to the caller's clock.
    pub(super) fn granted(&self, skew: Span) -> Granted {
        let there = self.parts.iter().filter(|of| of.state != PartState::Gone);
        // A client gives up what is lost, and other units are to take the place of these.
        let lost = self.lost().filter(|_| !self.is_sought());
        Granted {
            epoch: self.epoch,
            units: there.map(GrantPart::units_by_node).collect(),
            lost: lost.map(GrantPart::units_by_node).collect(),
            moves: self.moved.clone(),
            replaceable: !self.replace.is_empty(),
            until: self.until().unwrap_or_default().after(skew),
            ends: self.ends.map(|ends| ends.after(skew)),
        }
    }
}
