//! All users and tokens.
//!
//! This module stores nothing and reads no clock. Invariant: changes from [`Directory::decide`] leave no
//! token without its user, and no user with more than [`MOST_TOKENS`] valid tokens. They leave an
//! administrator who can authenticate, if there was one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use causeway_security::{DerivingKey, TokenHash};

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
                // Replaces a row of this id in all indexes.
                self.forget(&row.id);
                let alike = self.by_hash.entry(prefix(&row.hash)).or_default();
                alike.push(row.id.clone());
                let theirs = self.of_user.entry(row.user.clone()).or_default();
                theirs.insert(row.id.clone());
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
        if let Some(theirs) = self.of_user.get_mut(&row.user) {
            theirs.remove(id);
            if theirs.is_empty() {
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
            // The index compares a prefix, whose timing may leak. The whole hash is compared in constant
            // time.
            .find(|row| TokenHash(row.hash).matches(hash))
            .ok_or(NotKnown::Token)?;
        self.by_row(row, now)
    }

    /// The caller who shows the secret that is derived from their token under this key.
    ///
    /// # Errors
    /// [`NotKnown::Token`] or [`NotKnown::Expired`].
    pub fn by_derived(
        &self,
        id: &TokenId,
        key: &DerivingKey,
        shown: &TokenHash,
        now: Wall,
    ) -> Result<Caller, NotKnown> {
        let row = self.tokens.get(id).ok_or(NotKnown::Token)?;
        match key.derive(&TokenHash(row.hash)).matches(shown) {
            true => self.by_row(row, now),
            false => Err(NotKnown::Token),
        }
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
        // A certificate outlives its user. A user of this name who was added again may use it.
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
        // Every change sweeps, so that the store does not grow with expired tokens.
        let mut gone = self.swept(now);
        let mut beside = None;
        match &wanted {
            IdentityChange::PutUser(user) => {
                if !user.admin && self.is_last_admin(&user.name) {
                    return Err(NotChanged::LastAdmin);
                }
                // The user may lose the administrator's rights here, and the last usable token with them.
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
                // The user's certificates stay valid for TLS, so the name is refused from now on.
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
        // Deletions first: a new token may take the room of an expired one.
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
        // Where no administrator could authenticate anyway, this change makes nothing worse.
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
            Vec::new(),
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
    fn a_derived_secret_ends_with_its_token_and_its_key() {
        let (one, two) = (Token::generate(), Token::generate());
        let rows = vec![
            token("1", "ann", &one, Some(Wall(100))),
            token("2", "bob", &two, None),
        ];
        let mut directory = Directory::new(vec![user("ann"), user("bob")], rows, Vec::new());
        let (key, another) = (DerivingKey::generate(), DerivingKey::generate());
        let secret = key.derive(&one.hash());
        let who = |directory: &Directory, id: &str, key: &DerivingKey, now| {
            let id = TokenId(id.to_owned());
            let caller = directory.by_derived(&id, key, &secret, Wall(now));
            caller.map(|caller| caller.user.to_string())
        };
        assert_eq!(who(&directory, "1", &key, 99), Ok("ann".to_owned()));
        assert_eq!(who(&directory, "1", &key, 100), Err(NotKnown::Expired));
        for (id, key) in [("1", &another), ("2", &key), ("3", &key)] {
            assert_eq!(who(&directory, id, key, 0), Err(NotKnown::Token));
        }
        directory.apply(IdentityChange::DeleteToken(TokenId("1".to_owned())));
        assert_eq!(who(&directory, "1", &key, 0), Err(NotKnown::Token));
    }

    fn wanted(
        directory: &mut Directory,
        change: IdentityChange,
        now: u64,
    ) -> Result<(), NotChanged> {
        let changes = directory.decide(change, Wall(now))?;
        changes
            .into_iter()
            .for_each(|change| directory.apply(change));
        Ok(())
    }

    #[test]
    fn the_last_administrator_stays_one() {
        let admin = |name: &str| User {
            admin: true,
            ..user(name)
        };
        let mut directory =
            Directory::new(vec![admin("root"), user("ann")], Vec::new(), Vec::new());
        let no_more = |directory: &mut Directory| {
            let put = IdentityChange::PutUser(user("root"));
            [put, IdentityChange::DeleteUser("root".into())]
                .map(|change| wanted(directory, change, 0))
        };
        assert_eq!(no_more(&mut directory), [Err(NotChanged::LastAdmin); 2]);
        wanted(&mut directory, IdentityChange::DeleteUser("ann".into()), 0).unwrap();
        directory.apply(IdentityChange::PutUser(admin("bob")));
        assert_eq!(no_more(&mut directory), [Ok(()); 2]);
        let bob = IdentityChange::DeleteUser("bob".into());
        assert_eq!(wanted(&mut directory, bob, 0), Err(NotChanged::LastAdmin));
    }

    #[test]
    fn the_last_token_of_an_administrator_stays_one() {
        let admin = |name: &str| User {
            admin: true,
            ..user(name)
        };
        let row = |id: &str, user, expires: Option<u64>| {
            token(id, user, &Token::generate(), expires.map(Wall))
        };
        let (users, tokens) = (
            vec![admin("root"), admin("bob"), user("ann")],
            vec![
                row("1", "root", None),
                row("2", "root", Some(100)),
                row("3", "ann", None),
            ],
        );
        let mut directory = Directory::new(users, tokens, Vec::new());
        let revoke = |id: &str| IdentityChange::DeleteToken(TokenId(id.to_owned()));
        let delete = |name: &str| IdentityChange::DeleteUser(name.into());
        let last = Err(NotChanged::LastToken);
        // Root's second token is valid until 100. Bob has none, and ann is no administrator.
        let decided =
            |directory: &Directory, change, now| directory.decide(change, Wall(now)).map(drop);
        assert_eq!(decided(&directory, revoke("1"), 99), Ok(()));
        assert_eq!(decided(&directory, revoke("1"), 100), last);
        assert_eq!(
            decided(&directory, revoke("2"), 100),
            Ok(()),
            "it has expired"
        );
        let demoted = IdentityChange::PutUser(user("root"));
        for change in [delete("root"), demoted.clone()] {
            assert_eq!(decided(&directory, change, 0), last);
        }
        assert_eq!(decided(&directory, delete("bob"), 0), Ok(()));
        let open = directory.clone().open_without_tokens(true);
        for change in [revoke("1"), delete("root"), demoted.clone()] {
            assert_eq!(decided(&open, change, 100), Ok(()));
        }
        let bobs = IdentityChange::PutToken(row("4", "bob", None));
        wanted(&mut directory, bobs, 100).unwrap();
        for change in [revoke("1"), delete("root"), demoted] {
            assert_eq!(decided(&directory, change, 100), Ok(()));
        }
        wanted(&mut directory, revoke("1"), 100).unwrap();
        assert_eq!(wanted(&mut directory, revoke("4"), 100), last);
    }

    #[test]
    fn with_a_user_go_his_tokens() {
        let (theirs, other) = (Token::generate(), Token::generate());
        let mut directory = Directory::new(
            vec![user("ann"), user("bob")],
            vec![
                token("1", "ann", &theirs, None),
                token("2", "bob", &other, None),
            ],
            Vec::new(),
        );
        wanted(&mut directory, IdentityChange::DeleteUser("ann".into()), 0).unwrap();
        assert!(directory.by_token(&theirs.hash(), Wall(0)).is_err());
        assert!(directory.by_token(&other.hash(), Wall(0)).is_ok());
        // A new user of the same name has none of the old tokens.
        directory.apply(IdentityChange::PutUser(user("ann")));
        assert!(directory.by_token(&theirs.hash(), Wall(0)).is_err());
        assert!(directory.by_hash.len() == 1);
    }

    #[test]
    fn a_user_has_so_many_tokens_and_what_expired_makes_room() {
        let mut directory = Directory::new(vec![user("ann"), user("bob")], Vec::new(), Vec::new());
        let put = |directory: &mut Directory, n: usize, user, expires: Option<u64>, now| {
            let row = token(&n.to_string(), user, &Token::generate(), expires.map(Wall));
            wanted(directory, IdentityChange::PutToken(row), now)
        };
        for n in 0..MOST_TOKENS {
            put(&mut directory, n, "ann", (n < 2).then_some(100), 0).unwrap();
        }
        assert_eq!(
            put(&mut directory, 100, "ann", None, 99),
            Err(NotChanged::TooMany)
        );
        put(&mut directory, 101, "bob", None, 99).unwrap();
        assert_eq!(
            put(&mut directory, 102, "carl", None, 99),
            Err(NotChanged::NoUser)
        );
        put(&mut directory, 103, "ann", None, 100).unwrap();
        assert_eq!(directory.tokens_of(&"ann".into()).count(), MOST_TOKENS - 1);
        put(&mut directory, 104, "ann", None, 100).unwrap();
        assert_eq!(
            put(&mut directory, 105, "ann", None, 100),
            Err(NotChanged::TooMany)
        );
        let revoke = |directory: &mut Directory| {
            let id = TokenId("103".to_owned());
            wanted(directory, IdentityChange::DeleteToken(id), 100)
        };
        revoke(&mut directory).unwrap();
        assert_eq!(revoke(&mut directory), Err(NotChanged::NoToken));
        put(&mut directory, 105, "ann", None, 100).unwrap();
    }

    #[test]
    fn a_token_that_expired_is_known_for_a_while_and_then_no_more() {
        let lent = Token::generate();
        let row = token("1", "ann", &lent, Some(Wall(100)));
        let mut directory = Directory::new(vec![user("ann")], vec![row], Vec::new());
        let mut told = |now| {
            wanted(&mut directory, IdentityChange::PutUser(user("bob")), now).unwrap();
            directory.by_token(&lent.hash(), Wall(now)).err()
        };
        assert_eq!(told(99 + KEPT.0), Some(NotKnown::Expired));
        assert_eq!(told(100 + KEPT.0), Some(NotKnown::Token));
        assert!(directory.by_end.is_empty() && directory.of_user.is_empty());
    }

    #[test]
    fn a_certificate_of_an_unknown_name_may_nothing_special_and_of_a_removed_one_nothing() {
        let node1 = User {
            node: true,
            ..user("node1")
        };
        let mut directory = Directory::new(vec![node1.clone()], Vec::new(), vec!["bob".into()]);
        assert!(directory.by_certificate("node1").unwrap().node);
        let stranger = directory.by_certificate("node2").unwrap();
        assert!(!stranger.node && !stranger.admin && stranger.groups.is_empty());
        assert_eq!(directory.by_certificate("bob"), Err(NotKnown::Removed));
        wanted(
            &mut directory,
            IdentityChange::DeleteUser("node1".into()),
            0,
        )
        .unwrap();
        assert_eq!(directory.by_certificate("node1"), Err(NotKnown::Removed));
        wanted(&mut directory, IdentityChange::PutUser(node1), 0).unwrap();
        assert!(directory.by_certificate("node1").unwrap().node);
        assert_eq!(directory.removed.len(), 1);
    }

    #[test]
    fn who_was_let_in_is_judged_again_by_what_he_has_shown() {
        let (one, two) = (Token::generate(), Token::generate());
        let rows = vec![
            token("1", "ann", &one, None),
            token("2", "ann", &two, Some(Wall(100))),
        ];
        let mut directory = Directory::new(vec![user("ann")], rows, Vec::new());
        let let_in = |token: &Token| directory.by_token(&token.hash(), Wall(0)).unwrap();
        let (one, two) = (let_in(&one), let_in(&two));
        let certified = directory.by_certificate("ann").unwrap();
        let said = directory.by_word("ann");
        assert_eq!(directory.again(&two, Wall(99)).as_ref(), Ok(&two));
        assert_eq!(directory.again(&two, Wall(100)), Err(NotKnown::Expired));
        let ann = User {
            node: true,
            ..user("ann")
        };
        wanted(&mut directory, IdentityChange::PutUser(ann), 0).unwrap();
        assert!(one.may_lease() && !one.may_join());
        let now = directory.again(&one, Wall(0)).unwrap();
        assert!(!now.may_lease() && now.may_join());
        let id = TokenId("1".to_owned());
        wanted(&mut directory, IdentityChange::DeleteToken(id), 0).unwrap();
        assert_eq!(directory.again(&one, Wall(0)), Err(NotKnown::Token));
        assert!(directory.again(&certified, Wall(0)).is_ok());
        wanted(&mut directory, IdentityChange::DeleteUser("ann".into()), 0).unwrap();
        assert_eq!(directory.again(&two, Wall(0)), Err(NotKnown::Token));
        assert_eq!(directory.again(&certified, Wall(0)), Err(NotKnown::Removed));
        assert!(directory.again(&said, Wall(0)).is_ok());
    }
}
