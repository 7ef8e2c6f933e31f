//! Certificates that the tool makes: the files, and their use between manager, daemon and library.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use super::super::process::AT_MOST;
use super::super::real_node::{Daemon, library};
use super::{Secured, Tool, said};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn keys_are_their_owners_alone_and_nothing_is_overwritten() {
    let tool = Tool::of("root");
    let folder = tool.home().join("ca");
    tool.does("certs ca ca");
    assert_eq!(mode(&folder), 0o700);
    let made = tool.json("certs node gpu1 --address 10.0.0.5:7079 --address gpu1.lab --from ca");
    assert_eq!(
        made["names"],
        serde_json::json!(["gpu1", "10.0.0.5", "gpu1.lab"])
    );
    tool.does("certs client ann --from ca --out .");
    for key in ["ca/ca.key", "ca/gpu1.key", "ann.key"] {
        assert_eq!(mode(&tool.home().join(key)), 0o600, "{key}");
    }
    let before = std::fs::read(folder.join("ca.key")).unwrap();
    for again in [
        "certs ca ca",
        "certs client ca --from ca",
        "certs node gpu1 --from ca",
    ] {
        let refused = tool.refuses(again);
        assert!(refused.contains("not overwritten"), "{refused}");
    }
    assert_eq!(std::fs::read(folder.join("ca.key")).unwrap(), before);
    // If one of the two files exists, the other is not written.
    std::fs::remove_file(folder.join("gpu1.pem")).unwrap();
    tool.refuses("certs node gpu1 --from ca");
    assert!(!folder.join("gpu1.pem").exists());
}

#[test]
fn what_cannot_be_certified_is_explained() {
    let tool = Tool::of("root");
    let none = tool.refuses("certs client ann --from nowhere");
    assert!(none.contains("causeway certs ca DIR"), "{none}");
    tool.does("certs ca ca");
    for (name, why) in [
        ("10.0.0.5", "add --address 10.0.0.5"),
        ("../../etc/passwd", "invalid certificate name"),
        ("a,b", "invalid certificate name"),
    ] {
        let refused = tool.refuses(&format!("certs node {name} --from ca"));
        assert!(refused.contains(why), "{name}: {refused}");
    }
    std::fs::set_permissions(
        tool.home().join("ca/ca.key"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let open = tool.refuses("certs client ann --from ca");
    assert!(open.contains("chmod 600"), "{open}");
    assert_eq!(tool.run("certs ca x --days 0").code, Some(2));
}

#[test]
fn manager_daemon_and_library_believe_them() {
    let secured = Secured::start();
    let admin = secured.admin();
    let from = secured.folder().to_str().unwrap().to_owned();
    admin.does(&format!(
        "certs node node1 --address 127.0.0.1 --from {from}"
    ));
    admin.does(&format!("certs client ann --from {from}"));
    admin.does("users add node1 --node");
    let path = |name| secured.path(name);
    let own = format!(
        "certificate = {:?}\nkey = {:?}\n",
        path("node1.pem"),
        path("node1.key")
    );
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::configured(
        folder.path(),
        &format!(
            "[tls]\n{own}client_ca = {ca:?}\n[manager]\naddress = [\"{}\"]\nca = {ca:?}\n{own}",
            secured.manager.address,
            ca = path("ca.pem"),
        ),
    );
    let begin = Instant::now();
    while admin.json("nodes")[0]["connected"] != true {
        assert!(begin.elapsed() < AT_MOST, "the node did not join");
    }
    let vendors = folder.path().join("client");
    std::fs::create_dir(&vendors).unwrap();
    let library = library();
    std::fs::write(vendors.join("causeway.icd"), library.to_str().unwrap()).unwrap();
    let ann = secured
        .nobody()
        .with("CAUSEWAY_CERTIFICATE", path("ann.pem"))
        .with("CAUSEWAY_KEY", path("ann.key"))
        .with("CAUSEWAY_REQUEST", "1")
        .with("OCL_ICD_VENDORS", &vendors);
    let mut clinfo = ann.program("clinfo");
    clinfo.arg("-l");
    let seen = said(clinfo);
    let devices = seen.out.lines().filter(|line| line.contains("Device #"));
    assert_eq!(devices.count(), 1, "{seen:?}");
    // A certificate of another CA is refused.
    let other = Tool::of("mallory");
    other.does("certs ca ca");
    other.does("certs client ann --from ca");
    let mallory = secured
        .nobody()
        .with("CAUSEWAY_CERTIFICATE", other.home().join("ca/ann.pem"))
        .with("CAUSEWAY_KEY", other.home().join("ca/ann.key"));
    mallory.refuses("leases");
}

#[test]
fn a_node_that_takes_certificates_only_says_so() {
    let owner = Tool::of("root");
    owner.does("certs ca ca");
    owner.does("certs node gpu1 --address 127.0.0.1 --from ca");
    let path = |name: &str| owner.home().join("ca").join(name);
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::configured(
        folder.path(),
        &format!(
            "[tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n",
            path("gpu1.pem"),
            path("gpu1.key"),
            path("ca.pem"),
        ),
    );
    let user = |name: &str| {
        Tool::of(name)
            .with("CAUSEWAY_SERVERS", daemon.address().to_string())
            .with("CAUSEWAY_CA", path("ca.pem"))
    };
    let other = Tool::of("mallory");
    other.does("certs ca ca");
    other.does("certs client ann --from ca");
    let foreign = user("ann")
        .with("CAUSEWAY_CERTIFICATE", other.home().join("ca/ann.pem"))
        .with("CAUSEWAY_KEY", other.home().join("ca/ann.key"));
    for (tool, what, cure) in [
        (
            user("bob"),
            "requires a certificate",
            "CAUSEWAY_CERTIFICATE",
        ),
        (
            foreign,
            "does not accept this side's certificate",
            "--tls-client-ca",
        ),
    ] {
        let shown = tool.run("devices").out;
        assert!(shown.contains(what), "{shown}");
        let found = tool.run("doctor").out;
        assert!(found.contains(what) && found.contains(cure), "{found}");
    }
}
