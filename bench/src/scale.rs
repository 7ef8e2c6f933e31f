//! `bench manager-scale`: the real device manager with simulated nodes and clients, over real gRPC connections.
//!
//! 1. All nodes join ([`cluster`]), each over a connection of its own.
//! 2. Each client ([`clients`]) connects, requests a device that is free, holds the lease, releases it and disconnects.
//!    Requests have a fixed rate. A request's time begins when it was due, even if the load sent it late.
//! 3. All clients connect and request again, in batches, and keep their leases, until every device is leased and the
//!    other requests wait in the queue.
//! 4. The manager is killed, and started again over its store.
//!
//! With `--viewers`, so many pages look at the dashboard meanwhile, up to the kill ([`viewers`]).
//!
//! With `--store etcd`, all of that runs twice, over a file and over etcd, so that both have the same machine.
//!
//! [`failover`] uses the same nodes for changes of the leader, with clients that look for it ([`holders`], [`leader`]).
//!
//! Nodes and clients are this process, on one thread, so that the manager has the other cores. The processor time of
//! both is reported beside the times. Invariant: the figures are of a run without failures. No device was granted twice,
//! no node was disconnected, and no lease was lost.
#![forbid(unsafe_code)]

mod clients;
mod cluster;
pub(crate) mod failover;
mod holders;
mod leader;
mod report;
mod viewers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::manager::{Engine, Manager};
use crate::process;
use clients::{Clients, Crowd, Filled, Rate};
use cluster::{Cluster, Size};
use report::{Both, Commits, Cpu, Report, Restart, Times};
use viewers::Viewers;

/// Sent from task to task.
type Error = Box<dyn std::error::Error + Send + Sync>;

/// How to run it.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Also write the results to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "bench.json")]
    json: Option<PathBuf>,
    /// Simulated nodes
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Devices of each
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    devices: u32,
    /// Clients
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Clients that are connected at a time, each over a connection of its own; from the number of clients on, all dial
    /// first and stay
    #[arg(long, default_value_t = 2500, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Requests a second
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// How long a client keeps its device meanwhile, ms
    #[arg(long, default_value_t = 2000)]
    hold: u64,
    /// Connections that are opened, and requests that are made, at a time where no rate is given
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// The manager's store; with etcd (three members), a run over a file comes first, to compare
    #[arg(long, value_enum, default_value = "redb")]
    store: Engine,
    /// Pages that look at the manager's dashboard meanwhile
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=256))]
    viewers: u32,
    /// Folder for the manager's store; one in /dev/shm shows what the disk costs
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Options {
    fn crowd(&self) -> Crowd {
        Crowd {
            clients: self.clients,
            connections: self.connections,
            batch: self.batch,
        }
    }

    fn size(&self) -> Size {
        Size {
            nodes: self.nodes,
            devices: self.devices,
            batch: self.batch,
        }
    }

    /// Every client requests once.
    fn requests(&self) -> Rate {
        Rate {
            rate: self.rate,
            hold: Duration::from_millis(self.hold),
            count: self.clients as usize,
        }
    }

    /// Clients that are connected at a time, as far as they do not stay: at the rate, and with all devices leased.
    fn at_a_time(&self) -> u64 {
        let ahead = AHEAD.as_millis() as u64;
        let at_the_rate = u64::from(self.rate) * (self.hold + ahead) / 1000;
        let waiting = self.clients.saturating_sub(self.units());
        at_the_rate.max(u64::from(waiting) + u64::from(self.batch))
    }

    fn units(&self) -> u32 {
        self.nodes.saturating_mul(self.devices)
    }

    /// Checks that devices are always free in the second part, and that connections and descriptors suffice.
    fn check(&self) -> Result<(), Error> {
        let most = (u64::from(self.rate) * self.hold / 1000).min(self.clients.into());
        if most * 2 > u64::from(self.units()) {
            let text = format!(
                "{most} of {} devices would be leased at a time: that is contention",
                self.units()
            );
            return Err(text.into());
        }
        if !self.crowd().all_stay() && self.at_a_time() > self.connections.into() {
            let text = format!("{} connections are needed at a time", self.at_a_time());
            return Err(text.into());
        }
        allow_files(self.nodes + self.connections.min(self.clients))
    }
}

/// Raises the limit of open files, for this number of connections. The manager inherits the limit.
fn allow_files(connections: u32) -> Result<(), Error> {
    let needed = u64::from(connections) + 256;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(format!("{needed} open files are needed: see ulimit -Hn").into());
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum.or(Some(needed)),
            maximum: limit.maximum,
        },
    )?;
    Ok(())
}

/// Runs the experiment and reports. Returns whether all marks were met.
pub(crate) fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    run_here(options).map_err(|error| -> Box<dyn std::error::Error> { error })
}

