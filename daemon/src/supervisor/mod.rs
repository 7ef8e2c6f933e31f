//! The supervisor: listens, admits, routes, watches. Never touches OpenCL.
//!
//! Everything runs on one thread (the process's first, which also is every worker's parent thread, so
//! that `PR_SET_PDEATHSIG` speaks of the daemon's death and not of a pool thread's). Nothing here
//! blocks: what could is in another process.
//!
//! Invariant: a stranger's connection costs one small, time-limited buffer until it has named a session
//! that exists or spoken HTTP/2.
#![forbid(unsafe_code)]

mod accept;
mod authentication;
mod builds;
mod cells;
mod compiling;
mod counts;
mod drivers;
mod endings;
mod holders;
mod inherited;
mod inventory;
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
mod workers;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use causeway_lane::Place;
use causeway_proto::control::Inventory;
use causeway_serving::admission::{self, Admission};
use causeway_serving::door::Places;
use causeway_serving::services::NotReflected;
use causeway_serving::watched::Listener;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::config::{BadSettings, Settings};
use crate::sys;
use builds::Builds;
use cells::{Cells, NoCells};
use counts::Reasons;
use inventory::InventoryCache;
use managed::Managed;
use process::Processes;
use watched::Watch;
use workers::Workers;

/// The daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum CannotStart {
    /// An address that cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: String,
        /// Why.
        error: std::io::Error,
    },
    /// A listener passed by the service manager is not to be served.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// There is no place, or no user, for the workers.
    #[error(transparent)]
    Cells(#[from] NoCells),
    /// What is told of the services.
    #[error(transparent)]
    Services(#[from] NotReflected),
    /// Something of the system's.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// What the supervisor's tasks share.
struct Supervisor {
    settings: Settings,
    /// Where it listens.
    addresses: Vec<SocketAddr>,
    /// Where it listens for lanes through shared memory.
    place: Option<Place>,
    /// Random for each daemon, because clones of a machine share every stable identity, and two nodes taken for
    /// one would lose one's devices; of a managed node kept with care.
    uuid: uuid::Uuid,
    started: Instant,
    /// Connections that have not said yet what they are.
    handshakes: Admission,
    /// gRPC connections: of those who have not shown yet that they may come, and of others.
    control: Places,
    inventory: InventoryCache,
    workers: Workers,
    /// On a node that a device manager gives out.
    managed: Option<Managed>,
    /// Connections that were not served.
    refused: Reasons,
    /// Sessions that were not opened.
    not_opened: Reasons,
    /// Why it serves nobody new; `None`: it does.
    health: watch::Sender<Option<&'static str>>,
}

/// Serves until told to stop.
///
/// # Errors
/// [`CannotStart`]; once it serves, nothing ends it but a signal.
#[tokio::main(flavor = "current_thread")]
pub async fn run(settings: Settings, inherited: Vec<OwnedFd>) -> Result<(), CannotStart> {
    let stop = stop::Signals::new(settings.private)?;
    let listeners = listen::listeners(&settings, inherited)?;
    let sockets = listen::sockets(&settings)?;
    let addresses = listeners
        .iter()
        .map(TcpListener::local_addr)
        .collect::<Result<Vec<_>, _>>()?;
    // The lock on the identity lasts as long as the daemon.
    let (uuid, _identity) = match &settings.manager {
        Some(manager) => managed::node_uuid(manager.folder.as_deref()),
        None => (uuid::Uuid::new_v4(), None),
    };
    let watchers = listen::watchers(&settings)?;
    let (place, local) = listen::place(&uuid).unzip();
    let strangers = settings.security.authenticates()
        || settings.manager.is_some()
        || !addresses.iter().all(causeway_serving::is_loopback);
    let cells = Cells::open(
        settings.sandbox.clone(),
        &settings.worker_user,
        strangers,
        settings.private,
    )?;
    let processes = Processes::new(settings.logging.clone(), cells);
    let (builds, teacher) = Builds::start(
        &settings.build_cache,
        settings.sessions.limits.host_memory,
        &processes,
    )
    .unzip();
    let workers = Workers::new(
        settings.sessions,
        settings.heartbeat,
        settings.inventory.probe_time_limit,
        builds,
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
        health: watch::Sender::new(Some("the node's devices are being looked for")),
        settings,
    });
    serve(&supervisor, listeners, sockets, local, watchers)?;
    stop.wait_and_drain(&supervisor).await;
    listen::remove_sockets(&supervisor.settings);
    if let Some(teacher) = teacher {
        teacher.end().await;
    }
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
    // Both in the background: the first question waits for the probe, the first session for its
    // worker, and nobody else waits at all.
    supervisor.workers.replenish();
    tokio::spawn({
        let supervisor = Arc::clone(supervisor);
        async move {
            let known = supervisor.current_inventory().await;
            if supervisor.settings.private && supervisor.devices() == 0 {
                listen::announce_nothing(&known.inventory.problems);
            }
            // Not before: a client waits a second for a node's devices, drivers may load for longer.
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
    /// Whether others than this machine's users can use the node without a name.
    fn is_exposed(&self) -> bool {
        self.addresses.iter().any(|at| self.settings.exposes(at))
    }

    /// Where other nodes may reach this one, as of now: interfaces come and go.
    fn peer_addresses(&self) -> Vec<String> {
        peers::addresses(&self.addresses, &self.settings.advertise, || {
            sys::interface_addresses().unwrap_or_else(|error| {
                tracing::warn!(%error, "the addresses of this machine");
                Vec::new()
            })
        })
    }

    /// All that is said of this node.
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

    /// The inventory as it is now. Spare workers that have listed what is no longer so are replaced.
    async fn current_inventory(&self) -> Arc<inventory::Known> {
        let (known, changed) = self.inventory.current().await;
        if changed {
            self.workers.retire_spares();
        }
        self.look_at_health();
        known
    }
}
