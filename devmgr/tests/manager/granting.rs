//! From a request to a lease: the node first, then the client.

use std::time::SystemTime;

use causeway_proto::manager::{RefusalCode, RequestDevices, progress};
use causeway_security::LeaseVerifier;

use super::node::FakeNode;
use super::process::{Asked, Manager, request};

#[tokio::test]
async fn a_client_is_told_of_what_its_node_has_acknowledged() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    node.say(false, true);

    let mut asked = ann
        .ask(request("2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB"))
        .await
        .unwrap();
    node.see("the grant", |state| !state.granted.is_empty())
        .await;
    ann.list().await;
    let early = told_already(&mut asked).await;
    assert!(early.is_none(), "the client got {early:?} first");
    node.say(true, true);
    let progress::Step::Granted(granted) = asked.last().await else {
        panic!("not granted");
    };

    assert_eq!(granted.nodes.len(), 1);
    let share = &granted.nodes[0];
    assert_eq!((&*share.name, share.units.len()), ("node1", 2));
    assert_eq!(share.addresses, ["192.0.2.1:7079"]);
    let grant = node.look(|state| state.granted[0].clone());
    assert_eq!((&grant.lease_id, &*grant.user), (&granted.lease_id, "ann"));
    assert!(granted.lifetime_ms > 0 && !granted.reserved);

    // The node accepts the client's signed lease by the public key that the manager sent in its welcome.
    let welcome = node.look(|state| state.welcome.clone().unwrap());
    let verifier = LeaseVerifier::from_public_key(&welcome.public_key).unwrap();
    let verified = verifier
        .verify(&granted.signed_lease, SystemTime::now())
        .unwrap();
    assert_eq!(
        (&verified.lease()[..], verified.user()),
        (&granted.lease_id[..], "ann")
    );
    let claimed = verified.on_node(&[1; 16]).unwrap();
    assert_eq!((claimed.epoch, &claimed.units), (grant.epoch, &share.units));
    node.assert_no_fault();
}

/// The next message, if it has arrived already.
async fn told_already(asked: &mut Asked) -> Option<progress::Step> {
    tokio::select! {
        biased;
        step = asked.next() => step,
        () = std::future::ready(()) => None,
    }
}

#[tokio::test]
async fn a_reservation_becomes_a_lease_when_it_is_confirmed() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let reserve = RequestDevices {
        reserve: true,
        ..request("1")
    };
    let reserved = ann.granted(reserve).await;
    assert!(reserved.reserved);
    let lease = ann.confirm(&reserved.lease_id).await.unwrap();
    assert!(!lease.reserved && lease.lifetime_ms > reserved.lifetime_ms);
    assert_eq!(lease.nodes, reserved.nodes);
    let renewed = ann.renew(&lease.lease_id).await.unwrap();
    assert!(!renewed.reserved);
    node.assert_no_fault();
}

#[tokio::test]
async fn what_cannot_be_had_is_refused_at_once_and_says_why() {
    let manager = Manager::configured("[policy.timing]\nsettle = 0\n");
    let _node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let _held = ann.granted(request("1")).await;
    for (line, code) in [
        ("2", RefusalCode::NothingFits),
        ("1, TYPE=CPU", RefusalCode::NothingFits),
        ("1", RefusalCode::NothingFree),
        ("some", RefusalCode::Malformed),
        ("1, NO_SUCH_PROPERTY=1", RefusalCode::Malformed),
    ] {
        let asked = ann.ask(request(line)).await.unwrap();
        match asked.last().await {
            progress::Step::Refused(refused) => {
                assert_eq!(refused.code(), code, "{line}: {}", refused.reason);
                assert!(!refused.reason.is_empty());
            }
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_passed_over() {
    let manager = Manager::configured("[policy.timing]\nacknowledge = 200\n");
    let silent = FakeNode::start(manager.address, 1, 4);
    silent.say(false, true);
    let good = FakeNode::start(manager.address, 2, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    let wait = RequestDevices {
        wait: true,
        ..request("1")
    };
    // The manager may ask the silent node first several times. In the end the other node gets the lease.
    let granted = ann.granted(wait).await;
    assert_eq!(granted.nodes[0].name, "node2");
    silent.assert_no_fault();
    good.assert_no_fault();
}
