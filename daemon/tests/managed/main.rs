//! Tests of a daemon in managed mode: it serves the leases of a device manager and nothing else. One module per
//! behaviour.

mod admission;
mod builds;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod leaders;
mod measuring;
mod moved;
mod moved_large;
mod reach;
mod reports;
mod shares;
mod stopping;
mod support;
mod time_shares;
