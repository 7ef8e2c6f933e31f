//! One run of a chain of products to its end, with or without failures.
//!
//! The experiment kills the processes itself. A program whose run ends by that is started again and reads its
//! checkpoint. So is a plain program whose library gave a session up, because nodes were lost at one command. Invariant: a
//! program that ends for another reason is an error; a result that is not right is one too.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Chain;
use super::mpi::Mpi;
use super::progress::Progress;
use super::schedule::{Failure, Schedule};
use super::state::ChainState;
use crate::experiment::median;
use crate::nodes::Nodes;
use crate::process;
use crate::setup::{Next, Process};

type Error = Box<dyn std::error::Error>;

/// A failure that meets a program which is starting waits for so long, again and again.
const LATER: Duration = Duration::from_millis(10);

/// How the library says that nodes were lost again at a command, which it does not execute once more.
const GAVE_UP: [&str; 2] = [
    "its commands cannot be executed again: it died ",
    "which is not executed once more",
];

/// The shortest time between two checkpoints of the library, in milliseconds.
const LEAST_INTERVAL: f64 = 1000.0;

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
    /// A plain program, through Causeway, whose commands are executed again.
    Plain,
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
    /// What each lost node cost: the farm in seconds of a worker, the plain program in seconds.
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
struct RunUnderWay {
    begin: Instant,
    process: Process,
    /// Whether all devices are ready.
    is_up: bool,
    /// When a failure ended the program that is to be started again.
    struck: Option<Instant>,
    /// MPI's ranks at that time. `mpirun` may end before they do.
    ranks: Vec<u32>,
    products: Products,
    outcome: Outcome,
}

/// How long the products of the plain program took, and which ones lost a node.
#[derive(Default)]
struct Products {
    seconds: Vec<f64>,
    struck: Vec<usize>,
}

impl Products {
    /// Notes that a node was lost during the present product.
    fn strike(&mut self) {
        self.struck.push(self.seconds.len());
    }

    /// Notes that the present product does not end, because its program has ended. The next product is another one.
    fn break_off(&mut self) {
        let present = self.seconds.len();
        self.struck.retain(|place| *place != present);
    }

    /// What each lost node cost: what its product and the next one took beyond the others. The product may just have ended
    /// when its node was lost.
    fn losses(&self) -> Vec<f64> {
        let places = self.struck.iter().flat_map(|place| [*place, *place + 1]);
        let places: BTreeSet<usize> = places.collect();
        let all = self.seconds.iter().enumerate();
        let others = all.filter(|(place, _)| !places.contains(place));
        let others: Vec<f64> = others.map(|(_, seconds)| *seconds).collect();
        let usual = median(&others).unwrap_or_default();
        let taken = places.iter().filter_map(|place| self.seconds.get(*place));
        let beyond: f64 = taken.map(|seconds| seconds - usual).sum();
        let each = (beyond / self.struck.len() as f64).max(0.0);
        vec![each; self.struck.len()]
    }
}

