//! Shared parts of these tests: the built library, C programs, and programs that run to their end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a program of these tests. Enumeration has one second for all nodes.
const LIMIT: Duration = Duration::from_secs(20);

/// Returns the library that Cargo built for this test, next to the test program.
pub(crate) fn driver() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows where it is");
    let library = program.with_file_name("libcauseway.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}

/// Returns the arguments of the loader `icd2.c`: our driver, what the loader must find (`plain` or `tagged`), and the
/// names of all slots in order.
pub(crate) fn loader_arguments(expected: &str) -> Vec<OsString> {
    let names = cl_headers::ENTRY_POINTS
        .iter()
        .map(|entry| entry.name.into());
    [driver().into_os_string(), expected.into()]
        .into_iter()
        .chain(names)
        .collect()
}

/// Compiles a C program of this folder into `directory`.
pub(crate) fn compile(directory: &Path, source: &str, libraries: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/loaders")
        .join(source);
    let program = directory.join(source.file_stem().expect("a file's name"));
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source])
        .args(libraries)
        .output()
        .expect("the C compiler `cc` is needed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// Returns a command without any configuration of the machine or the user, started in `directory`.
pub(crate) fn unconfigured(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory)
        .env("XDG_CONFIG_HOME", directory)
        .current_dir(directory)
        .stdin(Stdio::null());
    command
}

/// Returns an address at which nobody listens, so a connection is refused at once.
pub(crate) fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("a bound listener").to_string()
}

/// Makes a directory of `.icd` files with our driver alone.
pub(crate) fn vendors(directory: &Path) -> PathBuf {
    let vendors = directory.join("vendors");
    std::fs::create_dir(&vendors).expect("a new directory");
    std::fs::write(
        vendors.join("causeway.icd"),
        format!("{}\n", driver().display()),
    )
    .expect("a new file");
    vendors
}

/// Runs a command to its end, within the limit.
pub(crate) fn run(command: &mut Command) -> Output {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
    let started = Instant::now();
    // The programs write a few lines, which fit into the pipes, so reading may wait until the end.
    while child
        .try_wait()
        .expect("a child can be waited for")
        .is_none()
    {
        if started.elapsed() > LIMIT {
            child.kill().expect("a child can be killed");
            panic!("{command:?} did not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().expect("the program has ended")
}

/// Returns the standard output of a command that must succeed.
pub(crate) fn output_of(command: &mut Command) -> String {
    let output = run(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program();
    assert!(
        output.status.success(),
        "{}: {}\n{errors}",
        program.display(),
        output.status
    );
    String::from_utf8(output.stdout).expect("text")
}
