//! A daemon that is shutting down: it gets no new lease, administrators see why, and its leases are over
//! when it ends.

use std::time::Instant;

use causeway_proto::manager::{ListKindsRequest, NodeInfo};
use rustix::process::Signal;
use tonic::Code;

use super::process::{AT_MOST, Client, Manager, request};
use super::real_node::Daemon;
use super::tool::running::tool;

/// Waits until the manager's entry of the node meets a condition.
async fn see(client: &mut Client, is_so: impl Fn(&NodeInfo) -> bool) {
    let begin = Instant::now();
    loop {
        let nodes = client.nodes().await;
        if is_so(&nodes[0]) {
            return;
        }
        assert!(begin.elapsed() < AT_MOST, "{nodes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_to_end_gets_no_new_lease_and_lets_go_of_what_it_has_when_it_goes() {
    let mut manager = Manager::start();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[manager]\naddress = [\"{}\"]\n[sessions]\nconnect_limit = 600\ndrain_limit = 3600\n",
        manager.address
    );
    let mut daemon = Daemon::configured(folder.path(), &text);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let used = ann.granted(request("1")).await;
    daemon.open(&used.signed_lease).await.unwrap();
    daemon.signal(Signal::TERM);
    see(&mut ann, |node| node.stopping && node.connected).await;

    let refused = ann.considers(request("1")).await.unwrap_err();
    assert!(
        refused.reason.contains("nodes that are stopping"),
        "{refused:?}"
    );
    let kinds = ann.who.request(ListKindsRequest {});
    let kinds = ann.leases.list_kinds(kinds).await.unwrap().into_inner();
    assert_eq!((kinds.kinds[0].count, kinds.kinds[0].free), (2, 0));
    let root = tool(&manager, "root");
    let listed = root.json("nodes");
    assert_eq!(
        (&listed[0]["stopping"], &listed[0]["draining"]),
        (&true.into(), &false.into())
    );
    assert!(root.does("nodes").contains("  stopping  "));
    let examined = root.run("doctor").out;
    assert!(examined.contains("is stopping"), "{examined}");

    // A restarted manager learns that the node is stopping, and the node serves its lease on.
    manager.kill_and_restart();
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    see(&mut ann, |node| node.stopping).await;
    ann.renew(&used.lease_id).await.unwrap();

    daemon.signal(Signal::TERM);
    assert!(daemon.ends_well());
    see(&mut ann, |node| !node.connected && !node.stopping).await;
    let over = ann.renew(&used.lease_id).await.unwrap_err();
    assert_eq!(over.code(), Code::FailedPrecondition, "{over}");
    assert!(over.message().contains("nodes were lost"), "{over}");
    assert!(ann.list().await.is_empty());
    // The node has no lease left, so it can be forgotten at once.
    let name = ann.nodes().await[0].name.clone();
    let root = tool(&manager, "root");
    assert_eq!(
        root.json(&format!("nodes remove {name}")),
        serde_json::json!([])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_uses_yet_keeps_no_daemon_and_is_over_with_it() {
    let manager = Manager::start();
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(manager.address, folder.path());
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let unused = ann.granted(request("2")).await;
    daemon.signal(Signal::TERM);
    assert!(daemon.ends_well());
    see(&mut ann, |node| !node.connected).await;
    let over = ann.renew(&unused.lease_id).await.unwrap_err();
    assert!(over.message().contains("nodes were lost"), "{over}");
}
