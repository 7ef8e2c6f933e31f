//! The device manager's service: gRPC around the lease manager.
//!
//! - `owner`: the one task that owns the state; `input`: its inputs; `book`: the durable state for
//!   listings.
//! - `connections`: from a listening socket to a gRPC connection, with or without TLS; `certified`:
//!   connections by the name in their certificate, for removed users.
//! - `authentication`: who is calling. `nodes`, `leases`, `admin`: the services. `wire`, `quotas`: conversions to
//!   the wire.
//! - `links`: measured links; `link_place`: where nodes reach each other for them.
//! - `reading`: reads the owner's state; `error`: why the manager ends.
//! - `watching`: `/healthz` and `/metrics`; `surroundings`: the other managers, for these. `dashboard`: pages for
//!   browsers. `first_admin`: the administrator of a manager that has no
//!   other.
//! - `offline`: what is done to a store that no manager uses.
//! - `port`: listeners and services, while roles change. `shared`: a manager among others, over etcd; `others`:
//!   what it knows of them; `aside`: when it leaves the lead to them. `standby`: its services while another leads.
//!   `identity`: cluster and term in every answer.
//!
//! This module decides nothing about leases; [`crate::lease`] does. Invariant: only the owner changes
//! state, and the owner never waits for another task.

mod admin;
mod aside;
mod authentication;
mod book;
mod certified;
mod connections;
mod dashboard;
mod error;
mod first_admin;
mod identity;
mod input;
mod leases;
mod link_place;
mod links;
mod nodes;
mod offline;
mod others;
mod owner;
mod pace;
mod port;
mod quotas;
mod reading;
mod shared;
mod standby;
mod surroundings;
mod watching;
mod wire;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use causeway_proto::metadata::{ClusterId, Term};
use causeway_security::{LeaseKey, Secret};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::etcd::Tenure;
use crate::identity::Directory;
use crate::lease::Manager;
use crate::settings::Settings;
use crate::store::{Store, Stored, Write};
use crate::time::Span;
use book::Book;
use certified::Certified;
pub use error::CannotStart;
pub use first_admin::token_file;
pub use offline::{Task, offline};
use owner::{Beginning, Clock, Health, Owner, OwnerEnd, Writer};
use port::Port;
pub use shared::start_shared;
use watching::Counters;

/// A manager that serves, or stands by.
pub struct RunningManager {
    /// The addresses that it listens on.
    pub addresses: Vec<SocketAddr>,
    /// The address of the separate listener for `/metrics` and `/healthz`, if there is one.
    pub watched_at: Option<SocketAddr>,
    /// The address of the dashboard, if there is one.
    pub dashboard_at: Option<SocketAddr>,
    /// The id of the manager's cluster. With etcd, `None` until it has been read there.
    pub cluster: watch::Receiver<Option<ClusterId>>,
    work: tokio::task::JoinHandle<Result<(), CannotStart>>,
    stop: watch::Sender<bool>,
}

impl RunningManager {
    /// Waits until the manager stops serving without being told to, and returns why. The process should end
    /// then, so that it is restarted from its store.
    pub async fn failed(&mut self) -> CannotStart {
        match (&mut self.work).await {
            Ok(Err(error)) => error,
            // The panic has already reported the cause.
            Ok(Ok(())) | Err(_) => CannotStart::Failed,
        }
    }

    /// Stops accepting input, writes what is not written yet, and returns.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A panic, or a failure of the store, was already reported.
        let _ = self.work.await;
    }
}

