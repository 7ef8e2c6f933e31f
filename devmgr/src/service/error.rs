//! Why the manager cannot start, or cannot go on.
//!
//! These errors end the process. Errors of single calls are statuses.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use causeway_security::BadKey;
use causeway_serving::services::NotReflected;

use crate::identity::NotChanged;
use crate::store::StoreError;

/// Why the manager cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CannotStart {
    /// The manager cannot listen on an address.
    #[error(
        "cannot listen on {address}: {error}{}",
        causeway_serving::listening_cure(error)
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        error: std::io::Error,
    },
    /// A TLS file cannot be used.
    #[error(transparent)]
    Tls(#[from] causeway_security::BadFile),
    /// The store cannot be used at the start.
    #[error("{}: {error}{}", path.display(), cure(error))]
    Store {
        /// The store's path.
        path: PathBuf,
        /// The cause.
        error: StoreError,
    },
    /// The key that signs leases is unusable.
    #[error("the key that signs leases cannot be used: {0}")]
    Key(#[from] BadKey),
    /// The file for the first administrator's token cannot be written.
    #[error("cannot write the first administrator's token to {}: {error}", path.display())]
    AdminToken {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// No administrator exists, and none can be added.
    #[error("an administrator cannot be added: {0}")]
    NoAdmin(NotChanged),
    /// The store has failed for too long while the manager was serving.
    #[error(
        "the store {} could not be written for {seconds} s: {fault}. Free space or repair the disk, then start \
         causeway-devmgr again: the store has the last state that was written", path.display()
    )]
    StoreFailed {
        /// The store's path.
        path: PathBuf,
        /// The last fault.
        fault: Arc<str>,
        /// How long the store has failed.
        seconds: u64,
    },
    /// The manager has panicked while it was serving.
    #[error("the device manager has failed (see the log above); restart it, the store is intact")]
    Failed,
    /// A manager uses the store in etcd.
    #[error("{0}; stop all managers first")]
    InUse(Arc<str>),
    /// A file of `--export` or `--import` cannot be used.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause, with its cure.
        problem: String,
    },
    /// `--import` into a store that has rows.
    #[error(
        "the store is not empty: --import fills only an empty one; choose another path, or another prefix in [etcd]"
    )]
    NotEmpty,
    /// etcd cannot be used.
    #[error("{0}")]
    Etcd(#[from] crate::etcd::Fault),
    /// The gRPC reflection service cannot be built.
    #[error(transparent)]
    Services(#[from] NotReflected),
    /// An error of the operating system.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

impl CannotStart {
    /// The error for a store at this path.
    pub fn store(path: &Path) -> impl Fn(StoreError) -> CannotStart {
        let path = path.to_owned();
        move |error| CannotStart::Store {
            path: path.clone(),
            error,
        }
    }
}

fn cure(error: &StoreError) -> &'static str {
    match error {
        StoreError::System(error) if error.kind() == std::io::ErrorKind::NotFound => {
            ". Create the folder, or choose another file with --store; then start causeway-devmgr again"
        }
        StoreError::System(_) => {
            ". Free space on the disk, or correct path or permissions; then start causeway-devmgr again"
        }
        // The others name their cure, or have none.
        _ => "",
    }
}
