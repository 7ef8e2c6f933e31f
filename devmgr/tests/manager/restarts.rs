//! The manager is killed and restarted in every phase of a lease. Nodes and clients find the same state
//! afterwards.

use std::time::Instant;

use causeway_proto::manager::{RequestDevices, progress};

use super::node::FakeNode;
use super::process::{AT_MOST, Manager, request, waiting};

#[tokio::test]
async fn a_lease_goes_on() {
    let mut manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    manager.kill_and_restart();

    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let renewed = ann.renew(&granted.lease_id).await.unwrap();
    assert_eq!(renewed.nodes, granted.nodes);
    assert_eq!(ann.list().await.len(), 1);
    // Another user can lease the other device, and not this one.
    let mut bob = manager.user("bob").await;
    let other = bob.granted(request("1")).await;
    assert_ne!(other.nodes[0].units, granted.nodes[0].units);
    let none = bob.ask(request("1")).await.unwrap().last().await;
    assert!(matches!(none, progress::Step::Refused(_)), "{none:?}");
    node.look(|state| assert!(state.withdrawn.is_empty()));
    node.assert_no_fault();
}

#[tokio::test]
async fn a_reservation_can_still_be_confirmed() {
    let mut manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let reserve = RequestDevices {
        reserve: true,
        ..request("1")
    };
    let reserved = ann.granted(reserve).await;
    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    let confirmed = ann.confirm(&reserved.lease_id).await.unwrap();
    assert!(!confirmed.reserved);
    node.assert_no_fault();
}

#[tokio::test]
async fn an_offer_that_nobody_was_told_of_is_taken_back() {
    let mut manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    node.say(false, true);
    let asked = ann.ask(request("1")).await.unwrap();
    node.see("the grant", |state| state.granted.len() == 1)
        .await;
    manager.kill_and_restart();
    drop(asked);
    node.see("the withdrawal", |state| state.withdrawn.len() == 1)
        .await;
    node.say(true, true);
    node.see("nothing", |state| state.served.is_empty()).await;
    manager.user("ann").await.granted(waiting("1")).await;
    node.assert_no_fault();
}

#[tokio::test]
async fn the_queue_keeps_its_order() {
    let mut manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let held = ann.granted(request("1")).await;
    let mut places = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut asked = bob.ask(waiting("1")).await.unwrap();
        match asked.next().await {
            Some(progress::Step::Position(place)) => places.push(place.lease_id),
            other => panic!("{other:?}"),
        }
        streams.push(asked);
    }
    manager.kill_and_restart();
    drop(streams);

    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let mut back = Vec::new();
    // The clients reconnect in the reverse order, which must not change their positions.
    for lease_id in places.iter().rev() {
        let request = RequestDevices {
            lease_id: lease_id.clone(),
            ..waiting("1")
        };
        let mut asked = bob.ask(request).await.unwrap();
        let place = asked.next().await;
        assert!(
            matches!(place, Some(progress::Step::Position(_))),
            "{place:?}"
        );
        back.push(asked);
    }
    ann.release(&held.lease_id).await.unwrap();
    let first = back.pop().unwrap();
    let progress::Step::Granted(granted) = first.last().await else {
        panic!("the first is not granted");
    };
    assert_eq!(granted.lease_id, places[0]);
    node.assert_no_fault();
}

#[tokio::test]
async fn a_withdrawal_that_was_not_answered_is_said_again() {
    let mut manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    node.say(true, false);
    let granted = ann.granted(request("1")).await;
    ann.release(&granted.lease_id).await.unwrap();
    node.see("the withdrawal", |state| state.withdrawn.len() == 1)
        .await;
    manager.kill_and_restart();
    node.see("it again", |state| state.withdrawn.len() >= 2)
        .await;
    node.say(true, true);
    node.see("the end", |state| state.served.is_empty()).await;
    manager.user("bob").await.granted(waiting("1")).await;
    node.assert_no_fault();
}

#[tokio::test]
async fn a_node_that_was_started_anew_has_lost_its_lease() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    node.die();
    let node = FakeNode::start(manager.address, 1, 1);
    let waited = ann.granted(waiting("1")).await;
    assert_ne!(waited.lease_id, granted.lease_id);
    assert!(ann.renew(&granted.lease_id).await.is_err());
    node.assert_no_fault();
}

#[tokio::test]
async fn where_a_node_is_reached_now_is_told_and_kept() {
    let mut manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let before = ann.granted(request("1")).await;
    assert_eq!(before.nodes[0].addresses, ["192.0.2.1:7079"]);
    node.moves_to("198.51.100.1:7079");
    let begin = Instant::now();
    while ann.nodes().await[0].addresses != ["198.51.100.1:7079"] {
        assert!(begin.elapsed() < AT_MOST, "the manager has not moved");
    }
    let after = ann.granted(request("1")).await;
    assert_eq!(after.nodes[0].addresses, ["198.51.100.1:7079"]);
    // An earlier lease gets the new address too. After a restart without the node, the address is still
    // known.
    let before = ann.renew(&before.lease_id).await.unwrap();
    assert_eq!(before.nodes[0].addresses, ["198.51.100.1:7079"]);
    node.die();
    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    assert_eq!(ann.nodes().await[0].addresses, ["198.51.100.1:7079"]);
}
