//! All users and tokens.
//!
//! This module stores nothing and reads no clock. Invariant: changes from [`Directory::decide`] leave no
//! token without its user, and no user with more than [`MOST_TOKENS`] valid tokens. They leave an
//! administrator who can authenticate, if there was one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use causeway_security::TokenHash;

use super::{Caller, IdentityChange, NotChanged, NotKnown, Shown, TokenId, TokenRow, User};
use crate::policy::UserName;
use crate::time::{Span, Wall};

/// Maximum number of valid tokens of one user.
pub const MOST_TOKENS: usize = 64;

/// How long an expired token is kept, so that a caller who uses it is told the reason. If its user needs
/// the room, it is deleted earlier.
pub const KEPT: Span = Span::seconds(7 * 24 * 3600);

/// All users and tokens.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    users: BTreeMap<UserName, User>,
    tokens: BTreeMap<TokenId, TokenRow>,
    /// Users who were removed, and whose certificates may still be valid.
    removed: BTreeSet<UserName>,
    of_user: BTreeMap<UserName, BTreeSet<TokenId>>,
    /// Tokens that expire, by time.
    by_end: BTreeSet<(Wall, TokenId)>,
    /// By the first bytes of the hash, to find the few that are then compared in constant time.
    by_hash: HashMap<[u8; 8], Vec<TokenId>>,
    /// Whether administrators can authenticate without a token.
    is_open: bool,
}

impl Directory {
    /// A directory with the stored rows.
    #[must_use]
    pub fn new(users: Vec<User>, tokens: Vec<TokenRow>, removed: Vec<UserName>) -> Directory {
        let mut directory = Directory {
            removed: removed.into_iter().collect(),
            ..Directory::default()
        };
        let users = users.into_iter().map(IdentityChange::PutUser);
        let tokens = tokens.into_iter().map(IdentityChange::PutToken);
        users.chain(tokens).for_each(|row| directory.apply(row));
        directory
    }

    /// Sets whether administrators can authenticate without a token: by certificate, or because callers
    /// are not authenticated.
    #[must_use]
    pub fn open_without_tokens(self, is_open: bool) -> Directory {
        Directory { is_open, ..self }
    }

    /// Users who were removed, and whose certificates are refused.
    pub fn removed(&self) -> impl Iterator<Item = &UserName> {
        self.removed.iter()
    }

    /// Applies a change.
    pub fn apply(&mut self, change: IdentityChange) {
        match change {
            IdentityChange::PutUser(user) => {
                self.users.insert(user.name.clone(), user);
            }
            IdentityChange::DeleteUser(name) => {
                self.users.remove(&name);
            }
            IdentityChange::PutToken(row) => {
                self.forget(&row.id);
                let alike = self.by_hash.entry(prefix(&row.hash)).or_default();
                alike.push(row.id.clone());
                let his = self.of_user.entry(row.user.clone()).or_default();
                his.insert(row.id.clone());
                let end = row.expires.map(|at| (at, row.id.clone()));
                self.by_end.extend(end);
                self.tokens.insert(row.id.clone(), row);
            }
            IdentityChange::DeleteToken(id) => self.forget(&id),
            IdentityChange::PutRemoved(name) => {
                self.removed.insert(name);
            }
            IdentityChange::DeleteRemoved(name) => {
                self.removed.remove(&name);
            }
        }
    }

    fn forget(&mut self, id: &TokenId) {
        let Some(row) = self.tokens.remove(id) else {
            return;
        };
        if let Some(alike) = self.by_hash.get_mut(&prefix(&row.hash)) {
            alike.retain(|other| other != id);
            if alike.is_empty() {
                self.by_hash.remove(&prefix(&row.hash));
            }
        }
        if let Some(his) = self.of_user.get_mut(&row.user) {
            his.remove(id);
            if his.is_empty() {
                self.of_user.remove(&row.user);
            }
        }
        if let Some(at) = row.expires {
            self.by_end.remove(&(at, row.id));
        }
    }

    /// The caller who shows a token with this hash.
    ///
    /// # Errors
    /// [`NotKnown::Token`] or [`NotKnown::Expired`].
    pub fn by_token(&self, hash: &TokenHash, now: Wall) -> Result<Caller, NotKnown> {
        let alike = self.by_hash.get(&prefix(&hash.0)).ok_or(NotKnown::Token)?;
        let row = alike
            .iter()
            .filter_map(|id| self.tokens.get(id))
            .find(|row| TokenHash(row.hash).matches(hash))
            .ok_or(NotKnown::Token)?;
        self.by_row(row, now)
    }

    fn by_row(&self, row: &TokenRow, now: Wall) -> Result<Caller, NotKnown> {
        if has_expired(row, now) {
            return Err(NotKnown::Expired);
        }
        let user = self.users.get(&row.user).ok_or(NotKnown::Token)?;
        let shown = Shown::Token(row.id.clone());
        Ok(caller(user.clone(), shown, row.expires))
    }

    /// The caller with a valid certificate of this name. They need not be in the directory; then they
    /// have no special permissions.
    ///
    /// # Errors
    /// [`NotKnown::Removed`]: the user was removed.
    pub fn by_certificate(&self, name: &str) -> Result<Caller, NotKnown> {
        let user = self.user_or_none(name);
        if self.removed.contains(&user.name) && !self.users.contains_key(&user.name) {
            return Err(NotKnown::Removed);
        }
        Ok(caller(user, Shown::Certificate, None))
    }

