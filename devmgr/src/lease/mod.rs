//! Leases: which lease holds which units until when. A pure state machine.
//!
//! The service passes [`Event`]s with the time of their arrival. It carries out the [`Transition`] that each
//! event returns: first the [`Change`]s, durably, then the [`Action`]s.
//!
//! Open first: `manager` (the state and the dispatch of events) and `holding` (the phases of a grant).
//! Then `nodes` (how a returning node and the manager agree) and `serving` (the order, and the bound on
//! waiting).
//!
//! This module contains no sockets, clocks, randomness or storage. Invariant: a unit is in at most one
//! lease. A unit becomes free only by its node's report, or when its node can no longer serve the lease.

pub mod action;
mod alarm;
pub mod change;
pub mod event;
mod explanation;
mod forgetting;
mod grants;
mod holding;
pub mod id;
mod load;
mod manager;
mod moving;
mod nodes;
mod reasons;
mod replacing;
mod requests;
mod serving;
mod shortfall;
mod silence;
#[cfg(test)]
mod simulation;
mod view;
mod waits;

pub use action::{
    Action, EndReason, Grant, Granted, GrantedUnit, Outcome, Refusal, Refused, Transition,
    UnitsMoved,
};
pub use change::{Change, Rows};
pub use event::{Event, GrantReport, Joined, MoveResult, NewRequest, ServedGrant};
pub use forgetting::{MOST_NODES, NotForgotten};
pub use id::{Epoch, LeaseId};
pub use manager::Manager;
pub use moving::Departure;
pub use reasons::{HeadView, Reasons};
pub(crate) use replacing::replaced_within;
pub use shortfall::{Detail, Shortfall};
pub use view::{LeaseState, LeaseView};