impl Trial<'_> {
    /// Runs the program to its end. Returns how, and the checksum of the right result.
    pub(super) fn run(&mut self, schedule: Option<Schedule>) -> Result<(Outcome, u64), Error> {
        let path = self.state();
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
        let outcome = self.run_to_end(schedule)?;
        let state = ChainState::read(&path, self.chain.size)?;
        let state = state.ok_or("the program has written no result")?;
        let checksum = self.chain.check(&state)?;
        Ok((outcome, checksum))
    }

    fn run_to_end(&mut self, schedule: Option<Schedule>) -> Result<Outcome, Error> {
        let mut failures = schedule.into_iter().flatten();
        let mut due = failures.next();
        let begin = Instant::now();
        let mut running = RunUnderWay {
            begin,
            process: self.start()?,
            is_up: false,
            struck: None,
            ranks: Vec::new(),
            products: Products::default(),
            outcome: Outcome::default(),
        };
        let end = begin + self.limit;
        loop {
            let until = due.map_or(end, |failure| end.min(begin + failure.at));
            match running.process.next_before(until)? {
                Next::Line(line) => {
                    if running.apply(Progress::parse(&line)?) {
                        running.process.wait()?;
                        running.outcome.losses.extend(running.products.losses());
                        return Ok(running.outcome);
                    }
                }
                Next::End(status) if self.has_given_up(&running, status) => {
                    running.fall();
                    running.process = self.start()?;
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
    fn strike(&mut self, running: &mut RunUnderWay, failure: &Failure) -> io::Result<bool> {
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
            // The same of the program. A node loses its session's process.
            Side::Plain => match (failure.pick % (self.count as u64 + 1)) as usize {
                0 => {
                    running.process.signal(Signal::KILL)?;
                    true
                }
                node => {
                    if !self.nodes.kill_sessions(node - 1)? {
                        return Ok(false);
                    }
                    running.products.strike();
                    false
                }
            },
        };
        running.outcome.failures += 1;
        if fatal {
            running.fall();
        }
        Ok(true)
    }

    /// Whether a plain program has ended by itself, because nodes were lost again at one command.
    fn has_given_up(&self, running: &RunUnderWay, status: ExitStatus) -> bool {
        let is_plain = matches!(self.side, Side::Plain);
        is_plain && running.is_up && status.code().is_some() && gave_up(&self.said())
    }

    fn start(&self) -> io::Result<Process> {
        // Only what the last process says tells why it has ended.
        std::fs::write(self.errors(), "")?;
        let errors = std::fs::File::options().append(true).open(self.errors())?;
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
            Side::Plain => return self.plain(),
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

    /// The plain program, with checkpoints of the library as far apart as its own.
    fn plain(&self) -> io::Result<Command> {
        let chain = self.chain;
        let mut survival = "[survival]\nreexecute = true\n".to_owned();
        if self.interval.is_finite() {
            let milliseconds = (self.interval * 1000.0).max(LEAST_INTERVAL).ceil();
            survival.push_str(&format!("interval = \"{milliseconds}ms\"\n"));
        }
        let config = self.nodes.scratch().join("survival.toml");
        std::fs::write(&config, survival)?;
        let mut command = self.nodes.program("matrix-plain", self.count)?;
        command
            .env("CAUSEWAY_CONFIG", config)
            .args(["--size", &chain.size.to_string()])
            .args(["--multiplications", &chain.multiplications.to_string()])
            .args(["--seed", &chain.seed.to_string()])
            .args(["--devices", &self.count.to_string()])
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

    fn said(&self) -> String {
        let text = std::fs::read(self.errors()).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Why a program that was not killed has ended, in the last lines of its log.
    fn ended(&self, status: ExitStatus) -> String {
        let text = self.said();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(8)..].join("\n");
        format!("the program ended with {status}\n{last}")
    }
}

impl RunUnderWay {
    /// Notes that the program has to be started again.
    fn fall(&mut self) {
        self.is_up = false;
        self.struck = Some(Instant::now());
        self.products.break_off();
    }

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
            Progress::Product { seconds } => self.products.seconds.push(seconds),
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

fn gave_up(said: &str) -> bool {
    said.lines()
        .any(|line| GAVE_UP.iter().all(|words| line.contains(words)))
}

fn pick<'a>(processes: &'a [u32], failure: &Failure) -> Option<&'a u32> {
    let place = failure.pick.checked_rem(processes.len() as u64)?;
    processes.get(place as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_node_costs_what_its_product_takes_longer() {
        let mut products = Products::default();
        assert!(products.losses().is_empty());
        products.seconds.extend([1.0, 1.0, 1.0]);
        products.strike();
        products.seconds.extend([4.0, 1.0, 1.0]);
        assert_eq!(products.losses(), [3.0]);
        // The product had just ended: the next one took longer.
        products.strike();
        products.seconds.extend([1.0, 2.0, 1.0]);
        assert_eq!(products.losses(), [2.0, 2.0]);
        // The program's death leaves no product for this one.
        products.strike();
        products.break_off();
        assert_eq!(products.losses(), [2.0, 2.0]);
    }

    #[test]
    fn only_the_librarys_own_text_is_a_lost_command() {
        let lost = "error: the session is lost: the node's process of the session died, and its commands cannot be executed \
                    again: it died 2 times at the kernel `multiply`, which is not executed once more";
        assert!(gave_up(&format!("a warning\n{lost}\n")));
        for other in [
            "",
            "gave another result when it was executed again",
            "it died 2 times",
        ] {
            assert!(!gave_up(other), "{other}");
        }
    }
}
