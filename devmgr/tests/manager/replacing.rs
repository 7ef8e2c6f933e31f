//! Leases whose only node is lost, of holders who can execute their sessions again: equal devices take the place.

use causeway_proto::manager::{Granted, NodeShare, RequestDevices, progress};
use rustix::process::Signal;
use serde_json::json;

use super::node::FakeNode;
use super::process::{Asked, Manager, request, waiting};
use super::real_node::Daemon;
use super::tool::running::{RunningTool, tool};

/// A lost node cannot serve its leases any more after this time.
const SOON: &str = "[policy.timing]\nautonomy = 1000\nmargin = 100\n";

fn to_replace() -> RequestDevices {
    RequestDevices {
        follow: true,
        replace: true,
        ..request("1")
    }
}

async fn next_granted(asked: &mut Asked) -> Granted {
    match asked.answer().await {
        progress::Step::Granted(granted) => granted,
        other => panic!("{other:?}"),
    }
}

fn names(shares: &[NodeShare]) -> Vec<&str> {
    shares.iter().map(|of| &*of.name).collect()
}

/// Checks what a client hears while equal devices are sought.
fn is_sought(granted: &Granted) -> bool {
    granted.nodes.is_empty() && granted.lost.is_empty() && granted.lifetime_ms > 0
}

/// The names of the nodes of the only move, which is a replacement.
fn replaced(granted: &Granted) -> (&str, &str) {
    let [only] = &granted.moves[..] else {
        panic!("{:?}", granted.moves);
    };
    assert!(only.replaced);
    let (Some(from), Some(to)) = (&only.from, &only.to) else {
        panic!("{only:?}");
    };
    assert_eq!(from.units, to.units);
    (&from.name, &to.name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_killed_is_replaced_by_another_nodes() {
    let manager = Manager::configured(SOON);
    let text = format!("[manager]\naddress = [\"{}\"]\n", manager.address);
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let start = |at: usize, name| {
        let listen = ["--listen", "127.0.0.1:0", "--name", name];
        Daemon::listening(folders[at].path(), &text, &listen)
    };
    let daemons = [start(0, "one"), start(1, "two")];
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    let mut asked = ann.ask(to_replace()).await.unwrap();
    let granted = next_granted(&mut asked).await;
    let (lost, other) = match names(&granted.nodes)[..] {
        ["one"] => (0, "two"),
        ["two"] => (1, "one"),
        ref names => panic!("{names:?}"),
    };
    daemons[lost].signal(Signal::KILL);
    let mut heard = next_granted(&mut asked).await;
    // `SOON`, ten minutes in which equal devices are sought, and half a minute more.
    for at in [&granted, &heard] {
        assert_eq!(at.replaced_within_ms, 1_100 + 600_000 + 30_000);
    }
    if is_sought(&heard) {
        heard = next_granted(&mut asked).await;
    }
    let renewed = ann.renew(&granted.lease_id).await.unwrap();
    for now in [&heard, &renewed] {
        assert_eq!(names(&now.nodes), [other]);
        assert_eq!(replaced(now), (&*granted.nodes[0].name, other));
        assert_ne!(now.signed_lease, granted.signed_lease);
    }
    ann.release(&granted.lease_id).await.unwrap();
}

#[tokio::test]
async fn what_is_sought_survives_a_restart_of_the_manager_and_comes_before_the_queue() {
    let mut manager = Manager::configured(SOON);
    let one = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let mut asked = ann.ask(to_replace()).await.unwrap();
    let granted = next_granted(&mut asked).await;
    let mut bob = manager.user("bob").await;
    let mut queued = bob.ask(waiting("1")).await.unwrap();
    assert!(matches!(
        queued.next().await,
        Some(progress::Step::Position(_))
    ));
    one.die();
    assert!(is_sought(&next_granted(&mut asked).await));
    assert!(is_sought(&ann.renew(&granted.lease_id).await.unwrap()));
    let listed = ann.list().await;
    assert_eq!(listed[0].nodes, []);
    assert_eq!(names(&listed[0].lost), ["node1"]);
    let said = tool(&manager, "ann").does("leases");
    assert!(
        said.contains("waits for equal devices; lost: node1"),
        "{said}"
    );

    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    assert!(is_sought(&ann.renew(&granted.lease_id).await.unwrap()));
    // The same node, whose daemon is started anew.
    let one = FakeNode::start(manager.address, 1, 1);
    one.see("the grant", |state| !state.served.is_empty()).await;
    let again = RequestDevices {
        lease_id: granted.lease_id.clone(),
        ..to_replace()
    };
    let mut asked = ann.ask(again).await.unwrap();
    let mut heard = next_granted(&mut asked).await;
    if is_sought(&heard) {
        heard = next_granted(&mut asked).await;
    }
    assert_eq!(replaced(&heard), ("node1", "node1"));
    assert_eq!(names(&heard.nodes), ["node1"]);
    one.assert_no_fault();
}

#[tokio::test]
async fn a_lease_that_nothing_replaces_ends_with_its_holder() {
    let manager = Manager::configured(&format!("{SOON}lease = 2000\n"));
    let one = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let mut asked = ann.ask(to_replace()).await.unwrap();
    let granted = next_granted(&mut asked).await;
    one.die();
    while !is_sought(&ann.renew(&granted.lease_id).await.unwrap()) {}
    assert!(is_sought(&next_granted(&mut asked).await));
    // Nobody renews it any more.
    let ended = asked.answer().await;
    assert!(matches!(ended, progress::Step::Ended(_)), "{ended:?}");
    assert_eq!(ann.list().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tool_asks_for_replacements_with_survive_and_tells_of_them() {
    let manager = Manager::configured(SOON);
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let program = ["sh", "-c", "echo ready; cat"];
    let start = |options: &[&'static str]| {
        let arguments = [&["run"], options, &["--request", "1", "--"], &program].concat();
        let running = RunningTool::start(&manager, "ann", &arguments);
        assert_eq!(running.line(), "ready");
        running
    };
    let mut running = start(&["--survive"]);
    node.die();
    let seeking = running.error_line();
    let node = FakeNode::start(manager.address, 1, 1);
    let said = [seeking, running.error_line()];
    assert!(
        said[0].contains("has lost its node node1; the device manager seeks equal devices"),
        "{said:?}"
    );
    assert!(
        said[1].contains("devices of node node1 have replaced those of the lost node node1"),
        "{said:?}"
    );
    running.close();
    assert_eq!(running.end().code(), Some(0));
    node.see("the end", |state| state.served.is_empty()).await;

    let mut running = start(&["--survive", "--json"]);
    let event = |line: String| -> serde_json::Value { serde_json::from_str(&line).unwrap() };
    assert_eq!(event(running.error_line())["event"], "granted");
    node.die();
    let seeking = event(running.error_line());
    let node = FakeNode::start(manager.address, 1, 1);
    let replaced = event(running.error_line());
    assert_eq!(
        (&seeking["event"], &seeking["lost"][0]["name"]),
        (&json!("seeking"), &json!("node1"))
    );
    assert_eq!(
        (&replaced["event"], &replaced["to"]["name"]),
        (&json!("replaced"), &json!("node1"))
    );
    running.close();
    assert_eq!(running.end().code(), Some(0));
    node.see("the end", |state| state.served.is_empty()).await;

    // ---- without the wish
    let mut running = start(&[]);
    node.die();
    let said = running.error_line();
    assert!(said.contains("the lease has ended"), "{said}");
    running.close();
    assert_eq!(running.end().code(), Some(0));
}
