//! The device manager's service: gRPC around the lease manager.
//!
//! - `owner`: the one task that owns the state; `input`: its inputs; `book`: the durable state for
//!   listings.
//! - `connections`: from a listening socket to a gRPC connection, with or without TLS; `certified`:
//!   connections by the name in their certificate, for removed users.
//! - `authentication`: who is calling. `nodes`, `leases`, `admin`: the services. `wire`, `quotas`: conversions to
//!   the wire.
//! - `reading`: reads the owner's state; `error`: why the manager ends.
//! - `watching`: `/healthz` and `/metrics`. `first_admin`: the administrator of a manager that has no
//!   other.
//!
//! This module decides nothing about leases; [`crate::lease`] does. Invariant: only the owner changes
//! state, and the owner never waits for another task.

mod admin;
mod authentication;
mod book;
mod certified;
mod connections;
mod error;
mod first_admin;
mod input;
mod leases;
mod nodes;
mod owner;
mod pace;
mod quotas;
mod reading;
mod watching;
mod wire;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::manager::admin_server::AdminServer;
use causeway_proto::manager::leases_server::LeasesServer;
use causeway_proto::manager::nodes_server::NodesServer;
use causeway_security::{LeaseKey, OwnCertificate, Secret};
use causeway_serving::gate::Judged;
use causeway_serving::services::{NotReflected, Services};
use causeway_serving::watched::Listener;
use parking_lot::{Mutex, RwLock};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use crate::identity::Directory;
use crate::lease::{Event, Manager};
use crate::settings::Settings;
use crate::store::{Store, Write};
use authentication::Authenticator;
use book::Book;
use certified::Certified;
use connections::{Connections, Incoming};
pub use error::CannotStart;
pub use first_admin::renew_admin;
use input::Input;
use owner::{Beginning, Clock, Health, INBOX, Owner, StoreLost, Writer};
use pace::Pace;
use watching::{Counters, Watching};

/// Interval and timeout of the HTTP/2 pings that detect vanished peers.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WITHIN: Duration = Duration::from_secs(10);
/// Concurrent calls on one connection: a client library has a few leases, a load generator many.
const MAX_STREAMS: u32 = 128;
/// Maximum size of a node's message: an inventory with all answers of its devices.
const MAX_NODE_WORD: usize = 16 << 20;
/// Maximum size of all other messages. The longest are a request's line, and a user with all groups.
const MAX_WORD: usize = 16 << 10;
/// Timeout for a call's message, and for the beginning of its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A manager that serves.
pub struct RunningManager {
    /// The addresses that it listens on.
    pub addresses: Vec<SocketAddr>,
    /// The address of the separate listener for `/metrics` and `/healthz`, if there is one.
    pub watched_at: Option<SocketAddr>,
    store: PathBuf,
    owner: tokio::task::JoinHandle<Result<(), StoreLost>>,
    stop: watch::Sender<bool>,
}

impl RunningManager {
    /// Waits until the manager stops serving without being told to, and returns why. The process should end
    /// then, so that it is restarted from its store.
    pub async fn failed(&mut self) -> CannotStart {
        match (&mut self.owner).await {
            Ok(Err(StoreLost { fault, lasted })) => CannotStart::StoreFailed {
                path: self.store.clone(),
                fault,
                seconds: lasted.0 / 1000,
            },
            // The panic has already reported the cause.
            Ok(Ok(())) | Err(_) => CannotStart::Failed,
        }
    }

    /// Stops accepting input, writes what is not written yet, and returns.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A panic, or a failure of the store, was already reported.
        let _ = self.owner.await;
    }
}

/// Starts serving the store's state.
///
/// # Errors
/// [`CannotStart`]; nothing is served then.
pub async fn start(
    settings: &Settings,
    store: Box<dyn Store>,
) -> Result<RunningManager, CannotStart> {
    let tls = connections::tls(settings)?;
    if let Some(files) = &settings.tls {
        let own = OwnCertificate::load(&files.certificate)?;
        tokio::spawn(causeway_serving::watch_certificate(own));
    }
    let (listeners, addresses) = listen(&settings.listen).await?;
    let state = State::read(settings, store)?;
    let (inbox, inputs) = mpsc::channel(INBOX);
    let (stop, stopping) = watch::channel(false);
    let owner = tokio::spawn(state.owner.run(inputs, stopping.clone()));
    if let Some(policy) = settings.policy.clone() {
        let (done, _) = oneshot::channel();
        // Cannot fail: the owner was just started.
        let _ = inbox
            .send(Input::Order(Event::PolicyChanged(policy), done))
            .await;
    }
    let authenticator = Authenticator::new(settings.authenticate, state.directory);
    let connections = Connections::new(tls, authenticator.clone(), state.certified);
    let watching = Watching {
        owner: inbox,
        health: state.healthy,
        counters: state.counters,
    };
    let watchers = connections.watchers(settings)?;
    let watched_at = watchers.as_ref().map(Listener::address);
    let incoming = connections.accept(listeners, watching.clone());
    serve(
        settings,
        &authenticator,
        &watching,
        incoming,
        stopping.clone(),
    )?;
    if let Some(watchers) = watchers {
        tokio::spawn(watch_over(watchers, watching, stopping));
    }
    Ok(RunningManager {
        addresses,
        watched_at,
        store: settings.store.clone(),
        owner,
        stop,
    })
}

