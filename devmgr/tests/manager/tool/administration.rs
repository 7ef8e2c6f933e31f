//! The tool's verbs for users, tokens and quotas.

use std::os::unix::fs::PermissionsExt;

use causeway_proto::manager::{RefusalCode, progress};
use serde_json::json;

use super::super::node::FakeNode;
use super::super::process::{Manager, request};
use super::{Secured, Tool};

#[test]
fn a_user_is_added_gets_a_token_uses_it_and_is_refused_once_it_is_revoked() {
    let secured = Secured::start();
    let admin = secured.admin();
    let added = admin.json("users add ann --group lab");
    assert_eq!(
        added,
        json!({"name": "ann", "groups": ["lab"], "admin": false, "node": false})
    );
    let again = admin.refuses("users add ann");
    assert!(again.contains("there is a user ann already"), "{again}");

    let file = secured.path("ann.token");
    let out = file.to_str().unwrap();
    let made = admin.json(&format!("tokens create ann --label laptop --out {out}"));
    assert_eq!(made["token"], json!(null));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let ann = secured.bearer(&file);
    assert_eq!(ann.json("leases"), json!([]));
    // Users see their own tokens, and may not administrate.
    let tokens = ann.json("tokens list");
    assert_eq!(tokens[0]["label"], "laptop");
    assert_eq!(tokens.as_array().unwrap().len(), 1);
    let denied = ann.refuses("users add bob");
    assert!(denied.contains("administrator"), "{denied}");

    let id = made["id"].as_str().unwrap();
    admin.does(&format!("tokens revoke {id}"));
    let refused = ann.refuses("leases");
    assert!(refused.contains("was revoked") && refused.contains("causeway tokens create"));
    let unknown = admin.refuses(&format!("tokens revoke {id}"));
    assert!(unknown.contains("unknown token"), "{unknown}");
}

#[test]
fn users_change_and_go_with_their_tokens() {
    let secured = Secured::start();
    let admin = secured.admin();
    let ann = secured.user("ann");
    ann.refuses("users list");
    admin.does("users admin ann yes");
    let users = ann.json("users list");
    assert_eq!(users.as_array().unwrap().len(), 2);
    let groups = admin.json("users groups ann lab night");
    assert_eq!(groups["groups"], json!(["lab", "night"]));
    // Settings that the command does not name stay.
    assert_eq!(groups["admin"], json!(true));
    // A node has no other role.
    let node = admin.json("users node ann yes");
    assert_eq!(
        (&node["node"], &node["admin"]),
        (&json!(true), &json!(false))
    );
    let user = admin.json("users node ann no");
    assert_eq!(
        (&user["node"], &user["groups"]),
        (&json!(false), &json!(["lab", "night"]))
    );
    let none = admin.refuses("users groups nobody lab");
    assert!(none.contains("there is no user nobody"), "{none}");
    admin.does("users remove ann");
    ann.refuses("users list");
    let left = admin.does("users");
    assert!(left.contains("admin") && !left.contains("ann"), "{left}");
}

#[test]
fn a_token_expires_and_is_printed_alone_on_standard_output() {
    let secured = Secured::start();
    let admin = secured.admin();
    admin.does("users add ann");
    let said = admin.run("tokens create ann --expires 1ms");
    assert_eq!(said.out.lines().count(), 1, "{said:?}");
    assert!(said.err.contains("not shown again"), "{said:?}");
    let file = secured.path("token");
    std::fs::write(&file, &said.out).unwrap();
    let ann = secured.bearer(&file);
    // Other users could read the token there.
    let refused = ann.refuses("leases");
    assert!(refused.contains("chmod 600"), "{refused}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let refused = ann.refuses("leases");
    assert!(refused.contains("the token has expired"), "{refused}");
    let list = admin.does("tokens list --user ann");
    assert!(list.contains("expired"), "{list}");
    let wrong = admin.run("tokens create ann --expires soon");
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    // An existing file is kept, and no token is created.
    let out = file.to_str().unwrap();
    let kept = admin.refuses(&format!("tokens create ann --out {out}"));
    assert!(kept.contains("not overwritten"), "{kept}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), said.out);
    let list = admin.json("tokens list --user ann");
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_holds_and_shows_what_is_used_of_it() {
    let manager = Manager::start();
    let _node = FakeNode::start(manager.address, 1, 3);
    let (mut ann, mut bob) = (manager.user("ann").await, manager.user("bob").await);
    ann.see_nodes(1).await;
    let tool = Tool::of("admin").with("CAUSEWAY_MANAGER", manager.address.to_string());
    let set = tool.json("quota set --user ann --devices 1 --memory none");
    assert_eq!(set["quotas"][0]["who"], "user ann");
    tool.does("quota set --every-user --device-hours 1000");
    ann.granted(request("1")).await;
    match ann.ask(request("1")).await.unwrap().last().await {
        progress::Step::Refused(refused) => assert_eq!(refused.code(), RefusalCode::Quota),
        other => panic!("{other:?}"),
    }
    bob.granted(request("1")).await;
    let shown = tool.does("quota");
    let of_ann = shown.lines().find(|line| line.starts_with("user ann"));
    assert!(
        of_ann.is_some_and(|line| line.contains("1 of 1")),
        "{shown}"
    );
    assert!(shown.contains("every user"), "{shown}");
    // Setting another limit keeps the first one.
    let set = tool.json("quota set --user ann --memory 64GiB");
    let of_ann = set["quotas"].as_array().unwrap().iter();
    let of_ann = of_ann.clone().find(|of| of["who"] == "user ann").unwrap();
    assert_eq!(
        (&of_ann["devices"], &of_ann["memory_bytes"]),
        (&json!(1), &json!(64_u64 << 30))
    );
    tool.does("quota remove --user ann");
    ann.granted(request("1")).await;
    for wrong in [
        "quota set --user ann",
        "quota set --devices 1",
        "quota set --user ann --devices 0",
        "quota set --user ann --group lab --devices 1",
    ] {
        assert_eq!(tool.run(wrong).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn a_user_is_shown_the_quotas_that_concern_him() {
    let secured = Secured::start();
    let admin = secured.admin();
    let ann = secured.user("ann");
    admin.does("users groups ann lab");
    for who in [
        "--user ann",
        "--user bob",
        "--group lab",
        "--group other",
        "--every-user",
    ] {
        admin.does(&format!("quota set --devices 2 {who}"));
    }
    let shown = ann.json("quota show");
    let who = shown["quotas"].as_array().unwrap().iter();
    let who: Vec<&str> = who.map(|of| of["who"].as_str().unwrap()).collect();
    assert_eq!(who, ["every user", "user ann", "group lab"]);
    ann.refuses("quota set --user ann --devices 9");
}
