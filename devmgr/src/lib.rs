//! The device manager's crate: the manager's parts, and those that its command-line tool `causeway` is made of.
//!
//! - [`lease`]: who holds which units until when, a pure state machine.
//! - [`policy`]: who gets what: settings, quotas, the fair order; pure.
//! - [`inventory`]: nodes, devices, units, and what is available; pure.
//! - [`identity`]: users and their tokens; pure.
//! - [`store`]: what survives a restart.
//! - [`service`]: gRPC around them.
//! - [`settings`]: flags and file of `causeway-devmgr`.
//! - [`environment`]: what a program needs in its environment to see Causeway's platform.
//! - [`installation`]: where this installation's library and daemon lie.
//! - [`private_daemon`]: a daemon on a free loopback port for the time of one run.
//! - [`report`]: what is known of each node, for people and as JSON.
//!
//! Invariant: nothing here speaks OpenCL; a tool never loads the library that it reports on.
#![forbid(unsafe_code)]

pub mod environment;
pub mod identity;
pub mod installation;
pub mod inventory;
pub mod lease;
pub mod policy;
pub mod private_daemon;
pub mod report;
pub mod service;
pub mod settings;
pub mod store;
