//! Programs that tests start beside each other: this file again, with one test that lists the devices.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use causeway_network::Host;

use crate::frames::servers::*;
use crate::stage::{is_used, thread_names};

/// Says to the process that it is such a program.
const PROGRAM: &str = "CAUSEWAY_TEST_PROGRAM";

/// How many devices the program waits for.
const AWAITS: &str = "CAUSEWAY_TEST_AWAITS";

/// Whether the program waits for the end of its question.
const TO_THE_END: &str = "CAUSEWAY_TEST_TO_THE_END";

/// What a program has found out.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The devices' names, as the first call has listed them.
    pub(crate) names: Vec<String>,
    /// How long the first call took.
    pub(crate) took: Duration,
    /// The names as a later call has listed them, once they were as many as the program waits for.
    pub(crate) later: Vec<String>,
    /// Its messages.
    pub(crate) messages: String,
}

/// A program with its settings.
pub(crate) struct Program<'a> {
    pub(crate) host: &'a Host,
    pub(crate) config: PathBuf,
    pub(crate) state: &'a Path,
    /// The file that is its `/etc/resolv.conf`.
    pub(crate) resolv_conf: Option<PathBuf>,
    /// How many devices it waits for, in later calls.
    pub(crate) awaits: usize,
    /// Whether it waits for the end of its question.
    pub(crate) asks_to_the_end: bool,
}

impl Program<'_> {
    /// Starts the program. Dropping or calling what this returns waits for its end.
    pub(crate) fn start(&self) -> impl FnOnce() -> Listed + use<> {
        let program = std::env::current_exe().expect("a path");
        let mut command: Command = match &self.resolv_conf {
            None => self.host.command(program),
            Some(file) => {
                let mut command = self.host.command("unshare");
                let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
                command
                    .args(["--mount", "sh", "-c", script])
                    .arg(file)
                    .arg(program);
                command
            }
        };
        command
            .args([
                "programs::first_call",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(PROGRAM, "1")
            .env(AWAITS, self.awaits.to_string())
            .env(TO_THE_END, self.asks_to_the_end.to_string())
            .env_remove("CAUSEWAY_SERVERS")
            .env("CAUSEWAY_CONFIG", &self.config)
            .env("XDG_STATE_HOME", self.state)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        move || {
            let output = child.wait_with_output().expect("its output");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let messages = String::from_utf8_lossy(&output.stderr).into_owned();
            let line = text.lines().find_map(|line| line.split_once("listed "));
            let (_, line) = line.unwrap_or_else(|| panic!("{text}\n{messages}"));
            let (took, names) = line.split_once(' ').expect("three fields");
            let (names, later) = names.split_once(' ').expect("three fields");
            let list = |names: &str| {
                let names = names.split(',').filter(|name| !name.is_empty());
                names.map(str::to_owned).collect()
            };
            Listed {
                names: list(names),
                later: list(later),
                took: Duration::from_micros(took.parse().expect("a number")),
                messages,
            }
        }
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self) -> Listed {
        self.start()()
    }
}

#[test]
#[ignore = "a program that other tests start"]
fn first_call() {
    assert!(std::env::var_os(PROGRAM).is_some(), "other tests start it");
    // Loads the library before the clock starts.
    let _ = platform();
    let begun = Instant::now();
    let first = names();
    let took = begun.elapsed();
    let awaits = std::env::var(AWAITS)
        .ok()
        .and_then(|text| text.parse().ok());
    let later = eventually("as many devices as the program waits for", || {
        let later = names();
        (later.len() >= first.len().max(awaits.unwrap_or(0))).then_some(later)
    });
    devices().into_iter().for_each(is_used);
    if std::env::var(TO_THE_END).is_ok_and(|text| text == "true") {
        eventually("the end of the question", || {
            let asks = |name: &String| name.starts_with("cw-discover");
            (!thread_names().iter().any(asks)).then_some(())
        });
    }
    println!(
        "listed {} {} {}",
        took.as_micros(),
        first.join(","),
        later.join(",")
    );
}
