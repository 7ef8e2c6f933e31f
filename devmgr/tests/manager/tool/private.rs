//! `causeway run` without configuration: a private daemon over this machine's OpenCL, here the fake
//! driver's.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;

use super::super::process::AT_MOST;
use super::super::real_node::{library, programs};
use super::{Tool, said};

/// A machine with this number of devices.
pub(super) fn machine(devices: u32) -> Tool {
    let programs = programs();
    let tool = Tool::of("ann");
    let vendors = tool.home().join("vendors");
    std::fs::create_dir(&vendors).unwrap();
    if devices > 0 {
        let driver = programs.join("libfake_opencl.so");
        std::fs::write(vendors.join("fake.icd"), driver.to_str().unwrap()).unwrap();
    }
    tool.with("OCL_ICD_VENDORS", vendors)
        .with("FAKE_OPENCL_CONFIG", format!("devices = {devices}"))
        .with("CAUSEWAY_LIBRARY", library())
        .with("CAUSEWAY_DAEMON", programs.join("causewayd"))
}

/// The tool with a program that prints its daemon's address and runs until its standard input ends.
struct Run {
    child: Child,
    socket: PathBuf,
    /// Open while the tool, its program, its daemon or a worker runs.
    err: BufReader<std::process::ChildStderr>,
}

impl Run {
    fn start(tool: &Tool) -> Run {
        let mut child = tool
            .program(env!("CARGO_BIN_EXE_causeway"))
            .args(["run", "--", "sh", "-c", "echo $CAUSEWAY_SERVERS; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let socket = line.trim().strip_prefix("unix:").expect(&line).into();
        let err = BufReader::new(child.stderr.take().unwrap());
        Run { child, socket, err }
    }
}

/// The number of this daemon's supervisors, which have the socket on their command line.
fn supervisors(socket: &Path) -> usize {
    let listed = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let name = format!("unix:{}", socket.display());
    text.lines().filter(|line| line.contains(&name)).count()
}

#[test]
fn nobody_else_gets_at_the_private_daemon_and_it_ends_with_a_tool_that_was_killed() {
    let tool = machine(2);
    let mut run = Run::start(&tool);
    let socket = std::fs::metadata(&run.socket).unwrap();
    assert!(socket.file_type().is_socket());
    let folder = std::fs::metadata(run.socket.parent().unwrap()).unwrap();
    assert_eq!(folder.mode() & 0o777, 0o700);
    assert_eq!(supervisors(&run.socket), 1);
    // Kills the tool alone; the program ends when its input pipe closes.
    run.child.kill().unwrap();
    run.child.wait().unwrap();
    drop(run.child.stdin.take());
    // Standard error closes when the last of the daemon's processes has ended.
    let (tell, ended) = channel();
    std::thread::spawn(move || tell.send(run.err.read_to_string(&mut String::new())));
    let read = ended.recv_timeout(AT_MOST).expect("the daemon ends");
    read.unwrap();
    assert_eq!(supervisors(&run.socket), 0);
    assert!(!run.socket.parent().unwrap().exists());
}

/// The next daemon cleans up after one that was killed. That takes time, and the daemon says so.
#[test]
fn a_run_leaves_nothing_behind() {
    let tool = machine(1);
    let scratch = tool.home().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let tool = tool.with("TMPDIR", &scratch);
    for _ in 0..2 {
        let said = tool.run("run -- clinfo --raw -l");
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(!said.err.contains("killed processes"), "{said:?}");
        let left: Vec<_> = std::fs::read_dir(&scratch).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn programs_work_where_there_is_no_network_at_all() {
    let tool = machine(2);
    let mut alone = tool.program("unshare");
    alone.args(["-rn", "true"]);
    if !alone.status().is_ok_and(|status| status.success()) {
        eprintln!("no user namespaces here: not tried");
        return;
    }
    let mut command = tool.program("unshare");
    command
        .args(["-rn", env!("CARGO_BIN_EXE_causeway"), "run", "--"])
        .args(["clinfo", "--raw", "-l"]);
    let ended = said(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.out.matches("Fake Device").count(), 2, "{ended:?}");
    // Run as root: the advice must not name settings that a private daemon lacks.
    assert!(!ended.err.contains("uid_range"), "{ended:?}");
}

#[test]
fn a_machine_without_devices_starts_no_program_and_says_why() {
    let tool = machine(0);
    let said = tool.run("run -- echo started");
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    let words = ["has no device", "CAUSEWAY_SERVERS", "driver"];
    assert!(words.iter().all(|word| said.err.contains(word)), "{said:?}");
    let said = tool.run("--json run -- echo started");
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    let line = said.err.lines().find(|line| line.starts_with('{')).unwrap();
    let error: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(error["error"].as_str().unwrap().contains("has no device"));
}

/// A program whose library tells the tool of a break.
const REPORTING: &str = "import os, socket\n\
    tool = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
    for text in ['7\\tnode:7079\\tab12\\taway\\t0\\tno heartbeat', 'nonsense', '7\\tnode:7079\\tab12\\tresumed\\t1234\\t3',\n                 '7\\tnode:7079\\tab12\\tlost\\t61000\\tno power']:\n    \
    tool.sendto(text.encode(), os.environ['CAUSEWAY_REPORTS'])\n";

#[test]
fn breaks_of_the_programs_sessions_are_lines_of_json() {
    let tool = machine(1);
    let mut command = tool.command("--json run -- python3 -c");
    command.arg(REPORTING);
    let ended = said(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines = ended.err.lines().filter(|line| line.starts_with('{'));
    let events: Vec<serde_json::Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let away = serde_json::json!({
        "event": "away", "server": "node:7079", "pid": 7, "session": "ab12", "reason": "no heartbeat",
    });
    let resumed = serde_json::json!({
        "event": "resumed", "server": "node:7079", "pid": 7, "session": "ab12", "times": 3, "away_ms": 1234,
    });
    let lost = serde_json::json!({
        "event": "lost", "server": "node:7079", "pid": 7, "session": "ab12", "reason": "no power", "away_ms": 61_000,
    });
    assert_eq!(events, [away, resumed, lost]);
    // People read the library's log.
    let ended = tool.run("run -- printenv CAUSEWAY_REPORTS");
    assert_eq!(ended.code, Some(1), "{ended:?}");
}