/// What the store held: the owner of the state, and what others share with it.
struct State {
    owner: Owner,
    directory: Arc<RwLock<Directory>>,
    certified: Certified,
    healthy: watch::Receiver<Health>,
    counters: Arc<Counters>,
}

impl State {
    /// Reads the store. Writes the first administrator and the signing key if the store has none.
    fn read(settings: &Settings, mut store: Box<dyn Store>) -> Result<State, CannotStart> {
        let stored = store.load().map_err(CannotStart::store(&settings.store))?;
        let by_certificate = settings
            .tls
            .as_ref()
            .is_some_and(|of| of.client_ca.is_some());
        let mut directory = Directory::new(stored.users, stored.tokens, stored.removed)
            .open_without_tokens(!settings.authenticate || by_certificate);
        if settings.authenticate {
            first_admin::ensure(&settings.store, store.as_mut(), &mut directory)?;
        }
        let key = signing_key(&settings.store, store.as_mut(), stored.signing_key)?;
        let clock = Clock::start();
        let shared_directory = Arc::new(RwLock::new(directory.clone()));
        let certified = Certified::default();
        let book = Book::new(&stored.rows);
        tracing::info!(
            leases = book.leases.len(),
            waiting = book.waiting.len(),
            nodes = book.nodes.len(),
            "store read"
        );
        let (health, healthy) = watch::channel(Health::default());
        let counters = Arc::<Counters>::default();
        let owner = Owner::new(Beginning {
            manager: Manager::load(stored.rows, clock.calendar()),
            clock,
            book,
            directory,
            shared_directory: Arc::clone(&shared_directory),
            certified: certified.clone(),
            key,
            heartbeat: (settings.heartbeat_interval, settings.heartbeat_limit),
            writer: Writer::start()?,
            store,
            store_failure_limit: settings.store_failure_limit,
            health,
            counters: Arc::clone(&counters),
        });
        Ok(State {
            owner,
            directory: shared_directory,
            certified,
            healthy,
            counters,
        })
    }
}

/// The stored key that signs leases, or a new one.
fn signing_key(
    path: &Path,
    store: &mut dyn Store,
    known: Option<Secret>,
) -> Result<LeaseKey, CannotStart> {
    if let Some(pkcs8) = known {
        return Ok(LeaseKey::from_pkcs8(pkcs8)?);
    }
    let key = LeaseKey::generate()?;
    let stored = store.apply(&[Write::SigningKey(key.to_pkcs8().clone())]);
    stored.map_err(CannotStart::store(path))?;
    Ok(key)
}

async fn listen(
    addresses: &[SocketAddr],
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), CannotStart> {
    let (mut listeners, mut bound) = (Vec::new(), Vec::new());
    for &address in addresses {
        let failed = |error| CannotStart::Listen { address, error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        bound.push(listener.local_addr()?);
        listeners.push(listener);
    }
    Ok((listeners, bound))
}

fn serve(
    settings: &Settings,
    authenticator: &Authenticator,
    watching: &Watching,
    incoming: Incoming,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), NotReflected> {
    let owner = watching.owner.clone();
    let nodes = nodes::NodesService {
        authenticator: authenticator.clone(),
        owner: owner.clone(),
        silence_limit: settings.heartbeat_limit,
    };
    let leases = leases::LeasesService {
        authenticator: authenticator.clone(),
        owner: owner.clone(),
        visible: settings.visible,
        insecure: settings.exposed().is_some(),
        started: Instant::now(),
        pace: Mutex::new(Pace::new(pace::CONSIDERED)),
        refusals: Arc::new(Mutex::new(Pace::new(pace::REFUSED))),
    };
    let admin = admin::AdminService {
        authenticator: authenticator.clone(),
        owner,
        visible: settings.visible,
        started: Instant::now(),
    };
    let health = watching.health.clone();
    let nodes = NodesServer::new(nodes).max_decoding_message_size(MAX_NODE_WORD);
    let leases = LeasesServer::new(leases).max_decoding_message_size(MAX_WORD);
    let admin = AdminServer::new(admin).max_decoding_message_size(MAX_WORD);
    let services = Services::default()
        .within(ANSWER_WITHIN)
        .with(Judged::new(authenticator, nodes))
        .with(Judged::new(authenticator, leases))
        .with(Judged::new(authenticator, admin))
        .with_health(health, |health| health.problem.is_none())
        .with_reflection(causeway_proto::SERVICES)?;
    let serving = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .http2_max_header_list_size(16 << 10)
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_WITHIN))
        .serve_with_incoming(services, ReceiverStream::new(incoming));
    tokio::spawn(async move {
        tokio::select! {
            served = serving => if let Err(error) = served {
                tracing::error!(%error, "the services ended");
            },
            // Calls that last as long as their callers want end with the process.
            _ = stopping.wait_for(|&stop| stop) => {}
        }
    });
    Ok(())
}

/// Serves `/metrics` and `/healthz` until the manager stops. These hold a sender to the owner, which
/// would keep it from ending.
async fn watch_over(watchers: Listener, watching: Watching, mut stopping: watch::Receiver<bool>) {
    tokio::select! {
        () = watchers.serve(watching) => {}
        _ = stopping.wait_for(|&stop| stop) => {}
    }
}
