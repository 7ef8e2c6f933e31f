//! How long a program stands still while its session moves to another node, or is put together again after a death.
//!
//! ```text
//! bench standstill ──► standstill-program ──► causewayd, causewayd, causeway-devmgr
//! ```
//! The program has some device memory, and reads 4 bytes of it again and again. The longest of these reads is the figure.
//! Links of a given rate are emulated and need root. Not here: restarts of a daemon (`bench sustainability --park`).
//! Invariant: no time is reported of a session whose bytes are not the same afterwards.
#![forbid(unsafe_code)]

mod logs;

use std::fmt;
use std::io::{self, BufRead};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use causeway_network::{Host, Network, Rate};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::content;
use crate::devices::Devices;
use crate::experiment::{Common, median, seconds};
use crate::manager::{Manager, Watcher};
use crate::nodes::{Driver, LOGGED, Nodes, Settings};
use crate::setup::{Build, Process, set_vendors};

use logs::Logs;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Time between two reads of the program.
const PAUSE: Duration = Duration::from_millis(1);
/// The interval of checkpoints, and the time for the first one of all memory.
const SURVIVAL: &str = "[survival]\nreexecute = true\ninterval = \"1s\"\n";
const FIRST_CHECKPOINT: Duration = Duration::from_secs(6);

/// How to run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// MiB of device memory
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65536))]
    memory: u64,
    /// Only rows whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The .icd folder of the nodes [default: the system's]
    #[arg(long, value_name = "DIR")]
    native_vendors: Option<PathBuf>,
    /// Also show what the logs say while the program stands
    #[arg(long)]
    logs: bool,
}

impl Options {
    fn bytes(&self) -> u64 {
        self.memory << 20
    }

    // Has the program write its log, if logs are shown.
    fn log_program(&self, logs: &Logs, command: &mut Command) -> io::Result<()> {
        if self.logs {
            command.env("CAUSEWAY_LOG", LOGGED);
            logs.of("program", command)?;
        }
        Ok(())
    }
}

// ---- the program ------------------------------------------------------------------

/// The program's memory.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Bytes of device memory
    #[arg(long)]
    bytes: usize,
}

/// What the program prints at its end.
#[derive(Debug, Serialize, Deserialize)]
struct Stood {
    /// The longest read since the first line of its input, in seconds.
    longest: f64,
    /// When that read began: the time of the day by UTC, in seconds.
    begun: f64,
    device: String,
}

