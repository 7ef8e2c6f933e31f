//! Tests of the addresses at which the manager's users reach a node, and of the log lines about them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use causeway_security::Authority;

use crate::common::Daemon;
use crate::common::manager::Manager;

/// Starts a node with a certificate for `gpu1`. Returns the addresses that the manager gets, and the log.
fn told(more: &[&str]) -> (Vec<String>, String) {
    let manager = Manager::start();
    let state = tempfile::tempdir().unwrap();
    let at = |name: &str| state.path().join(name);
    let now = SystemTime::now();
    let valid = now - Duration::from_secs(60)..now + Duration::from_secs(3600);
    let (authority, _) = Authority::generate("CA", valid.clone()).unwrap();
    let issued = authority.node(&["gpu1".to_owned()], valid).unwrap();
    std::fs::write(at("node.pem"), &issued.certificate).unwrap();
    std::fs::write(at("node.key"), issued.key.reveal()).unwrap();
    std::fs::set_permissions(at("node.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_causewayd"));
    program.stderr(std::fs::File::create(at("log")).unwrap());
    program.args(["--manager", &manager.address.to_string()]);
    program.arg("--tls-certificate").arg(at("node.pem"));
    program.arg("--tls-key").arg(at("node.key"));
    let folder: &Path = state.path();
    let state = [("STATE_DIRECTORY", folder.to_str().unwrap())];
    let _daemon = Daemon::by_fake(program, "devices = 1", more, &state);
    // The node logs the addresses before it connects.
    let node = manager.welcomed(10);
    let log = std::fs::read_to_string(at("log")).unwrap();
    (node.hello.addresses.clone(), log)
}

#[test]
fn a_node_is_called_by_the_name_of_its_certificate() {
    let (addresses, log) = told(&["--listen", "0.0.0.0:0"]);
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    assert!(addresses[0].starts_with("gpu1:"), "{addresses:?}");
    assert!(log.contains(&addresses[0]), "{log}");
    assert!(!log.contains("UNREACHABLE"), "{log}");
}

#[test]
fn a_node_that_is_called_by_another_name_says_what_to_do() {
    for (flags, called) in [
        (&[][..], "127.0.0.1:"),
        (&["--advertise", "gpu2"][..], "gpu2:"),
    ] {
        let (addresses, log) = told(flags);
        assert!(addresses[0].starts_with(called), "{addresses:?}");
        let mut lines = log.lines();
        let warning = lines.find(|line| line.contains("UNREACHABLE")).expect(&log);
        for word in ["WARN", called, "node.pem", "--advertise HOST"] {
            assert!(warning.contains(word), "{warning}");
        }
    }
}
