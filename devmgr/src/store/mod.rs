//! The durable state: rows in tables, changed all or nothing.
//!
//! - [`Store`]: a narrow interface. [`EtcdStore`](crate::etcd::EtcdStore) implements it, too.
//! - [`RedbStore`]: one file of the embedded database redb. [`MemoryStore`]: for tests; it can be made to
//!   fail.
//! - `guard`: turns redb's panics over a damaged file into errors.
//! - `rows`: the rows of each [`Write`], the same for every store.
//!
//! This module decides nothing and reads no clock. Invariant: after [`Store::apply`] has succeeded, its
//! changes survive a loss of power. After it has failed, none of them does.

mod guard;
mod memory;
mod redb;
pub(crate) mod rows;

pub use self::memory::{Failing, MemoryStore};
pub use self::redb::RedbStore;

use causeway_proto::metadata::{ClusterId, Term};
use causeway_security::Secret;

use crate::identity::{IdentityChange, TokenRow, User};
use crate::lease::{Change, Rows};
use crate::policy::UserName;

/// One change of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A change of the lease manager.
    Lease(Change),
    /// A change of users and tokens.
    Identity(IdentityChange),
    /// The key that signs leases, in PKCS#8 form.
    SigningKey(Secret),
    /// The cluster's id, once.
    Cluster(ClusterId),
    /// The highest term so far.
    Term(Term),
}

/// The complete contents of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The lease manager's rows.
    pub rows: Rows,
    /// Users.
    pub users: Vec<User>,
    /// The users' tokens.
    pub tokens: Vec<TokenRow>,
    /// Users who were removed.
    pub removed: Vec<UserName>,
    /// The key that signs leases. `None`: not generated yet.
    pub signing_key: Option<Secret>,
    /// The cluster's id. `None`: not generated yet.
    pub cluster: Option<ClusterId>,
    /// The highest term so far. 0: none.
    pub term: Term,
    /// The version of the schema. `None`: the store is new.
    pub schema: Option<u32>,
}

/// Storage for the manager's durable state.
pub trait Store: Send {
    /// Reads everything.
    ///
    /// # Errors
    /// [`StoreError`]
    fn load(&mut self) -> Result<Stored, StoreError>;

    /// Makes changes durable, all of them or none, in their order.
    ///
    /// # Errors
    /// [`StoreError`]; the same changes may be tried again later.
    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError>;

    /// Whether another manager can take the store over. Then [`Store::apply`] without changes succeeds only
    /// if none has, and whatever takes something away without a change waits for such a confirmation.
    fn is_shared(&self) -> bool {
        false
    }

    /// The most changes that the store takes in one piece. More are possible, and slower.
    fn at_once(&self) -> usize {
        usize::MAX
    }
}

/// The store cannot be used, temporarily or at all.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has opened the store.
    #[error("another process uses the store")]
    InUse,
    /// The operating system reports an error: no space, no permission, a broken disk.
    #[error("the store cannot be read or written: {0}")]
    System(std::io::Error),
    /// Another manager leads. Nothing was written, and this one must not decide anything more.
    #[error("another manager has taken the store over")]
    Deposed,
    /// A replicated store cannot be read or written.
    #[error("{0}")]
    Remote(String),
    /// Other users can read, change or replace the store.
    #[error("{}", .0.problem())]
    Exposed(#[from] causeway_security::BadFile),
    /// Other users can read, change or replace the file, and it is no store.
    #[error("the file is no store of a device manager; choose another path for the store")]
    NoStore,
    /// The file is no store, or is damaged.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The store belongs to another version of the manager.
    #[error(
        "the store has schema {found}, and this causeway-devmgr knows schema {known}: upgrade it, or move the store away"
    )]
    Schema {
        /// The schema of the store.
        found: u32,
        /// The schema of this manager.
        known: u32,
    },
    /// The store has another cluster than the settings name.
    #[error(
        "etcd has the cluster {found} in `{key}`, and this manager belongs to the cluster {expected}: correct `endpoints`, \
         `prefix` or `cluster` in [etcd]"
    )]
    OtherCluster {
        /// The key of the cluster's id.
        key: String,
        /// The cluster that is there, or `none`.
        found: String,
        /// The cluster of the settings.
        expected: ClusterId,
    },
    /// A row cannot be parsed.
    #[error(
        "the store's table {table} has a row `{key}` that cannot be read: {problem}. Correct the row, or restore the store from a backup and run causeway-devmgr --after-restore once"
    )]
    Row {
        /// The table.
        table: &'static str,
        /// The row's key. Bytes that are not printable are escaped.
        key: String,
        /// The cause.
        problem: String,
    },
}

#[cfg(test)]
mod tests;
