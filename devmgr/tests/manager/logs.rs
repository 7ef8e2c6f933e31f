//! Each log line that names a lease names its user too. So a search for the user finds the history of their
//! leases, on the manager and on the node.

use std::time::Instant;

use super::process::{AT_MOST, Client, Manager, hex, request};
use super::real_node::Daemon;

/// Waits until a log has a line of this lease with each of these words, and returns the lines.
async fn see(
    client: &mut Client,
    log: impl Fn() -> String,
    lease: &str,
    words: &[&str],
) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let log = log();
        let lines: Vec<_> = log.lines().filter(|line| line.contains(lease)).collect();
        let is_there = |word: &&str| lines.iter().any(|line| line.contains(*word));
        match words.iter().find(|word| !is_there(word)) {
            None => return lines.iter().map(|&line| line.to_owned()).collect(),
            Some(word) => assert!(begin.elapsed() < AT_MOST, "no {word:?} in {lines:#?}"),
        }
        // Other calls are answered meanwhile.
        client.list().await;
    }
}

fn assert_of_ann(lines: &[String]) {
    for line in lines {
        let names_user = ["user=ann", "user=\"ann\""]
            .iter()
            .any(|word| line.contains(word));
        assert!(names_user, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_a_lease_is_found_by_its_user() {
    let manager = Manager::start();
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(manager.address, folder.path());
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let granted = ann.granted(request("1")).await;
    let session = daemon.open(&granted.signed_lease).await.unwrap();
    let lease = hex(&granted.lease_id[..4]);
    let mut root = manager.user("root").await;
    root.revoke_lease(&granted.lease_id, "maintenance")
        .await
        .unwrap();

    let words = [
        " grant ",
        " granted ",
        " revoke ",
        " withdraw ",
        " lease ended ",
    ];
    assert_of_ann(&see(&mut root, || manager.log(), &lease, &words).await);
    let words = [
        "a lease is served",
        "sessions of a lease",
        "the device manager withdraws a lease",
        "a lease has ended",
        "session=",
    ];
    assert_of_ann(&see(&mut root, || daemon.log(), &lease, &words).await);
    drop(session);
}
