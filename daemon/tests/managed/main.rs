//! A daemon in managed mode: what a device manager leases is served, and nothing else.
//! One module per behaviour.

mod admission;
mod builds;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod reach;
mod reports;
mod shares;
mod stopping;
mod support;
