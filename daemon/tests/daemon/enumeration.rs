//! Tests that enumeration opens no session and leaves no process behind.

use causeway_proto::control::OpenSessionRequest;
use tonic::Code;

use crate::support::{Setup, VERSION, eventually};

#[tokio::test]
async fn many_readers_leave_the_spare_worker_alone() {
    let daemon = Setup::new().start();
    let first = daemon.inventory().await;
    let spare = eventually("the spare worker alone", || match daemon.children()[..] {
        [spare] => Some(spare),
        _ => None,
    });
    for _ in 0..20 {
        let again = daemon.inventory().await;
        assert_eq!(again.generation, first.generation);
    }
    assert_eq!(
        daemon.children(),
        [spare],
        "neither a worker nor a second probe"
    );
    let status = daemon.status().await;
    assert_eq!((status.sessions, status.spare_workers), (0, 1));
    assert_eq!(status.session_limit, 64);
}

#[tokio::test]
async fn a_stale_inventory_opens_nothing() {
    let daemon = Setup::new().start();
    let request = OpenSessionRequest {
        wire_version: VERSION,
        inventory_generation: daemon.inventory().await.generation ^ 1,
        ..OpenSessionRequest::default()
    };
    let refused = daemon.client().await.open_session(request).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(daemon.status().await.sessions, 0);
}