/// Starts serving the state of a store that no other manager uses.
///
/// # Errors
/// [`CannotStart`]; nothing is served then.
pub async fn start(
    settings: &Settings,
    mut store: Box<dyn Store>,
) -> Result<RunningManager, CannotStart> {
    let (mut port, bound) = Port::open(settings, None).await?;
    let stored = store.load().map_err(CannotStart::store(&settings.store))?;
    let state = LoadedStore::read(settings, store, stored, Tenure::unlimited())?;
    let (stop, stopping) = watch::channel(false);
    let (_, cluster) = watch::channel(Some(state.cluster));
    let owner = port.serve(state, None, stopping.clone()).await?;
    port.watch_over(stopping);
    let path = settings.store.clone();
    let work = tokio::spawn(async move {
        match owner.await {
            Ok(Err(OwnerEnd::StoreLost(lost))) => Err(CannotStart::StoreFailed {
                path,
                fault: lost.fault,
                seconds: lost.lasted.0 / 1000,
            }),
            Ok(Ok(())) => Ok(()),
            // A store of one manager is never taken over. The panic has already reported the cause.
            Ok(Err(OwnerEnd::Deposed | OwnerEnd::TenureOver)) | Err(_) => Err(CannotStart::Failed),
        }
    });
    Ok(RunningManager {
        addresses: bound.addresses,
        watched_at: bound.watched_at,
        dashboard_at: bound.dashboard_at,
        cluster,
        work,
        stop,
    })
}

/// What the store held: the owner of the state, and what others share with it.
struct LoadedStore {
    owner: Owner,
    directory: Arc<RwLock<Directory>>,
    certified: Certified,
    healthy: watch::Receiver<Health>,
    counters: Arc<Counters>,
    /// Signs leases, and claims for measuring.
    key: Arc<LeaseKey>,
    cluster: ClusterId,
    term: Term,
    tenure: Tenure,
}

impl LoadedStore {
    /// Takes what was read from the store. Writes the cluster's id, the first administrator and the signing
    /// key if the store has none.
    fn read(
        settings: &Settings,
        mut store: Box<dyn Store>,
        stored: Stored,
        tenure: Tenure,
    ) -> Result<LoadedStore, CannotStart> {
        let directory = Directory::new(stored.users, stored.tokens, stored.removed);
        let directory = with_admin(directory, settings, store.as_mut())?;
        let key = Arc::new(signing_key(
            &settings.store,
            store.as_mut(),
            stored.signing_key,
        )?);
        let known = (stored.cluster, stored.term);
        let (cluster, term) = standing(&settings.store, store.as_mut(), known)?;
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
        let counters = Arc::new(Counters::new(store.is_shared()));
        let store_failure_limit = match store.is_shared() {
            // Without etcd nobody leads, and with it the manager heals by itself.
            true => Span(u64::MAX),
            false => settings.store_failure_limit,
        };
        let owner = Owner::new(Beginning {
            manager: Manager::load(stored.rows, clock.calendar()),
            clock,
            book,
            directory,
            shared_directory: Arc::clone(&shared_directory),
            certified: certified.clone(),
            key: Arc::clone(&key),
            standing: (cluster, term),
            tenure: tenure.clone(),
            heartbeat: (settings.heartbeat_interval, settings.heartbeat_limit),
            writer: Writer::start()?,
            store,
            store_failure_limit,
            health,
            counters: Arc::clone(&counters),
        });
        Ok(LoadedStore {
            owner,
            directory: shared_directory,
            certified,
            healthy,
            counters,
            key,
            cluster,
            term,
            tenure,
        })
    }
}

/// The users, with a first administrator if tokens are required and the store has none.
fn with_admin(
    directory: Directory,
    settings: &Settings,
    store: &mut dyn Store,
) -> Result<Directory, CannotStart> {
    let tls = settings.tls.as_ref();
    let by_certificate = tls.is_some_and(|of| of.client_ca.is_some());
    let mut directory = directory.open_without_tokens(!settings.authenticate || by_certificate);
    if settings.authenticate {
        let file = &settings.admin_token;
        first_admin::ensure(&settings.store, file, store, &mut directory)?;
    }
    Ok(directory)
}

/// The cluster's id and its term, or new ones.
fn standing(
    path: &Path,
    store: &mut dyn Store,
    (cluster, term): (Option<ClusterId>, Term),
) -> Result<(ClusterId, Term), CannotStart> {
    let mut writes = Vec::new();
    let cluster = cluster.unwrap_or_else(|| {
        let new = ClusterId(rand::random());
        writes.push(Write::Cluster(new));
        new
    });
    // With etcd, the term was raised when the lead was taken.
    let first = Term(1);
    if term < first {
        writes.push(Write::Term(first));
    }
    if !writes.is_empty() {
        store.apply(&writes).map_err(CannotStart::store(path))?;
    }
    Ok((cluster, term.max(first)))
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
