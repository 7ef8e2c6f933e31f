//! Tests of sessions that were lost with their node's daemon, and that their clients open again under the same ids.

use std::net::TcpStream;

use causeway_proto::control::{OpenSessionReply, OpenSessionRequest};
use causeway_proto::id::SessionId;
use causeway_proto::preamble::{Purpose, REEXECUTES, WANTS_RECORD};
use tonic::{Code, Status};

use crate::support::{Daemon, Session, Setup, VERSION};

async fn reopen(
    daemon: &Daemon,
    id: &[u8],
    secret: &[u8],
    reexecute: bool,
) -> Result<OpenSessionReply, Status> {
    let request = OpenSessionRequest {
        wire_version: VERSION,
        inventory_generation: daemon.inventory().await.generation,
        resume_ms: 1_000,
        keep_ms: 1_000,
        reexecute,
        session_id: id.to_vec().into(),
        session_secret: secret.to_vec().into(),
        ..OpenSessionRequest::default()
    };
    let reply = daemon.client().await.open_session(request).await;
    reply.map(tonic::Response::into_inner)
}

/// Connects as the client of a session that begins with nothing.
fn connect(daemon: &Daemon, id: [u8; 16], secret: [u8; 32]) -> [TcpStream; 2] {
    let session = Session {
        address: daemon.address(),
        id: SessionId(id),
        secret: causeway_proto::id::SessionSecret(secret),
    };
    let heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
    let (commands, position) = session.connect_after(Purpose::Commands, 0, 5).unwrap();
    assert_eq!(position, WANTS_RECORD | REEXECUTES);
    [heartbeat, commands]
}

#[tokio::test]
async fn a_session_is_opened_again_once_and_begins_with_nothing() {
    // The node is full with it.
    let daemon = Setup::new().config("[sessions]\nlimit = 1\n").start();
    let (id, secret) = ([7; 16], [8; 32]);
    for _ in 0..2 {
        // The first reply may have been lost.
        let reply = reopen(&daemon, &id, &secret, true).await.unwrap();
        assert_eq!(reply.session_id, id[..]);
        assert!(reply.reexecutes);
        assert_eq!(daemon.status().await.sessions, 1);
    }
    let other = reopen(&daemon, &id, &[9; 32], true).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    let _connections = connect(&daemon, id, secret);
    // The client has come, so nobody else may.
    let late = reopen(&daemon, &id, &secret, true).await.unwrap_err();
    assert_eq!(late.code(), Code::AlreadyExists);
    assert_eq!(daemon.status().await.sessions, 1);
}

#[tokio::test]
async fn a_session_whose_client_does_not_come_in_time_can_be_opened_again() {
    let daemon = Setup::new()
        .config("[sessions]\nconnect_limit = 1\n")
        .start();
    let (id, secret) = ([7; 16], [8; 32]);
    reopen(&daemon, &id, &secret, true).await.unwrap();
    daemon.until_sessions(0).await;
    reopen(&daemon, &id, &secret, true).await.unwrap();
    connect(&daemon, id, secret);
}

#[tokio::test]
async fn a_session_that_the_node_has_ended_stays_ended() {
    let daemon = Setup::new().start();
    let (id, secret) = ([7; 16], [8; 32]);
    reopen(&daemon, &id, &secret, true).await.unwrap();
    drop(connect(&daemon, id, secret));
    // Its client is away for too long.
    daemon.until_sessions(0).await;
    let ended = reopen(&daemon, &id, &secret, true).await.unwrap_err();
    assert_eq!(ended.code(), Code::Aborted, "{ended}");
    assert!(ended.message().contains("has ended the session"), "{ended}");
    // Another secret is another session.
    reopen(&daemon, &id, &[9; 32], true).await.unwrap();
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_again_is_refused() {
    let daemon = Setup::new().start();
    let code = async |id: &[u8], secret: &[u8], reexecute| {
        let reply = reopen(&daemon, id, secret, reexecute).await;
        reply.unwrap_err().code()
    };
    assert_eq!(code(&[7; 15], &[8; 32], true).await, Code::InvalidArgument);
    assert_eq!(code(&[7; 16], &[8; 31], true).await, Code::InvalidArgument);
    assert_eq!(code(&[7; 16], &[], true).await, Code::InvalidArgument);
    assert_eq!(
        code(&[7; 16], &[8; 32], false).await,
        Code::FailedPrecondition
    );
    assert_eq!(daemon.status().await.sessions, 0);
    daemon.assert_serves().await;
}
