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
mod authentication;
mod builds;
mod client;
mod counts;
mod drivers;
mod endings;
mod holders;
mod inherited;
mod inventory;
mod leaving;
mod listen;
mod long_messages;
mod managed;
mod node_service;
mod opening;
mod peers;
mod process;
mod stop;
mod watched;
mod worker;
mod worker_env;
mod workers;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use causeway_lane::Place;
use causeway_proto::control::Inventory;
use causeway_serving::admission::{self, Admission};
use causeway_serving::gate::Places;
use causeway_serving::services::NotReflected;
use causeway_serving::watched::Listener;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::config::{BadSettings, Settings};
use crate::sys;
use builds::Builds;
use counts::Reasons;
use inventory::InventoryCache;
use managed::Managed;
use process::Processes;
use watched::Watch;
use worker_env::{WorkerEnvError, WorkerEnvs};
use workers::Workers;

/// Reasons for which the daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CannotStart {
    /// The daemon cannot listen on an address.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The settings do not allow a listener that the service manager passed.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// The folder or the user for worker processes is not available.
    #[error(transparent)]
    WorkerEnvs(#[from] WorkerEnvError),
    /// The descriptions of the gRPC services for reflection are invalid.
    #[error(transparent)]
    Services(#[from] NotReflected),
    /// Another system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// State that the supervisor's tasks share.
struct Supervisor {
    settings: Settings,
    /// Addresses on which the daemon listens.
    addresses: Vec<SocketAddr>,
    /// Rendezvous for lanes through shared memory, if the daemon offers them.
    place: Option<Place>,
    /// Identity of the node. The uuid is random for each daemon start, because clones of a machine share
    /// every stable identifier. If two nodes had one identity, clients would miss the devices of one of
    /// them. A managed node keeps its uuid instead; see `managed::node_uuid`.
    uuid: uuid::Uuid,
    started: Instant,
    /// Admission of connections that have not yet shown what they are.
    handshakes: Admission,
    /// Limits on gRPC connections: one for callers that have not been identified, one for others.
    control: Places,
    inventory: InventoryCache,
    workers: Workers,
    /// Managed mode; `None` without a device manager.
    managed: Option<Managed>,
    /// Connections that were not served, by reason.
    refused: Reasons,
    /// Sessions that were not opened, by reason.
    not_opened: Reasons,
    /// Why the node opens no new sessions; `None` if it does.
    health: watch::Sender<Option<&'static str>>,
}

/// Serves until a signal ends the daemon.
///
/// # Errors
/// [`CannotStart`]. Once the daemon serves, only a signal ends it.
#[tokio::main(flavor = "current_thread")]
pub async fn run(settings: Settings, inherited: Vec<OwnedFd>) -> Result<(), CannotStart> {
    let stop = stop::Signals::new(settings.private)?;
    let listeners = listen::listeners(&settings, inherited)?;
    let sockets = listen::sockets(&settings)?;
    let addresses = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<Vec<_>, _>>()?;
    // `_identity` is the lock on the node's identity, held until the daemon ends.
    let (uuid, _identity) = match &settings.manager {
        Some(manager) => managed::node_uuid(manager.folder.as_deref()),
        None => (uuid::Uuid::new_v4(), None),
    };
    let watchers = listen::watchers(&settings)?;
    let (place, local) = listen::place(&uuid).unzip();
    let users = settings.security.authenticates() || settings.manager.is_some();
    // Drivers' caches are private by default if callers may be unrelated to each other.
    let strangers = users || !addresses.iter().all(causeway_serving::is_loopback);
    let worker_envs = WorkerEnvs::open(
        settings.sandbox.clone(),
        &settings.worker_user,
        strangers,
        settings.private,
    )?;
    let processes = Processes::new(settings.logging.clone(), worker_envs);
    let workers = Workers::new(
        settings.sessions,
        settings.heartbeat,
        settings.inventory.probe_time_limit,
        Builds::start(&settings.build_cache, users),
        processes.clone(),
        settings.security.tls.is_some(),
    );
    let managed = settings.manager.clone().map(|manager| {
        let shares = settings.shares.clone();
        Managed::new(manager, shares, *uuid.as_bytes(), workers.clone())
    });
    let supervisor = Arc::new(Supervisor {
        addresses,
        place,
        uuid,
        started: Instant::now(),
        handshakes: Admission::new(settings.handshakes.limit, settings.handshakes.per_peer),
        control: Places {
            strangers: settings.handshakes.control(),
            known: settings.handshakes.control(),
        },
        inventory: InventoryCache::new(settings.inventory, processes),
        workers,
        managed,
        refused: Reasons::new(&accept::REASONS),
        not_opened: Reasons::new(&node_service::REASONS),
        health: watch::Sender::new(Some("the node is still listing its devices")),
        settings,
    });
    serve(&supervisor, listeners, sockets, local, watchers)?;
    stop.wait_and_drain(&supervisor).await;
    listen::remove_sockets(&supervisor.settings);
    Ok(())
}

fn serve(
    supervisor: &Arc<Supervisor>,
    listeners: Vec<TcpListener>,
    sockets: Vec<UnixListener>,
    local: Option<UnixListener>,
    watchers: Option<Listener>,
) -> Result<(), CannotStart> {
    let control = node_service::serve(supervisor)?;
    for listener in listeners {
        tokio::spawn(accept::accept(
            Arc::clone(supervisor),
            listener,
            control.clone(),
        ));
    }
    for socket in sockets {
        tokio::spawn(accept::accept_socket(
            Arc::clone(supervisor),
            socket,
            control.clone(),
        ));
    }
    if let Some(local) = local {
        tokio::spawn(accept::accept_local(Arc::clone(supervisor), local));
    }
    let watched_at = watchers.as_ref().map(Listener::address);
    if let Some(watchers) = watchers {
        tokio::spawn(watchers.serve(Watch(Arc::clone(supervisor))));
    }
    if let Some(certificate) = &supervisor.settings.security.certificate {
        tokio::spawn(causeway_serving::watch_certificate(certificate.clone()));
    }
    // The spare workers and the inventory probe start in the background. Only the first inventory request
    // waits for the probe, and only the first session may wait for a worker.
    supervisor.workers.replenish();
    tokio::spawn({
        let supervisor = Arc::clone(supervisor);
        async move {
            let known = supervisor.current_inventory().await;
            if supervisor.settings.private && supervisor.devices() == 0 {
                listen::announce_nothing(&known.inventory.problems);
            }
            // The daemon announces itself only after the first probe. Drivers may take long to load, and a
            // client waits only a second for a node's devices.
            listen::announce(
                &supervisor.addresses,
                &supervisor.settings.sockets,
                watched_at,
            );
            causeway_serving::notify("READY=1");
            if let Some(managed) = &supervisor.managed {
                tokio::spawn(managed.clone().watch());
                tokio::spawn(managed::join(Arc::clone(&supervisor), managed.clone()));
            }
        }
    });
    Ok(())
}

impl Supervisor {
    /// Returns whether callers from other machines can use the node without authentication.
    fn is_exposed(&self) -> bool {
        self.addresses.iter().any(|at| self.settings.exposes(at))
    }

    /// Returns the addresses at which other nodes may reach this one. They are computed on each call,
    /// because interfaces come and go.
    fn peer_addresses(&self) -> Vec<String> {
        peers::addresses(&self.addresses, &self.settings.advertise, || {
            sys::interface_addresses().unwrap_or_else(|error| {
                tracing::warn!(%error, "cannot read the addresses of this machine's interfaces");
                Vec::new()
            })
        })
    }

    /// Builds the complete inventory message of this node.
    fn told(&self, known: &inventory::Known) -> Inventory {
        Inventory {
            node_uuid: self.uuid.as_bytes().to_vec().into(),
            node_name: self.settings.name.clone(),
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
            peer_addresses: self.peer_addresses(),
            remarks: node_service::remarks(self)
                .chain(known.inventory.remarks.clone())
                .collect(),
            ..known.inventory.clone()
        }
    }

    /// Returns the current inventory. Replaces the spare workers if the devices have changed.
    async fn current_inventory(&self) -> Arc<inventory::Known> {
        let (known, changed) = self.inventory.current().await;
        if changed {
            self.workers.retire_spares();
        }
        self.look_at_health();
        known
    }
}