/// The program: reads until its second line of input comes, and once more.
pub(crate) fn program(arguments: &Arguments) -> Result<(), Error> {
    let devices = Devices::open(1)?;
    let memory = devices.buffer(arguments.bytes)?;
    let data = content::half_a_picture(arguments.bytes);
    devices.write(&[(0, memory, &data)])?;
    let lines = Arc::new(AtomicUsize::new(0));
    let heard = Arc::clone(&lines);
    std::thread::spawn(move || {
        for _ in io::stdin().lock().lines() {
            heard.fetch_add(1, Ordering::AcqRel);
        }
    });
    println!("ready");
    let (mut longest, mut ended, mut is_watching) = (0.0f64, SystemTime::now(), false);
    loop {
        let heard = lines.load(Ordering::Acquire);
        let begin = Instant::now();
        devices.read(0, memory, &mut [0; 4], &[])?;
        let took = begin.elapsed().as_secs_f64();
        if is_watching && took > longest {
            (longest, ended) = (took, SystemTime::now());
        }
        if !is_watching && heard > 0 {
            is_watching = true;
            println!("watching");
        }
        if heard > 1 {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    let mut back = vec![1; arguments.bytes];
    devices.read(0, memory, &mut back, &[])?;
    if back != data {
        return Err("the device memory is not the same".into());
    }
    let device = devices.name(0)?;
    let ended = ended.duration_since(UNIX_EPOCH)?.as_secs_f64();
    let begun = (ended - longest).rem_euclid(86_400.0);
    let stood = Stood {
        longest,
        begun,
        device,
    };
    println!("{}", serde_json::to_string(&stood)?);
    Ok(())
}

// ---- the experiment ---------------------------------------------------------------

/// A row.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Case {
    /// The session's process is killed. The node holds its checkpoint.
    Recovery,
    /// The processes that wait for sessions are killed, too.
    RecoveryAlone,
    /// The session moves to another node, over a link of this rate in Gbit/s, or on this host.
    Move(Option<u64>),
}

impl Case {
    fn name(self) -> String {
        match self {
            Case::Recovery => "recovery, checkpoint held by the node".to_owned(),
            Case::RecoveryAlone => "recovery, the node's spare processes die too".to_owned(),
            Case::Move(None) => "move, both nodes on this host".to_owned(),
            Case::Move(Some(rate)) => format!("move, {rate} Gbit/s"),
        }
    }

    /// The longest standstill that meets the mark, in seconds.
    fn mark(self, bytes: u64) -> Option<f64> {
        match self {
            // The device did nothing since the checkpoint. There is no mark for more memory.
            Case::Recovery | Case::RecoveryAlone => (bytes <= 1 << 30).then_some(3.0),
            Case::Move(None) => None,
            Case::Move(Some(rate)) => {
                let link = Rate::gbit(rate).time_for(bytes).as_secs_f64();
                Some(1.0 + link / 0.9)
            }
        }
    }
}

/// Measures all rows, and reports.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let bytes = options.bytes();
    let only = options.only.as_deref().unwrap_or_default();
    let cases = [
        Case::Recovery,
        Case::RecoveryAlone,
        Case::Move(None),
        Case::Move(Some(1)),
        Case::Move(Some(10)),
    ];
    let mut rows = Vec::new();
    for case in cases.into_iter().filter(|case| case.name().contains(only)) {
        let mut row = Row {
            name: case.name(),
            mark: case.mark(bytes),
            stood: Vec::new(),
            skipped: None,
        };
        if let (Case::Move(Some(_)), Err(error)) = (case, Network::possible()) {
            row.skipped = Some(error.to_string());
            rows.push(row);
            continue;
        }
        for round in 1..=options.common.rounds {
            eprint!("\rround {round}: {}      ", row.name);
            let scratch = tempfile::tempdir()?;
            let logs = Logs::new(scratch.path(), "logs")?;
            let stood = match case {
                Case::Recovery => recovery(options, &logs, Nodes::kill_session)?,
                Case::RecoveryAlone => recovery(options, &logs, Nodes::kill_sessions)?,
                Case::Move(rate) => moved(options, &logs, rate)?,
            };
            row.stood.push(stood.longest);
            if options.logs {
                let (name, lines) = (&row.name, logs.during(stood.begun, stood.longest)?);
                eprintln!("\r{name}, round {round}: {:.3} s\n{lines}", stood.longest);
            }
        }
        eprint!("\r{:60}\r", "");
        rows.push(row);
    }
    let report = Report {
        memory: options.memory,
        rounds: options.common.rounds,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        rows,
    };
    print!("{report}");
    options.common.write_json(&report)?;
    Ok(())
}

/// Starts the program, and does `harm` to its session `after` a time.
fn watched(
    command: &mut Command,
    bytes: u64,
    after: Duration,
    harm: impl FnOnce() -> Result<(), Error>,
) -> Result<Stood, Error> {
    let mut program = Process::start(command.args(["--bytes", &bytes.to_string()]))?;
    expect(&mut program, "ready")?;
    std::thread::sleep(after);
    program.tell("watch")?;
    expect(&mut program, "watching")?;
    harm()?;
    program.tell("check")?;
    let stood = serde_json::from_str(&program.line()?)?;
    program.wait()?;
    Ok(stood)
}

fn expect(program: &mut Process, wanted: &str) -> io::Result<()> {
    let line = program.line()?;
    match line == wanted {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "the program printed `{line}`; `{wanted}` was expected"
        ))),
    }
}

fn recovery(
    options: &Options,
    logs: &Logs,
    kill: impl FnOnce(&Nodes, usize) -> io::Result<bool>,
) -> Result<Stood, Error> {
    let limit = options.common.limit();
    let driver = Driver::native(options.native_vendors.clone(), limit)?;
    let settings = Settings {
        log: options.logs.then(|| logs.file("node")),
        ..Settings::default()
    };
    let nodes = Nodes::start_with(driver, 1, limit, settings)?;
    let survival = nodes.scratch().join("survival.toml");
    std::fs::write(&survival, SURVIVAL)?;
    let mut command = nodes.program("standstill-program", 1)?;
    command.env("CAUSEWAY_CONFIG", survival);
    options.log_program(logs, &mut command)?;
    // The program stands during the first checkpoint of its memory, too, which is not what is measured.
    watched(
        &mut command,
        options.bytes(),
        FIRST_CHECKPOINT,
        || match kill(&nodes, 0)? {
            true => Ok(()),
            false => Err("the node has no session".into()),
        },
    )
}

