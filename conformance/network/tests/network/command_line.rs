//! Tests of the tool `network` from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use causeway_network::Network;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::PATIENCE;

/// A network with a name of its own. The drop takes it down, however the test ends.
struct Lab(String);

impl Lab {
    /// Makes a network's name; `None`, after printing the reason, if networks are impossible here.
    fn new(name: &str) -> Option<Self> {
        if let Err(error) = Network::possible() {
            eprintln!("skipped: {error}");
            return None;
        }
        Some(Self(format!("{name}-{}", std::process::id())))
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_network"));
        command
            .args(["--name", &self.0])
            .args(line.split_whitespace());
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command, which must succeed. Returns its output.
    fn says(&self, line: &str) -> String {
        let output = self.output(line);
        let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{line}: {err}");
        String::from_utf8_lossy(out).into_owned()
    }

    /// Runs a command, which must fail. Returns its error text.
    fn complains(&self, line: &str) -> String {
        let output = self.output(line);
        assert!(!output.status.success(), "{line}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn socket(&self) -> PathBuf {
        Path::new("/run/causeway-network").join(format!("{}.socket", self.0))
    }

    /// Starts a holder in the foreground and waits until its network is ready.
    fn held(&self) -> Child {
        let holder = self.command("up").stdout(Stdio::null()).spawn().unwrap();
        eventually("a network that answers", || {
            self.output("status").status.success()
        });
        holder
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.output("down");
    }
}

fn eventually(what: &str, happened: impl Fn() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_network_is_built_used_changed_and_removed() {
    let Some(lab) = Lab::new("used") else { return };
    let up = lab.says("up --hosts 3 --rate 1gbit --delay 1ms --detach");
    assert!(up.contains("10.79.0.3"), "{up}");
    assert!(lab.complains("up --detach").contains("is up already"));
    assert!(lab.complains("up").contains("is up already"));

    assert!(
        lab.says("run 1 -- ip -o -4 address show eth0")
            .contains("10.79.0.2/16")
    );
    let failed = lab.output("run 1 -- false");
    assert_eq!(failed.status.code(), Some(1));
    assert!(
        lab.complains("run 3 -- true")
            .contains("there is no host 3")
    );
    assert!(
        lab.complains("run 0 -- no-such-program")
            .contains("no-such-program")
    );

    for change in [
        "shape 0 1 --delay 2ms --loss 0.5% --one-way",
        "cut 0 2",
        "mend 0 2",
        "refuse-dialling 2 1",
        "allow-dialling 2 1",
        "block 1 7079",
        "block 1 7079 --reset",
        "open 1 7079",
        "unplug 2",
        "plug 2",
    ] {
        lab.says(change);
    }
    assert!(lab.complains("cut 1 1").contains("two hosts"));
    let status = lab.says("status");
    assert!(status.contains("delay 2ms, loss 0.5 %"), "{status}");
    assert!(lab.says("status --json").contains("\"traffic\""));

    lab.says("down");
    assert!(!lab.socket().exists());
    assert!(lab.complains("status").contains("no network called"));
}

#[test]
fn an_interrupt_removes_the_network_and_what_runs_there() {
    let Some(lab) = Lab::new("interrupted") else {
        return;
    };
    let mut holder = lab.held();
    let mut sleeper = lab.command("run 0 -- sleep 600").spawn().unwrap();
    eventually("a process on a host", || name_of(sleeper.id()) == "sleep");
    kill_process(Pid::from_child(&holder), Signal::INT).unwrap();
    assert!(holder.wait().unwrap().success());
    assert!(!sleeper.wait().unwrap().success());
    assert!(!lab.socket().exists());
}

#[test]
fn what_a_killed_holder_left_is_cleaned_up() {
    let Some(lab) = Lab::new("killed") else {
        return;
    };
    let mut holder = lab.held();
    let mut sleeper = lab.command("run 0 -- sleep 600").spawn().unwrap();
    eventually("a process on a host", || name_of(sleeper.id()) == "sleep");
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(lab.socket().exists());
    lab.says("clean");
    assert!(!sleeper.wait().unwrap().success());
    assert!(!lab.socket().exists());
}

fn name_of(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.unwrap_or_default().trim().to_owned()
}
