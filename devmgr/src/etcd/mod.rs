//! The manager's state in etcd, and who leads of several managers over it.
//!
//! - [`Access`]: how etcd is reached. [`Etcd`]: calls to its members. `keys`: the keys.
//! - [`EtcdStore`]: the store of one reign. `parts`: splits large steps; pure.
//! - [`Candidate`]: carries out what [`Leadership`](crate::leadership::Leadership) decides. `registering`: when its
//!   registration is written; pure. [`Tenure`]: until when this process may act.
//! - [`members`](fn@members), [`managers`]: for people.
//!
//! This folder decides nothing about leases of devices. Invariant: every transaction that writes compares the leader's
//! key. The one that takes the key requires that there is none, and puts `term` and `step`, too. Without a comparison,
//! a manager writes only its registration, which hangs on its etcd lease. The leader also discards old revisions, and
//! etcd knows these for all keys only, other programs' too.

mod access;
mod aside;
mod candidate;
mod client;
mod fault;
mod keys;
mod members;
mod parts;
mod registering;
mod store;
mod tenure;

pub use access::{Access, Tls};
pub use aside::mark_aside;
pub use candidate::{
    Candidate, HAND_OVER, Instruction, Instructions, Lead, Order, SharedTurnedAway, Standing,
};
pub use client::Etcd;
pub use fault::Fault;
pub use keys::Registration;
pub use members::{Member, managers, members, registration, registrations};
pub use store::EtcdStore;
pub use tenure::{Tenure, now};
