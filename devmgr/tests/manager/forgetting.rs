//! Nodes that do not come back are forgotten, also across restarts.

use std::time::Instant;

use causeway_proto::manager::{RefusalCode, RemoveNodeRequest, progress};
use tonic::Code;

use super::node::FakeNode;
use super::process::{AT_MOST, Manager, request, waiting};

#[tokio::test]
async fn a_lost_node_is_forgotten_after_the_time_that_the_file_says() {
    let mut manager = Manager::configured("[policy.timing]\nforget = 1000\n");
    let _node = FakeNode::start(manager.address, 1, 1);
    let lost = FakeNode::start(manager.address, 2, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    lost.die();
    let begin = Instant::now();
    while ann.nodes().await.len() != 1 {
        assert!(begin.elapsed() < AT_MOST, "the node is not forgotten");
    }
    let refused = ann.considers(request("2")).await.unwrap_err();
    assert_eq!(refused.code(), RefusalCode::NothingFits);
    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    assert_eq!(ann.nodes().await.len(), 1);
}

#[tokio::test]
async fn who_waits_for_devices_that_are_removed_hears_so() {
    let manager = Manager::start();
    let node = FakeNode::start(manager.address, 1, 1);
    let removed = FakeNode::start(manager.address, 2, 2);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(2).await;
    removed.die();
    ann.see_nodes(1).await;
    let asked = bob.ask(waiting("2; same-node")).await.unwrap();
    let remove = |node: &str| RemoveNodeRequest {
        node: node.to_owned(),
        force: false,
    };
    let connected = ann.who.request(remove("node1"));
    let connected = ann.admin.remove_node(connected).await.unwrap_err();
    assert_eq!(connected.code(), Code::FailedPrecondition);
    let lost = ann.who.request(remove("node2"));
    ann.admin.remove_node(lost).await.unwrap();
    match asked.last().await {
        progress::Step::Refused(refused) => assert_eq!(refused.code(), RefusalCode::NothingFits),
        other => panic!("{other:?}"),
    }
    ann.granted(request("1")).await;
    node.assert_no_fault();
}
