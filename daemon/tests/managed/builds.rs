//! Tests of the build cache of a managed node: entries belong to the users of leases.

use causeway_proto::manager::Grant;

use crate::common::cached::{ON, Place, SOURCE, build_in};
use crate::common::manager::{Manager, Node, grant};
use crate::common::{Daemon, Session};

/// A manager, and the folder of a daemon that it leases.
struct Managed {
    manager: Manager,
    place: Place,
    epoch: u64,
}

impl Managed {
    fn start(&mut self) -> (Daemon, Node) {
        let address = self.manager.address.to_string();
        let state = self.place.path("state");
        std::fs::create_dir_all(&state).unwrap();
        let state = [("STATE_DIRECTORY", state.to_str().unwrap())];
        let daemon = self.place.daemon_with(ON, &["--manager", &address], &state);
        self.epoch += 1;
        (daemon, self.manager.welcomed(self.epoch))
    }

    /// Builds with a lease of this user. Returns the log, and whether the build came from the cache.
    fn build_as(&mut self, user: &str, (daemon, node): &(Daemon, Node)) -> (String, bool) {
        self.epoch += 1;
        let lease = Grant {
            user: user.to_owned(),
            ..grant(self.epoch as u8, self.epoch, &[(0, 0, 0, 0)])
        };
        node.grant(&lease);
        let credential = self.manager.credential(node, &lease);
        let session = Session::try_open(daemon, &credential).unwrap();
        node.expect_sessions(&lease, 1);
        let (answer, cached) = build_in(&self.place, session, SOURCE, "");
        node.expect_sessions(&lease, 0);
        node.withdraw(&lease);
        node.expect_withdrawn(&lease);
        (answer.devices[0].log.clone(), cached)
    }
}

#[test]
fn a_user_gets_what_their_own_sessions_have_built_and_no_other_user_does() {
    let mut managed = Managed {
        manager: Manager::start(),
        place: Place::new(),
        epoch: 10,
    };
    let node = managed.start();
    let (log, cached) = managed.build_as("ann", &node);
    assert!(!cached);
    managed.place.until_entries(1);
    // Sessions of `ann` get whatever an earlier session of `ann` has reported.
    managed.place.alter_the_entry(|entry| {
        entry.answer.build.as_mut().unwrap().log = "of ann's".to_owned();
    });
    let hers = ("of ann's".to_owned(), true);
    assert_eq!(managed.build_as("ann", &node), hers);
    assert_eq!(managed.build_as("bob", &node), (log.clone(), false));
    managed.place.until_entries(2);
    assert_eq!(managed.build_as("bob", &node), (log.clone(), true));

    drop(node);
    let node = managed.start();
    assert_eq!(managed.build_as("ann", &node), hers);
    assert_eq!(managed.build_as("bob", &node), (log, true));
    // The log contains 128 characters of a name. Users whose names differ after that are different users.
    let [one, other] = ["1", "2"].map(|end| "x".repeat(128) + end);
    assert!(!managed.build_as(&one, &node).1);
    managed.place.until_entries(3);
    assert!(!managed.build_as(&other, &node).1);
    managed.place.until_entries(4);
}
