//! Tests that only the caller who opened a session may connect to it or close it.

use causeway_proto::control::CloseSessionRequest;
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{Purpose, Verdict};
use tonic::Code;

use crate::support::{Session, Setup, assert_open};

#[tokio::test]
async fn an_unknown_session_is_refused() {
    let daemon = Setup::new().start();
    let session = Session {
        id: SessionId([7; 16]),
        ..daemon.open().await
    };
    for purpose in [
        Purpose::Commands,
        Purpose::CommandsGrpc,
        Purpose::Bulk,
        Purpose::Heartbeat,
    ] {
        assert_eq!(
            session.connect(purpose, 0).unwrap_err(),
            Verdict::UnknownSession
        );
    }
}

#[tokio::test]
async fn a_wrong_secret_takes_no_place() {
    let daemon = Setup::new().start();
    let session = daemon.open().await;
    let stranger = Session {
        secret: SessionSecret([7; 32]),
        ..session.clone()
    };
    for purpose in [Purpose::Commands, Purpose::Bulk, Purpose::Heartbeat] {
        assert_eq!(stranger.connect(purpose, 0).unwrap_err(), Verdict::Unproved);
    }
    let _all = [Purpose::Commands, Purpose::Bulk, Purpose::Heartbeat]
        .map(|purpose| session.connect(purpose, 0).unwrap());
}

#[tokio::test]
async fn a_place_is_taken_once() {
    let daemon = Setup::new()
        .config("[sessions]\nbulk_connections = 2\n")
        .start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    let _lanes = [0, 1].map(|lane| session.connect(Purpose::Bulk, lane).unwrap());
    for (purpose, lane) in [
        (Purpose::Commands, 0),
        (Purpose::CommandsGrpc, 0),
        (Purpose::Bulk, 1),
        (Purpose::Bulk, 2),
        (Purpose::Bulk, 255),
    ] {
        let refused = session.connect(purpose, lane).unwrap_err();
        assert_eq!(refused, Verdict::TooMany, "{purpose:?} {lane}");
    }
    assert_eq!(
        session.connect(Purpose::Peer, 0).unwrap_err(),
        Verdict::UnknownLink
    );
    assert_open(&mut commands);
}

#[tokio::test]
async fn closing_needs_the_secret() {
    let daemon = Setup::new().start();
    let session = daemon.open().await;
    let mut client = daemon.client().await;
    let request = |id: &[u8], secret: &[u8]| CloseSessionRequest {
        session_id: id.to_vec().into(),
        session_secret: secret.to_vec().into(),
    };
    for (id, secret, code) in [
        (&session.id.0[..], &[7; 32][..], Code::PermissionDenied),
        (&[7; 16], &session.secret.0, Code::NotFound),
        (&[7; 3], &session.secret.0, Code::InvalidArgument),
    ] {
        let refused = client.close_session(request(id, secret)).await;
        assert_eq!(refused.unwrap_err().code(), code);
    }
    assert_eq!(daemon.status().await.sessions, 1);
    let closed = client.close_session(request(&session.id.0, &session.secret.0));
    closed.await.unwrap();
    daemon.until_sessions(0).await;
}
