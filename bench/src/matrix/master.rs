//! The farm's master: puts rows as work, gives them to workers, and collects the products.
//!
//! A program of its own, which the experiment kills and starts again. Its workers are processes, one for each node; a
//! worker that ends is started again. [`farm`](super::farm) decides who gets what. Invariant: a product is complete
//! before the next one begins, and before a checkpoint.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::farm::{Farm, Name, WorkerId};
use super::field;
use super::frame::Frame;
use super::pool::{Event, Pool};
use super::progress::Progress;
use super::state::ChainState;

type Error = Box<dyn std::error::Error>;

/// The chain, and who computes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rows and columns
    #[arg(long)]
    size: usize,
    /// Number of products
    #[arg(long)]
    multiplications: u64,
    /// Rows of a piece of work
    #[arg(long)]
    grain: usize,
    /// The seed of the matrices
    #[arg(long)]
    seed: u64,
    /// The addresses of the nodes, one for each worker
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// When work is late, s
    #[arg(long)]
    late: f64,
    /// The file of the checkpoint and the result
    #[arg(long)]
    state: PathBuf,
    /// Time between checkpoints, s; `inf`: only the result is written
    #[arg(long)]
    interval: f64,
}

/// If no worker has been ready or had a result for so long, or for twice the time after which work is late, the master
/// gives up.
const SILENCE: Duration = Duration::from_secs(60);

/// Computes the chain, from the checkpoint if there is one.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Error> {
    let size = arguments.size;
    let read = ChainState::read(&arguments.state, size)?;
    let mut state = read.unwrap_or_else(|| ChainState {
        round: 0,
        matrix: field::random(size, arguments.seed),
    });
    let factor = field::random(size, arguments.seed + 1);
    let mut master = Master::start(arguments, factor)?;
    master.wait_until_ready()?;
    let begin = Instant::now();
    Progress::Ready { round: state.round }.print()?;
    let mut saved = Instant::now();
    while state.round < arguments.multiplications {
        state = ChainState {
            matrix: master.multiply(state.round, &state.matrix)?,
            round: state.round + 1,
        };
        let is_last = state.round == arguments.multiplications;
        if !is_last && saved.elapsed().as_secs_f64() >= arguments.interval {
            state.save(&arguments.state, size)?;
            saved = Instant::now();
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    state.save(&arguments.state, size)?;
    Progress::Done { seconds }.print()?;
    Ok(())
}

struct Master {
    farm: Farm,
    pool: Pool,
    /// Workers that wait for work.
    idle: BTreeSet<WorkerId>,
    /// Lost workers, with the time when they took their last work.
    lost: BTreeMap<WorkerId, Duration>,
    begin: Instant,
    /// The last time that a worker was ready or had a result.
    heard: Instant,
    silence: Duration,
    size: usize,
    grain: usize,
}

impl Master {
    fn start(arguments: &Arguments, factor: Vec<f32>) -> Result<Master, Error> {
        let late = Duration::try_from_secs_f64(arguments.late)?;
        Ok(Master {
            farm: Farm::new(late),
            pool: Pool::start(&arguments.servers, factor, arguments.size, arguments.grain)?,
            idle: BTreeSet::new(),
            lost: BTreeMap::new(),
            begin: Instant::now(),
            heard: Instant::now(),
            silence: SILENCE.max(2 * late),
            size: arguments.size,
            grain: arguments.grain,
        })
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        while self.idle.len() < self.pool.count() {
            if let Some((worker, event)) = self.next_event()? {
                self.apply(worker, event, &mut [])?;
            }
        }
        Ok(())
    }

    /// The next product of the chain.
    fn multiply(&mut self, round: u64, matrix: &[f32]) -> Result<Vec<f32>, Error> {
        for row in (0..self.size).step_by(self.grain) {
            let row = row as u64;
            self.farm.put(Name { round, row });
        }
        let mut product = vec![0.0; matrix.len()];
        while !self.farm.is_done() {
            self.deal(matrix);
            match self.next_event()? {
                Some((worker, event)) => self.apply(worker, event, &mut product)?,
                None => self.farm.tick(self.now()),
            }
        }
        Ok(product)
    }

    /// Gives visible work to idle workers.
    fn deal(&mut self, matrix: &[f32]) {
        for worker in self.idle.clone() {
            let Some(name) = self.farm.take(worker, self.now()) else {
                continue;
            };
            let from = name.row as usize * self.size;
            let to = matrix.len().min(from + self.grain * self.size);
            let rows = matrix[from..to].to_vec();
            self.idle.remove(&worker);
            self.pool.give(worker, Frame { name, rows });
        }
    }

    /// Waits for an event, or until work is late.
    fn next_event(&mut self) -> Result<Option<(WorkerId, Event)>, Error> {
        let late = self.farm.next_late().unwrap_or(Duration::MAX);
        let patience = late.saturating_sub(self.now()).min(self.silence);
        let event = self.pool.next_within(patience);
        match &event {
            Some((_, Event::Ready | Event::Result(_))) => self.heard = Instant::now(),
            _ if self.heard.elapsed() > self.silence => {
                let why = match event {
                    Some((_, Event::Gone(error))) => format!(": {error}"),
                    _ => String::new(),
                };
                let silence = self.silence;
                return Err(format!("no worker has answered for {silence:?}{why}").into());
            }
            _ => {}
        }
        Ok(event)
    }

    fn apply(&mut self, worker: WorkerId, event: Event, product: &mut [f32]) -> Result<(), Error> {
        match event {
            Event::Ready => {
                self.idle.insert(worker);
                if let Some(since) = self.lost.remove(&worker) {
                    let seconds = (self.now() - since).as_secs_f64();
                    Progress::Lost { seconds }.print()?;
                }
            }
            Event::Result(Frame { name, rows }) => {
                self.idle.insert(worker);
                if self.farm.finish(worker, name) {
                    let from = name.row as usize * self.size;
                    let place = product.get_mut(from..from + rows.len());
                    place
                        .ok_or("a worker has sent too many rows")?
                        .copy_from_slice(&rows);
                }
            }
            Event::Gone(error) => {
                eprintln!("worker {}: {error}", worker.0);
                self.idle.remove(&worker);
                let taken = self.farm.lose(worker);
                // A worker that fails to start again was lost only once.
                let since = taken.map_or(self.now(), |taken| taken.at);
                self.lost.entry(worker).or_insert(since);
            }
        }
        Ok(())
    }
}
