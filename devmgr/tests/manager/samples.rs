//! `etc/manager.toml` shows the defaults, and its commented settings are valid. Settings and stores that
//! other users can change are refused.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use causeway_devmgr::settings::{ConfigFile, Flags, Settings};

use super::real_node::programs;

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/manager.toml")
}

fn settings(text: String) -> Settings {
    let file = ConfigFile::parse(&sample(), text).unwrap();
    Settings::combine(&Flags::default(), &file).unwrap()
}

#[test]
fn the_sample_is_the_defaults() {
    let text = std::fs::read_to_string(sample()).unwrap();
    let (sample, nothing) = (settings(text), settings(String::new()));
    assert_eq!(format!("{sample:?}"), format!("{nothing:?}"));
}

#[test]
fn what_is_in_comments_is_understood() {
    let text = std::fs::read_to_string(sample()).unwrap();
    // A manager that announces itself reads its certificate, which is not here.
    let text = text.replace("#: announce = true", "").replace("#: ", "");
    let settings = settings(text);
    assert!(settings.tls.is_some_and(|tls| tls.client_ca.is_some()));
    assert!(
        settings
            .policy
            .is_some_and(|policy| policy.longest_lease.is_some())
    );
}

#[test]
fn files_that_everybody_can_change_or_replace_are_refused_with_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let settings = folder.path().join("settings.toml");
    let store = folder.path().join("store");
    std::fs::write(&settings, "listen = [\"127.0.0.1:0\"]\n").unwrap();
    std::fs::write(&store, "").unwrap();
    let manager = PathBuf::from(env!("CARGO_BIN_EXE_causeway-devmgr"));
    let daemon = programs().join("causewayd");
    let refuses = |program: &Path, code: i32, named: &Path| {
        // A manager that accepts the file would run until it is killed.
        let mut command = Command::new("timeout");
        command
            .arg("20")
            .arg(program)
            .arg("--config")
            .arg(&settings);
        if program == manager {
            command.arg("--store").arg(&store);
        }
        let ended = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{said}");
        let name = named.to_str().unwrap();
        assert!(said.contains(name) && said.contains("chmod"), "{said}");
    };
    set(&settings, 0o666);
    for program in [&manager, &daemon] {
        refuses(program, 2, &settings);
    }
    set(&settings, 0o644);
    set(&store, 0o666);
    refuses(&manager, 1, &store);
    set(&store, 0o600);
    set(folder.path(), 0o777);
    for program in [&manager, &daemon] {
        refuses(program, 2, folder.path());
    }
}
