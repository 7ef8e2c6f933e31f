//! `managers`: three managers over three members of etcd, with nodes and clients. Processes are killed and stopped,
//! hosts are cut off, a disk fills, and clocks are wrong. Then the history of all participants is judged.
//!
//! - [`cluster`]: the hosts and processes; [`server`]: one process; [`mounts`]: the mounts of a proof;
//! - [`faults`]: the plan of faults, pure; [`harm`]: carries it out;
//! - [`clients`]: `causeway run --wait`; [`callers`]: the observer and the administrators;
//! - [`history`]: what they and the nodes saw; [`record`]: where they record it;
//! - [`judge`]: the judgement, pure; [`summary`]: figures for people.
//!
//! Invariant: the same seed makes the same faults at the same times, as far as the machine allows.

mod callers;
mod clients;
mod cluster;
mod faults;
mod harm;
mod history;
mod judge;
mod mounts;
mod record;
mod server;
mod summary;

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use causeway_cluster::{FakeNode, Managers};
use causeway_cutter::Random;
use causeway_network::Network;
use tokio::sync::watch;

use self::clients::Clients;
use self::cluster::{CLIENTS, Cluster, LIMITED, NODES, OBSERVER, Programs, QUOTA, Servers};
use self::harm::Harm;
use self::history::History;
use self::record::Record;
use crate::options::Options;
use crate::{SetupError, places};

/// Number of nodes without devices of their own, and of devices that each offers.
const FAKE_NODES: u8 = 8;
const FAKE_DEVICES: u32 = 1;
/// Number of administrators.
const ADMINISTRATORS: usize = 3;
/// Time after the last fault in which every client has to get its device. Leases that could not be released during
/// the faults expire before.
const CLIENTS_END_WITHIN: Duration = Duration::from_secs(180);

/// Runs the proof. Returns whether no violation was found.
pub(crate) fn run(options: &Options) -> Result<bool, SetupError> {
    if let Some(reason) = hindrance() {
        println!("skipped: {reason}");
        return Ok(true);
    }
    if !mounts::are_own() {
        return mounts::again_with_own();
    }
    let scratch = places::fresh_scratch()?;
    let beside = places::beside_runner();
    let programs = Programs {
        manager: places::beside_or(&options.devmgr, &beside, "causeway-devmgr"),
        daemon: places::beside_or(&options.daemon, &beside, "causewayd"),
    };
    let (history, mut found) = prove(scratch.path(), &programs, options)?;
    println!("seed {}: {}", options.seed, summary::summary(&history));
    if history.runs.iter().all(|run| run.used.is_none()) {
        found.push("no client got a device".to_owned());
    }
    found.extend(judge::violations(&history));
    if !found.is_empty() {
        println!("{history:#?}");
    }
    for violation in &found {
        println!("VIOLATION (seed {}): {violation}", options.seed);
    }
    Ok(found.is_empty())
}

/// Why this machine cannot run the proof.
fn hindrance() -> Option<String> {
    let etcd = std::process::Command::new("etcd").arg("--version").output();
    if etcd.is_err() {
        return Some("no etcd on this machine (Debian: etcd-server)".to_owned());
    }
    Network::possible().err().map(|error| error.to_string())
}

/// Lets everything happen. Returns the history, and violations that are not in it.
fn prove(
    folder: &Path,
    programs: &Programs,
    options: &Options,
) -> Result<(History, Vec<String>), SetupError> {
    let cluster = Cluster::new(folder)?;
    let mut servers = cluster.start(programs)?;
    let (record, clients) = (Record::default(), Clients::default());
    record.add(|history| history.quotas.extend([(LIMITED.to_owned(), QUOTA)]));
    let (stop, stops) = watch::channel(false);
    let stage = Stage {
        observer: cluster.managers("admin")?,
        cluster: &cluster,
        record: &record,
        clients: &clients,
        stop,
        stops,
        options,
    };
    let found = thread::scope(|scope| {
        let found = stage.play(scope, &mut servers);
        // Whatever has happened, all threads end.
        stage.clients.stops.store(true, Ordering::Relaxed);
        stage.clients.kill();
        stage.stop.send_replace(true);
        found
    })?;
    drop(stage);
    drop(servers);
    Ok((record.finish(), found))
}

