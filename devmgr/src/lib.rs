//! The device manager's crate: the parts of the manager, and the parts of its command-line tool
//! `causeway`.
//!
//! - [`time`]: the clocks of the parts below.
//! - [`lease`]: which lease holds which units until when; a pure state machine.
//! - [`policy`]: settings, quotas and the fair order; pure.
//! - [`inventory`]: nodes, devices, units, and which of them are available; pure.
//! - [`identity`]: users and their tokens; pure.
//! - [`store`]: the durable state, which survives a restart. [`etcd`]: the same in etcd, for several managers.
//! - [`leadership`]: which of several managers leads; pure.
//! - [`service`]: the gRPC service around these. [`announcing`]: the announcement on the networks.
//! - `dashboard`: the content of the pages for browsers; pure.
//! - [`flags`]: the flags of `causeway-devmgr`. [`settings`]: them and its configuration file, validated.
//! - [`environment`]: the environment variables that make a program see Causeway's platform.
//! - [`installation`]: the paths of this installation's library and daemon.
//! - [`private_daemon`]: a daemon on a Unix socket, for the duration of one run.
//! - [`report`]: reports about nodes, as text and as JSON. [`listing`]: listings of a manager, as JSON.
//! - [`rates`]: computes rates from totals; pure.
//!
//! Without the feature `manager`, only what the tool needs is there, and the program `causeway-devmgr` is not built.
//! `etc/quickstart` saves time that way.
//!
//! Invariant: nothing in this crate calls OpenCL. A tool never loads the library that it reports on.
#![forbid(unsafe_code)]

#[cfg(feature = "manager")]
pub mod announcing;
#[cfg(feature = "manager")]
mod dashboard;
pub mod environment;
#[cfg(feature = "manager")]
pub mod etcd;
pub mod flags;
#[cfg(feature = "manager")]
pub mod identity;
pub mod installation;
#[cfg(feature = "manager")]
pub mod inventory;
#[cfg(feature = "manager")]
pub mod leadership;
#[cfg(feature = "manager")]
pub mod lease;
pub mod listing;
#[cfg(feature = "manager")]
pub mod policy;
pub mod private_daemon;
pub mod rates;
pub mod report;
#[cfg(feature = "manager")]
pub mod service;
#[cfg(feature = "manager")]
pub mod settings;
#[cfg(feature = "manager")]
pub mod store;
#[cfg(feature = "manager")]
pub mod time;
