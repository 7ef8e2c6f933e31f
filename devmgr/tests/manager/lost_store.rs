//! A store that does not answer, or is lost: no caller waits for it without end, and every caller is told.

use std::sync::Arc;
use std::time::Instant;

use causeway_devmgr::store::{MemoryStore, Store, StoreError, Stored, Write};
use parking_lot::Mutex;
use tonic::Code;

use super::in_process::serve;
use super::node::FakeNode;
use super::orders::named;
use super::process::{AT_MOST, Client, Who, request, waiting};
use super::slow_store::start;
use super::store_failure::{assert_not_granted, assert_refused, assert_unconfirmed};
use super::watching::get;

#[tokio::test]
async fn a_store_that_does_not_answer_is_noticed_and_recovers() {
    let (running, barrier) = start().await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 3);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(1).await;
    let (held, other) = (
        ann.granted(request("1")).await,
        ann.granted(request("1")).await,
    );

    barrier.shut();
    // A request and an order are being written when the failure becomes known.
    let mut root = Client::connect(address, Who::Nobody).await;
    let begin = Instant::now();
    let (refused, put) = tokio::join!(ann.refused(request("1")), root.put_user(named("bob")));
    assert_not_granted(&refused);
    assert!(
        refused.message().contains("has taken longer than"),
        "{refused}"
    );
    assert_unconfirmed(&put.unwrap_err());
    assert!(begin.elapsed() < AT_MOST / 2, "{:?}", begin.elapsed());
    let health = get(address, "/healthz").await;
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
    assert!(health.contains("has taken longer than"), "{health}");

    // Later callers wait for nothing.
    let begin = Instant::now();
    assert_refused(&root.put_user(named("carl")).await.unwrap_err());
    ann.renew(&held.lease_id).await.unwrap();
    assert_refused(&ann.release(&other.lease_id).await.unwrap_err());
    assert_refused(&ann.refused(request("1")).await);
    let within = std::time::Duration::from_secs(4);
    assert!(begin.elapsed() < within, "{:?}", begin.elapsed());

    barrier.open();
    let begin = Instant::now();
    while get(address, "/healthz").await.starts_with("HTTP/1.1 503 ") {
        assert!(begin.elapsed() < AT_MOST, "the store does not recover");
    }
    // The order that was being written is done. The request that was being written is withdrawn, and the
    // refused release is not done.
    node.see("the withdrawal", |state| {
        state.withdrawn.len() == 1 && state.served.len() == 2
    })
    .await;
    ann.renew(&other.lease_id).await.unwrap();
    ann.release(&other.lease_id).await.unwrap();
    root.put_user(named("carl")).await.unwrap();
    let users = root
        .admin
        .list_users(causeway_proto::manager::ListUsersRequest {});
    let users = users.await.unwrap().into_inner().users;
    let names: Vec<_> = users.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["bob", "carl"]);
    ann.granted(waiting("2")).await;
    node.assert_no_fault();
    running.stop().await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_does_not_delay_the_end_of_the_process() {
    let (running, barrier) = start().await;
    let mut root = Client::connect(running.addresses[0], Who::Nobody).await;
    barrier.shut();
    let order = tokio::spawn(async move { root.put_user(named("bob")).await });
    barrier.see_waiting().await;
    let stopped = tokio::time::timeout(AT_MOST, running.stop()).await;
    assert!(stopped.is_ok(), "the manager waits for the disk");
    order.await.unwrap().unwrap_err();
    barrier.open();
}

/// A store that panics on request.
struct Fragile {
    inner: MemoryStore,
    breaks: Arc<Mutex<bool>>,
}

impl Store for Fragile {
    fn load(&mut self) -> Result<Stored, StoreError> {
        self.inner.load()
    }

    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        assert!(!*self.breaks.lock(), "the test asks for a panic");
        self.inner.apply(writes)
    }
}

#[tokio::test]
async fn a_manager_whose_store_panics_is_over_and_says_so() {
    let inner = MemoryStore::default();
    let breaks = Arc::new(Mutex::new(false));
    let store = Fragile {
        inner: inner.clone(),
        breaks: Arc::clone(&breaks),
    };
    let mut running = serve(Box::new(store)).await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 1);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(1).await;
    ann.put_user(named("before")).await.unwrap();
    *breaks.lock() = true;
    let refused = ann.refused(request("1")).await;
    assert_not_granted(&refused);
    assert!(refused.message().contains("panicked"), "{refused}");
    // The process ends with this error at once, because no retry could succeed.
    let failed = tokio::time::timeout(AT_MOST, running.failed()).await;
    let failed = failed.expect("the call ends").to_string();
    assert!(failed.contains("panicked"), "{failed}");
    let status = ann.put_user(named("after")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let mut inner = inner;
    let users = inner.load().unwrap().users;
    assert_eq!(users.len(), 1, "the written user is missing: {users:?}");
    drop(node);
}
