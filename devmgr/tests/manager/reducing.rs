//! A lease of several nodes that loses the devices of one: the lease goes on with the others, and its
//! holder is told.

use causeway_proto::manager::{Granted, NodeShare, RequestDevices, progress};
use rustix::process::Signal;
use serde_json::json;

use super::node::FakeNode;
use super::process::{Asked, Client, Manager, request};
use super::real_node::Daemon;
use super::tool::running::{RunningTool, tool};

/// A lease with a device of each of two nodes, and its stream.
async fn followed(client: &mut Client) -> (Asked, Granted) {
    let request = RequestDevices {
        follow: true,
        ..request("2; spread")
    };
    let mut asked = client.ask(request).await.unwrap();
    let granted = next_granted(&mut asked).await;
    (asked, granted)
}

async fn next_granted(asked: &mut Asked) -> Granted {
    match asked.answer().await {
        progress::Step::Granted(granted) => granted,
        other => panic!("{other:?}"),
    }
}

/// The nodes' names, with the number of units of each.
fn named(shares: &[NodeShare]) -> Vec<(&str, usize)> {
    let shares = shares.iter();
    shares.map(|of| (&*of.name, of.units.len())).collect()
}

/// Starts a node anew, which does not know its earlier grants.
async fn forgets(manager: &Manager, client: &mut Client, node: FakeNode) -> FakeNode {
    node.die();
    client.see_nodes(1).await;
    let node = FakeNode::start(manager.address, 2, 1);
    client.see_nodes(2).await;
    node
}

#[tokio::test]
async fn who_follows_or_renews_a_lease_hears_what_it_has_lost() {
    let mut manager = Manager::start();
    let one = FakeNode::start(manager.address, 1, 1);
    let other = FakeNode::start(manager.address, 2, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    let (mut asked, granted) = followed(&mut ann).await;
    assert_eq!(named(&granted.nodes), [("node1", 1), ("node2", 1)]);
    assert_eq!(granted.lost, []);

    let other = forgets(&manager, &mut ann, other).await;
    let heard = next_granted(&mut asked).await;
    assert!(!heard.reserved && heard.lease_id == granted.lease_id);
    let listed = ann.list().await;
    let renewed = ann.renew(&granted.lease_id).await.unwrap();
    for (has, lost) in [
        (&heard.nodes, &heard.lost),
        (&renewed.nodes, &renewed.lost),
        (&listed[0].nodes, &listed[0].lost),
    ] {
        assert_eq!(
            (named(has), named(lost)),
            (vec![("node1", 1)], vec![("node2", 1)])
        );
    }
    // Another user gets the lost device. The loss is durable: the manager knows it after a restart.
    let next = ann.granted(request("1")).await;
    assert_eq!(named(&next.nodes), [("node2", 1)]);
    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    let renewed = ann.renew(&granted.lease_id).await.unwrap();
    assert_eq!(
        (named(&renewed.nodes), named(&renewed.lost)),
        (vec![("node1", 1)], vec![("node2", 1)])
    );
    ann.release(&granted.lease_id).await.unwrap();
    one.see("the end", |state| state.served.is_empty()).await;
    assert_eq!(other.look(|state| state.served.len()), 1);
    one.assert_no_fault();
    other.assert_no_fault();
}

#[tokio::test]
async fn what_is_confirmed_or_asked_for_again_says_what_was_lost_before() {
    let manager = Manager::configured("[policy.timing]\nreservation = 60000\n");
    let _one = FakeNode::start(manager.address, 1, 1);
    let other = FakeNode::start(manager.address, 2, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    let reserve = RequestDevices {
        reserve: true,
        follow: true,
        ..request("2; spread")
    };
    let mut asked = ann.ask(reserve).await.unwrap();
    let reserved = next_granted(&mut asked).await;
    let _other = forgets(&manager, &mut ann, other).await;
    let heard = next_granted(&mut asked).await;
    assert!(heard.reserved && named(&heard.lost) == [("node2", 1)]);
    let confirmed = ann.confirm(&reserved.lease_id).await.unwrap();
    assert!(!confirmed.reserved && named(&confirmed.lost) == [("node2", 1)]);
    let again = RequestDevices {
        lease_id: reserved.lease_id,
        ..request("2; spread")
    };
    let again = ann.granted(again).await;
    assert_eq!(
        (named(&again.nodes), named(&again.lost)),
        (vec![("node1", 1)], vec![("node2", 1)])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tool_says_which_node_is_lost_and_the_program_goes_on() {
    let manager = Manager::start();
    let text = format!("[manager]\naddress = [\"{}\"]\n", manager.address);
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = |at: usize, name| {
        let listen = ["--listen", "127.0.0.1:0", "--name", name];
        Daemon::listening(folders[at].path(), &text, &listen)
    };
    let (_stays, mut leaves) = (start(0, "stays"), start(1, "leaves"));
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    let arguments = [
        "run",
        "--request",
        "2; spread",
        "--",
        "sh",
        "-c",
        "echo ready; cat",
    ];
    let mut running = RunningTool::start(&manager, "ann", &arguments);
    assert_eq!(running.line(), "ready");
    // The node withdraws its grants and disconnects.
    leaves.signal(Signal::TERM);
    let told = running.error_line();
    assert!(
        told.contains("has lost the devices of node leaves:") && told.contains("are not affected"),
        "{told}"
    );
    assert!(leaves.ends_well());
    let ann = tool(&manager, "ann");
    let listed = ann.does("leases");
    assert!(
        listed.contains("stays: 0.0") && listed.contains("; lost: leaves: 0.0"),
        "{listed}"
    );
    let listed = ann.json("leases");
    let lease = &listed[0];
    assert_eq!(lease["state"], "active");
    assert_eq!(
        (&lease["nodes"][0]["name"], &lease["lost"][0]["name"]),
        (&json!("stays"), &json!("leaves"))
    );
    running.close();
    let ended = running.end();
    assert_eq!((ended.code(), ended.err.as_str()), (Some(0), ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_is_an_event_of_its_own_for_programs_that_read_what_the_tool_says() {
    let manager = Manager::start();
    let _one = FakeNode::start(manager.address, 1, 1);
    let other = FakeNode::start(manager.address, 2, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    let arguments = [
        "run",
        "--json",
        "--request",
        "2; spread",
        "--",
        "sh",
        "-c",
        "cat",
    ];
    let mut running = RunningTool::start(&manager, "ann", &arguments);
    let event = |line: String| -> serde_json::Value { serde_json::from_str(&line).unwrap() };
    assert_eq!(event(running.error_line())["event"], "granted");
    let _other = forgets(&manager, &mut ann, other).await;
    let told = event(running.error_line());
    assert_eq!(
        (
            &told["event"],
            &told["lost"][0]["name"],
            &told["nodes"][0]["name"]
        ),
        (&json!("reduced"), &json!("node2"), &json!("node1"))
    );
    assert_eq!(told["lost"][0]["units"].as_array().unwrap().len(), 1);
    running.close();
    let ended = running.end();
    assert_eq!((ended.code(), ended.err.as_str()), (Some(0), ""));
}
