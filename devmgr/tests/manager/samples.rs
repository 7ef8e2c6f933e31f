//! `etc/manager.toml` says what holds without it, and what it has in comments is understood.

use std::path::{Path, PathBuf};

use causeway_devmgr::settings::{ConfigFile, Flags, Settings};

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
    let settings = settings(text.replace("#: ", ""));
    assert!(settings.tls.is_some_and(|tls| tls.client_ca.is_some()));
    assert!(
        settings
            .policy
            .is_some_and(|policy| policy.longest_lease.is_some())
    );
}
