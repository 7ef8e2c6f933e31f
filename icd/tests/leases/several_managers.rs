//! Tests calls to several device managers of which one leads: which one is asked, and which answers are believed.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use causeway::config::{Address, ServerSettings};
use causeway::transport::manager::{self, LeaseId, NoLease, Question};
use causeway_proto::metadata::ClusterId;
use causeway_proto::status::WireError;

use crate::fake_managers::{FakeManager, Knows, Part};

const LEASE: LeaseId = [1; 16];
const OURS: ClusterId = ClusterId([1; 16]);
const OTHER: ClusterId = ClusterId([2; 16]);
/// Longer than any answer takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn leads(term: u64) -> Part {
    Part::Leads(term, OURS, Knows::All)
}

fn named(addresses: &[SocketAddr]) -> ServerSettings {
    let address = |of: &SocketAddr| of.to_string().parse::<Address>().expect("an address");
    let (first, further) = addresses.split_first().expect("one address at least");
    ServerSettings {
        further: further.iter().map(address).collect(),
        ..ServerSettings::at(address(first))
    }
}

/// Two managers: a leader in term 5, and a standby that names it.
fn pair() -> (FakeManager, FakeManager, ServerSettings) {
    let leader = FakeManager::start(leads(5));
    let standby = FakeManager::start(Part::StandsBy(Some(leader.address)));
    let named = named(&[standby.address, leader.address]);
    (leader, standby, named)
}

fn renew(named: &ServerSettings, limit: Duration) -> Result<(), NoLease> {
    manager::ask(named, Question::Renew(LEASE), limit).map(drop)
}

/// The reason for which nobody leads.
fn leaderless(asked: Result<(), NoLease>) -> String {
    match asked {
        Err(NoLease::Wire(WireError::NotLeading { reason, .. })) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_manager_that_led_last_is_asked_first() {
    let (leader, standby, named) = pair();
    renew(&named, LONG).expect("renewed");
    assert_eq!(standby.calls(), ["probe"], "the first one is a standby");
    renew(&named, LONG).expect("renewed");
    assert_eq!(standby.calls(), ["probe"], "the leader was asked first");
    assert_eq!(leader.calls(), ["probe", "renew", "probe", "renew"]);
    assert_eq!(leader.last_term().as_deref(), Some("5"));
}

#[test]
fn dead_and_silent_managers_do_not_matter() {
    let dead = TcpListener::bind("127.0.0.1:0").expect("a port");
    let dead_address = dead.local_addr().expect("an address");
    drop(dead);
    // The kernel accepts connections to this one, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_address = silent.local_addr().expect("an address");
    let leader = FakeManager::start(leads(1));
    let named = named(&[dead_address, silent_address, leader.address]);
    renew(&named, LONG).expect("renewed");
    assert_eq!(leader.calls(), ["probe", "renew"]);
}

#[test]
fn if_no_manager_is_there_the_call_fails_at_once_and_names_all() {
    let addresses = [(); 2].map(|()| {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        port.local_addr().expect("an address")
    });
    match renew(&named(&addresses), Duration::MAX) {
        Err(NoLease::Wire(WireError::Unreachable { reason, .. })) => {
            for address in addresses {
                assert!(reason.contains(&address.to_string()), "{reason}");
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn while_all_stand_by_a_call_waits_for_its_limit_and_names_all() {
    let managers = [(); 3].map(|()| FakeManager::start(Part::StandsBy(None)));
    let addresses = managers.each_ref().map(|manager| manager.address);
    let reason = leaderless(renew(&named(&addresses), Duration::from_secs(2)));
    for manager in &managers {
        let line = format!("{}: this device manager is a standby", manager.address);
        assert!(reason.contains(&line), "{reason}");
        assert!(manager.calls().len() > 1, "asked again and again");
    }
}

#[test]
fn a_confirmation_that_meets_a_change_of_leader_waits_for_it() {
    let (leader, standby, named) = pair();
    let (old, new) = (leader.clone(), standby.clone());
    leader.before_answer(move || {
        old.plays(Part::StandsBy(None));
        // Nobody leads until the confirmation has been refused.
        std::thread::spawn(move || {
            let asked = new.calls().len();
            while new.calls().len() == asked {
                std::thread::yield_now();
            }
            new.plays(leads(6));
        });
    });
    let confirmed = manager::ask(&named, Question::Confirm(LEASE), LONG);
    assert_eq!(confirmed.expect("confirmed").lease_id[..], LEASE);
    assert_eq!(standby.calls().last(), Some(&"confirm"));
}

#[test]
fn an_answer_in_a_lower_term_is_not_believed() {
    let (old, new, named) = pair();
    renew(&named, LONG).expect("renewed");
    new.plays(leads(6));
    old.plays(Part::StandsBy(Some(new.address)));
    renew(&named, LONG).expect("renewed");
    // The deposed leader comes back and knows no lease.
    old.plays(Part::Leads(5, OURS, Knows::None));
    new.plays(Part::StandsBy(None));
    let reason = leaderless(renew(&named, Duration::from_secs(2)));
    assert!(
        reason.contains("in term 5, but term 6 has begun"),
        "{reason}"
    );
    // In a term of its own it is believed.
    old.plays(Part::Leads(7, OURS, Knows::None));
    let over = renew(&named, LONG);
    assert!(matches!(&over, Err(NoLease::Over(_))), "{over:?}");
}

#[test]
fn a_leader_that_is_deposed_between_two_calls_is_not_believed() {
    let alone = FakeManager::start(leads(6));
    let named = named(&[alone.address]);
    renew(&named, LONG).expect("renewed");
    alone.plays(Part::Leads(5, OURS, Knows::None));
    let reason = leaderless(renew(&named, LONG));
    assert!(reason.contains("--after-restore"), "{reason}");
    assert_eq!(
        alone.calls(),
        ["renew", "renew"],
        "one manager is not probed"
    );
}

#[test]
fn a_manager_of_another_cluster_is_refused_and_the_cure_is_named() {
    let (leader, other, named) = pair();
    renew(&named, LONG).expect("renewed");
    other.plays(Part::Leads(9, OTHER, Knows::None));
    renew(&named, LONG).expect("the own cluster's leader is asked");
    leader.plays(Part::StandsBy(Some(other.address)));
    let reason = leaderless(renew(&named, Duration::from_secs(2)));
    assert!(
        reason.contains("name only managers of one cluster"),
        "{reason}"
    );
    leader.plays(leads(5));
    renew(&named, LONG).expect("the other cluster's term does not count");
}

#[test]
fn a_request_that_meets_a_change_of_leader_is_repeated() {
    let (leader, standby, named) = pair();
    let (old, new) = (leader.clone(), standby.clone());
    leader.before_answer(move || {
        old.plays(Part::StandsBy(Some(new.address)));
        new.plays(leads(6));
    });
    let request = Question::Reserve {
        request: "1".to_owned(),
        terms: Default::default(),
        replace: false,
    };
    let granted = manager::ask(&named, request, LONG).expect("reserved");
    assert_eq!(granted.lease_id.len(), 16, "the client has chosen the id");
    assert_eq!(standby.calls().last(), Some(&"request"));
}
