//! Waiting requests: their order, the reports of their positions, and their places after a disconnection.

use causeway_proto::manager::{ListQueueRequest, Position, RequestDevices, progress};

use super::node::FakeNode;
use super::process::{Asked, Manager, request, waiting};

async fn position(asked: &mut Asked) -> Position {
    match asked.next().await {
        Some(progress::Step::Position(position)) => position,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn who_waits_is_told_the_position_and_gets_what_becomes_free() {
    let manager = Manager::configured("[policy.timing]\nposition = 50\n");
    let node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;

    let mut first = bob.ask(waiting("1")).await.unwrap();
    assert_eq!(position(&mut first).await.position, 1);
    let mut second = bob.ask(waiting("1")).await.unwrap();
    let place = position(&mut second).await;
    assert_eq!((place.position, place.waiting), (2, 2));

    ann.release(&held.lease_id).await.unwrap();
    let progress::Step::Granted(granted) = first.last().await else {
        panic!("the first is not granted");
    };
    // A position is reported again when only the length of the queue has changed.
    while position(&mut second).await.position != 1 {}
    bob.release(&granted.lease_id).await.unwrap();
    assert!(matches!(second.last().await, progress::Step::Granted(_)));
    node.assert_no_fault();
}

#[tokio::test]
async fn who_was_cut_off_comes_back_to_his_place() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;
    let mut first = bob.ask(waiting("1")).await.unwrap();
    let place = position(&mut first).await;
    let mut second = bob.ask(waiting("1")).await.unwrap();
    position(&mut second).await;
    drop(first);

    let mut back = bob
        .ask(RequestDevices {
            lease_id: place.lease_id.clone(),
            ..waiting("1")
        })
        .await
        .unwrap();
    let again = position(&mut back).await;
    assert_eq!((again.position, &again.lease_id), (1, &place.lease_id));
    // Another user's id is treated as an unknown id.
    let stolen = RequestDevices {
        lease_id: place.lease_id.clone(),
        ..waiting("1")
    };
    let mut stolen = ann.ask(stolen).await.unwrap();
    let behind = position(&mut stolen).await;
    assert!(behind.position > again.position, "{behind:?}");

    ann.release(&held.lease_id).await.unwrap();
    let progress::Step::Granted(granted) = back.last().await else {
        panic!("not granted");
    };
    assert_eq!(granted.lease_id, place.lease_id);
}

#[tokio::test]
async fn who_waits_no_longer_leaves_the_queue() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let _held = ann.granted(request("1")).await;
    let mut asked = ann.ask(waiting("1")).await.unwrap();
    let place = position(&mut asked).await;
    ann.release(&place.lease_id).await.unwrap();
    assert!(matches!(asked.last().await, progress::Step::Ended(_)));
    let queue = ann.who.request(ListQueueRequest {});
    let queue = ann.leases.list_queue(queue).await.unwrap().into_inner();
    assert_eq!((queue.requests.len(), queue.waiting), (0, 0));
}
