//! Tests of `causewayd`'s behaviour, with real processes and sockets. One module per behaviour.
//!
//! Most tests give the daemon a machine without OpenCL drivers, because their results do not depend on one, and that
//! saves time. Tests that need a driver say so.

mod build_cache;
mod carriers;
mod crowds;
mod drain;
mod enumeration;
mod environment;
#[path = "../common/eventually.rs"]
mod eventually;
mod exclusive;
mod garbage;
mod limits;
mod listening;
mod logging;
mod loss;
mod network_cut;
mod observers;
mod probing;
mod reopened;
mod samples;
mod sandboxed_drivers;
mod secret;
mod secured;
mod sharing;
mod silence;
mod stopped;
mod strangers;
mod support;
mod systemd;
mod tls;
mod version_mismatch;
mod watched;
mod worker_death;
