//! Tests that another wire version is refused, with a message that names the side to upgrade.

use std::io::Write;

use causeway_proto::control::{GetInventoryRequest, GetStatusRequest, OpenSessionRequest};
use causeway_proto::preamble::{Preamble, Purpose, Verdict};
use tonic::{Code, Status};

use crate::support::{Setup, VERSION, connect, greeting};

/// A number that is no wire version.
const NONE: u32 = 250;

#[tokio::test]
async fn in_the_preamble() {
    let daemon = Setup::new().start();
    let mut bytes = Preamble {
        purpose: Purpose::Commands,
        lane: 0,
        session: daemon.open().await.id,
        link: 0,
    }
    .encode();
    bytes[4] = u8::try_from(NONE).unwrap();
    let mut socket = connect(daemon.address());
    socket.write_all(&bytes).unwrap();
    let greeting = greeting(&mut socket);
    assert_eq!(greeting.verdict, Verdict::Version);
    assert_eq!(u32::from(greeting.version), VERSION, "the node's own");
}

#[tokio::test]
async fn in_every_call() {
    let daemon = Setup::new().start();
    let mut client = daemon.client().await;
    let assert_refused = |error: Status| {
        assert_eq!(error.code(), Code::FailedPrecondition);
        let message = error.message();
        assert!(
            message.contains(&format!("wire version {NONE}, this side {VERSION}")),
            "{message}"
        );
        assert!(
            message.contains("causewayd on "),
            "says who speaks: {message}"
        );
    };
    let wire_version = NONE;
    let request = GetInventoryRequest {
        wire_version,
        ..GetInventoryRequest::default()
    };
    let inventory = client.get_inventory(request);
    assert_refused(inventory.await.unwrap_err());
    let status = client.get_status(GetStatusRequest { wire_version });
    assert_refused(status.await.unwrap_err());
    let session = client.open_session(OpenSessionRequest {
        wire_version,
        ..OpenSessionRequest::default()
    });
    assert_refused(session.await.unwrap_err());
}
