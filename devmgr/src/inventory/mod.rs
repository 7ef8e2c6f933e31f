//! The cluster's nodes, devices and units, and which of the units are available.
//!
//! - [`NodeId`], [`DeviceId`], [`Unit`]: ids.
//! - [`OfferedDevice`]: a node's report of a device.
//! - [`limits`]: how many devices a node, and the nodes of an account, may have.
//! - `cluster`: the inventory; `class`: devices that are alike; `supply`: units that can be taken;
//!   `select`, `flow`: the choice of units for a request.
//!
//! This module knows no users, leases or requests in the queue. Invariant: pure; the same calls give the
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

pub use class::DeviceClass;
pub(crate) use cluster::{Chosen, Cluster, Level};
pub use id::{DeviceId, NodeId, Unit};
pub use offer::{OfferedDevice, Shares, offered};
pub use select::Assignment;
pub(crate) use select::{Manner, SelectionError};
