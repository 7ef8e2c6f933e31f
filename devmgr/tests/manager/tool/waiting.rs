//! `causeway run --wait`: two users and one device.

use causeway_proto::manager::ListQueueRequest;
use rustix::process::Signal;
use serde_json::Value;

use super::super::node::FakeNode;
use super::super::process::{Client, Manager};
use super::running::RunningTool;

const HOLD: [&str; 7] = [
    "run",
    "--request",
    "1",
    "--",
    "sh",
    "-c",
    "echo in; exec cat",
];
const WAIT: [&str; 8] = [
    "run",
    "--wait",
    "--json",
    "--request",
    "1",
    "--",
    "echo",
    "in",
];

/// A manager with one device, which ann's program has leased.
async fn taken() -> (Manager, FakeNode, RunningTool) {
    let manager = Manager::configured("[policy.timing]\nposition = 50\n");
    let node = FakeNode::start(manager.address, 1, 1);
    manager.user("ann").await.see_nodes(1).await;
    let holder = RunningTool::start(&manager, "ann", &HOLD);
    holder.line();
    (manager, node, holder)
}

fn event(tool: &RunningTool) -> Value {
    let line = tool.error_line();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

pub(super) async fn waiting(client: &mut Client) -> u32 {
    let request = client.who.request(ListQueueRequest {});
    let list = client.leases.list_queue(request).await.unwrap();
    list.into_inner().waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_sees_the_place_and_gets_the_device_when_it_is_free() {
    let (manager, node, mut holder) = taken().await;
    let bob = RunningTool::start(&manager, "bob", &WAIT);
    let first = event(&bob);
    assert_eq!(
        (&first["event"], &first["position"]),
        (&"waiting".into(), &1.into())
    );
    let carol = RunningTool::start(&manager, "carol", &WAIT);
    let second = event(&carol);
    assert_eq!(
        (&second["position"], &second["waiting"]),
        (&2.into(), &2.into())
    );
    holder.close();
    assert_eq!(holder.end().code(), Some(0));
    for tool in [bob, carol] {
        assert_eq!(tool.line(), "in");
        let granted = loop {
            let event = event(&tool);
            if event["event"] != "waiting" {
                break event;
            }
        };
        assert_eq!(granted["event"], "granted");
        assert_eq!(granted["nodes"][0]["units"][0]["name"], "fake device");
        assert_eq!(tool.end().code(), Some(0));
    }
    node.assert_no_fault();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_why_and_by_when_where_limits_bound_it() {
    let settings = "[policy]\nlongest_lease = 3600000\n[policy.timing]\nposition = 50\n";
    let manager = Manager::configured(settings);
    let _node = FakeNode::start(manager.address, 1, 1);
    manager.user("ann").await.see_nodes(1).await;
    let mut holder = RunningTool::start(&manager, "ann", &HOLD);
    holder.line();
    let bob = RunningTool::start(&manager, "bob", &WAIT);
    let why = loop {
        let event = event(&bob);
        assert_eq!(event["event"], "waiting");
        if let Some(why) = event["why"].as_str() {
            break why.to_owned();
        }
    };
    let (begin, end) = ("the devices are in use; served in ", " s at the latest");
    let seconds = why.strip_prefix(begin).and_then(|of| of.strip_suffix(end));
    let seconds: u64 = seconds.expect(&why).parse().unwrap();
    assert!((3600..=3640).contains(&seconds), "{why}");
    let without_json: Vec<_> = WAIT.into_iter().filter(|of| *of != "--json").collect();
    let carol = RunningTool::start(&manager, "carol", &without_json);
    let place = carol.error_line();
    assert!(place.contains("place 2 of 2"), "{place}");
    let why = carol.error_line();
    let begin = "causeway run: the request waits: the request of 1 user comes first by the fair order; served in ";
    assert!(why.starts_with(begin), "{why}");
    holder.close();
    assert_eq!(
        (bob.line(), carol.line()),
        ("in".to_owned(), "in".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_while_waiting_gives_the_place_back() {
    let (manager, _node, _holder) = taken().await;
    let mut ann = manager.user("ann").await;
    for signal in [Signal::INT, Signal::TERM] {
        let bob = RunningTool::start(&manager, "bob", &WAIT);
        event(&bob);
        assert_eq!(waiting(&mut ann).await, 1);
        bob.signal(signal);
        let ended = bob.end();
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{ended:?}");
        assert_eq!((ended.out.as_str(), waiting(&mut ann).await), ("", 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_place_is_kept_while_the_manager_is_away() {
    let (mut manager, _node, mut holder) = taken().await;
    let bob = RunningTool::start(&manager, "bob", &WAIT);
    let first = event(&bob);
    assert_eq!(first["position"], 1);
    let before = manager.user("bob").await;
    let request = before.who.request(ListQueueRequest {});
    let place = |list: tonic::Response<causeway_proto::manager::QueueList>| {
        list.into_inner().requests[0].lease_id.clone()
    };
    let id = place(before.leases.clone().list_queue(request).await.unwrap());
    manager.kill_and_restart();
    while event(&bob)["event"] != "waiting" {}
    let mut after = manager.user("bob").await;
    let request = after.who.request(ListQueueRequest {});
    assert_eq!(place(after.leases.list_queue(request).await.unwrap()), id);
    after.see_nodes(1).await;
    holder.close();
    assert_eq!(bob.line(), "in");
    assert_eq!(bob.end().code(), Some(0));
}
