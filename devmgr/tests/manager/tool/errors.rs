//! Errors of `devices`, `nodes`, `request`, `tokens` and `quota`, with their cures.

use serde_json::{Value, json};

use super::super::node::FakeNode;
use super::super::process::{Manager, request};
use super::super::real_node::Daemon;
use super::running::tool;
use super::{Secured, Tool};

/// The error, and the cure.
#[track_caller]
fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?}: {said}");
    }
}

#[test]
fn a_manager_that_cannot_be_believed_is_told_apart_from_none() {
    let secured = Secured::start();
    let other = Tool::of("root");
    other.does("certs ca ca");
    let wrong = secured
        .admin()
        .with("CAUSEWAY_CA", other.home().join("ca/ca.pem"));
    for verb in [
        "devices",
        "nodes",
        "request 1",
        "leases",
        "queue",
        "quota",
        "users",
        "tokens",
    ] {
        // Standard output is empty; above all, it does not mention servers that are not configured.
        says(
            &wrong.refuses(verb),
            &["invalid peer certificate", "was signed by another CA"],
        );
    }
    let port = secured.manager.address.port();
    let misnamed = secured
        .admin()
        .with("CAUSEWAY_MANAGER", format!("localhost:{port}"));
    for verb in ["devices", "nodes", "request 1"] {
        says(
            &misnamed.refuses(verb),
            &["localhost", "certs node NAME --address"],
        );
    }
    for verb in ["devices", "request 1"] {
        says(
            &secured.nobody().refuses(verb),
            &["neither a token", "--token-file"],
        );
    }
    let nothing = Tool::of("ann");
    let said = nothing.refuses("devices");
    says(&said, &["no server is configured", "CAUSEWAY_MANAGER"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    let said = nothing.run("--json devices");
    assert_eq!((said.code, said.out.as_str()), (Some(1), "[]\n"));
    says(&said.err, &["{", "no server is configured"]);
    for verb in ["nodes", "request 1"] {
        says(
            &nothing.refuses(verb),
            &["no device manager is configured", "--manager"],
        );
    }
    says(
        &nothing
            .with("CAUSEWAY_MANAGER", "host:0")
            .refuses("request 1"),
        &["CAUSEWAY_MANAGER", "invalid port"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_without_devices_says_so() {
    let mut manager = Manager::start();
    let ann = tool(&manager, "ann");
    says(&ann.does("devices"), &["has no devices now"]);
    let refused = ann.run("request 1");
    assert_eq!(refused.code, Some(1));
    says(
        &refused.out,
        &["would not be granted now", "no node has joined yet"],
    );
    let refused: Value = ann.json("request 1");
    assert_eq!(
        (&refused["fits"], &refused["refusal"]),
        (&json!(false), &json!("nothing-fits"))
    );
    manager.kill();
    says(
        &ann.refuses("devices"),
        &["cannot be reached", "start causeway-devmgr"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_named_by_what_tells_it_apart() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"node1\"\n[manager]\naddress = [\"{}\"]\n",
        manager.address
    );
    let _namesake = Daemon::configured(folder.path(), &text);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(2).await;
    ann.granted(request("3")).await;
    let root = tool(&manager, "root");
    let nodes = root.json("nodes");
    let ids: Vec<&str> = (0..2)
        .map(|at| nodes[at]["node"].as_str().unwrap())
        .collect();
    says(
        &root.refuses("nodes drain node1"),
        &["several nodes have this name", "uuid"],
    );
    // Each list shows the ids that the verb accepts.
    for verb in ["nodes", "leases", "top --once --interval 100ms"] {
        let labels: Vec<String> = ids.iter().map(|id| format!("node1 {}", &id[..8])).collect();
        says(&root.does(verb), &[&labels[0], &labels[1]]);
    }
    says(&root.run("doctor").out, &["2 nodes are called node1"]);
    says(
        &root.does(&format!("nodes drain {}", &ids[1][..8])),
        &["draining"],
    );
    assert_eq!(root.json("nodes")[1]["draining"], true);
    says(
        &root.refuses("nodes drain nobody"),
        &["unknown node", "causeway nodes"],
    );
    says(
        &root.refuses(&format!("nodes drain {}", &ids[0][..3])),
        &["unknown node", "4 digits"],
    );
    says(&root.refuses("nodes remove nobody"), &["unknown node"]);
    says(
        &root.refuses(&format!("nodes remove {}", ids[0])),
        &["is connected", "stop its daemon"],
    );
}

#[test]
fn a_token_that_is_revoked_is_shown_with_its_user() {
    let secured = Secured::start();
    let admin = secured.admin();
    let ann = secured.user("ann");
    let id = ann.json("tokens")[0]["id"].as_str().unwrap().to_owned();
    // If one id is mistyped, no token is revoked.
    says(
        &admin.refuses(&format!("tokens revoke {id} zz")),
        &["unknown token: zz", "tokens list"],
    );
    says(&ann.does("tokens"), &[&id]);
    let short = &id[..12];
    assert_eq!(
        admin.does(&format!("tokens revoke {short}")),
        format!("revoked: {id} of ann\n")
    );
    says(&ann.refuses("tokens"), &["was revoked"]);
    // Another user's token is treated as unknown.
    let bob = secured.user("bob");
    let first = admin.json("tokens list --user admin")[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    says(
        &bob.refuses(&format!("tokens revoke {first}")),
        &["unknown token"],
    );
}

#[test]
fn a_quota_that_nobody_has_is_not_taken_away() {
    let secured = Secured::start();
    let admin = secured.admin();
    says(
        &admin.refuses("quota remove --user ann"),
        &["user ann has no quota", "causeway quota"],
    );
    admin.does("quota set --every-user --devices 1");
    says(
        &admin.refuses("quota remove --group lab"),
        &["group lab has no quota"],
    );
    admin.does("quota remove --every-user");
}

#[test]
fn a_mistake_is_told_of_the_option_that_has_it() {
    let said = Tool::of("ann").refuses("leases --manager gpu1:");
    says(&said, &["--manager: "]);
}
