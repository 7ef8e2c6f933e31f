//! Why etcd does not do what it was asked to.
//!
//! Invariant: nothing is decided by an error's text; texts are for people.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::store::StoreError;

/// Why etcd does not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// A file of the settings cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// A file for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] causeway_security::BadFile),
    /// A member did not answer.
    #[error("etcd at {endpoint} did not answer within {} ms", limit.as_millis())]
    Late {
        /// The member.
        endpoint: String,
        /// The time it had.
        limit: Duration,
    },
    /// A member refused, or cannot be reached.
    #[error("etcd at {endpoint}: {error}")]
    Refused {
        /// The member.
        endpoint: String,
        /// The cause.
        error: etcd_client::Error,
    },
    /// There is no connection or login at a member, for all calls that wait for it.
    #[error(transparent)]
    NotMade(Arc<Fault>),
    /// An answer lacks what it must have.
    #[error("etcd has sent an incomplete answer")]
    Incomplete,
    /// The leader's key is not this reign's.
    #[error("another manager leads, or the key `leader` was removed")]
    Deposed,
    /// The rows cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        match fault {
            Fault::Deposed => StoreError::Deposed,
            Fault::Store(error) => error,
            other => StoreError::Remote(other.to_string()),
        }
    }
}
