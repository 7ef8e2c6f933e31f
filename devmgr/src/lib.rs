//! The device manager's crate: today the parts that its command-line tool `causeway` is made of.
//!
//! - [`environment`]: what a program needs in its environment to see Causeway's platform.
//! - [`installation`]: where this installation's library and daemon lie.
//! - [`private_daemon`]: a daemon on a free loopback port for the time of one run.
//! - [`report`]: what is known of each node, for people and as JSON.
//!
//! The manager itself (`causeway-devmgr`) comes with its own issue. Invariant: nothing here speaks
//! OpenCL; a tool never loads the library that it reports on.
#![forbid(unsafe_code)]

pub mod environment;
pub mod installation;
pub mod private_daemon;
pub mod report;
