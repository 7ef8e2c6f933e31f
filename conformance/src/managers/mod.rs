//! `managers`: three managers over three members of etcd, whose processes are killed and stopped while
//! clients lease devices. Then the history of all clients is judged.
//!
//! - [`cluster`]: the processes;
//! - [`judge`]: the judgement, pure.
//!
//! The clients are `causeway run --wait`. This module does not cut networks. Invariant: the same seed makes
//! the same faults at the same times, as far as the machine allows.

mod cluster;
mod judge;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::cluster::{COUNT, Cluster, Server};
use self::judge::{Run, violations};
use crate::options::Options;
use crate::{SetupError, io_error, places};

/// Number of daemons, with one device each.
const DAEMONS: usize = 2;
/// Number of clients at once.
const CLIENTS: usize = 8;
/// Longest time for which a program has its device, in milliseconds.
const LONGEST_USE: u64 = 3_000;
/// Resolution of `/proc/uptime`.
const UPTIME_STEP: Duration = Duration::from_millis(10);

/// Runs the proof. Returns whether no violation was found.
pub(crate) fn run(options: &Options) -> Result<bool, SetupError> {
    if std::process::Command::new("etcd")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: no etcd on this machine (Debian: etcd-server)");
        return Ok(true);
    }
    let scratch = places::fresh_scratch()?;
    let beside = places::beside_runner();
    let devmgr = places::beside_or(&options.devmgr, &beside, "causeway-devmgr");
    let daemon = places::beside_or(&options.daemon, &beside, "causewayd");
    let mut cluster = Cluster::start(scratch.path(), &devmgr, &daemon, DAEMONS)?;
    let mut managers = std::mem::take(&mut cluster.managers);
    let mut etcd = std::mem::take(&mut cluster.etcd);
    let (stops, history) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let end = Instant::now() + Duration::from_secs(60 * options.minutes);
    let faults = thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (cluster, stops, history) = (&cluster, &stops, &history);
            let random = Random(options.seed.wrapping_mul(1_000).wrapping_add(client as u64));
            scope.spawn(move || lease(cluster, client, random, stops, history));
        }
        let faults = harm(&mut managers, &mut etcd, Random(options.seed), end);
        stops.store(true, Ordering::Relaxed);
        faults
    })?;
    let history = history.into_inner();
    let used = history.iter().filter(|run| run.used.is_some()).count();
    println!(
        "seed {}: {faults} faults, {} runs, {used} of them used a device",
        options.seed,
        history.len()
    );
    let mut found = violations(&history);
    if used == 0 {
        found.push("no client got a device".to_owned());
    }
    let left = cluster.until("no lease is left", |cluster| {
        let leases = cluster.tool(&["leases", "--json"])?;
        Ok(leases.is_some_and(|leases| !leases.contains("\"state\"")))
    });
    found.extend(left.err().map(|error| error.to_string()));
    for violation in &found {
        println!("VIOLATION (seed {}): {violation}", options.seed);
    }
    if !found.is_empty() {
        println!("{history:#?}");
    }
    Ok(found.is_empty())
}

/// Kills and stops processes until `end`. Then all of them run. Returns the number of faults.
fn harm(
    managers: &mut [Server],
    etcd: &mut [Server],
    mut random: Random,
    end: Instant,
) -> Result<u32, SetupError> {
    let mut faults = 0;
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(2_000 + random.below(4_000)));
        // One member of etcd may fail at a time: two are the majority.
        let servers = if random.below(4) == 0 {
            &mut *etcd
        } else {
            &mut *managers
        };
        let server = &mut servers[random.below(COUNT as u64) as usize];
        let pause = Duration::from_millis(1_000 + random.below(7_000));
        if random.below(2) == 0 {
            println!("kill {}, start it again after {pause:?}", server.name);
            server.kill();
            thread::sleep(pause);
            server.start()?;
        } else {
            println!("stop {} for {pause:?}", server.name);
            server.stop(true);
            thread::sleep(pause);
            server.stop(false);
        }
        faults += 1;
    }
    Ok(faults)
}

/// Leases devices for one program after the other, until `stops`.
fn lease(
    cluster: &Cluster,
    client: usize,
    mut random: Random,
    stops: &AtomicBool,
    history: &Mutex<Vec<Run>>,
) {
    for number in 0.. {
        if stops.load(Ordering::Relaxed) {
            return;
        }
        let name = format!("run {number} of client {client}");
        let sleep = random.below(LONGEST_USE);
        let run = one(cluster, &name, sleep).unwrap_or_else(|error| Run {
            name,
            unit: String::new(),
            used: None,
            failure: Some(error.to_string()),
        });
        history.lock().push(run);
    }
}

fn one(cluster: &Cluster, name: &str, sleep: u64) -> Result<Run, SetupError> {
    let (seconds, milliseconds) = (sleep / 1_000, sleep % 1_000);
    let script = format!("cat /proc/uptime; sleep {seconds}.{milliseconds:03}; cat /proc/uptime");
    let mut command = cluster.command();
    command.args([
        "run",
        "--json",
        "--wait",
        "--request",
        "1",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(io_error("cannot run the tool `causeway`"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let said = thread::spawn(move || -> String {
        let lines = stderr.map(|stderr| BufReader::new(stderr).lines());
        let lines: Vec<String> = lines.into_iter().flatten().map_while(Result::ok).collect();
        lines.join("\n")
    });
    let lines = stdout
        .map(BufReader::new)
        .into_iter()
        .flat_map(BufRead::lines);
    let times: Vec<Duration> = lines.map_while(Result::ok).filter_map(uptime).collect();
    let status = child.wait().map_err(io_error("cannot wait for a client"))?;
    let said = said.join().unwrap_or_default();
    Ok(Run {
        name: name.to_owned(),
        unit: node(&said).unwrap_or_default(),
        used: match times[..] {
            // The system's clock rounds down.
            [begin, end] => Some((begin + UPTIME_STEP, end)),
            _ => None,
        },
        failure: (!status.success()).then(|| format!("{status}: {said}")),
    })
}

/// The time since the machine's start, from a line of `/proc/uptime`.
fn uptime(line: String) -> Option<Duration> {
    let seconds = line.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// The node in the tool's report of a grant. A node has one device.
fn node(said: &str) -> Option<String> {
    let grant = said.lines().find(|line| line.contains("\"granted\""))?;
    let (_, node) = grant.split_once("\"node\":\"")?;
    Some(node.split_once('"')?.0.to_owned())
}

/// A sequence of numbers that a seed determines (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (number ^ (number >> 31)) % limit
    }
}
