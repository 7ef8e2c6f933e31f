//! The supervisor: listens, admits sessions, routes connections to workers and monitors the workers. It
//! never uses OpenCL.
//!
//! All tasks run on one thread, the process's first. That thread is also the parent of every worker, so
//! `PR_SET_PDEATHSIG` reports the death of the daemon and not of a pool thread. Nothing here blocks: work
//! that could block runs in another process or thread.
//!
//! Invariant: an unidentified connection costs one small, time-limited buffer. This changes only when it
//! has named an existing session or has spoken HTTP/2.
#![forbid(unsafe_code)]

mod accept;
mod announcer;
mod authentication;
mod builds;
mod cards;
mod client;
mod cluster_links;
mod contents;
mod counts;
mod description;
mod devices;
mod domains;
mod drivers;
mod ended;
mod endings;
mod exclusive;
mod holders;
mod hosts;
mod identity;
mod inherited;
mod inventory;
mod leaving;
mod links;
mod listen;
mod managed;
mod node_service;
mod opening;
mod parked;
mod peers;
mod process;
mod readiness;
mod stop;
mod time_shares;
mod turns;
mod usage;
mod warm;
mod watched;
mod worker;
mod worker_env;
mod workers;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_lane::DaemonPlace;
use causeway_links::LinkMemory;
use causeway_security::{BadKey, EndKey};
use causeway_serving::admission::Admission;
use causeway_serving::counts::Reasons;
use causeway_serving::gate::Places;
use causeway_serving::services::NotReflected;
use causeway_serving::watched::Listener;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

use crate::config::{BadSettings, Settings};
use crate::sys;
use accept::Acceptor;
use announcer::NodeAnnouncer;
use builds::Builds;
use cards::Cards;
use cluster_links::ClusterLinks;
use counts::Refusals;
use description::{Description, KnownSpeeds};
use domains::{BadGroup, Domains};
use identity::Identity;
use inventory::InventoryCache;
use links::Links;
use managed::{Managed, SharesExceed};
use node_service::NodeService;
use parked::ParkedSessions;
use process::Processes;
use readiness::Readiness;
use watched::Watch;
use worker_env::{WorkerEnvError, WorkerEnvs};
use workers::Workers;

