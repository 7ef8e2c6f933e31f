//! `etc/quickstart` without a terminal on standard error: the script reports cargo's progress.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A fake cargo that takes a few seconds and fails, so that the script ends there.
const CARGO: &str =
    "#!/bin/sh\necho '   Compiling alpha v1.0.0' >&2\nsleep 3\necho broken >&2\nexit 7\n";

#[test]
fn a_build_without_a_terminal_is_not_silent() {
    let folder = tempfile::tempdir().unwrap();
    let [etc, bin] = ["etc", "bin"].map(|name| folder.path().join(name));
    fs::create_dir(&etc).unwrap();
    fs::create_dir(&bin).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../etc/quickstart");
    fs::copy(script, etc.join("quickstart")).unwrap();
    fs::write(
        etc.join("dependencies"),
        "need_cargo() { :; }\nneed_packages() { :; }\n",
    )
    .unwrap();
    fs::write(bin.join("cargo"), CARGO).unwrap();
    fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let ended = Command::new("bash")
        .arg(etc.join("quickstart"))
        .env("PATH", path)
        .env("CAUSEWAY_PROGRESS_EVERY", "1")
        .output()
        .unwrap();
    let [out, err] = [&ended.stdout, &ended.stderr].map(|said| String::from_utf8_lossy(said));
    assert_eq!(ended.status.code(), Some(7), "{out}{err}");
    assert!(out.contains("1 packages begun, the last: alpha"), "{out}");
    assert!(err.contains("broken"), "{err}");
}
