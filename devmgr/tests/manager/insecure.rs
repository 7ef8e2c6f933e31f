//! What `--insecure` has opened is repeated to who looks at the cluster: of the manager, and of its nodes.

use serde_json::{Value, json};

use super::node::FakeNode;
use super::process::Manager;
use super::tool::running::run;

/// Whether the manager is open to everybody, and how many of its nodes, as `--json` has it.
fn told(manager: &Manager) -> (Value, Value) {
    let devices = run(manager, "ann", &["devices", "--json"]).json()[0].clone();
    (
        devices["insecure"].clone(),
        devices["insecure_nodes"].clone(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_and_nodes_that_are_open_to_everybody_are_told_of() {
    let manager = Manager::started("", &["--listen", "0.0.0.0:0", "--insecure"]);
    let mut ann = manager.user("ann").await;
    let _one = FakeNode::start(manager.address, 1, 1);
    ann.see_nodes(1).await;
    assert_eq!(told(&manager), (json!(true), json!(0)));
    let text = run(&manager, "ann", &["devices"]).out;
    assert!(
        text.contains("INSECURE: everyone who can reach the device manager"),
        "{text}"
    );
    assert!(!text.contains("of its nodes"), "{text}");

    let _two = FakeNode::start_insecure(manager.address, 2, 1);
    ann.see_nodes(2).await;
    assert_eq!(told(&manager), (json!(true), json!(1)));
    let text = run(&manager, "ann", &["devices"]).out;
    assert!(
        text.contains("INSECURE: everyone who can reach one of its nodes"),
        "{text}"
    );
    let nodes = run(&manager, "ann", &["nodes"]).out;
    let said: Vec<_> = nodes
        .lines()
        .filter(|line| line.contains("INSECURE"))
        .collect();
    assert!(said.len() == 1 && said[0].starts_with("node2"), "{nodes}");
    let nodes = run(&manager, "ann", &["nodes", "--json"]).json();
    assert_eq!(
        (&nodes[0]["insecure"], &nodes[1]["insecure"]),
        (&json!(false), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_says_nothing_of_it() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    manager.user("ann").await.see_nodes(1).await;
    assert_eq!(told(&manager), (json!(false), json!(0)));
    for verb in ["devices", "nodes"] {
        let text = run(&manager, "ann", &[verb]).out;
        assert!(
            text.contains("fake device") && !text.contains("INSECURE"),
            "{text}"
        );
    }
}
