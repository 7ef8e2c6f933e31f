//! One run of a chain of products to its end, with or without failures.
//!
//! The experiment kills the processes itself. A program whose run ends by that is started again and reads its
//! checkpoint. Invariant: a program that ends for another reason is an error; a result that is not right is one too.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Chain;
use super::mpi::Mpi;
use super::progress::Progress;
use super::schedule::{Failure, Schedule};
use super::state::State;
use crate::nodes::Nodes;
use crate::process;
use crate::setup::{Next, Process};

type Error = Box<dyn std::error::Error>;

/// A failure that meets a program which is starting waits for so long, again and again.
const LATER: Duration = Duration::from_millis(10);

/// A program that computes the chain.
#[derive(Clone, Copy)]
pub(super) enum Side<'a> {
    /// The farm, through Causeway.
    Farm {
        /// Rows of a piece of work.
        grain: usize,
    },
    /// By MPI, natively.
    Mpi(&'a Mpi),
}

/// How a run went. Times are in seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// From the start of the program until its result was written.
    pub(super) elapsed: f64,
    /// From the start of the program until all devices were ready.
    pub(super) start: f64,
    /// The last start's time from the first product to the result.
    pub(super) computation: f64,
    /// Each checkpoint, the result included.
    pub(super) checkpoints: Vec<f64>,
    /// What each lost node cost the farm, in seconds of a worker.
    pub(super) losses: Vec<f64>,
    /// From each fatal failure until all devices were ready again.
    pub(super) recoveries: Vec<f64>,
    /// Failures that met the run.
    pub(super) failures: usize,
}

/// One run.
pub(super) struct Trial<'a> {
    /// The daemons, which failures restart.
    pub(super) nodes: &'a mut Nodes,
    /// What is computed.
    pub(super) chain: &'a Chain,
    /// The program that computes it.
    pub(super) side: Side<'a>,
    /// The number of nodes.
    pub(super) count: usize,
    /// Seconds between checkpoints; infinite for none.
    pub(super) interval: f64,
    /// Timeout for the run.
    pub(super) limit: Duration,
}

/// A run under way.
struct Running {
    begin: Instant,
    process: Process,
    /// Whether all devices are ready.
    is_up: bool,
    /// When a failure ended the program that is to be started again.
    struck: Option<Instant>,
    /// MPI's ranks at that time. `mpirun` may end before they do.
    ranks: Vec<u32>,
    outcome: Outcome,
}

