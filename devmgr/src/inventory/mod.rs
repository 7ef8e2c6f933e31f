//! The cluster's nodes, devices and units, and which of the units are available.
//!
//! - [`NodeId`], [`DeviceId`], [`Unit`]: names.
//! - [`OfferedDevice`]: what a node tells of a device.
//! - [`limits`]: how much a node, and the nodes of an account, may have.
//! - [`Cluster`]: all of it; `class`: devices that are alike; `supply`: what can be taken; `select`, `flow`:
//!   which of it a request gets.
//!
//! What it is not: it knows no users, leases or requests. Invariant: pure; the same calls give the
//! same inventory.

mod class;
mod cluster;
mod flow;
mod id;
pub mod limits;
mod offer;
#[cfg(test)]
mod scale_tests;
mod select;
#[cfg(test)]
mod select_tests;
mod supply;

pub(crate) use cluster::{Chosen, Level};
pub use cluster::{Cluster, KnownDevice};
pub use id::{DeviceId, NodeId, Unit};
pub use offer::{OfferedDevice, Shares, offered};
pub use select::Assignment;
pub(crate) use select::{Manner, Unfit};
