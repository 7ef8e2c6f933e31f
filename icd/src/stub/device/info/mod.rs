//! What a device answers through Causeway where its driver's answer does not hold on another machine.
//!
//! - `overrides`: answers that are the client's own, and those that are left out;
//! - `extensions`: which extensions the platform and its devices report;
//! - `hidden_macros`: the compiler's macros of what is not reported;
//! - `pci`: the place on a bus, by the node;
//! - `quirks`: limits that a driver reports and does not keep.
//!
//! Not here: the answers themselves (`device`). Invariant: a device never reports what a program cannot use
//! from another machine.

pub(in crate::stub) mod extensions;
pub(in crate::stub) mod hidden_macros;
pub(in crate::stub) mod overrides;
pub(in crate::stub) mod pci;
mod quirks;
