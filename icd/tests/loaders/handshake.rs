//! Tests both handshakes with a loader in C (`icd2.c`): the tags are there only if the setting is on, functions are
//! found by name, and the loader's word is in the objects.

use std::path::Path;
use std::process::Command;

use crate::support::{compile, loader_arguments, nobody, output_of, unconfigured};

/// Returns the command of the loader, with a server address at which nobody listens.
fn loader(directory: &Path, expected: &str) -> Command {
    let program = compile(directory, "icd2.c", &["-ldl"]);
    let mut command = unconfigured(&program, directory);
    command
        .args(loader_arguments(expected))
        .env("CAUSEWAY_SERVERS", nobody());
    command
}

#[test]
fn without_the_setting_there_is_no_tag() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    output_of(&mut loader(directory.path(), "plain"));
    output_of(loader(directory.path(), "plain").env("CAUSEWAY_ICD2", "0"));
}

#[test]
fn with_the_setting_the_second_handshake_is_spoken() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    output_of(loader(directory.path(), "tagged").env("CAUSEWAY_ICD2", "1"));
}
