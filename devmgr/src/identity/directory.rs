//! All users and tokens, for looking up.
//!
//! What it is not: it stores nothing and reads no clock. Invariant: what [`Directory::decide`] has decided leaves no
//! token without its user, and no user with more than [`MOST_TOKENS`] that count.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use causeway_security::TokenHash;

use super::{Caller, IdentityChange, NotChanged, NotKnown, Shown, TokenId, TokenRow, User};
use crate::lease::{Span, Wall};
use crate::policy::UserName;

/// Tokens of one user that count.
pub const MOST_TOKENS: usize = 64;

/// A token that has expired is kept for so long, so that who shows it is told why he is not let in; unless
/// its user needs the room.
pub const KEPT: Span = Span::seconds(7 * 24 * 3600);

/// All users and tokens.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    users: BTreeMap<UserName, User>,
    tokens: BTreeMap<TokenId, TokenRow>,
    /// Users who were, whose certificates go on.
    removed: BTreeSet<UserName>,
    of_user: BTreeMap<UserName, BTreeSet<TokenId>>,
    /// Those that expire, by when.
    by_end: BTreeSet<(Wall, TokenId)>,
    /// By the first bytes of the hash, which narrows down what is compared in constant time.
    by_hash: HashMap<[u8; 8], Vec<TokenId>>,
}

impl Directory {
    /// What was stored.
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

    /// Users who were removed, and whose certificates are refused.
    pub fn removed(&self) -> impl Iterator<Item = &UserName> {
        self.removed.iter()
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

    /// Who has a certificate of this name, which was checked: he needs not be in the directory, and may
    /// then only what everyone may.
    ///
    /// # Errors
    /// [`NotKnown::Removed`]: he was in it.
    pub fn by_certificate(&self, name: &str) -> Result<Caller, NotKnown> {
        let user = self.user_or_none(name);
        if self.removed.contains(&user.name) && !self.users.contains_key(&user.name) {
            return Err(NotKnown::Removed);
        }
        Ok(caller(user, Shown::Certificate, None))
    }

    /// Who somebody is by now who was let in earlier.
    ///
    /// # Errors
    /// [`NotKnown`]: what he has shown counts no more.
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

    /// Who says that this is his name, where everybody is believed and may do everything.
    #[must_use]
    pub fn by_word(&self, name: &str) -> Caller {
        let user = User {
            admin: true,
            node: true,
            ..self.user_or_none(name)
        };
        caller(user, Shown::Word, None)
    }

    /// The user of this name, or one who may only what everyone may.
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

    /// What a wanted change comes to at this moment: all that is to be stored, in this order. With a user go his
    /// tokens, and his name is kept, to be refused; tokens that have expired long ago go with any change.
    ///
    /// # Errors
    /// [`NotChanged`].
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
                let was_removed = self.removed.get(&user.name).cloned();
                beside = was_removed.map(IdentityChange::DeleteRemoved);
            }
            IdentityChange::DeleteUser(name) => {
                self.users.get(name).ok_or(NotChanged::NoUser)?;
                if self.is_last_admin(name) {
                    return Err(NotChanged::LastAdmin);
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
                if all >= MOST_TOKENS {
                    gone.extend(expired.iter().map(|row| &row.id));
                }
            }
            IdentityChange::DeleteToken(id) => {
                self.tokens.get(id).ok_or(NotChanged::NoToken)?;
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

    /// Tokens that have expired long ago.
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
    fn with_a_user_go_his_tokens() {
        let (his, other) = (Token::generate(), Token::generate());
        let mut directory = Directory::new(
            vec![user("ann"), user("bob")],
            vec![
                token("1", "ann", &his, None),
                token("2", "bob", &other, None),
            ],
            Vec::new(),
        );
        wanted(&mut directory, IdentityChange::DeleteUser("ann".into()), 0).unwrap();
        assert!(directory.by_token(&his.hash(), Wall(0)).is_err());
        assert!(directory.by_token(&other.hash(), Wall(0)).is_ok());
        // He who comes back by that name has none of them.
        directory.apply(IdentityChange::PutUser(user("ann")));
        assert!(directory.by_token(&his.hash(), Wall(0)).is_err());
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