/// Reasons for which the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CannotStart {
    /// The daemon cannot listen on an address.
    #[error(
        "cannot listen on {address}: {error}{}",
        causeway_serving::listening_cure(error)
    )]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The path of a Unix socket is that of another file.
    #[error(
        "cannot listen on unix:{}: a file that is no socket has this name; choose another path, or move the file away",
        .0.display()
    )]
    NoSocket(PathBuf),
    /// The settings do not allow a listener that the service manager passed.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// `[discovery] announce` is set, and the daemon listens on loopback only.
    #[error(
        "[discovery] announce: the daemon listens on this machine only, so nobody who hears of it could reach it; listen \
         on another interface (listen = [\"0.0.0.0:7079\"], with [tls] and [auth]), or remove `announce`"
    )]
    AnnouncesLoopback,
    /// The folder or the user for worker processes is not available.
    #[error(transparent)]
    WorkerEnvs(#[from] WorkerEnvError),
    /// A group of `[sharing]` or `[[shares]]` cannot be used.
    #[error(transparent)]
    Sharing(#[from] BadGroup),
    /// `[[shares]]` divides a device that one process at a time can use.
    #[error(
        "[[shares]] {entry}: {device} is in exclusive compute mode, so one process at a time can use it, and it has no \
         shares; change the mode with nvidia-smi -c DEFAULT, or remove the entry from daemon.toml"
    )]
    ExclusiveShares {
        /// The entry's device, as the settings name it.
        entry: String,
        /// The name of the device.
        device: String,
    },
    /// `[[shares]]` gives more memory of a card than it has.
    #[error(transparent)]
    SharesExceed(#[from] SharesExceed),
    /// The directory of `[survival]` cannot be used.
    #[error("cannot use the directory {} of [survival]: {error}", directory.display())]
    Parked {
        /// The directory.
        directory: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The descriptions of the gRPC services for reflection are invalid.
    #[error(transparent)]
    Services(#[from] NotReflected),
    /// There is no key for measured links.
    #[error("the key of measured links cannot be made: {0}")]
    LinkKey(#[from] BadKey),
    /// Another system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Time for threads that wait for a disk, when the daemon ends.
const DISKS_WITHIN: Duration = Duration::from_secs(2);

/// Serves until a signal ends the daemon.
///
/// # Errors
/// [`CannotStart`]. Once the daemon serves, only a signal ends it.
pub fn run(settings: Settings, inherited: Vec<OwnedFd>) -> Result<(), CannotStart> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build()?;
    let outcome = runtime.block_on(serve(settings, inherited));
    // Threads remove folders and files meanwhile. One that waits for a disk that hangs does not keep the daemon.
    runtime.shutdown_timeout(DISKS_WITHIN);
    outcome
}

async fn serve(settings: Settings, inherited: Vec<OwnedFd>) -> Result<(), CannotStart> {
    let stop = stop::Signals::new(settings.private)?;
    let listeners = listen::listeners(&settings, inherited)?;
    let (sockets, files) = listen::sockets(&settings.sockets)?;
    let addresses = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<Vec<_>, _>>()?;
    if settings.announce.is_some() && addresses.iter().all(causeway_serving::is_loopback) {
        return Err(CannotStart::AnnouncesLoopback);
    }
    let parked = settings.parked.as_deref().map(open_parked).transpose()?;
    let directory = parked.as_ref().filter(|_| settings.manager.is_none());
    // Its lock is held until the daemon ends.
    let identity = Identity::of(&settings, directory.map(ParkedSessions::node_uuid));
    let watchers = listen::watchers(&settings)?;
    // Everybody may know the node's uuid. Parked sessions find the rendezvous of the next start again.
    let salt = parked.as_ref().map(ParkedSessions::node_uuid);
    let (place, local) = listen::place(&salt.unwrap_or_else(uuid::Uuid::new_v4)).unzip();
    let node = Node::new(settings, addresses, &identity)?;
    if let Some(parked) = parked {
        node.workers.find_parked(parked);
    }
    let listening = Listening {
        listeners,
        sockets,
        local,
        watchers,
    };
    let announced = node.serve(listening, place)?;
    let drain_limit = node.settings.sessions.drain_limit;
    let until_stopped = stop.wait_and_drain(
        drain_limit,
        &node.workers,
        node.managed.as_ref(),
        &node.readiness,
        node.announcer.as_ref(),
    );
    let outcome = tokio::select! {
        () = until_stopped => Ok(()),
        refused = refusal(announced) => {
            node.workers.kill_all();
            let _ = tokio::time::timeout(leaving::DIE_WITHIN, node.workers.no_worker()).await;
            Err(refused)
        }
    };
    files.remove(node.settings.private);
    outcome
}

fn open_parked(directory: &Path) -> Result<ParkedSessions, CannotStart> {
    ParkedSessions::open(directory).map_err(|error| CannotStart::Parked {
        directory: directory.to_owned(),
        error,
    })
}

/// Waits for the reason for which the daemon must not serve its devices. Waits forever if there is none.
async fn refusal(announced: JoinHandle<Result<(), CannotStart>>) -> CannotStart {
    match announced.await {
        Ok(Err(refused)) => refused,
        _ => std::future::pending().await,
    }
}

/// The sockets that the daemon accepts connections on.
struct Listening {
    listeners: Vec<TcpListener>,
    sockets: Vec<UnixListener>,
    /// For lanes through shared memory.
    local: Option<UnixListener>,
    /// For metrics and health checks.
    watchers: Option<Listener>,
}

/// The parts of the daemon, from which each task gets those that it needs.
struct Node {
    settings: Arc<Settings>,
    description: Arc<Description>,
    readiness: Arc<Readiness>,
    /// Which sessions may have one host process.
    domains: Arc<Domains>,
    workers: Workers,
    /// Measures links.
    links: Links,
    /// Managed mode; `None` without a device manager.
    managed: Option<Managed>,
    /// Announces the node; `None` if it does not announce itself.
    announcer: Option<NodeAnnouncer>,
    processes: Processes,
}

impl Node {
    fn new(
        settings: Settings,
        addresses: Vec<SocketAddr>,
        identity: &Identity,
    ) -> Result<Node, CannotStart> {
        let users = settings.security.authenticates() || settings.manager.is_some();
        // Drivers' caches are private by default if callers may be unrelated to each other.
        let strangers = users || !addresses.iter().all(causeway_serving::is_loopback);
        let worker_envs = WorkerEnvs::open(
            settings.sandbox.clone(),
            &settings.worker_user,
            strangers,
            settings.private,
        )?;
        let domains = Domains::new(
            &settings.sharing,
            &settings.shares,
            !strangers,
            sys::group_members,
        )?;
        let domains = Arc::new(domains);
        let processes = Processes::new(settings.logging.clone(), worker_envs);
        let announcer = announcer::announcer(&settings, &addresses, identity, processes.clone());
        let workers = Workers::new(
            settings.sessions,
            settings.heartbeat,
            settings.inventory.probe_time_limit,
            Builds::start(&settings.build_cache, users),
            processes.clone(),
            settings.security.tls.is_some(),
            (Arc::clone(&domains), settings.sharing.host_idle),
        );
        let (links, cluster_links) = new_links(&settings, identity, &processes, &workers);
        let managed = new_managed(&settings, identity, &workers, cluster_links)?;
        let settings = Arc::new(settings);
        let cards = Cards::new(processes.clone());
        let inventory = InventoryCache::new(settings.inventory, processes.clone());
        Ok(Node {
            readiness: Arc::new(Readiness::new(
                &settings,
                inventory,
                cards,
                &workers,
                managed.as_ref(),
            )),
            description: Arc::new(Description {
                settings: Arc::clone(&settings),
                addresses,
                uuid: identity.uuid,
                run: identity.run,
                speeds: KnownSpeeds::default(),
            }),
            settings,
            domains,
            workers,
            links,
            managed,
            announcer,
            processes,
        })
    }

    /// What accepts connections, and hands them to those who serve them.
    fn acceptor(
        &self,
        place: Option<DaemonPlace>,
        refused: Arc<Reasons>,
        refusals: Arc<Refusals>,
        started: Instant,
    ) -> Result<Arc<Acceptor>, NotReflected> {
        let handshakes = &self.settings.handshakes;
        Ok(Arc::new(Acceptor {
            settings: Arc::clone(&self.settings),
            handshakes: Admission::new(handshakes.limit, handshakes.per_peer),
            places: Places {
                strangers: handshakes.control(),
                known: handshakes.control(),
            },
            workers: self.workers.clone(),
            links: self.links.clone(),
            managed: self.managed.clone(),
            refused,
            control: node_service::serve(NodeService {
                settings: Arc::clone(&self.settings),
                description: Arc::clone(&self.description),
                readiness: Arc::clone(&self.readiness),
                domains: Arc::clone(&self.domains),
                workers: self.workers.clone(),
                links: self.links.clone(),
                managed: self.managed.clone(),
                refusals,
                place,
                started,
            })?,
        }))
    }

    /// Starts the tasks that accept and serve connections. `place` is the rendezvous for lanes through
    /// shared memory.
    ///
    /// Returns the task that announces the daemon when its devices are known, or finds that it must not
    /// serve them.
    fn serve(
        &self,
        listening: Listening,
        place: Option<DaemonPlace>,
    ) -> Result<JoinHandle<Result<(), CannotStart>>, CannotStart> {
        let started = Instant::now();
        let (refused, refusals) = (
            Arc::new(Reasons::new(&accept::REASONS)),
            Arc::new(Refusals::new()),
        );
        let acceptor =
            self.acceptor(place, Arc::clone(&refused), Arc::clone(&refusals), started)?;
        for listener in listening.listeners {
            tokio::spawn(accept::accept(Arc::clone(&acceptor), listener));
        }
        for socket in listening.sockets {
            tokio::spawn(accept::accept_socket(Arc::clone(&acceptor), socket));
        }
        if let Some(local) = listening.local {
            tokio::spawn(accept::accept_local(acceptor, local));
        }
        let watched_at = listening.watchers.as_ref().map(Listener::address);
        if let Some(watchers) = listening.watchers {
            tokio::spawn(watchers.serve(Watch {
                readiness: Arc::clone(&self.readiness),
                workers: self.workers.clone(),
                managed: self.managed.clone(),
                refused,
                not_opened: refusals,
                started,
                certificate: self.settings.security.certificate.clone(),
            }));
        }
        if let Some(certificate) = &self.settings.security.certificate {
            tokio::spawn(causeway_serving::watch_certificate(certificate.clone()));
        }
        // The spare workers and the inventory probe start in the background. Only the first inventory
        // request waits for the probe, and only the first session may wait for a worker.
        self.workers.replenish();
        Ok(tokio::spawn(announce(
            Arc::clone(&self.description),
            Arc::clone(&self.readiness),
            Arc::clone(&self.domains),
            self.managed.clone(),
            self.workers.clone(),
            (watched_at, self.announcer.clone(), self.processes.clone()),
        )))
    }
}

/// What measures links, and what is known of those of the node's cluster.
fn new_links(
    settings: &Settings,
    identity: &Identity,
    processes: &Processes,
    workers: &Workers,
) -> (Links, ClusterLinks) {
    // Nobody finds the figures of a node that is another one at each start.
    let kept_in = settings.state.as_deref().filter(|_| identity.is_kept);
    let cluster_links = ClusterLinks::new(
        kept_in.map(|folder| LinkMemory::of_cluster(folder, identity.uuid.as_bytes())),
    );
    let links = Links::new(
        processes.clone(),
        workers.clone(),
        settings.security.tls.is_some(),
        kept_in.map(|folder| LinkMemory::of_node(folder, identity.uuid.as_bytes())),
        cluster_links.clone(),
    );
    (links, cluster_links)
}

/// Managed mode, if the settings name a device manager.
fn new_managed(
    settings: &Settings,
    identity: &Identity,
    workers: &Workers,
    cluster_links: ClusterLinks,
) -> Result<Option<Managed>, BadKey> {
    let Some(manager) = settings.manager.clone() else {
        return Ok(None);
    };
    Ok(Some(Managed::new(
        manager,
        settings.shares.clone(),
        *identity.uuid.as_bytes(),
        workers.clone(),
        identity.term_file.clone(),
        (cluster_links, EndKey::generate()?),
    )))
}

/// Announces the daemon when its devices are known, and joins its device manager.
///
/// # Errors
/// [`CannotStart::ExclusiveShares`], [`CannotStart::SharesExceed`].
async fn announce(
    description: Arc<Description>,
    readiness: Arc<Readiness>,
    domains: Arc<Domains>,
    managed: Option<Managed>,
    workers: Workers,
    (watched_at, announcer, processes): (Option<SocketAddr>, Option<NodeAnnouncer>, Processes),
) -> Result<(), CannotStart> {
    let known = readiness.current_inventory().await;
    workers.take_back_parked(Arc::clone(&known));
    let settings = &description.settings;
    // Without a device manager, the shares have no effect.
    if managed.is_some()
        && let Some((entry, device)) = managed::exclusive_share(&known.inventory, &settings.shares)
    {
        return Err(CannotStart::ExclusiveShares { entry, device });
    }
    // Before the announcement, so that no session's first context competes with it for the driver. A private daemon's
    // program would wait for it.
    if !settings.private {
        readiness.measure(&known).await;
    }
    if managed.is_some() {
        let (own, together) = (readiness.own_memory(), &settings.sharing.together);
        managed::check_memory(&known.inventory, &settings.shares, &own, together)?;
    }
    if settings.private && readiness.devices() == 0 {
        listen::announce_nothing(&known.inventory.problems);
    }
    for note in domains.notes(&known.inventory) {
        tracing::info!("{note}");
    }
    for fault in warm::faults(settings, &known.inventory) {
        tracing::warn!("{fault}");
    }
    // The daemon announces itself only after the first probe. Drivers may take long to load, and a client
    // waits only a second for a node's devices.
    listen::announce(&description.addresses, &settings.sockets, watched_at);
    causeway_serving::notify("READY=1");
    if let Some(announcer) = announcer {
        announcer.begin();
    }
    if let Some(managed) = managed {
        tokio::spawn(managed.clone().watch());
        tokio::spawn(time_shares::serve(workers));
        tokio::spawn(managed::join(description, readiness, managed, processes));
    }
    Ok(())
}
