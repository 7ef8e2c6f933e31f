//! Who is who: users, what they may do, and the tokens that they show.
//!
//! - [`Directory`]: all of them, for looking up and for deciding what may change: by [`IdentityChange`]s.
//! - [`Caller`]: who a call comes from, once that is known.
//!
//! What it is not: it reads no file and no clock. Invariant: no token is kept, only its digest; no error says
//! which users there are.

mod directory;
mod taking;

pub use directory::{Directory, KEPT, MOST_TOKENS};

use serde::{Deserialize, Serialize};

use crate::lease::Wall;
use crate::policy::{GroupName, UserName};

/// Somebody who may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// By what he is known: to his token, or in his certificate.
    pub name: UserName,
    /// The groups whose quotas he shares.
    #[serde(default)]
    pub groups: Vec<GroupName>,
    /// May do everything.
    #[serde(default)]
    pub admin: bool,
    /// Is a node: may join, and nothing else.
    #[serde(default)]
    pub node: bool,
}

/// The name of a token, for people; tells nothing of the token itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(pub String);

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// Its name.
    pub id: TokenId,
    /// Whose it is.
    pub user: UserName,
    /// What its user calls it.
    pub label: String,
    /// SHA-256 of it.
    pub hash: [u8; 32],
    /// From when on it counts no more.
    pub expires: Option<Wall>,
}

/// A change of who is who; to be stored before callers are judged by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityChange {
    /// A user is as in this row.
    PutUser(User),
    /// A user is no more; his tokens are deleted beside it.
    DeleteUser(UserName),
    /// Whoever shows a certificate of this name is refused.
    PutRemoved(UserName),
    /// No longer.
    DeleteRemoved(UserName),
    /// A token counts.
    PutToken(TokenRow),
    /// A token counts no more.
    DeleteToken(TokenId),
}

/// By what somebody is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// His token.
    Token(TokenId),
    /// His certificate. When that ends is not known.
    Certificate,
    /// Nothing: his word is believed.
    Word,
}

/// Who a call comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Who.
    pub user: UserName,
    /// His groups.
    pub groups: Vec<GroupName>,
    /// May do everything.
    pub admin: bool,
    /// May join as a node.
    pub node: bool,
    /// What he has shown.
    pub shown: Shown,
    /// When that counts no more.
    pub until: Option<Wall>,
}

impl Caller {
    /// Whether he may join as a node. An administrator may as any.
    #[must_use]
    pub fn may_join(&self) -> bool {
        self.node || self.admin
    }

    /// Whether he may have leases: what lets a node in opens what a node needs, and nothing else.
    #[must_use]
    pub fn may_lease(&self) -> bool {
        !self.node || self.admin
    }
}

/// Nobody is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKnown {
    /// Neither a certificate nor a token.
    #[error(
        "the device manager wants a token or a client certificate, and got neither; an administrator makes a token with `causeway tokens create USER`"
    )]
    Nothing,
    /// Not a token of ours (any more), or of nobody.
    #[error("the token is not known here, or was revoked")]
    Token,
    /// A certificate of somebody who was removed.
    #[error(
        "the user of this certificate was removed from the device manager; an administrator adds him again with `causeway users add`"
    )]
    Removed,
    /// Its time is over.
    #[error(
        "the token has expired; an administrator makes another with `causeway tokens create USER`"
    )]
    Expired,
}

/// Who is who does not change as it was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChanged {
    /// Nobody of this name.
    #[error("there is no such user; an administrator says `causeway users add` first")]
    NoUser,
    /// No token of this name.
    #[error("there is no such token")]
    NoToken,
    /// One more would be too many.
    #[error("a user has {MOST_TOKENS} tokens at most: revoke some, or let them expire")]
    TooMany,
    /// Nobody could administrate any more.
    #[error(
        "this is the last administrator: make another first (`causeway users admin NAME yes`, or `users add NAME --admin`)"
    )]
    LastAdmin,
    /// Nobody could come in any more who may administrate.
    #[error(
        "with this the last token of an administrator would go, and nobody could administrate any more: make another first \
         (`causeway tokens create NAME`, of an administrator)"
    )]
    LastToken,
}
