//! What survives a restart: rows in tables, changed all or nothing.
//!
//! - [`Store`]: the narrow seam, so that a replicated store can take its place.
//! - [`RedbStore`]: one file of the embedded database redb. [`MemoryStore`]: for tests; can be told to fail.
//! - `guard`: what redb's panics over a damaged file become.
//! - `rows`: what is written for each [`Write`], the same for every store.
//!
//! What it is not: it decides nothing and knows no time. Invariant: when [`Store::apply`] has returned well,
//! what it was given survives the loss of power; when it has not, none of it does.

mod guard;
mod memory;
mod redb;
mod rows;

pub use self::memory::{Failing, MemoryStore};
pub use self::redb::RedbStore;

use causeway_security::Secret;

use crate::identity::{IdentityChange, TokenRow, User};
use crate::lease::{Change, Rows};
use crate::policy::UserName;

/// One change of what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The lease machine's.
    Lease(Change),
    /// Of users and tokens.
    Identity(IdentityChange),
    /// The key that signs leases, in PKCS#8 form.
    SigningKey(Secret),
}

/// Everything that is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The lease machine's.
    pub rows: Rows,
    /// Users.
    pub users: Vec<User>,
    /// Their tokens.
    pub tokens: Vec<TokenRow>,
    /// Users who were removed.
    pub removed: Vec<UserName>,
    /// The key that signs leases; `None`: none was made yet.
    pub signing_key: Option<Secret>,
}

/// Where the manager keeps what must outlive it.
pub trait Store: Send {
    /// Everything that is there.
    ///
    /// # Errors
    /// [`StoreError`].
    fn load(&mut self) -> Result<Stored, StoreError>;

    /// Makes changes durable, all of them or none, in their order.
    ///
    /// # Errors
    /// [`StoreError`]; the same changes may be tried again later.
    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError>;
}

/// The store cannot be used, for now or at all.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another manager has it.
    #[error("another process uses the store")]
    InUse,
    /// The system does not do what is asked: no room, no permission, a broken disk.
    #[error("the store cannot be read or written: {0}")]
    System(std::io::Error),
    /// Others can read, change or replace it.
    #[error("{}", .0.problem())]
    Exposed(#[from] causeway_security::BadFile),
    /// Not a store, or damaged.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// Of another version of the manager.
    #[error(
        "the store has schema {found}, and this causeway-devmgr knows schema {known}: upgrade it, or move the store away"
    )]
    Schema {
        /// What the store says.
        found: u32,
        /// What we write.
        known: u32,
    },
    /// A row that nobody here has written.
    #[error("the store's table {table} has a row that cannot be read: {problem}")]
    Row {
        /// Which table.
        table: &'static str,
        /// Why.
        problem: String,
    },
}

#[cfg(test)]
mod tests;
