//! The clients of a proof: each runs `causeway run --wait` over and over.
//!
//! The program under `causeway run` prints when it began and ended, by the machine's clock. Some clients request a
//! device of a daemon, and their program lists the platform's devices (`clinfo`). Invariant: a recorded use is a part of
//! the time for which the program ran.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use causeway_cutter::Random;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::cluster::{CLIENTS, CROWD, Cluster, LIMITED, REVOKED};
use super::history::{Run, Span};
use super::record::{Record, now, unit};
use crate::{SetupError, io_error};

/// Longest time for which a program has its device, in milliseconds.
const LONGEST_USE: u64 = 3_000;
/// Resolution of `/proc/uptime`.
const UPTIME_STEP: Duration = Duration::from_millis(10);

/// What the clients share.
#[derive(Default)]
pub(super) struct Clients {
    /// No client begins another run.
    pub(super) stops: AtomicBool,
    /// The processes that run, by client.
    running: Mutex<BTreeMap<usize, Pid>>,
}

impl Clients {
    /// Runs programs one after the other until the clients stop.
    pub(super) fn live(
        &self,
        cluster: &Cluster,
        record: &Record,
        number: usize,
        mut random: Random,
    ) {
        for count in 0.. {
            if self.stops.load(Ordering::Relaxed) {
                return;
            }
            let mut run = Run {
                name: format!("run {count} of client {number}"),
                user: user(number).to_owned(),
                ..Run::default()
            };
            let lasts = random.below(LONGEST_USE);
            if let Err(error) = self.one(cluster, number, lasts, &mut run) {
                run.failure = Some(error.to_string());
            }
            record.add(|history| history.runs.push(run));
        }
    }

    /// Kills the runs that have not ended.
    pub(super) fn kill(&self) {
        for pid in self.running.lock().values() {
            // The process is reaped only after it was removed from the map.
            let _ = kill_process(*pid, Signal::KILL);
        }
    }

    fn one(
        &self,
        cluster: &Cluster,
        number: usize,
        lasts: u64,
        run: &mut Run,
    ) -> Result<(), SetupError> {
        let mut child = start(cluster, number, lasts)?;
        self.running.lock().insert(number, Pid::from_child(&child));
        let stdout = child.stdout.take();
        let printed = thread::spawn(move || {
            let mut text = String::new();
            // Unreadable output has no times, so there is no use to judge.
            let _ = stdout.map(|mut stdout| stdout.read_to_string(&mut text));
            text
        });
        let mut reports = Reports::default();
        if let Some(stderr) = child.stderr.take() {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                reports.hear(&line, now(), run);
            }
        }
        self.running.lock().remove(&number);
        let status = child.wait().map_err(io_error("cannot wait for a client"))?;
        let ended = now();
        let printed = printed.join().unwrap_or_default();
        let times: Vec<Duration> = printed.lines().filter_map(uptime).collect();
        let devices = printed.matches("Device #").count();
        if let [begin, end] = times[..] {
            // The system's clock rounds down.
            let begin = begin + UPTIME_STEP;
            run.used = (begin < end).then_some(Span { begin, end });
        }
        if !status.success() {
            run.failure = Some(format!("{status}: {}", reports.other.join("; ")));
        } else if uses_opencl(number) && devices != 1 {
            run.failure = Some(format!("{devices} devices in: {printed}"));
        } else if reports.other.is_empty() && run.over.is_none() {
            run.released = Some(ended);
        }
        Ok(())
    }
}

/// The user of a client.
fn user(number: usize) -> &'static str {
    match number % 5 {
        0 => LIMITED,
        1 => REVOKED,
        _ => CROWD,
    }
}

/// Whether a client's program uses its device. Only daemons have devices that can be used.
fn uses_opencl(number: usize) -> bool {
    number % 4 == 3
}

