//! Who is who: users, what they may do, and the tokens that they show.
//!
//! - [`Directory`]: all of them, for looking up; changed by [`IdentityChange`]s that were stored first.
//! - [`Caller`]: who a call comes from, once that is known.
//!
//! What it is not: it reads no file and no clock. Invariant: no token is kept, only its digest; no error says
//! which users there are.

use std::collections::{BTreeMap, HashMap};

use causeway_security::TokenHash;
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

/// A change of who is who; to be stored before the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityChange {
    /// A user is as in this row.
    PutUser(User),
    /// A user is no more; his tokens are deleted beside it.
    DeleteUser(UserName),
    /// A token counts.
    PutToken(TokenRow),
    /// A token counts no more.
    DeleteToken(TokenId),
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
    /// When what he has shown counts no more.
    pub until: Option<Wall>,
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
    /// Its time is over.
    #[error(
        "the token has expired; an administrator makes another with `causeway tokens create USER`"
    )]
    Expired,
}

/// All users and tokens.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    users: BTreeMap<UserName, User>,
    tokens: BTreeMap<TokenId, TokenRow>,
    /// By the first bytes of the hash, which narrows down what is compared in constant time.
    by_hash: HashMap<[u8; 8], Vec<TokenId>>,
}

impl Directory {
    /// What was stored.
    #[must_use]
    pub fn new(users: Vec<User>, tokens: Vec<TokenRow>) -> Directory {
        let mut directory = Directory::default();
        let users = users.into_iter().map(IdentityChange::PutUser);
        let tokens = tokens.into_iter().map(IdentityChange::PutToken);
        users.chain(tokens).for_each(|row| directory.apply(row));
        directory
    }

    /// Takes a change in.
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
                self.tokens.insert(row.id.clone(), row);
            }
            IdentityChange::DeleteToken(id) => self.forget(&id),
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
    }

    /// Who shows a token of this hash at this moment.
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
        if row.expires.is_some_and(|expires| now >= expires) {
            return Err(NotKnown::Expired);
        }
        let user = self.users.get(&row.user).ok_or(NotKnown::Token)?;
        Ok(Caller {
            until: row.expires,
            ..user.clone().into()
        })
    }

    /// Who has a certificate of this name, which was checked: he needs not be in the directory, and may
    /// then only what everyone may.
    #[must_use]
    pub fn by_certificate(&self, name: &str) -> Caller {
        let name = UserName::from(name);
        match self.users.get(&name) {
            Some(user) => user.clone().into(),
            None => Caller {
                user: name,
                groups: Vec::new(),
                admin: false,
                node: false,
                until: None,
            },
        }
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

    /// What removes a user with all his tokens.
    #[must_use]
    pub fn without(&self, name: &UserName) -> Vec<IdentityChange> {
        let his = self.tokens.values().filter(|row| row.user == *name);
        let tokens = his.map(|row| IdentityChange::DeleteToken(row.id.clone()));
        tokens
            .chain([IdentityChange::DeleteUser(name.clone())])
            .collect()
    }
}

impl From<User> for Caller {
    fn from(user: User) -> Caller {
        Caller {
            user: user.name,
            groups: user.groups,
            admin: user.admin,
            node: user.node,
            until: None,
        }
    }
}

fn prefix(hash: &[u8; 32]) -> [u8; 8] {
    std::array::from_fn(|i| hash[i])
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_security::Token;

    fn user(name: &str) -> User {
        User {
            name: name.into(),
            groups: vec!["lab".into()],
            admin: false,
            node: false,
        }
    }

    fn token(id: &str, user: &str, token: &Token, expires: Option<Wall>) -> TokenRow {
        TokenRow {
            id: TokenId(id.to_owned()),
            user: user.into(),
            label: String::new(),
            hash: token.hash().0,
            expires,
        }
    }

    #[test]
    fn a_token_names_its_user_until_it_is_over() {
        let (one, two, stranger) = (Token::generate(), Token::generate(), Token::generate());
        let mut directory = Directory::new(
            vec![user("ann")],
            vec![
                token("1", "ann", &one, None),
                token("2", "ann", &two, Some(Wall(100))),
                token("3", "nobody", &stranger, None),
            ],
        );
        let who = |directory: &Directory, token: &Token, now| {
            directory
                .by_token(&token.hash(), Wall(now))
                .map(|caller| caller.user.to_string())
        };
        assert_eq!(who(&directory, &one, 1000), Ok("ann".to_owned()));
        assert_eq!(who(&directory, &two, 99), Ok("ann".to_owned()));
        let shown = directory.by_token(&two.hash(), Wall(0)).unwrap();
        assert_eq!(shown.until, Some(Wall(100)));
        assert_eq!(who(&directory, &two, 100), Err(NotKnown::Expired));
        assert_eq!(who(&directory, &stranger, 0), Err(NotKnown::Token));
        directory.apply(IdentityChange::DeleteToken(TokenId("1".to_owned())));
        assert_eq!(who(&directory, &one, 0), Err(NotKnown::Token));
        assert_eq!(who(&directory, &two, 0), Ok("ann".to_owned()));
    }

    #[test]
    fn with_a_user_go_his_tokens() {
        let (his, other) = (Token::generate(), Token::generate());
        let mut directory = Directory::new(
            vec![user("ann"), user("bob")],
            vec![
                token("1", "ann", &his, None),
                token("2", "bob", &other, None),
            ],
        );
        for change in directory.without(&"ann".into()) {
            directory.apply(change);
        }
        assert!(directory.by_token(&his.hash(), Wall(0)).is_err());
        assert!(directory.by_token(&other.hash(), Wall(0)).is_ok());
        // He who comes back by that name has none of them.
        directory.apply(IdentityChange::PutUser(user("ann")));
        assert!(directory.by_token(&his.hash(), Wall(0)).is_err());
        assert!(directory.by_hash.len() == 1);
    }

    #[test]
    fn a_certificate_of_an_unknown_name_may_nothing_special() {
        let directory = Directory::new(
            vec![User {
                node: true,
                ..user("node1")
            }],
            Vec::new(),
        );
        assert!(directory.by_certificate("node1").node);
        let stranger = directory.by_certificate("node2");
        assert!(!stranger.node && !stranger.admin && stranger.groups.is_empty());
    }
}
