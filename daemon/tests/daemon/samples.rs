//! Tests of the sample files for administrators.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use causeway_daemon::config::{ConfigFile, Flags, Settings};
use causeway_security::Authority;

fn etc(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../etc")
        .join(name)
}

/// The files that the sample's settings name: certificates and their keys, lists, tokens.
fn installed() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let valid = now - Duration::from_secs(60)..now + Duration::from_secs(3600);
    let (authority, ca) = Authority::generate("cluster", valid.clone()).unwrap();
    let node = authority.node(&["node1".to_owned()], valid).unwrap();
    let put = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    };
    put("ca.pem", ca.certificate.as_bytes());
    put("clients.pem", ca.certificate.as_bytes());
    put("node.pem", node.certificate.as_bytes());
    put("node.key", node.key.reveal());
    put("tokens", b"");
    put("node.token", b"a-token-of-this-node-0123456789abcdef\n");
    folder
}

#[test]
fn the_sample_is_the_defaults() {
    let sample = ConfigFile::read(&etc("daemon.toml")).unwrap();
    let sample = Settings::combine(&Flags::default(), &sample).unwrap();
    let nothing = ConfigFile::parse(Path::new("none"), String::new()).unwrap();
    let defaults = Settings::combine(&Flags::default(), &nothing).unwrap();
    assert_eq!(format!("{sample:?}"), format!("{defaults:?}"));
}

#[test]
fn every_setting_of_the_sample_can_be_taken_in() {
    let text = std::fs::read_to_string(etc("daemon.toml")).unwrap();
    let settings: String = text
        .lines()
        .map(|line| line.strip_prefix("#: ").unwrap_or(line))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert_ne!(
        settings, text,
        "the sample shows settings that are commented out"
    );
    let installed = installed();
    let settings = settings.replace("/etc/causeway", installed.path().to_str().unwrap());
    let file = ConfigFile::parse(&etc("daemon.toml"), settings).unwrap();
    Settings::combine(&Flags::default(), &file).unwrap();
}

#[test]
fn the_units_start_this_daemon() {
    let service = std::fs::read_to_string(etc("causewayd.service")).unwrap();
    let socket = std::fs::read_to_string(etc("causewayd.socket")).unwrap();
    assert!(service.contains("Type=notify") && service.contains("/causewayd\n"));
    let port = causeway_proto::DAEMON_PORT;
    assert!(socket.contains(&format!("ListenStream=127.0.0.1:{port}\n")));
    for line in service.lines().chain(socket.lines()) {
        let fine = line.is_empty()
            || line.starts_with('#')
            || (line.starts_with('[') && line.ends_with(']'))
            || line
                .split_once('=')
                .is_some_and(|(key, _)| !key.is_empty() && key.chars().all(char::is_alphanumeric));
        assert!(fine, "{line:?}");
    }
}
