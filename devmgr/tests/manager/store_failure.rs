//! A store that cannot be written: requests are refused and say so, leases go on.

use causeway_devmgr::service::Running;
use causeway_devmgr::store::{Failing, MemoryStore};
use causeway_proto::manager::{RefusalCode, progress};
use tonic::Code;

use super::in_process::serve;
use super::node::FakeNode;
use super::process::{Client, Who, request, waiting};
use super::watching::get;

/// A manager in this process, whose store has a switch.
async fn start() -> (Running, Failing) {
    let store = MemoryStore::default();
    let failing = store.failing();
    let running = serve(Box::new(store)).await;
    (running, failing)
}

async fn refusal(client: &mut Client) -> RefusalCode {
    match client.ask(request("1")).await.unwrap().last().await {
        progress::Step::Refused(refused) => refused.code(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nothing_is_granted_and_nothing_is_lost() {
    let (running, failing) = start().await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 2);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;
    failing.set(true);

    // The first finds it out, the second is told at the door.
    for _ in 0..2 {
        assert_eq!(refusal(&mut ann).await, RefusalCode::Store);
    }
    ann.renew(&held.lease_id).await.unwrap();
    let health = get(address, "/healthz").await;
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
    let status = ann.release(&held.lease_id).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("store"), "{status}");
    // It is not there any more for who gives it back again.
    let status = ann.release(&held.lease_id).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    // The first was offered to the node before anything had to be written; the second was not.
    node.look(|state| assert_eq!((state.granted.len(), state.withdrawn.len()), (2, 0)));

    failing.set(false);
    // What was decided meanwhile is done now: the release, and no grant that somebody gave up.
    node.see("the release", |state| state.served.is_empty())
        .await;
    ann.granted(waiting("2")).await;
    node.assert_no_fault();
    running.stop().await;
}

#[test]
fn a_store_that_cannot_be_opened_is_named() {
    let manager = std::process::Command::new(env!("CARGO_BIN_EXE_causeway-devmgr"))
        .args(["--config", "/dev/null", "--listen", "127.0.0.1:0"])
        .args(["--store", "/nonexistent/folder/store"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&manager.stderr);
    assert_eq!(manager.status.code(), Some(1), "{said}");
    assert!(said.contains("/nonexistent/folder/store: "), "{said}");
}
