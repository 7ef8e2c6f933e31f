//! Runs test modules in processes of their own: the library reads its settings once per process, and some tests count
//! resources of the process.
//!
//! Each test of such a module begins with `own_process!()`. The first one starts this test program again, for all
//! requested tests of the module. Every test here then reports its result from there. One such process runs at a
//! time, except those of modules that mostly wait (`own_process!(waits)`): they run beside each other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Once, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock};

/// Names the module of such a process.
const MODULE: &str = "CAUSEWAY_TEST_MODULE";
/// Names the folder where its tests leave a file each when they have passed.
const PASSED: &str = "CAUSEWAY_TEST_PASSED";

/// Runs the calling test in a process of its module alone. With `waits`, processes of other such modules may run at
/// the same time.
macro_rules! own_process {
    () => {
        own_process!(@ false)
    };
    (waits) => {
        own_process!(@ true)
    };
    (@ $waits:literal) => {
        let Some(_passed) = crate::frames::own_process::enter($waits) else {
            return;
        };
    };
}

/// Reports, when dropped at the end, that a test has passed, to the process that requested it.
pub struct Passed(Option<PathBuf>);

impl Drop for Passed {
    fn drop(&mut self) {
        if let Some(file) = &self.0
            && !std::thread::panicking()
        {
            std::fs::write(file, []).expect("written");
        }
    }
}

/// The result of a module's process.
struct Run {
    output: Output,
    passed: tempfile::TempDir,
}

/// In the module's process, returns a value to keep until the test's end. Elsewhere returns `None`, once the test has
/// passed there.
pub fn enter(waits: bool) -> Option<Passed> {
    static RUNS: Mutex<BTreeMap<String, Arc<OnceLock<Run>>>> = Mutex::new(BTreeMap::new());
    static TURN: RwLock<()> = RwLock::new(());
    let test = this_test();
    let (module, _) = test.split_once("::").expect("a test of a module");
    if std::env::var(MODULE).is_ok_and(|of| of == module) {
        let folder = std::env::var_os(PASSED);
        return Some(Passed(folder.map(|folder| Path::new(&folder).join(&test))));
    }
    let run = Arc::clone(RUNS.lock().entry(module.to_owned()).or_default());
    let run = run.get_or_init(|| match waits {
        true => {
            let _turn = TURN.read();
            Run::of(module)
        }
        false => {
            let _turn = TURN.write();
            Run::of(module)
        }
    });
    let output = &run.output;
    // With code 101, other tests of the module have failed.
    let has_ended = output.status.success() || output.status.code() == Some(101);
    assert!(
        has_ended && run.passed.path().join(&test).exists(),
        "{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
    None
}

impl Run {
    fn of(module: &str) -> Run {
        let passed = tempfile::tempdir().expect("a folder");
        let arguments = || std::env::args_os().skip(1);
        let threads: Vec<_> = arguments()
            .skip_while(|of| of != "--test-threads")
            .take(2)
            .collect();
        let output = this_program()
            .args(asked_for(module))
            .args(["--exact", "--include-ignored"])
            .args(threads)
            // Its standard error is this program's, so measurements show their figures.
            .args(arguments().filter(|of| of == "--nocapture"))
            .env(MODULE, module)
            .env(PASSED, passed.path())
            .stderr(Stdio::inherit())
            .output()
            .expect("the test program runs");
        Run { output, passed }
    }
}

/// Returns the requested tests of a module. Ignored ones count only if they were asked for.
fn asked_for(module: &str) -> Vec<String> {
    let asks_for_ignored = |of: OsString| of == "--ignored" || of == "--include-ignored";
    let ignored = match std::env::args_os().any(asks_for_ignored) {
        true => Vec::new(),
        // The list alone does not tell them apart.
        false => listed(&["--ignored"]),
    };
    let of_module = |test: &String| test.split("::").next() == Some(module);
    let asked = listed(&[]).into_iter().filter(of_module);
    asked.filter(|test| !ignored.contains(test)).collect()
}

/// Returns the tests that this program lists with its own arguments and further ones.
fn listed(more: &[&str]) -> Vec<String> {
    let list = this_program()
        .args(std::env::args_os().skip(1))
        .arg("--list")
        .args(more)
        .output()
        .expect("the test program runs");
    let list = String::from_utf8(list.stdout).expect("text");
    let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
    tests.map(str::to_owned).collect()
}

/// Returns the name of the calling thread's test.
pub fn this_test() -> String {
    std::thread::current().name().expect("a test").to_owned()
}

/// Returns the command of this program with its original environment.
fn this_program() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    let environment = std::fs::read("/proc/self/environ").expect("procfs");
    let variables = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&variable[..at], &variable[at + 1..]);
        Some((
            OsString::from_vec(name.to_vec()),
            OsString::from_vec(value.to_vec()),
        ))
    });
    command.env_clear().envs(variables);
    command
}

/// Makes a command of this program run the calling test alone, and show its output.
pub fn run_this_test(command: &mut Command) -> &mut Command {
    command
        .args(["--exact", &this_test(), "--nocapture"])
        .env_remove(PASSED)
}

/// Gives a test its turn among those of its module, which share the process's settings. The first one configures the library
/// with the text of `settings`, in place of `CAUSEWAY_SERVERS`.
pub fn turn_with(settings: impl FnOnce() -> String) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static CONFIGURED: Once = Once::new();
    let turn = TURN.lock();
    CONFIGURED.call_once(|| {
        let folder = env!("CARGO_TARGET_TMPDIR");
        let file = format!("{folder}/settings-{}.toml", std::process::id());
        std::fs::write(&file, settings()).expect("written");
        // SAFETY: the library has not been asked anything yet, so nobody reads the environment.
        unsafe {
            std::env::remove_var("CAUSEWAY_SERVERS");
            std::env::set_var("CAUSEWAY_CONFIG", file);
        }
    });
    turn
}
