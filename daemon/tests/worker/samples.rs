//! Tests that `etc/daemon.toml` shows the defaults, and that its examples are valid.

use std::path::{Path, PathBuf};

use causeway_daemon::config::{ConfigFile, Flags, Settings, WorkerUser};

fn sample() -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/daemon.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

#[test]
fn the_sample_is_the_defaults() {
    let (path, text) = sample();
    let settings = |text| {
        let file = ConfigFile::parse(&path, text).unwrap();
        Settings::combine(&Flags::default(), &file).unwrap()
    };
    let (sample, nothing) = (settings(text), settings(String::new()));
    assert_eq!(format!("{sample:?}"), format!("{nothing:?}"));
}

#[test]
fn its_examples_are_understood() {
    let (path, text) = sample();
    let mut file = ConfigFile::parse(&path, text.replace("#: ", "")).unwrap();
    // Settings that name certificates are removed: their files are read with the settings, and do not exist here.
    let tls = std::mem::take(&mut file.table.tls);
    assert!(tls.certificate.is_some() && tls.key.is_some() && tls.client_ca.is_some());
    let auth = std::mem::take(&mut file.table.auth);
    assert!(auth.tokens.is_some());
    let manager = std::mem::take(&mut file.table.manager);
    assert!(manager.address.is_some() && manager.ca.is_some() && manager.token_file.is_some());
    let settings = Settings::combine(&Flags::default(), &file).unwrap();
    assert_eq!(settings.name, "node1");
    assert_eq!(settings.advertise.len(), 2);
    assert!(matches!(settings.worker_user, WorkerUser::Range { .. }));
    assert_eq!(settings.shares.len(), 1);
    assert!(settings.sandbox.driver_caches.is_some());
}
