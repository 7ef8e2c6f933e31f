//! A device manager in front of the nodes: every program leases its devices.
//!
//! With `--managed`, each set of nodes has a `causeway-devmgr` of its own, and all connections use TLS. With
//! `--managers`, there are several over one member of etcd, and the one that leads may be killed again and again.
//! The programs act as a user with a token, who requests all devices of the nodes in `servers.toml`.
//! Invariant: a program sees as many devices as without a manager. It never finds a device still leased
//! by another program: the runner runs the programs of one manager one after the other.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use causeway_cluster::{Caller, Manager};
use causeway_proto::manager::{LeavingState, NodeInfo};
use rustix::process::Signal;

use crate::SetupError;
use crate::options::Carrier;

/// Short limits, so that devices which were not released are soon free: for leases without
/// sessions and without renewals.
const TIMING: &str = "[policy.timing]\ngrace = 10000\nlease = 15000\n";

/// Shortest time between two kills of a leader: longer than a lease and a change of leader.
pub(crate) const SHORTEST_LEAD: Duration = Duration::from_secs(20);

/// Number of programs that can lease one device at the same time.
const SHARES: usize = 64;

/// A manager that was killed is started again after this time, so that two others serve meanwhile.
const START_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// How the nodes are managed.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    /// The manager's program.
    pub(crate) program: PathBuf,
    /// Number of managers of each set of nodes.
    pub(crate) managers: usize,
    /// Interval at which the manager that leads is killed.
    pub(crate) kill_leader: Option<Duration>,
}

/// The manager of some nodes, or several.
pub(crate) struct Cluster {
    manner: Manner,
    // Before the manager, which the thread uses.
    _killer: Option<Killer>,
    manager: Arc<Manager>,
    token: PathBuf,
}

impl Cluster {
    /// Starts the managers.
    pub(crate) fn start(manner: &Manner) -> Result<Self, SetupError> {
        let manager = match manner.managers {
            1 => Manager::start(&manner.program, TIMING)?,
            count => Manager::start_several(&manner.program, TIMING, count)?,
        };
        let (_, token) = manager.user("tester")?;
        let manager = Arc::new(manager);
        let every = manner.kill_leader;
        Ok(Self {
            manner: manner.clone(),
            _killer: every.map(|every| Killer::start(&manager, every)),
            manager,
            token,
        })
    }

    /// Starts another manager with the same program, for other nodes.
    pub(crate) fn another(&self) -> Result<Self, SetupError> {
        Self::start(&self.manner)
    }

    /// How the nodes are managed.
    pub(crate) fn manner(&self) -> &Manner {
        &self.manner
    }

    /// Stops the manager's process, or lets it go on.
    pub(crate) fn stop(&self, stops: bool) -> Result<(), SetupError> {
        let signal = if stops { Signal::STOP } else { Signal::CONT };
        Ok(self.manager.signal(signal)?)
    }

    /// Returns the arguments and the variable for the daemon that is node number `number`.
    pub(crate) fn of_node(&self, number: usize) -> (Vec<String>, (String, String)) {
        let state = self.manager.certificates.path(&format!("node-{number}"));
        let variable = ("STATE_DIRECTORY".to_owned(), state.display().to_string());
        (self.manager.node_arguments(), variable)
    }

    /// Drains the node of the first lease, and has the lease move. Opens the node again when nothing moves any more.
    pub(crate) fn drain_leased(&self) -> Result<(), SetupError> {
        let admin = self.manager.admin();
        let leases = admin.leases().map_err(causeway_cluster::Error::from)?;
        let leased = leases.iter().flat_map(|lease| &lease.nodes).next();
        let nodes = admin.nodes().map_err(causeway_cluster::Error::from)?;
        let is_leased = |node: &&NodeInfo| leased.is_some_and(|of| of.node_uuid == node.node_uuid);
        let Some(node) = nodes.iter().find(is_leased) else {
            // The program has just ended.
            return Ok(());
        };
        admin
            .migrate(node, Duration::ZERO)
            .map_err(causeway_cluster::Error::from)?;
        let settled = self.manager.see("the end of all moves", |admin| {
            let nodes = admin.nodes()?;
            let mut leaving = nodes.iter().flat_map(|node| &node.leaving);
            Ok(!leaving.any(|of| of.state() == LeavingState::Moves))
        });
        admin.resume(node).map_err(causeway_cluster::Error::from)?;
        Ok(settled?)
    }

    /// Waits until no device is leased. On a busy machine a program may end before it has released its
    /// devices. They are then free only when its lease expires, and the next program would find none.
    pub(crate) fn until_free(&self) -> Result<(), SetupError> {
        let is_free = |admin: &Caller| Ok(admin.leases()?.is_empty());
        Ok(self.manager.see("that all devices are free", is_free)?)
    }

    /// Waits for this number of nodes and returns a `servers.toml` that requests all of their devices.
    pub(crate) fn client_settings(
        &self,
        nodes: usize,
        carrier: Carrier,
    ) -> Result<String, SetupError> {
        self.settings_of(nodes, carrier, usize::MAX)
    }

    /// The configuration file of a node whose device several programs lease at the same time, in hosts of this domain.
    pub(crate) fn shares(domain: &str) -> String {
        format!(
            "[sharing]\ntogether = \"{domain}\"\n[[shares]]\ndevice = \"0.0\"\ncount = {SHARES}\ntogether = \"{domain}\"\n"
        )
    }

    /// Waits for this number of nodes and returns a `servers.toml` that requests at most `most` devices.
    pub(crate) fn settings_of(
        &self,
        nodes: usize,
        carrier: Carrier,
        most: usize,
    ) -> Result<String, SetupError> {
        let mut devices = 0;
        self.manager.see(&format!("{nodes} nodes"), |admin| {
            let there = admin.nodes()?;
            let there = there.iter().filter(|node| node.connected);
            let each: Vec<usize> = there.map(|node| node.devices.len()).collect();
            devices = each.iter().sum();
            Ok(each.iter().filter(|of| **of > 0).count() == nodes)
        })?;
        let link = format!("carrier = \"{}\"\n", carrier.name());
        let settings = self.manager.client_settings(&self.token, &link);
        let count = devices.min(most);
        Ok(format!("{settings}[[request]]\ncount = {count}\n"))
    }
}

/// How often a manager that led was killed, in all clusters.
static KILLS: AtomicU32 = AtomicU32::new(0);

/// What was done to managers, for people. `None`: nothing.
pub(crate) fn summary() -> Option<String> {
    let kills = KILLS.load(Ordering::Relaxed);
    (kills > 0).then(|| format!("a manager that led was killed {kills} times"))
}

/// Kills the manager that leads at an interval. Ends with the value.
struct Killer {
    // Its drop ends the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Killer {
    fn start(manager: &Arc<Manager>, every: Duration) -> Killer {
        let (stop, stops) = mpsc::channel();
        let manager = Arc::clone(manager);
        let thread = thread::spawn(move || {
            let goes_on = |time| stops.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            while goes_on(every) {
                let killed = manager.kill_leader();
                KILLS.fetch_add(u32::from(killed.is_ok()), Ordering::Relaxed);
                let stays = goes_on(START_AGAIN_AFTER);
                let done = killed.and_then(|()| manager.revive());
                if let Err(error) = done {
                    // Every case would fail after that.
                    eprintln!("conformance: the leader is not killed any more: {error}");
                    return;
                }
                if !stays {
                    return;
                }
            }
        });
        Killer {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread was printed.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
