//! Tests which callers are authenticated, and which changes are refused.

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

fn wanted(directory: &mut Directory, change: IdentityChange, now: u64) -> Result<(), NotChanged> {
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
    let mut directory = Directory::new(vec![admin("root"), user("ann")], Vec::new(), Vec::new());
    let no_more = |directory: &mut Directory| {
        let put = IdentityChange::PutUser(user("root"));
        [put, IdentityChange::DeleteUser("root".into())].map(|change| wanted(directory, change, 0))
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
    // A new user of the same name has none of the old tokens.
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