/// Two nodes with a manager. The second node joins when the program has its device.
fn moved(options: &Options, logs: &Logs, rate: Option<u64>) -> Result<Stood, Error> {
    let network = rate.map(|rate| {
        let builder = Network::builder().hosts(3).rate(Rate::gbit(rate));
        builder.burst(Duration::from_millis(2)).build()
    });
    let network = network.transpose()?;
    let hosts = network.as_ref().map(Network::hosts);
    let scene = || -> Result<Stood, Error> {
        let build = Build::find()?;
        let client = build.vendors("causeway", "libcauseway.so")?;
        let manager = Manager::start_at(hosts.map(|hosts| hosts[0].address()))?;
        let vendors = options.native_vendors.clone();
        let driver = Driver::native(vendors, options.common.limit())?;
        let start = |node: usize| {
            let host = hosts.map(|hosts| &hosts[node]);
            let log = options.logs.then_some(logs);
            start_node(&build, (node, host), &driver, manager.address(), log)
        };
        let _first = start(1)?;
        let watcher = Watcher::new(manager.address())?;
        watcher.see_devices(1)?;
        let mut command = build.own("standstill-program", Some(&client), None)?;
        command
            .env("CAUSEWAY_MANAGER", manager.address())
            .env("CAUSEWAY_REQUEST", "1")
            .env_remove("CAUSEWAY_CONFIG");
        options.log_program(logs, &mut command)?;
        let mut second = None;
        watched(&mut command, options.bytes(), Duration::ZERO, || {
            let first = watcher.only_node()?;
            second = Some(start(2)?);
            watcher.see_devices(2)?;
            watcher.migrate(&first, options.common.limit())?;
            Ok(())
        })
    };
    match hosts {
        Some(hosts) => hosts[0].enter(scene)?,
        None => scene(),
    }
}

/// Starts a node of the manager, on a host of its own or on this one. On NVIDIA it sees one card.
fn start_node(
    build: &Build,
    (node, host): (usize, Option<&Host>),
    driver: &Driver,
    manager: &str,
    logs: Option<&Logs>,
) -> io::Result<(Process, String)> {
    let state = build.scratch().join(format!("node-{node}"));
    std::fs::create_dir_all(&state)?;
    let level = match logs {
        Some(_) => LOGGED,
        None => "error",
    };
    let mut command = match host {
        None => build.daemon_command_logging("127.0.0.1:0", driver.vendors(), level)?,
        Some(host) => {
            let mut command = host.command(build.part("causewayd")?);
            let listen = format!("{}:0", host.address());
            // Nobody else can reach these hosts, so no authentication is needed.
            command.args(["--listen", &listen, "--insecure", "--log", level]);
            set_vendors(&mut command, driver.vendors());
            command
        }
    };
    driver.narrow(&mut command, node - 1);
    command
        .args(["--manager", manager])
        .env("STATE_DIRECTORY", state);
    if let Some(logs) = logs {
        logs.of(&format!("node {node}"), &mut command)?;
    }
    Build::listening(&mut command)
}

/// A row's times, in seconds.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    mark: Option<f64>,
    stood: Vec<f64>,
    /// Why the row was not measured.
    skipped: Option<String>,
}

impl Row {
    fn verdict(&self) -> String {
        match (&self.skipped, median(&self.stood), self.mark) {
            (Some(reason), ..) => format!("skipped: {reason}"),
            (_, Some(stood), Some(mark)) if stood <= mark => "met".to_owned(),
            (_, Some(_), Some(_)) => "missed".to_owned(),
            _ => "–".to_owned(),
        }
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
struct Report {
    /// MiB of device memory.
    memory: u64,
    rounds: u16,
    cores: usize,
    rows: Vec<Row>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "the longest standstill of a program with {} MiB of device memory; {} rounds on {} cores\n\n\
             | case | median (range) | mark | |\n|---|---|---|---|",
            self.memory, self.rounds, self.cores
        )?;
        for row in &self.rows {
            let time = median(&row.stood).map_or("–".to_owned(), |middle| {
                let least = row.stood.iter().copied().fold(f64::INFINITY, f64::min);
                let most = row.stood.iter().copied().fold(0.0, f64::max);
                let [middle, least, most] = [middle, least, most].map(seconds);
                format!("{middle} ({least} to {most})")
            });
            let mark = row.mark.map_or("–".to_owned(), seconds);
            writeln!(f, "| {} | {time} | {mark} | {} |", row.name, row.verdict())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_may_take_a_second_and_the_links_time() {
        let mark = Case::Move(Some(1)).mark(112_500_000);
        assert!((mark.unwrap() - 2.0).abs() < 1e-6, "{mark:?}");
        assert_eq!(Case::Move(None).mark(1), None);
        assert_eq!(Case::Recovery.mark(1 << 30), Some(3.0));
        assert_eq!(Case::Recovery.mark((1 << 30) + 1), None);
        let mut row = Row {
            name: String::new(),
            mark,
            stood: vec![1.5, 9.0, 1.9],
            skipped: None,
        };
        assert_eq!(row.verdict(), "met");
        row.stood.push(9.0);
        assert_eq!(row.verdict(), "missed");
    }
}