impl Trial<'_> {
    /// Runs the program to its end. Returns how, and the checksum of the right result.
    pub(super) fn run(&mut self, schedule: Option<Schedule>) -> Result<(Outcome, u64), Error> {
        let path = self.state();
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
        let outcome = self.run_to_end(schedule)?;
        let state = State::read(&path, self.chain.size)?;
        let state = state.ok_or("the program has written no result")?;
        let checksum = self.chain.check(&state)?;
        Ok((outcome, checksum))
    }

    fn run_to_end(&mut self, schedule: Option<Schedule>) -> Result<Outcome, Error> {
        let mut failures = schedule.into_iter().flatten();
        let mut due = failures.next();
        let begin = Instant::now();
        let mut running = Running {
            begin,
            process: self.start()?,
            is_up: false,
            struck: None,
            ranks: Vec::new(),
            outcome: Outcome::default(),
        };
        let end = begin + self.limit;
        loop {
            let until = due.map_or(end, |failure| end.min(begin + failure.at));
            match running.process.next_before(until)? {
                Next::Line(line) => {
                    if running.apply(Progress::parse(&line)?) {
                        running.process.wait()?;
                        return Ok(running.outcome);
                    }
                }
                Next::End(status) if running.struck.is_none() => {
                    return Err(self.ended(status).into());
                }
                Next::End(_) => {
                    // A rank that is left could still write its checkpoint.
                    for rank in running.ranks.drain(..) {
                        if process::is_named(rank, Mpi::NAME) {
                            process::kill(rank)?;
                        }
                    }
                    running.process = self.start()?;
                }
                Next::Nothing if Instant::now() >= end => {
                    let limit = self.limit.as_secs();
                    return Err(
                        format!("the run took more than {limit} s; --timeout allows more").into(),
                    );
                }
                Next::Nothing => {
                    if let Some(failure) = &mut due {
                        if self.strike(&mut running, failure)? {
                            due = failures.next();
                        } else {
                            failure.at = begin.elapsed() + LATER;
                        }
                    }
                }
            }
        }
    }

    /// Kills the process that a failure picks. Returns whether it did; a program that is starting is left alone.
    fn strike(&mut self, running: &mut Running, failure: &Failure) -> io::Result<bool> {
        if !running.is_up {
            return Ok(false);
        }
        let fatal = match self.side {
            Side::Mpi(_) => {
                let ranks = process::children_named(running.process.id(), Mpi::NAME)?;
                // The program may be ending.
                let Some(rank) = pick(&ranks, failure) else {
                    return Ok(false);
                };
                process::kill(*rank)?;
                running.ranks = ranks;
                true
            }
            // The master is one of the processes, and each node is another.
            Side::Farm { .. } => match (failure.pick % (self.count as u64 + 1)) as usize {
                0 => {
                    running.process.signal(Signal::KILL)?;
                    true
                }
                node => {
                    self.nodes.restart(node - 1)?;
                    false
                }
            },
        };
        running.outcome.failures += 1;
        if fatal {
            running.is_up = false;
            running.struck = Some(Instant::now());
        }
        Ok(true)
    }

    fn start(&self) -> io::Result<Process> {
        let errors = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.errors())?;
        Process::start(self.command()?.stderr(Stdio::from(errors)))
    }

    fn command(&self) -> io::Result<Command> {
        let chain = self.chain;
        let grain = match self.side {
            Side::Mpi(mpi) => {
                return Ok(mpi.command(
                    self.nodes,
                    chain,
                    self.count,
                    self.interval,
                    &self.state(),
                ));
            }
            Side::Farm { grain } => grain,
        };
        let mut command = self.nodes.program("matrix-master", self.count)?;
        let servers: Vec<&str> = self.nodes.addresses(self.count).collect();
        command
            .args(["--size", &chain.size.to_string()])
            .args(["--multiplications", &chain.multiplications.to_string()])
            .args(["--seed", &chain.seed.to_string()])
            .args(["--grain", &grain.to_string()])
            .args(["--servers", &servers.join(",")])
            .args(["--late", &chain.late.as_secs_f64().to_string()])
            .args(["--interval", &self.interval.to_string()])
            .arg("--state")
            .arg(self.state());
        Ok(command)
    }

    fn state(&self) -> PathBuf {
        self.nodes.scratch().join("matrix.state")
    }

    fn errors(&self) -> PathBuf {
        self.nodes.scratch().join("matrix.errors")
    }

    /// Why a program that was not killed has ended, in the last lines of its log.
    fn ended(&self, status: ExitStatus) -> String {
        let text = std::fs::read(self.errors()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(8)..].join("\n");
        format!("the program ended with {status}\n{last}")
    }
}

impl Running {
    /// Notes a line. Returns whether it is the last one.
    fn apply(&mut self, progress: Progress) -> bool {
        let outcome = &mut self.outcome;
        match progress {
            Progress::Ready { .. } => {
                self.is_up = true;
                match self.struck.take() {
                    Some(struck) => outcome.recoveries.push(struck.elapsed().as_secs_f64()),
                    None => outcome.start = self.begin.elapsed().as_secs_f64(),
                }
            }
            Progress::Checkpoint { seconds } => outcome.checkpoints.push(seconds),
            Progress::Lost { seconds } => outcome.losses.push(seconds),
            Progress::Done { seconds } => {
                outcome.computation = seconds;
                outcome.elapsed = self.begin.elapsed().as_secs_f64();
                return true;
            }
        }
        false
    }
}

fn pick<'a>(processes: &'a [u32], failure: &Failure) -> Option<&'a u32> {
    let place = failure.pick.checked_rem(processes.len() as u64)?;
    processes.get(place as usize)
}
