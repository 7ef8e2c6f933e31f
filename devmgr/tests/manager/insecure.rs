//! Lists and `doctor` report what `--insecure` exposes: the manager, and its nodes.

use serde_json::{Value, json};

use super::node::FakeNode;
use super::process::Manager;
use super::real_node::Daemon;
use super::tool::Tool;
use super::tool::running::{run, tool};

/// The findings of `causeway doctor` that contain this word, each with its cure.
fn examined(tool: &Tool, word: &str) -> Vec<(String, String)> {
    let findings = tool.json("doctor");
    let text = |of: &serde_json::Value| of.as_str().unwrap_or_default().to_owned();
    let findings = findings.as_array().unwrap().iter();
    let findings = findings.map(|of| (text(&of["found"]), text(&of["cure"])));
    findings.filter(|(found, _)| found.contains(word)).collect()
}

/// Whether the manager is exposed, and how many of its nodes are, by `--json`.
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
    let examined = examined(&tool(&manager, "ann"), "INSECURE");
    for (word, cure) in [
        ("can reach the manager", "manager.toml"),
        ("node node2", "daemon.toml"),
    ] {
        let is_it = |of: &&(String, String)| of.0.contains(word) && of.1.contains(cure);
        assert_eq!(examined.iter().filter(is_it).count(), 1, "{examined:?}");
    }
    assert_eq!(examined.len(), 2, "{examined:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_listens_beyond_loopback_without_tls_says_so_of_itself() {
    let manager = Manager::start();
    let (folder, text) = managed(&manager);
    let listen = ["--listen", "0.0.0.0:0", "--insecure", "--name", "open"];
    let _daemon = Daemon::listening(folder.path(), &text, &listen);
    manager.user("ann").await.see_nodes(1).await;
    let ann = tool(&manager, "ann");
    let told = ann.json("devices")[0].clone();
    assert_eq!(
        (&told["insecure"], &told["insecure_nodes"]),
        (&json!(false), &json!(1))
    );
    let listed = ann.does("devices");
    assert!(listed.contains("INSECURE: everyone who can reach one of its nodes"));
    assert_eq!(ann.json("nodes")[0]["insecure"], true);
    let examined = examined(&ann, "INSECURE");
    assert!(
        examined.len() == 1 && examined[0].0.contains("node open can use it"),
        "{examined:?}"
    );
    assert!(examined[0].1.contains("daemon.toml"), "{examined:?}");
    let text = ann.run("doctor").out;
    assert!(
        text.contains("note     device manager's nodes: INSECURE"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_with_tls_may_listen_anywhere_and_is_not_called_open() {
    let manager = Manager::start();
    let (folder, mut text) = managed(&manager);
    let root = Tool::of("root");
    let files = root.home().join("ca");
    root.does("certs ca ca");
    root.does("certs node closed --address 127.0.0.1 --from ca");
    let path = |name| files.join(name);
    text += &format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}\n",
        path("closed.pem"),
        path("closed.key")
    );
    let _daemon = Daemon::listening(folder.path(), &text, &["--listen", "0.0.0.0:0"]);
    manager.user("ann").await.see_nodes(1).await;
    let ann = tool(&manager, "ann");
    let told = ann.json("devices")[0].clone();
    assert_eq!(told["insecure_nodes"], 0);
    assert_eq!(ann.json("nodes")[0]["insecure"], false);
    for verb in ["devices", "nodes", "doctor"] {
        let said = ann.run(verb).out;
        assert!(!said.is_empty() && !said.contains("INSECURE"), "{said}");
    }
}

#[test]
fn a_daemon_without_a_manager_says_so_too() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ["--listen", "0.0.0.0:0", "--insecure"];
    let daemon = Daemon::listening(folder.path(), "", &listen);
    let servers = format!("127.0.0.1:{}", daemon.address().port());
    let ann = Tool::of("ann").with("CAUSEWAY_SERVERS", servers);
    let told = ann.json("devices")[0]["remarks"].clone();
    assert!(told.to_string().contains("INSECURE"), "{told}");
    assert!(ann.run("devices").out.contains("remark: INSECURE"));
    let examined = examined(&ann, "INSECURE");
    assert!(
        examined.len() == 1 && examined[0].1.contains("[auth]"),
        "{examined:?}"
    );
}

/// A folder for a daemon, and the lines of its configuration about the manager.
fn managed(manager: &Manager) -> (tempfile::TempDir, String) {
    let text = format!("[manager]\naddress = [\"{}\"]\n", manager.address);
    (tempfile::tempdir().unwrap(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_says_nothing_of_it() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    manager.user("ann").await.see_nodes(1).await;
    assert_eq!(told(&manager), (json!(false), json!(0)));
    for (verb, word) in [
        ("devices", "fake device"),
        ("nodes", "fake device"),
        ("doctor", "1 of 1 nodes are connected"),
    ] {
        let text = run(&manager, "ann", &[verb]).out;
        assert!(text.contains(word) && !text.contains("INSECURE"), "{text}");
    }
}
