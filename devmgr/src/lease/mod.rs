//! Leases: who holds which units until when. A pure state machine.
//!
//! The shell gives it [`Event`]s with the time at which they came, and carries out the [`Step`]
//! that each of them leads to: first the [`Change`]s, durably, then the [`Action`]s.
//!
//! What it is not: no sockets, clocks, randomness or storage are in it. Invariant: a unit is in at
//! most one lease, and it becomes free by a word of its node only, or when its node cannot serve
//! the lease any longer.

pub mod action;
pub mod change;
pub mod event;
pub mod id;
pub mod time;

pub use action::{Action, EndReason, Grant, Granted, GrantedUnit, Outcome, Refusal, Step};
pub use change::{Change, Rows};
pub use event::{Event, GrantWord, Joined, NewRequest, Running};
pub use id::{Epoch, LeaseId};
pub use time::{Calendar, Span, Time, Wall};
