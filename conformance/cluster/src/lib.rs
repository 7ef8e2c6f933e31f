//! A cluster for tests: a real `causeway-devmgr` with TLS that asks everyone who he is, and what others need to
//! take part: a CA, certificates, users and tokens, as files.
//!
//! - [`Manager`]: the process, over a store that outlives it;
//! - [`Certificates`]: the CA and what it has signed;
//! - [`Caller`]: somebody who asks the manager, an administrator as a rule; its methods wait.
//!
//! What it is not: it starts no daemon, and knows no driver: who starts one passes [`Manager::node_arguments`].
//! Invariants: what was started is gone when it is dropped; no wait is unbounded.
#![forbid(unsafe_code)]

mod caller;
mod certificates;
mod manager;

pub use caller::{Caller, Refused, Waiting};
pub use certificates::Certificates;
pub use manager::Manager;

use std::time::Duration;

/// No step takes longer, on a busy machine either.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused something.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// No certificate.
    #[error(transparent)]
    NotCertified(#[from] causeway_security::NotCertified),
    /// A file that was just written cannot be read.
    #[error(transparent)]
    File(#[from] causeway_security::BadFile),
    /// The manager's process ended, or said something else than its address.
    #[error("causeway-devmgr did not start:\n{0}")]
    NotStarted(String),
    /// The manager was reached, and does not do what is wanted.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Something that should come did not.
    #[error("in vain: {0}")]
    InVain(String),
}

/// Puts what was tried before an operating system's refusal.
fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |error| Error::Io(what, error)
}
