//! Tests of limits on sessions and connections of clients.

use causeway_proto::control::GetStatusRequest;
use causeway_proto::preamble::Purpose;
use causeway_security::Token;
use tonic::Code;

use crate::secured::{Caller, Cluster};
use crate::support::{Setup, VERSION};

#[tokio::test]
async fn the_session_limit_holds_until_one_ends() {
    let daemon = Setup::new().args(&["--session-limit", "2"]).start();
    let (first, second) = (daemon.open().await, daemon.open().await);
    let commands = first.connect(Purpose::Commands, 0).unwrap();
    let _kept = second.connect(Purpose::Commands, 0).unwrap();
    // A session whose client has not connected would make room.
    let refused = daemon.try_open().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused.message().contains("limit of 2 sessions"),
        "{}",
        refused.message()
    );
    drop(commands);
    daemon.until_sessions(1).await;
    daemon.open().await;
}

#[tokio::test]
async fn control_connections_have_a_limit_and_leave_their_places() {
    let daemon = Setup::new()
        .config("[connections]\ncontrol_per_peer = 2\n")
        .start();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = daemon.client().await;
        let request = GetStatusRequest {
            wire_version: VERSION,
        };
        client.get_status(request).await.unwrap();
        clients.push(client);
    }
    let mut third = crate::support::connect(daemon.address());
    std::io::Write::write_all(&mut third, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    assert!(crate::support::read_to_close(&mut third).is_empty());
    drop(clients.pop());
    daemon.until_served().await;
}

#[tokio::test]
async fn a_session_that_nobody_comes_for_ends() {
    let daemon = Setup::new()
        .config("[sessions]\nconnect_limit = 1\n")
        .start();
    let session = daemon.open().await;
    // Only the command connection keeps the session alive.
    let _heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
    daemon.until_sessions(0).await;
}

#[tokio::test]
async fn a_sessions_memory_can_be_limited() {
    let daemon = Setup::new()
        .args(&["--spare-workers", "0"])
        .config("[sessions]\nhost_memory = 268435456\n")
        .start();
    let session = daemon.open().await;
    let _commands = session.connect(Purpose::Commands, 0).unwrap();
    let worker = daemon.children()[0].as_raw_nonzero();
    let limits = std::fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    let data = limits
        .lines()
        .find(|line| line.starts_with("Max data size"));
    assert!(data.unwrap().contains(" 268435456 "), "{limits}");
}

#[tokio::test]
async fn one_user_leaves_sessions_to_others() {
    let cluster = Cluster::new();
    let bobs = Token::generate();
    let alices = cluster.token.hash();
    cluster.list(&format!("{alices} alice\n{} bob\n", bobs.hash()));
    let daemon = cluster
        .with_tokens()
        .config("[sessions]\nper_user = 1\n")
        .start();
    let mut open = Vec::new();
    for token in [&cluster.token, &bobs] {
        let tls = cluster.client(None);
        let caller = Caller::reach(daemon.address(), &tls, Some(token)).await;
        let mut caller = caller.unwrap();
        caller.open().await.unwrap();
        let refused = caller.open().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("limit of 1 sessions per user"));
        open.push(caller);
    }
}

#[tokio::test]
async fn memory_is_given_out_once() {
    let daemon = Setup::new()
        .args(&["--spare-workers", "0"])
        .config("[sessions]\nhost_memory = 268435456\nhost_memory_in_all = 600000000\n")
        .start();
    let (first, _second) = (daemon.open().await, daemon.open().await);
    let refused = daemon.try_open().await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused
            .message()
            .contains("memory for sessions is exhausted")
    );
    drop(first.connect(Purpose::Commands, 0).unwrap());
    daemon.until_sessions(1).await;
    daemon.open().await;
}

#[test]
fn memory_that_is_not_limited_cannot_be_counted() {
    let (said, status) = Setup::new()
        .config("[sessions]\nhost_memory_per_user = 1\n")
        .refused();
    assert!(
        said.contains("daemon.toml:2: this limit requires"),
        "{said}"
    );
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_users_checkpoints_have_room_for_one_session() {
    for (keys, fits) in [
        ("held_per_user = \"4GiB\"", false),
        ("held_per_user = \"4GiB\"\nheld = \"5GiB\"", false),
        ("held_per_user = \"4GiB\"\nheld = \"4GiB\"", true),
        ("held_per_user = 0", true),
    ] {
        let setup = Setup::new().config(&format!("[survival]\n{keys}\n"));
        if fits {
            drop(setup.start());
            continue;
        }
        let (said, status) = setup.refused();
        let names_both = "daemon.toml:2: [survival] held_per_user is less than held";
        assert!(said.contains(names_both), "{said}");
        assert_eq!(status.code(), Some(2));
    }
}
