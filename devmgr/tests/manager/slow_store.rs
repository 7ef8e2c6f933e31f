//! A slow store: nothing is reported before it is durable, and callers without changes do not wait.

use std::sync::Arc;
use std::time::Instant;

use causeway_devmgr::service::RunningManager;
use causeway_devmgr::store::{MemoryStore, Store, StoreError, Stored, Write};
use causeway_proto::manager::{CreateTokenRequest, DeleteUserRequest, progress};
use parking_lot::{Condvar, Mutex};
use tonic::Code;

use super::in_process::serve;
use super::node::FakeNode;
use super::orders::named;
use super::process::{AT_MOST, Client, Who, request};

/// A store that waits at a barrier before each write.
struct Slow {
    inner: MemoryStore,
    barrier: Arc<WriteBarrier>,
}

#[derive(Default)]
pub(crate) struct WriteBarrier {
    is_shut: Mutex<bool>,
    opened: Condvar,
    /// Notified when a write meets the closed barrier.
    met: tokio::sync::Notify,
}

impl WriteBarrier {
    pub(crate) fn shut(&self) {
        *self.is_shut.lock() = true;
    }

    pub(crate) fn open(&self) {
        *self.is_shut.lock() = false;
        self.opened.notify_all();
    }

    /// Waits until a write waits at the closed barrier.
    pub(crate) async fn see_waiting(&self) {
        let met = tokio::time::timeout(AT_MOST, self.met.notified()).await;
        assert!(met.is_ok(), "no change is written");
    }
}

impl Store for Slow {
    fn load(&mut self) -> Result<Stored, StoreError> {
        self.inner.load()
    }

    fn apply(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let mut is_shut = self.barrier.is_shut.lock();
        if *is_shut {
            self.barrier.met.notify_one();
        }
        self.barrier.opened.wait_while(&mut is_shut, |shut| *shut);
        drop(is_shut);
        self.inner.apply(writes)
    }
}

/// Starts a manager whose writes can be held.
pub(crate) async fn start() -> (RunningManager, Arc<WriteBarrier>) {
    let barrier = Arc::new(WriteBarrier::default());
    let store = Slow {
        inner: MemoryStore::default(),
        barrier: Arc::clone(&barrier),
    };
    (serve(Box::new(store)).await, barrier)
}

#[tokio::test]
async fn while_something_is_written_others_go_on_and_nobody_hears_of_it() {
    let (running, barrier) = start().await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 4);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;

    barrier.shut();
    let mut asked = Vec::new();
    for grants in 2..=3 {
        asked.push(ann.ask(request("1")).await.unwrap());
        node.see("an offer", |state| state.granted.len() == grants)
            .await;
        // Also while the first lease's own change waits.
        ann.renew(&held.lease_id).await.unwrap();
    }
    let mut bob = Client::connect(address, Who::Name("bob".to_owned())).await;
    let status = bob.renew(&held.lease_id).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    for asked in &mut asked {
        tokio::select! {
            biased;
            step = asked.next() => panic!("an answer before the change is durable: {step:?}"),
            () = std::future::ready(()) => {}
        }
    }

    barrier.open();
    for asked in &mut asked {
        let step = asked.answer().await;
        assert!(matches!(step, progress::Step::Granted(_)), "{step:?}");
    }
    node.assert_no_fault();
    running.stop().await;
}

#[tokio::test]
async fn what_was_for_an_earlier_connection_of_a_node_does_not_come_before_its_welcome() {
    let (running, barrier) = start().await;
    let address = running.addresses[0];
    let node = FakeNode::start(address, 1, 1);
    let mut ann = Client::connect(address, Who::Name("ann".to_owned())).await;
    ann.see_nodes(1).await;
    node.see("that it is not drained", |state| {
        state.draining == Some(false)
    })
    .await;

    barrier.shut();
    let mut admin = Client::connect(address, Who::Name("root".to_owned())).await;
    let drained = tokio::spawn(async move { admin.drain("node1", true).await });
    // Decisions count at once: no device of the drained node is offered.
    let begin = Instant::now();
    // By many users, because the rate limit of one user is lower.
    for number in 0.. {
        let who = Who::Name(format!("user{number}"));
        let mut user = Client {
            who,
            leases: ann.leases.clone(),
            admin: ann.admin.clone(),
        };
        if user.considers(request("1")).await.is_err() {
            break;
        }
        assert!(begin.elapsed() < AT_MOST, "the node is not drained");
    }
    node.die();
    ann.see_nodes(0).await;
    let node = FakeNode::start(address, 1, 1);
    ann.see_nodes(1).await;

    barrier.open();
    drained.await.unwrap();
    node.see("that it is drained", |state| state.draining == Some(true))
        .await;
    node.assert_no_fault();
    running.stop().await;
}

#[tokio::test]
async fn a_token_made_while_its_user_goes_is_nobodys() {
    let (running, barrier) = start().await;
    let mut root = Client::connect(running.addresses[0], Who::Nobody).await;
    root.put_user(named("ann")).await.unwrap();
    barrier.shut();
    let (mut makes, mut deletes) = (root.admin.clone(), root.admin.clone());
    let made = tokio::spawn(async move {
        let user = "ann".to_owned();
        let token = CreateTokenRequest {
            user,
            ..CreateTokenRequest::default()
        };
        makes.create_token(token).await
    });
    let deleted = tokio::spawn(async move {
        let name = "ann".to_owned();
        deletes.delete_user(DeleteUserRequest { name }).await
    });
    // Calls are answered while nothing can be written. Meanwhile both orders reach the owner.
    for _ in 0..100 {
        root.list().await;
    }
    barrier.open();
    deleted.await.unwrap().unwrap();
    // The two orders may arrive in either order.
    if let Err(status) = made.await.unwrap() {
        assert_eq!(status.code(), Code::NotFound, "{status}");
    }
    root.put_user(named("ann")).await.unwrap();
    assert_eq!(root.tokens_of("").await, 0);
    running.stop().await;
}