fn start(cluster: &Cluster, number: usize, lasts: u64) -> Result<Child, SetupError> {
    let (seconds, milliseconds) = (lasts / 1_000, lasts % 1_000);
    let (request, program) = match uses_opencl(number) {
        true => ("1, TYPE=CPU", "clinfo -l"),
        false => ("1", "true"),
    };
    let time = "read time rest </proc/uptime; echo $time";
    let sleep = format!("sleep {seconds}.{milliseconds:03}");
    let script = format!("{time} && {program} && {sleep} && {time}");
    let host = CLIENTS[number % CLIENTS.len()];
    let mut command = cluster.command(host, user(number));
    command.args(["run", "--json", "--wait", "--request", request]);
    command.args(["--", "sh", "-c", &script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    child.map_err(io_error("cannot run the tool `causeway`"))
}

/// The time since the machine's start, from a line of `/proc/uptime`.
fn uptime(line: &str) -> Option<Duration> {
    let seconds = line.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Reads the tool's reports.
#[derive(Default)]
struct Reports {
    /// Since when the manager is away.
    away: Option<Duration>,
    /// Lines that are no events.
    other: Vec<String>,
}

impl Reports {
    fn hear(&mut self, line: &str, at: Duration, run: &mut Run) {
        let report: Option<Value> = serde_json::from_str(line).ok();
        let event = report.as_ref().and_then(|of| of["event"].as_str());
        let (Some(report), Some(event)) = (&report, event) else {
            self.other.push(line.to_owned());
            return;
        };
        let server = &report["server"];
        match event {
            "away" if server.is_null() => {
                self.away.get_or_insert(at);
            }
            "waiting" | "granted" => {
                let away = self.away.take();
                run.away.extend(away.map(|begin| Span { begin, end: at }));
            }
            "over" => {
                let reason = report["reason"].as_str().unwrap_or_default();
                run.over = Some((at, reason.to_owned()));
            }
            _ => {}
        }
        if event == "granted" {
            run.granted = Some(at);
            run.lease = report["lease"].as_str().map(str::to_owned);
            run.units = units(report);
        }
    }
}

/// The units of a grant.
fn units(report: &Value) -> Vec<String> {
    let nodes = report["nodes"].as_array().into_iter().flatten();
    let units = nodes.flat_map(|of| {
        let node = of["node"].as_str().unwrap_or_default().replace('-', "");
        let units = of["units"].as_array().into_iter().flatten();
        let devices = units.filter_map(|unit| unit["device"].as_u64());
        let units = devices.map(move |device| unit(&node, device));
        units.collect::<Vec<_>>()
    });
    units.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_the_tool_become_a_run() {
        let at = Duration::from_secs;
        let (mut reports, mut run) = (Reports::default(), Run::default());
        let lines = [
            r#"{"event":"waiting","request":"1","position":2,"waiting":3,"lack":null}"#,
            r#"{"event":"away","server":null,"pid":null,"session":null,"reason":"gone"}"#,
            r#"{"event":"away","server":null,"pid":null,"session":null,"reason":"gone"}"#,
            r#"{"event":"granted","lease":"ab","nodes":[{"node":"01-02","name":"n","addresses":[],
                "units":[{"platform":0,"device":4,"share":0,"name":""}]}],"time_left_ms":null}"#,
            "causeway run: something else",
            r#"{"event":"over","reason":"revoked"}"#,
        ];
        for (number, line) in lines.iter().enumerate() {
            reports.hear(line, at(number as u64), &mut run);
        }
        let away = Span {
            begin: at(1),
            end: at(3),
        };
        assert_eq!(
            (run.lease.as_deref(), run.granted),
            (Some("ab"), Some(at(3)))
        );
        assert_eq!(
            (run.units, run.away),
            (vec!["0102/4".to_owned()], vec![away])
        );
        assert_eq!(run.over, Some((at(5), "revoked".to_owned())));
        assert_eq!(reports.other, ["causeway run: something else"]);
    }
}
