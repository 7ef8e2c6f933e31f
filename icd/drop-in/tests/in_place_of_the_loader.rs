//! Starts real programs, linked with the system's loader, with the drop-in in its place. No server is
//! configured, or one that does not answer.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory for `LD_LIBRARY_PATH`, with only the drop-in in it, as `libOpenCL.so.1`.
fn library_directory(directory: &Path) -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it is");
    let library = program.with_file_name("libOpenCL.so");
    assert!(library.is_file(), "{} is missing", library.display());
    let place = directory.join("lib");
    std::fs::create_dir(&place).expect("a new directory");
    std::os::unix::fs::symlink(library, place.join("libOpenCL.so.1")).expect("a new link");
    place
}

/// Runs a program of the system or of this test with the drop-in. The environment has no other
/// configuration than `variables`.
fn run_with_drop_in(
    program: &Path,
    arguments: &[&str],
    directory: &Path,
    variables: &[(&str, &str)],
) -> Output {
    Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory)
        .env("LD_LIBRARY_PATH", library_directory(directory))
        .envs(variables.iter().copied())
        .current_dir(directory)
        .output()
        .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()))
}

#[test]
fn a_program_gets_the_answers_of_a_loader() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("loader");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/loader.c");
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-deprecated-declarations",
            source,
            "-o",
        ])
        .arg(&program)
        .arg("-lOpenCL")
        .output()
        .expect("the C compiler `cc` is needed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let output = run_with_drop_in(&program, &[], directory.path(), &[]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    // The dynamic linker prints a warning when a symbol's version is missing.
    assert_eq!(errors, "");
}

#[test]
fn clinfo_starts_and_finds_no_platform() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let output = run_with_drop_in(Path::new("/usr/bin/clinfo"), &[], directory.path(), &[]);
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert!(text.contains("Number of platforms"), "{text}");
    assert!(text.contains("Causeway drop-in libOpenCL.so.1"), "{text}");
    assert!(!errors.contains("version"), "{errors}");
}

#[test]
fn clinfo_lists_the_platform_of_a_server_that_does_not_answer() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let nobody = listener.local_addr().expect("it is bound").to_string();
    drop(listener);
    let output = run_with_drop_in(
        Path::new("/usr/bin/clinfo"),
        &["-l"],
        directory.path(),
        &[("CAUSEWAY_SERVERS", &nobody)],
    );
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_eq!(text.trim(), "Platform #0: Causeway");
    assert!(
        errors.contains(&nobody),
        "the one warning names it: {errors}"
    );
}
