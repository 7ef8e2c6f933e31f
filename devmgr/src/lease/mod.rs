//! Leases: who holds which units until when. A pure state machine.
//!
//! The shell gives it [`Event`]s with the time at which they came, and carries out the [`Step`]
//! that each of them leads to: first the [`Change`]s, durably, then the [`Action`]s.
//!
//! Open first: `manager` (the state, and who handles which event), then `holding` (the life of a grant),
//! `nodes` (the rule by which a returning node and the manager agree) and `serving` (the order, and the
//! bound on waiting).
//!
//! What it is not: no sockets, clocks, randomness or storage are in it. Invariant: a unit is in at
//! most one lease, and it becomes free by a word of its node only, or when its node cannot serve
//! the lease any longer.

pub mod action;
mod alarm;
pub mod change;
mod ending;
pub mod event;
mod forgetting;
mod grants;
mod holding;
pub mod id;
mod lack;
mod load;
mod manager;
mod nodes;
mod requests;
mod serving;
#[cfg(test)]
mod simulation;
pub mod time;
mod view;
mod waiting;

pub use action::{Action, EndReason, Grant, Granted, GrantedUnit, Outcome, Refusal, Refused, Step};
pub use change::{Change, Rows};
pub use event::{Event, GrantWord, Joined, NewRequest, Running};
pub use forgetting::{MOST_NODES, NotForgotten};
pub use id::{Epoch, LeaseId};
pub use lack::{Detail, Lack};
pub use manager::Manager;
pub use time::{Calendar, Span, Time, Wall};
pub use view::{LeaseState, LeaseView, NodeView, WaitingView};
