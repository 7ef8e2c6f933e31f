//! Users, their permissions, and their tokens.
//!
//! - [`Directory`]: all users and tokens, to look up callers and to decide on [`IdentityChange`]s.
//! - [`Caller`]: an authenticated caller.
//!
//! This module reads no file and no clock. Invariant: only digests of tokens are kept. No error of
//! authentication reveals which users exist.

mod directory;

pub use directory::{Directory, KEPT, MOST_TOKENS};

use serde::{Deserialize, Serialize};

use crate::policy::{GroupName, UserName};
use crate::time::Wall;

/// A user of the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user's name, which their tokens are for and their certificate contains.
    pub name: UserName,
    /// The groups whose quotas the user shares.
    #[serde(default)]
    pub groups: Vec<GroupName>,
    /// Whether the user is an administrator.
    #[serde(default)]
    pub admin: bool,
    /// Whether the user is a node, which may join and nothing else.
    #[serde(default)]
    pub node: bool,
}

/// The public id of a token, for people. It reveals nothing about the token itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenId(pub String);

/// The stored form of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// The token's id.
    pub id: TokenId,
    /// The token's user.
    pub user: UserName,
    /// The user's name for the token.
    pub label: String,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// When the token expires.
    pub expires: Option<Wall>,
}

/// A change of users or tokens. It is stored before callers are authenticated by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityChange {
    /// Adds or replaces a user.
    PutUser(User),
    /// Deletes a user; separate changes delete their tokens.
    DeleteUser(UserName),
    /// Refuses certificates of this name.
    PutRemoved(UserName),
    /// Accepts certificates of this name again.
    DeleteRemoved(UserName),
    /// Adds a token.
    PutToken(TokenRow),
    /// Deletes a token.
    DeleteToken(TokenId),
}

/// The credentials that a caller was authenticated by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A token.
    Token(TokenId),
    /// A client certificate, whose expiry is not known here.
    Certificate,
    /// None: the manager trusts the name that the caller gives.
    Word,
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The caller's name.
    pub user: UserName,
    /// The caller's groups.
    pub groups: Vec<GroupName>,
    /// Whether the caller is an administrator.
    pub admin: bool,
    /// Whether the caller may join as a node.
    pub node: bool,
    /// The credentials.
    pub shown: Shown,
    /// When the credentials expire.
    pub until: Option<Wall>,
}

impl Caller {
    /// Whether the caller may join as a node. An administrator may join as any node.
    #[must_use]
    pub fn may_join(&self) -> bool {
        self.node || self.admin
    }

    /// Whether the caller may have leases. A node's credentials allow only what a node needs.
    #[must_use]
    pub fn may_lease(&self) -> bool {
        !self.node || self.admin
    }
}

/// Why a caller is not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKnown {
    /// The caller has shown neither a certificate nor a token.
    #[error(
        "the caller sent neither a token nor a client certificate; an administrator makes a token with `causeway \
         tokens create USER`"
    )]
    Nothing,
    /// The token is unknown or revoked, or its user does not exist.
    #[error(
        "the token is unknown or was revoked; an administrator makes another with `causeway tokens create USER`"
    )]
    Token,
    /// The certificate belongs to a removed user.
    #[error(
        "the user of this certificate was removed from the device manager; an administrator can add the user again \
         with `causeway users add`"
    )]
    Removed,
    /// The token has expired.
    #[error(
        "the token has expired; an administrator makes another with `causeway tokens create USER`"
    )]
    Expired,
}

/// Why users or tokens are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChanged {
    /// No user has this name.
    #[error("unknown user; an administrator has to add the user first with `causeway users add`")]
    NoUser,
    /// No token has this id.
    #[error("unknown token; see `causeway tokens list`")]
    NoToken,
    /// The user has as many tokens as one user may have.
    #[error("a user has {MOST_TOKENS} tokens at most: revoke some, or let them expire")]
    TooMany,
    /// The change would remove the last administrator.
    #[error(
        "the user is the last administrator: make another first (`causeway users admin NAME yes`, or `users add NAME \
         --admin`)"
    )]
    LastAdmin,
    /// The change would remove the last token of an administrator.
    #[error(
        "the change would remove the last administrator's token: make another first (`causeway tokens create NAME`, of an \
         administrator)"
    )]
    LastToken,
}