/// A thread of a participant.
type Participant<'scope> = ScopedJoinHandle<'scope, Result<(), SetupError>>;

/// What all participants share.
struct Stage<'a> {
    cluster: &'a Cluster,
    record: &'a Record,
    clients: &'a Clients,
    /// The observer's managers.
    observer: Managers,
    /// Ends nodes, observer and administrators.
    stop: watch::Sender<bool>,
    stops: watch::Receiver<bool>,
    options: &'a Options,
}

impl Stage<'_> {
    /// Starts the participants, carries out the faults, and waits for the clients.
    fn play<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        servers: &mut Servers,
    ) -> Result<Vec<String>, SetupError> {
        let mut others = self.start_nodes(scope)?;
        let count = others.len() + NODES.len();
        self.cluster.until_joined(count, servers)?;
        others.extend(self.start_callers(scope)?);
        let clients: Vec<_> = (0..self.options.clients.into())
            .map(|number| {
                let random = self.random(1_000 + number as u64);
                scope.spawn(move || self.clients.live(self.cluster, self.record, number, random))
            })
            .collect();
        let leader = || self.observer.led();
        let plan = faults::plan(
            self.options.seed,
            Duration::from_secs(60 * self.options.minutes),
        );
        let mut harm = Harm::new(self.cluster, servers, &leader);
        harm.carry_out(&plan)?;
        let mut found = harm.crashes;
        println!("{} faults", plan.len());
        self.clients.stops.store(true, Ordering::Relaxed);
        let end = Instant::now() + CLIENTS_END_WITHIN;
        while !clients.iter().all(ScopedJoinHandle::is_finished) {
            if Instant::now() > end {
                found.push(format!(
                    "clients still wait {CLIENTS_END_WITHIN:?} after the last fault"
                ));
                self.clients.kill();
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        let left = self.cluster.until("no lease is left", servers, || {
            let leases = self.cluster.tool(&["leases", "--json"])?;
            Ok(leases.is_some_and(|leases| !leases.contains("\"state\"")))
        });
        found.extend(left.err().map(|error| error.to_string()));
        self.stop.send_replace(true);
        for other in others {
            // A panic of a participant is the runner's.
            other.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        }
        Ok(found)
    }

    /// A sequence of numbers for one participant.
    fn random(&self, participant: u64) -> Random {
        Random::new(self.options.seed.wrapping_mul(1_000_000) + participant)
    }

    fn start_nodes<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Vec<Participant<'scope>>, SetupError> {
        let nodes = (0..FAKE_NODES).map(|number| {
            let host = NODES[usize::from(number) % NODES.len()];
            let managers = self.cluster.managers("node")?;
            let node = FakeNode::new(managers, number + 1, FAKE_DEVICES);
            let live = async || match node.live(|report| self.record.serving(&report)).await {};
            Ok(scope.spawn(move || {
                callers::on_host(self.cluster.network.host(host), &self.stops, live)
            }))
        });
        nodes.collect()
    }

    /// Starts the observer and the administrators.
    fn start_callers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<Vec<Participant<'scope>>, SetupError> {
        let on_host = |host: usize| self.cluster.network.host(host);
        let observe = async || callers::observe(&self.observer, self.record).await;
        let observe = move || callers::on_host(on_host(OBSERVER), &self.stops, observe);
        let mut started = vec![scope.spawn(observe)];
        let (managers, random) = (self.cluster.managers("admin")?, self.random(1));
        let revoke = async move || callers::revoke(&managers, self.record, random).await;
        started
            .push(scope.spawn(move || callers::on_host(on_host(CLIENTS[1]), &self.stops, revoke)));
        for number in 0..ADMINISTRATORS {
            let managers = self.cluster.managers("admin")?;
            let random = self.random(10 + number as u64);
            let administer = async move || {
                callers::administer(&managers, self.record, number, random).await;
            };
            let host = on_host(CLIENTS[number % CLIENTS.len()]);
            started.push(scope.spawn(move || callers::on_host(host, &self.stops, administer)));
        }
        Ok(started)
    }
}
