//! Tests which events end a lease, which do not, and what becomes of its sessions.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::common::manager::grant;
use crate::common::resuming::{Resuming, end_away, process};
use crate::common::{Session, allocate, context_on, eventually};
use crate::support::{Cluster, cluster, daemon};

#[test]
fn a_withdrawn_lease_ends_its_sessions_and_its_credential_is_worth_nothing() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let mut sessions = [cluster.open(&credential), cluster.open(&credential)];
    cluster.node.expect_sessions(&lease, 1);
    cluster.node.expect_sessions(&lease, 2);
    // A caller whose worker is still loading has no session, so nobody could report the reason.
    for session in &mut sessions {
        let context = context_on(session, 1);
        assert_eq!(allocate(session, context, 64).1, 0);
    }
    cluster.node.withdraw(&lease);
    for session in &mut sessions {
        session.ends();
        assert_eq!(session.heard.close_reason, "the lease has ended: a test");
    }
    cluster.node.expect_sessions(&lease, 1);
    cluster.node.expect_sessions(&lease, 0);
    cluster.node.expect_withdrawn(&lease);
    assert!(
        cluster
            .refusal(&credential)
            .contains("does not serve the lease")
    );
    // A grant that was never here is not here either.
    let other = grant(7, 12, &[(0, 0, 0, 0)]);
    cluster.node.withdraw(&other);
    cluster.node.expect_withdrawn(&other);
    assert!(cluster.node.grant_refused(&other).contains("older"));
}

#[test]
fn a_lease_goes_on_while_its_session_is_away_and_ends_it() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let open = |pid| {
        let times = (60_000, 60_000);
        Resuming::open_leased(&cluster.daemon, process(pid), times, false, &credential).unwrap()
    };
    let sessions = [open(1), open(2)];
    cluster.node.expect_sessions(&lease, 1);
    cluster.node.expect_sessions(&lease, 2);
    sessions.iter().for_each(Resuming::leave);
    eventually("both sessions are away", || {
        let third = open(3);
        let away = third.reply.away.len();
        cluster.node.expect_sessions(&lease, 3);
        third.close();
        cluster.node.expect_sessions(&lease, 2);
        (away == 2).then_some(())
    });
    let ended = |credential| end_away(&cluster.daemon, process(3), vec![process(1)], credential);
    assert_eq!(ended(&credential), 1);
    cluster.node.expect_sessions(&lease, 1);
    cluster.node.withdraw(&lease);
    assert_eq!(sessions[1].end_reason(), "the lease has ended: a test");
    cluster.node.expect_sessions(&lease, 0);
    cluster.node.expect_withdrawn(&lease);
}

#[test]
fn a_lease_ends_when_its_client_has_read_the_reason_and_left() {
    let cluster = cluster();
    let mut times = (1..=5).map(|number| {
        let lease = grant(number, 10 + u64::from(number), &[(0, 1, 0, 0)]);
        cluster.node.grant(&lease);
        let credential = cluster.manager.credential(&cluster.node, &lease);
        let kept_for = (60_000, 60_000);
        let session =
            Resuming::open_leased(&cluster.daemon, process(1), kept_for, false, &credential);
        let mut session = session.unwrap();
        cluster.node.expect_sessions(&lease, 1);
        session.send(vec![Resuming::ping(1)]);
        session.answer(1);
        let begun = Instant::now();
        cluster.node.withdraw(&lease);
        while session.hear().expect("the reason").close_reason.is_empty() {}
        session.leave();
        cluster.node.expect_sessions(&lease, 0);
        cluster.node.expect_withdrawn(&lease);
        begun.elapsed()
    });
    // A client that stays gets half a second. A busy machine may delay some of the ends.
    assert!(times.any(|time| time < Duration::from_millis(500)));
}

#[test]
fn a_lease_ends_by_the_nodes_own_clock() {
    let cluster = cluster();
    let mut lease = grant(1, 11, &[(0, 1, 0, 0)]);
    lease.limit_ms = 1000;
    cluster.node.grant(&lease);
    let credential = cluster.manager.credential(&cluster.node, &lease);
    let mut session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    session.ends();
    let close_reason = &session.heard.close_reason;
    assert_eq!(
        close_reason,
        "the lease has ended: the lease's time limit is reached"
    );
    cluster.node.expect_sessions(&lease, 0);
    cluster.node.expect_withdrawn(&lease);
}

#[test]
fn a_lease_ends_when_its_manager_is_silent_for_too_long() {
    let cluster = cluster();
    let mut lease = grant(1, 11, &[(0, 1, 0, 0)]);
    lease.autonomy_ms = 1000;
    cluster.node.grant(&lease);
    let credential = cluster.manager.credential(&cluster.node, &lease);
    let mut session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    cluster.node.fall_silent();
    session.ends();
    assert!(
        session
            .heard
            .close_reason
            .contains("no contact with the device manager")
    );
    cluster.node.expect_sessions(&lease, 0);
    cluster.node.expect_withdrawn(&lease);
}

#[test]
fn while_the_manager_is_away_leases_go_on() {
    let Cluster {
        daemon,
        node,
        manager,
        state: _state,
    } = cluster();
    let lease = grant(1, 11, &[(0, 1, 0, 0)]);
    node.grant(&lease);
    let credential = manager.credential(&node, &lease);
    let mut first = Session::try_open(&daemon, &credential).unwrap();
    node.expect_sessions(&lease, 1);
    drop(node);
    // The node has reconnected, and the manager sends nothing yet.
    let node = manager.joined();
    first.ping();
    let mut second = Session::try_open(&daemon, &credential).unwrap();
    second.ping();
    let running = &node.hello.leases;
    assert_eq!((running.len(), running[0].sessions), (1, 1));
    assert_eq!(
        (&running[0].lease_id, running[0].epoch),
        (&lease.lease_id, 11)
    );
    // Reports that followed the hello come after it.
    node.expect_sessions(&lease, 2);
    // The manager has meanwhile granted epochs up to 20 to others. This node never got them.
    node.welcome(&manager.key, 20);
    let late = grant(2, 20, &[(0, 0, 0, 0)]);
    assert!(node.grant_refused(&late).contains("older"));
    node.grant(&grant(2, 21, &[(0, 0, 0, 0)]));
    first.ping();
    // The unit is granted to another lease, so sessions of the old one are fenced off.
    let newer = grant(3, 22, &[(0, 1, 0, 0)]);
    assert!(node.grant_refused(&newer).contains("still in use"));
    for session in [&mut first, &mut second] {
        session.ends();
        assert!(
            session
                .heard
                .close_reason
                .contains("granted to another lease")
        );
    }
}

#[test]
fn a_daemon_that_was_killed_comes_back_as_the_same_node_without_its_leases() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let mut session = cluster.open(&credential);
    cluster.node.expect_sessions(&lease, 1);
    let Cluster {
        daemon: killed,
        node,
        manager,
        state,
    } = cluster;
    let uuid = node.hello.node_uuid.clone();
    drop(killed);
    session.ends();
    drop(node);
    let again = daemon(&manager, state.path());
    let node = manager.welcomed(11);
    assert_eq!(node.hello.node_uuid, uuid);
    assert!(node.hello.leases.is_empty());
    assert!(node.grant_refused(&lease).contains("older"));
    let refused = Session::try_open(&again, &credential).err();
    assert_eq!(refused.unwrap().code(), Code::PermissionDenied);
}