fn run_here(options: &Options) -> Result<bool, Error> {
    options.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let redb = runtime.block_on(measure(options, Engine::Redb))?;
    print!("{redb}");
    if options.store == Engine::Redb {
        if let Some(path) = &options.json {
            std::fs::write(path, serde_json::to_string_pretty(&redb)?)?;
        }
        return Ok(redb.is_met());
    }
    let etcd = runtime.block_on(measure(options, Engine::Etcd))?;
    let both = Both { redb, etcd };
    print!("\n{}{both}", both.etcd);
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&both)?)?;
    }
    Ok(both.is_met())
}

/// The processor time of the manager and of this process so far.
fn cpu(manager: &Manager) -> Cpu {
    Cpu {
        manager: process::cpu(manager.id()),
        load: process::cpu(std::process::id()),
    }
}

async fn measure(options: &Options, engine: Engine) -> Result<Report, Error> {
    let has_viewers = options.viewers > 0;
    let mut manager = Manager::start_over(engine, options.folder.as_deref(), has_viewers)?;
    let disk = report::synchronisations(manager.store())?;
    let mut report = Report::new(options, engine, disk);
    // Over etcd, a manager leads some time after it listens.
    clients::known(manager.address()).await?;
    let managers: Arc<[String]> = Arc::new([manager.address().to_owned()]);
    let mut cluster = Cluster::start(options.size(), &managers);

    said("nodes join");
    let begun = Instant::now();
    cluster.all_are_there().await?;
    report.joined = begun.elapsed().as_secs_f64();
    report.with_nodes = process::resident(manager.id());

    said("clients connect");
    let mut clients = Clients::connect(options.crowd(), manager.address()).await?;

    let viewers = match manager.dashboard() {
        Some(dashboard) => Some(Viewers::open(options.viewers, dashboard)?),
        None => None,
    };

    said("requests at a rate");
    let (begun, before) = (Instant::now(), cpu(&manager));
    let commits = Commits::of(&manager)?;
    let timed = clients.at_a_rate(options.requests()).await?;
    report.seconds = begun.elapsed().as_secs_f64();
    report.rate_commits = Commits::of(&manager)?.since(commits);
    report.cpu = cpu(&manager).since(before);
    report.lease = Times::of(&timed.leases);
    report.release = Times::of(&timed.releases);
    report.late = Times::of(&timed.late);
    report.at_the_rate = process::peak(manager.id());
    clients.see_no_lease().await?;

    said("all devices are leased");
    cluster.open_sessions();
    let (begun, before) = (Instant::now(), cpu(&manager));
    let commits = Commits::of(&manager)?;
    let filled = clients.fill().await?;
    let took = begun.elapsed();
    report.fill_commits = Commits::of(&manager)?.since(commits);
    report.fill(took, cpu(&manager).since(before), filled);
    report.full = process::resident(manager.id());
    report.peak = process::peak(manager.id());
    report.views = viewers.map(Viewers::end).transpose()?;

    said("it is killed, and comes back");
    report.restart = Some(restart(&mut manager, &mut cluster, clients, filled).await?);
    report.restarted = process::resident(manager.id());
    cluster.assert_no_fault()?;
    eprint!("\r{:60}\r", "");
    Ok(report)
}

fn said(what: &str) {
    eprint!("\r{what:<60}");
}

/// The times of a restart: until it listens, until it knows its leases, and until its nodes are back.
async fn restart(
    manager: &mut Manager,
    cluster: &mut Cluster,
    clients: Clients,
    filled: Filled,
) -> Result<Restart, Error> {
    cluster.manager_is_going();
    manager.kill();
    drop(clients);
    // This process's reaction to the end is not part of the new manager's time.
    cluster.all_are_gone().await?;
    let begun = Instant::now();
    manager.begin()?;
    let listening = begun.elapsed();
    let known = clients::known(manager.address()).await?;
    let all_known = begun.elapsed();
    if known != filled {
        return Err(format!("there were {filled:?}, and after the restart {known:?}").into());
    }
    cluster.manager_is_back();
    cluster.all_are_there().await?;
    let nodes_back = begun.elapsed();
    let after = clients::known(manager.address()).await?;
    if after.leases != filled.leases {
        return Err(format!("there were {filled:?}, and with the nodes {after:?}").into());
    }
    Ok(Restart {
        listening: listening.as_secs_f64(),
        all_known: all_known.as_secs_f64(),
        nodes_back: nodes_back.as_secs_f64(),
    })
}

/// A client connects this time before its request.
const AHEAD: Duration = Duration::from_millis(200);
/// Timeout for every wait.
const PATIENCE: Duration = Duration::from_secs(60);
