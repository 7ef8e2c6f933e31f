//! The cluster's nodes, devices and units, and which of the units are available.
//!
//! - [`NodeId`], [`DeviceId`], [`Unit`]: names.
//! - [`OfferedDevice`]: what a node tells of a device.
//!
//! What it is not: it knows no users, leases or requests. Invariant: pure; the same calls give the
//! same inventory.

mod id;
mod offer;

pub use id::{DeviceId, NodeId, Unit};
pub use offer::{OfferedDevice, Shares, offered};
