//! Finds changes that only take permissions away. These may be in effect before they are durable, because
//! a crash restores at worst the state before.

use super::{Directory, IdentityChange, User};

impl Directory {
    /// Whether no user may do more after the change than before. Groups have quotas, so that leaving one
    /// may allow more.
    #[must_use]
    pub fn takes_away(&self, wanted: &IdentityChange) -> bool {
        match wanted {
            IdentityChange::DeleteUser(_)
            | IdentityChange::DeleteToken(_)
            | IdentityChange::PutRemoved(_) => true,
            IdentityChange::PutUser(user) => {
                let before = self.user(&user.name);
                before.is_some_and(|before| is_less(user, before))
            }
            IdentityChange::PutToken(_) | IdentityChange::DeleteRemoved(_) => false,
        }
    }
}

fn is_less(user: &User, before: &User) -> bool {
    let may = |of: &User| [of.admin, of.admin || of.node, of.admin || !of.node];
    let is_within = may(user)
        .iter()
        .zip(may(before))
        .all(|(now, then)| *now <= then);
    is_within && user.groups == before.groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_less_takes_away() {
        let user = |admin, node, group: &str| User {
            name: "ann".into(),
            groups: vec![group.into()],
            admin,
            node,
        };
        let takes = |before: Option<User>, now| {
            let directory = Directory::new(before.into_iter().collect(), Vec::new(), Vec::new());
            directory.takes_away(&IdentityChange::PutUser(now))
        };
        assert!(!takes(None, user(false, false, "a")));
        assert!(takes(Some(user(true, false, "a")), user(false, false, "a")));
        assert!(takes(Some(user(true, true, "a")), user(false, true, "a")));
        assert!(!takes(
            Some(user(false, false, "a")),
            user(true, false, "a")
        ));
        // A node may have no leases, and a user may not join, so neither has less than the other.
        assert!(!takes(
            Some(user(false, false, "a")),
            user(false, true, "a")
        ));
        assert!(!takes(
            Some(user(false, true, "a")),
            user(false, false, "a")
        ));
        assert!(!takes(
            Some(user(true, false, "a")),
            user(false, false, "b")
        ));
    }
}
