//! A store that does not answer, or is lost: nobody waits for it without end, and everybody is told.

use std::sync::Arc;
use std::time::Instant;

use causeway_devmgr::store::{MemoryStore, Store, StoreError, Stored, Write};
use causeway_proto::manager::{RefusalCode, progress};
use parking_lot::Mutex;
use tonic::Code;

use super::in_process::serve;
use super::node::FakeNode;
use super::orders::named;
use super::process::{AT_MOST, Client, Who, request, waiting};
use super::slow_store::start;
use super::watching::get;

#[tokio::test]
async fn one_that_does_not_answer_is_noticed_and_it_heals() {
    let (running, gate) = start().await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 3);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(1).await;
    let (held, other) = (
        ann.granted(request("1")).await,
        ann.granted(request("1")).await,
    );

    gate.shut();
    // Under way when it is noticed: a request, and an order.
    let asked = ann.ask(request("1")).await.unwrap();
    let begin = Instant::now();
    let mut root = Client::connect(address, Who::Nobody).await;
    let status = root.put_user(named("bob")).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    match asked.last().await {
        progress::Step::Refused(refused) => {
            assert_eq!(refused.code(), RefusalCode::Store);
            assert!(
                refused.reason.contains("has taken longer than"),
                "{refused:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(begin.elapsed() < AT_MOST / 2, "{:?}", begin.elapsed());
    let health = get(address, "/healthz").await;
    assert!(health.starts_with("HTTP/1.1 503 "), "{health}");
    assert!(health.contains("has taken longer than"), "{health}");

    // What comes then waits for nothing.
    let begin = Instant::now();
    let status = root.put_user(named("carl")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    ann.renew(&held.lease_id).await.unwrap();
    let status = ann.release(&other.lease_id).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    match ann.ask(request("1")).await.unwrap().last().await {
        progress::Step::Refused(refused) => assert_eq!(refused.code(), RefusalCode::Store),
        other => panic!("{other:?}"),
    }
    let within = std::time::Duration::from_secs(4);
    assert!(begin.elapsed() < within, "{:?}", begin.elapsed());

    gate.open();
    let begin = Instant::now();
    while get(address, "/healthz").await.starts_with("HTTP/1.1 503 ") {
        assert!(begin.elapsed() < AT_MOST, "it does not heal");
    }
    // The order was done, the request was not, and the release is.
    node.see("what was given up", |state| state.served.len() == 1)
        .await;
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
async fn one_that_does_not_answer_does_not_keep_the_process() {
    let (running, gate) = start().await;
    let mut root = Client::connect(running.addresses[0], Who::Nobody).await;
    gate.shut();
    let order = tokio::spawn(async move { root.put_user(named("bob")).await });
    gate.see_waiting().await;
    let stopped = tokio::time::timeout(AT_MOST, running.stop()).await;
    assert!(stopped.is_ok(), "it waits for the disk");
    order.await.unwrap().unwrap_err();
    gate.open();
}

/// One that panics when it is told to.
struct Fragile {
    inner: MemoryStore,
    breaks: Arc<Mutex<bool>>,
}

impl Store for Fragile {
    fn load(&mut self) -> Result<Stored, StoreError> {
        self.inner.load()
    }

    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        assert!(!*self.breaks.lock(), "as it was told");
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
    let asked = ann.ask(request("1")).await.unwrap();
    match asked.last().await {
        progress::Step::Refused(refused) => {
            assert_eq!(refused.code(), RefusalCode::Store);
            assert!(refused.reason.contains("panicked"), "{refused:?}");
        }
        other => panic!("{other:?}"),
    }
    // Who waits for this ends the process with an error.
    let failed = tokio::time::timeout(AT_MOST, running.failed()).await;
    assert!(failed.is_ok(), "it goes on");
    let status = ann.put_user(named("after")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let mut inner = inner;
    let users = inner.load().unwrap().users;
    assert_eq!(users.len(), 1, "what was written is there: {users:?}");
    drop(node);
}
