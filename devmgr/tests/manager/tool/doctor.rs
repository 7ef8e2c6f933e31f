//! `causeway doctor` on broken installations: each cause is named, with its cure.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

use causeway_proto::manager::GetManagerRequest;
use causeway_proto::metadata::TERM;
use causeway_security::Authority;
use serde_json::Value;

use super::super::node::FakeNode;
use super::super::process::Manager;
use super::{Secured, Tool};

/// The findings that are not `ok`.
fn found(tool: &Tool) -> Vec<(String, String, String)> {
    let findings = tool.json("doctor");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = findings.as_array().unwrap().iter();
    let of_cluster = findings.filter(|of| {
        let check = text(&of["check"]);
        check.starts_with("device manager") || check.contains("tokens") || check == "leases"
    });
    of_cluster
        .map(|of| (text(&of["verdict"]), text(&of["found"]), text(&of["cure"])))
        .collect()
}

/// The only problem among the findings.
fn problem(tool: &Tool, cause: &str, cure: &str) {
    let found = found(tool);
    let problems: Vec<_> = found.iter().filter(|of| of.0 == "problem").collect();
    let is_it = |of: &&(String, String, String)| of.1.contains(cause) && of.2.contains(cure);
    assert!(problems.iter().any(is_it), "{cause}: {found:?}");
    assert!(!tool.does_well("doctor"));
}

impl Tool {
    fn does_well(&self, arguments: &str) -> bool {
        self.run(arguments).code == Some(0)
    }
}

#[test]
fn a_healthy_manager_is_described() {
    let secured = Secured::start();
    let found = found(&secured.admin());
    let ok = |word: &str| found.iter().any(|of| of.0 == "ok" && of.1.contains(word));
    assert!(
        ok("TLS settings are valid") && ok("an administrator"),
        "{found:?}"
    );
    assert!(ok(env!("CARGO_PKG_VERSION")) && ok("(± "), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_restored_without_the_flag() {
    let manager = Manager::start();
    let mut node = manager.user("node1").await;
    let mut met = node.who.request(GetManagerRequest {});
    met.metadata_mut().insert(TERM, "7".parse().unwrap());
    node.admin.get_manager(met).await.unwrap_err();
    let address = manager.address.to_string();
    let tool = Tool::of("root").with("CAUSEWAY_MANAGER", address);
    problem(&tool, "have met term 7", "--after-restore");
}

#[test]
fn a_manager_that_is_not_there() {
    let mut secured = Secured::start();
    let admin = secured.admin();
    secured.manager.kill();
    problem(&admin, "cannot be reached", "start causeway-devmgr there");
}

#[test]
fn a_token_that_others_can_read() {
    let secured = Secured::start();
    let ann = secured.user("ann");
    let file = secured.path("ann.token");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    problem(&ann, "mode 644", "chmod 600");
}

#[test]
fn a_token_that_was_revoked() {
    let secured = Secured::start();
    let ann = secured.user("ann");
    let tokens = secured.admin().json("tokens list --user ann");
    let id = tokens[0]["id"].as_str().unwrap();
    secured.admin().does(&format!("tokens revoke {id}"));
    problem(&ann, "was revoked", "causeway tokens create");
}

#[test]
fn the_ca_of_somebody_else() {
    let secured = Secured::start();
    let other = Tool::of("root");
    other.does("certs ca ca");
    let tool = secured
        .admin()
        .with("CAUSEWAY_CA", other.home().join("ca/ca.pem"));
    problem(&tool, "certificate", "another CA");
}

#[test]
fn a_manager_that_is_called_by_a_name_its_certificate_has_not() {
    let secured = Secured::start();
    let port = secured.manager.address.port();
    let tool = secured
        .admin()
        .with("CAUSEWAY_MANAGER", format!("localhost:{port}"));
    problem(&tool, "certificate", "causeway certs node NAME --address");
}

#[test]
fn words_in_the_clear_to_a_manager_that_wants_tls() {
    let secured = Secured::start();
    let tool = Tool::of("ann").with("CAUSEWAY_MANAGER", secured.manager.address.to_string());
    problem(&tool, "", "CAUSEWAY_CA");
}

#[test]
fn a_lease_that_is_not_ones_own() {
    let secured = Secured::start();
    let ann = secured.user("ann").with("CAUSEWAY_LEASE", "0".repeat(32));
    problem(&ann, "over or not yours", "causeway run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_manager_reaches_and_this_machine_does_not() {
    let manager = Manager::start();
    // The node's address does not answer.
    let _node = FakeNode::start(manager.address, 1, 1);
    manager.user("ann").await.see_nodes(1).await;
    let tool = Tool::of("ann").with("CAUSEWAY_MANAGER", manager.address.to_string());
    problem(&tool, "node1: ", "advertise");
}

/// The user ann with a certificate that expires in this number of days.
fn certified(secured: &Secured, days: i64) -> Tool {
    let authority = Authority::load(&secured.path("ca.pem"), &secured.path("ca.key")).unwrap();
    let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
    let apart = day * u32::try_from(days.unsigned_abs()).unwrap();
    let end = if days < 0 { now - apart } else { now + apart };
    let made = authority.user("ann", now - 9 * day..end).unwrap();
    let (certificate, key) = (secured.path("ann.pem"), secured.path("ann.key"));
    std::fs::write(&certificate, made.certificate).unwrap();
    std::fs::write(&key, made.key.reveal()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let ann = secured.nobody().with("CAUSEWAY_CERTIFICATE", certificate);
    ann.with("CAUSEWAY_KEY", key)
}

#[test]
fn a_certificate_that_has_expired_or_will_soon() {
    let secured = Secured::start();
    let expired = certified(&secured, -1);
    problem(
        &expired,
        "ann.pem: has expired on 2",
        "causeway certs client",
    );
    let said = expired.refuses("leases");
    let is_named =
        said.contains("your certificate (") && said.contains("ann.pem) has expired on 2");
    assert!(is_named && said.contains("certs client"), "{said}");
    let soon = certified(&secured, 2);
    let found = found(&soon);
    let note = found
        .iter()
        .find(|of| of.0 == "note" && of.1.contains("ann.pem: expires on"));
    assert!(note.is_some(), "{found:?}");
}
