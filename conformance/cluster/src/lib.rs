//! A cluster for tests: a real `causeway-devmgr` with TLS and authentication, and what participants need.
//! That is a CA, certificates, users and tokens, as files.
//!
//! - [`Manager`]: the process, over a store that survives its restarts, or several over one etcd;
//! - [`Certificates`]: the CA and its certificates;
//! - [`Caller`]: a caller of the manager, usually an administrator; its methods block;
//! - [`Managers`]: several managers of one cluster, as one caller reaches them;
//! - [`Etcd`]: members of etcd on loopback;
//! - [`FakeNode`]: a node without devices, for such a cluster.
//!
//! The crate starts no daemons and knows no drivers. Programs that start a daemon pass it
//! [`Manager::node_arguments`]. Invariants: a dropped manager has ended its process. No wait is unbounded.
#![forbid(unsafe_code)]

mod caller;
mod certificates;
mod dial;
mod etcd;
mod fake_node;
mod manager;
mod managers;

pub use caller::{Caller, Refused, Waiting};
pub use certificates::Certificates;
pub use etcd::Etcd;
pub use fake_node::{FakeNode, Serving};
pub use manager::Manager;
pub use managers::Managers;

use std::time::Duration;

/// Time limit for every step, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Why a cluster cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// A certificate could not be made.
    #[error(transparent)]
    NotCertified(#[from] causeway_security::NotCertified),
    /// A file that was just written cannot be read.
    #[error(transparent)]
    File(#[from] causeway_security::BadFile),
    /// The manager's process ended, or printed something other than its address.
    #[error("causeway-devmgr did not start:\n{0}")]
    NotStarted(String),
    /// The manager refused a request.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// An expected condition did not occur in time.
    #[error("in vain: {0}")]
    InVain(String),
}

/// Adds the attempted operation to an error of the operating system.
fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |error| Error::Io(what, error)
}
