//! The ends of a lease: released, not renewed, revoked, client lost, node lost.

use causeway_proto::manager::{Granted, RequestDevices, progress};

use super::node::FakeNode;
use super::process::{Asked, Client, Manager, request};

/// Makes a request whose stream goes on after the grant.
async fn followed(client: &mut Client) -> (Asked, Granted) {
    let request = RequestDevices {
        follow: true,
        ..request("1")
    };
    let mut asked = client.ask(request).await.unwrap();
    match asked.answer().await {
        progress::Step::Granted(granted) => (asked, granted),
        other => panic!("{other:?}"),
    }
}

async fn ended(asked: Asked) -> String {
    match asked.last().await {
        progress::Step::Ended(ended) => ended.reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_released_device_is_free_when_its_node_says_so() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    node.say(true, false);
    let (asked, granted) = followed(&mut ann).await;
    ann.release(&granted.lease_id).await.unwrap();
    ended(asked).await;
    // The lease is over for its user, but the node has not withdrawn it yet.
    assert!(ann.renew(&granted.lease_id).await.is_err());
    let refused = ann.ask(request("1")).await.unwrap().last().await;
    assert!(matches!(refused, progress::Step::Refused(_)), "{refused:?}");
    node.say(true, true);
    node.see("the end", |state| state.served.is_empty()).await;
    let waiting = super::process::waiting("1");
    ann.granted(waiting).await;
    node.assert_no_fault();
}

#[tokio::test]
async fn what_is_not_renewed_or_confirmed_expires() {
    let config = "[policy.timing]\nlease = 300\nreservation = 200\n";
    let manager = Manager::configured(config);
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let (asked, granted) = followed(&mut ann).await;
    assert!(!ended(asked).await.is_empty());
    let status = ann.renew(&granted.lease_id).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("in time"), "{status}");
    node.see("the end", |state| state.served.is_empty()).await;

    let reserve = RequestDevices {
        reserve: true,
        ..super::process::waiting("1")
    };
    let reserved = ann.granted(reserve).await;
    node.see("its end", |state| state.withdrawn.len() == 2)
        .await;
    assert!(ann.confirm(&reserved.lease_id).await.is_err());
    node.assert_no_fault();
}

#[tokio::test]
async fn an_administrator_revokes() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut root) = (manager.user("ann").await, manager.user("root").await);
    ann.see_nodes(1).await;
    let (asked, granted) = followed(&mut ann).await;
    let heat = "the room gets too hot";
    let why = "an administrator revoked the lease: the room gets too hot";
    root.revoke_lease(&granted.lease_id, heat).await.unwrap();
    let reason = ended(asked).await;
    assert_eq!(reason, why);
    node.see("the end", |state| state.served.is_empty()).await;
    let withdrawn = node.look(|state| state.withdrawn[0].reason.clone());
    assert_eq!(withdrawn, why);
    // The user gets the reason later too. Other users get none.
    let later = ann.renew(&granted.lease_id).await.unwrap_err();
    assert_eq!(later.message(), why);
    let mut bob = manager.user("bob").await;
    let others = bob.renew(&granted.lease_id).await.unwrap_err();
    assert_eq!(others.code(), tonic::Code::NotFound);
    let again = root.revoke_lease(&granted.lease_id, heat).await;
    let status = again.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn the_lease_of_a_client_that_was_lost_ends_after_the_grace() {
    let manager = Manager::configured("[policy.timing]\ngrace = 200\n");
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let (asked, granted) = followed(&mut ann).await;
    let epoch = node.look(|state| state.granted[0].epoch);
    node.sessions(&granted.lease_id, epoch, 1);
    node.sessions(&granted.lease_id, epoch, 0);
    let reason = ended(asked).await;
    assert!(reason.contains("client"), "{reason}");
    node.see("the end", |state| state.served.is_empty()).await;
    node.assert_no_fault();
}