    /// Looks up an authenticated caller again and returns their current identity.
    ///
    /// # Errors
    /// [`NotKnown`]: the credentials are no longer valid.
    pub fn again(&self, earlier: &Caller, now: Wall) -> Result<Caller, NotKnown> {
        let name = &*earlier.user.0;
        match &earlier.shown {
            Shown::Token(id) => {
                let row = self.tokens.get(id).ok_or(NotKnown::Token)?;
                self.by_row(row, now)
            }
            Shown::Certificate => self.by_certificate(name),
            Shown::Word => Ok(self.by_word(name)),
        }
    }

    /// The caller of this name at a manager without authentication, where everyone may do everything.
    #[must_use]
    pub fn by_word(&self, name: &str) -> Caller {
        let user = User {
            admin: true,
            node: true,
            ..self.user_or_none(name)
        };
        caller(user, Shown::Word, None)
    }

    /// The user of this name, or one without special permissions.
    fn user_or_none(&self, name: &str) -> User {
        let name = UserName::from(name);
        let known = self.users.get(&name).cloned();
        known.unwrap_or_else(|| User {
            name,
            groups: Vec::new(),
            admin: false,
            node: false,
        })
    }

    /// All users, by name.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// One user.
    #[must_use]
    pub fn user(&self, name: &UserName) -> Option<&User> {
        self.users.get(name)
    }

    /// All tokens, by id.
    pub fn tokens(&self) -> impl Iterator<Item = &TokenRow> {
        self.tokens.values()
    }

    /// One token.
    #[must_use]
    pub fn token(&self, id: &TokenId) -> Option<&TokenRow> {
        self.tokens.get(id)
    }

    /// Decides on a change, and returns all changes to store, in this order. Deleting a user also deletes
    /// their tokens, and records the name as removed. Every change also deletes tokens that expired long
    /// ago.
    ///
    /// # Errors
    /// [`NotChanged`]: the reason.
    pub fn decide(
        &self,
        wanted: IdentityChange,
        now: Wall,
    ) -> Result<Vec<IdentityChange>, NotChanged> {
        let mut gone = self.swept(now);
        let mut beside = None;
        match &wanted {
            IdentityChange::PutUser(user) => {
                if !user.admin && self.is_last_admin(&user.name) {
                    return Err(NotChanged::LastAdmin);
                }
                if !user.admin && !self.is_open_without(now, |row| row.user == user.name) {
                    return Err(NotChanged::LastToken);
                }
                let was_removed = self.removed.get(&user.name).cloned();
                beside = was_removed.map(IdentityChange::DeleteRemoved);
            }
            IdentityChange::DeleteUser(name) => {
                self.users.get(name).ok_or(NotChanged::NoUser)?;
                if self.is_last_admin(name) {
                    return Err(NotChanged::LastAdmin);
                }
                if !self.is_open_without(now, |row| row.user == *name) {
                    return Err(NotChanged::LastToken);
                }
                beside = Some(IdentityChange::PutRemoved(name.clone()));
                gone.extend(self.tokens_of(name).map(|row| &row.id));
            }
            IdentityChange::PutToken(row) => {
                self.users.get(&row.user).ok_or(NotChanged::NoUser)?;
                let all = self.tokens_of(&row.user).count();
                let expired = self.tokens_of(&row.user);
                let expired: Vec<_> = expired.filter(|row| has_expired(row, now)).collect();
                if all - expired.len() >= MOST_TOKENS {
                    return Err(NotChanged::TooMany);
                }
                // Expired tokens are deleted early only if the user needs the room.
                if all >= MOST_TOKENS {
                    gone.extend(expired.iter().map(|row| &row.id));
                }
            }
            IdentityChange::DeleteToken(id) => {
                self.tokens.get(id).ok_or(NotChanged::NoToken)?;
                if !self.is_open_without(now, |row| row.id == *id) {
                    return Err(NotChanged::LastToken);
                }
            }
            IdentityChange::PutRemoved(_) | IdentityChange::DeleteRemoved(_) => {}
        }
        let gone = gone.into_iter().cloned().map(IdentityChange::DeleteToken);
        Ok(gone.chain(beside).chain([wanted]).collect())
    }

    fn is_last_admin(&self, name: &UserName) -> bool {
        let mut admins = self.users.values().filter(|user| user.admin);
        admins.next().is_some_and(|user| user.name == *name) && admins.next().is_none()
    }

    /// Whether an administrator can still authenticate without these tokens, or could not with them
    /// either.
    fn is_open_without(&self, now: Wall, is_going: impl Fn(&TokenRow) -> bool) -> bool {
        let admins = self.users.values().filter(|user| user.admin);
        let keys = admins.flat_map(|user| self.tokens_of(&user.name));
        let mut keys = keys.filter(|row| !has_expired(row, now)).peekable();
        self.is_open || keys.peek().is_none() || keys.any(|row| !is_going(row))
    }

    /// Tokens that expired long ago.
    fn swept(&self, now: Wall) -> BTreeSet<&TokenId> {
        let is_old = |at: &Wall| at.0.saturating_add(KEPT.0) <= now.0;
        let by_end = self.by_end.iter().take_while(|(at, _)| is_old(at));
        by_end.map(|(_, id)| id).collect()
    }

    fn tokens_of(&self, name: &UserName) -> impl Iterator<Item = &TokenRow> {
        let ids = self.of_user.get(name).into_iter().flatten();
        ids.filter_map(|id| self.tokens.get(id))
    }
}

fn has_expired(row: &TokenRow, now: Wall) -> bool {
    row.expires.is_some_and(|expires| now >= expires)
}

fn caller(user: User, shown: Shown, until: Option<Wall>) -> Caller {
    Caller {
        user: user.name,
        groups: user.groups,
        admin: user.admin,
        node: user.node,
        shown,
        until,
    }
}

fn prefix(hash: &[u8; 32]) -> [u8; 8] {
    std::array::from_fn(|i| hash[i])
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
