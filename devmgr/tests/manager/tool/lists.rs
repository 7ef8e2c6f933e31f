//! Output and errors of `causeway leases`, `queue`, `release`, `request` and `nodes`.

use std::time::Instant;

use serde_json::{Value, json};

use super::super::node::FakeNode;
use super::super::process::{AT_MOST, Manager, hex, request, waiting};
use super::super::real_node::library;
use super::running::{ToolEnd, run, tool};
use super::{Secured, Tool};

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_listed_and_given_back_by_its_holder_alone() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let granted = ann.granted(request("2")).await;
    let lease = hex(&granted.lease_id);
    let listed = run(&manager, "ann", &["leases", "--json"]).json();
    assert_eq!(
        (&listed[0]["lease"], &listed[0]["state"]),
        (&json!(lease), &json!("active"))
    );
    let unit = json!({"platform": 0, "device": 0, "share": 0, "name": "fake device"});
    assert_eq!(listed[0]["nodes"][0]["units"][0], unit);
    let text = run(&manager, "ann", &["leases"]).out;
    assert!(
        text.contains(&lease) && text.contains("node1: 0.0 fake device, 0.1"),
        "{text}"
    );

    // Without authentication, every caller is an administrator.
    let admins = run(&manager, "bob", &["release", &lease]).err;
    assert!(
        admins.contains("is ann's") && admins.contains("--revoke"),
        "{admins}"
    );
    assert_eq!(ann.list().await.len(), 1);

    let ended = run(&manager, "ann", &["release", &lease[..8], "--json"]);
    assert_eq!(
        (ended.code(), &ended.json()["released"]),
        (Some(0), &json!(lease))
    );
    let ended = run(&manager, "ann", &["release", &lease[..8]]);
    assert_eq!(ended.code(), Some(1), "{ended:?}");
    assert_eq!(run(&manager, "ann", &["release", "word"]).code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_listed_and_leaves_by_his_own_or_an_administrators_wish() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let nobody = run(&manager, "ann", &["queue", "--json"]).json();
    assert_eq!(nobody, json!({"requests": [], "waiting": 0}));
    ann.granted(request("1")).await;
    let mut asked = bob.ask(waiting("1, TYPE=GPU")).await.unwrap();
    asked.next().await;
    let queue = run(&manager, "ann", &["queue", "--json"]).json();
    let first = &queue["requests"][0];
    assert_eq!(
        (&queue["waiting"], &first["position"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        (&first["user"], &first["priority"]),
        (&json!("bob"), &json!("normal"))
    );
    assert_eq!(first["request"], "1, TYPE=GPU");
    assert_eq!(first["why"], "the devices are in use");
    let id = first["lease"].as_str().unwrap();
    assert_eq!(run(&manager, "ann", &["release", id]).code(), Some(1));
    let revoke = ["release", id, "--revoke", "--reason", "not today"];
    assert_eq!(run(&manager, "ann", &revoke).code(), Some(0));
    let told = asked.answer().await;
    assert!(format!("{told:?}").contains("not today"), "{told:?}");
    let text = run(&manager, "ann", &["queue"]).out;
    assert_eq!(text, "No request is waiting.\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_judged_without_being_made() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 2);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let judged = |line: &str| -> (Option<i32>, Value) {
        let ended = run(&manager, "ann", &["request", "--json", line]);
        (ended.code(), ended.json()["refusal"].clone())
    };
    assert_eq!(judged("2, TYPE=GPU"), (Some(0), Value::Null));
    assert_eq!(judged("3"), (Some(1), json!("nothing-fits")));
    ann.granted(request("1")).await;
    assert_eq!(judged("2"), (Some(1), json!("nothing-free")));
    let text = run(&manager, "ann", &["request", "1"]);
    assert!(text.out.contains("node1: 0.1 fake device"), "{text:?}");
    let wrong = run(&manager, "ann", &["request", "1, TIPE=GPU"]);
    assert!(
        wrong.code() == Some(2) && wrong.err.contains("TIPE"),
        "{wrong:?}"
    );
    let nothing = run(&manager, "ann", &["request"]);
    assert!(
        nothing.err.contains("no devices are requested"),
        "{nothing:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_drained_gets_no_lease_until_it_is_resumed() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let node = |ended: ToolEnd| ended.json()[0].clone();
    let listed = node(run(&manager, "root", &["nodes", "--json"]));
    assert_eq!(
        (&listed["name"], &listed["draining"]),
        (&json!("node1"), &json!(false))
    );
    assert_eq!(listed["devices"][0]["memory_bytes"], json!(8u64 << 30));
    let drained = node(run(
        &manager,
        "root",
        &["nodes", "drain", "node1", "--json"],
    ));
    assert_eq!(drained["draining"], true);
    assert!(run(&manager, "root", &["nodes"]).out.contains("draining"));
    assert_eq!(run(&manager, "ann", &["request", "1"]).code(), Some(1));
    let id = listed["node"].as_str().unwrap();
    assert_eq!(
        run(&manager, "root", &["nodes", "resume", id]).code(),
        Some(0)
    );
    assert_eq!(run(&manager, "ann", &["request", "1"]).code(), Some(0));
    let unknown = run(&manager, "root", &["nodes", "drain", "nobody"]);
    assert!(
        unknown.code() == Some(1) && unknown.err.contains("unknown node"),
        "{unknown:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_will_not_come_back_is_removed() {
    let manager = Manager::start();
    let root = |arguments: &[&str]| run(&manager, "root", arguments);
    let remove = |more: &[&str]| root(&[&["nodes", "remove", "node1"], more].concat());
    let node = FakeNode::start(manager.address, 1, 1);
    let mut ann = manager.user("ann").await;
    ann.see_nodes(1).await;
    let lease = ann.granted(request("1")).await;
    for force in [&[][..], &["--force"]] {
        let refused = remove(force);
        assert_eq!(refused.code(), Some(1));
        assert!(refused.err.contains("is connected"), "{refused:?}");
    }
    node.die();
    ann.see_nodes(0).await;
    assert!(root(&["nodes"]).out.contains("lost"));
    let refused = remove(&[]);
    assert_eq!(refused.code(), Some(1));
    assert!(refused.err.contains("leases still (1,"), "{refused:?}");
    let denied = run(&manager, "ann", &["nodes", "remove", "nobody"]);
    assert!(denied.err.contains("unknown node"), "{denied:?}");

    let removed = remove(&["--force", "--json"]);
    assert_eq!((removed.code(), removed.json()), (Some(0), json!([])));
    assert!(ann.renew(&lease.lease_id).await.is_err());
    let again = remove(&[]);
    assert!(again.err.contains("unknown node"), "{again:?}");
    // The node comes back after it was forgotten.
    let node = FakeNode::start(manager.address, 1, 1);
    ann.see_nodes(1).await;
    ann.granted(request("1")).await;
    node.assert_no_fault();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_not_there_is_named_with_what_to_do() {
    let mut manager = Manager::start();
    manager.kill();
    let ended = run(&manager, "ann", &["leases"]);
    let address = manager.address.to_string();
    assert!(
        ended.code() == Some(1) && ended.err.contains(&address),
        "{ended:?}"
    );
    assert!(ended.err.contains("start causeway-devmgr"), "{ended:?}");
    let ended = run(&manager, "ann", &["queue", "--json"]);
    let error: Value = serde_json::from_str(&ended.err).unwrap();
    assert!(
        error["cure"].is_string() && ended.out.is_empty(),
        "{ended:?}"
    );
    // Without a configured manager, the error says how to name one.
    let said = Tool::of("ann").refuses("leases");
    assert!(said.contains("--manager"), "{said}");
}

#[test]
fn who_one_is_comes_by_options_or_from_the_librarys_file() {
    let secured = Secured::start();
    let ann = secured.user("ann");
    // A user may not call administrators' verbs, and the error says whom to ask.
    let denied = ann.refuses("nodes");
    assert!(denied.contains("ask an administrator"), "{denied}");
    let clear = tool(&secured.manager, "ann").refuses("leases");
    assert!(clear.contains("--ca"), "{clear}");
    let nobody = secured.nobody().refuses("queue");
    assert!(nobody.contains("--token-file"), "{nobody}");

    let path = |name| secured.path(name).display().to_string();
    let options = format!(
        "leases --manager {} --ca {} --token-file {}",
        secured.manager.address,
        path("ca.pem"),
        path("ann.token")
    );
    assert_eq!(Tool::of("somebody").json(&options), json!([]));
    let text = format!(
        "[manager]\naddress = \"{}\"\nca = \"ca.pem\"\ntoken_file = \"ann.token\"\n",
        secured.manager.address
    );
    std::fs::write(secured.path("servers.toml"), text).unwrap();
    let configured = Tool::of("somebody").with("CAUSEWAY_CONFIG", path("servers.toml"));
    assert_eq!(configured.json("leases"), json!([]));
}

#[test]
fn anothers_id_and_none_at_all_are_the_same_to_whom_it_is_not_shown() {
    let secured = Secured::start();
    let (ann, bob) = (secured.user("ann"), secured.user("bob"));
    let mut waiting = ann
        .with("CAUSEWAY_LIBRARY", library())
        .command("run --wait --request 1 -- true")
        .spawn()
        .unwrap();
    let admin = secured.admin();
    let begin = Instant::now();
    let id = loop {
        if let Some(id) = admin.json("queue")["requests"][0]["lease"].as_str() {
            break id.to_owned();
        }
        assert!(begin.elapsed() < AT_MOST, "no request waits");
    };
    let others = bob.refuses(&format!("release {id}"));
    assert_eq!(others, bob.refuses(&format!("release {}", "7".repeat(32))));
    assert!(others.contains("unknown lease"), "{others}");
    let admins = admin.refuses(&format!("release {id}"));
    assert!(
        admins.contains("is ann's") && admins.contains(&format!("--revoke {id}")),
        "{admins}"
    );
    admin.does(&format!("release --revoke {id}"));
    assert_eq!(waiting.wait().unwrap().code(), Some(125));
}
