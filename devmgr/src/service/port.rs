//! The manager's listeners, and the services on them. They stay open while roles change; connections do not.
//!
//! Invariant: all connections of a tenure fail at its end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::manager::admin_server::AdminServer;
use causeway_proto::manager::leases_server::LeasesServer;
use causeway_proto::manager::nodes_server::NodesServer;
use causeway_security::{LeaseKey, OwnCertificate, ServerTls};
use causeway_serving::gate::Judged;
use causeway_serving::pages::Pages;
use causeway_serving::services::{NotReflected, Services};
use causeway_serving::watched::Listener;
use parking_lot::{Mutex, RwLock};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use super::admin::ManagerListing;
use super::authentication::Authenticator;
use super::certified::Certified;
use super::connections::{self, Connections, Incoming};
use super::dashboard::{Dashboard, Served};
use super::error::CannotStart;
use super::identity::{Identity, Marked, TermJudge};
use super::input::Input;
use super::links::ReportedLinks;
use super::others::Others;
use super::owner::{INBOX, OwnerEnd};
use super::pace::{self, Pace};
use super::surroundings::Surroundings;
use super::watching::{ServedState, Watching};
use super::{LoadedStore, admin, aside, leases, nodes, standby};
use crate::etcd::{SharedTurnedAway, Standing, Tenure};
use crate::identity::Directory;
use crate::lease::Event;
use crate::settings::Settings;

/// Interval and timeout of the HTTP/2 pings that detect vanished peers.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WITHIN: Duration = Duration::from_secs(10);
/// Concurrent calls on one connection: a client library has a few leases, a load generator many.
const MAX_STREAMS: u32 = 128;
/// Maximum size of a node's message: an inventory with all answers of its devices.
const MAX_NODE_WORD: usize = 16 << 20;
/// Maximum size of all other messages. The longest are a request's line, and a user with all groups.
const MAX_WORD: usize = 16 << 10;
/// Number of connections that may wait until they are accepted, as far as the kernel allows (`net.core.somaxconn`). At a
/// change of the leader, all nodes and clients dial at once. The kernel discards the others' dials, and these callers
/// repeat them a second later.
const BACKLOG: u32 = 32_768;
/// Timeout for a call's message, and for the beginning of its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// The manager's listeners. See the module.
pub(super) struct Port {
    settings: Settings,
    tls: Option<ServerTls>,
    listeners: Vec<Arc<TcpListener>>,
    watchers: Option<Listener>,
    watching: Watching,
    dashboard: Option<Dashboard>,
    /// The dashboard's listener, until it serves.
    pages: Option<Pages>,
}

/// The addresses that a port has bound.
pub(super) struct Bound {
    pub(super) addresses: Vec<SocketAddr>,
    /// The address of the separate listener for monitoring.
    pub(super) watched_at: Option<SocketAddr>,
    pub(super) dashboard_at: Option<SocketAddr>,
}

impl Port {
    /// Binds all addresses, and returns them.
    pub(super) async fn open(
        settings: &Settings,
        others: Option<Surroundings>,
    ) -> Result<(Port, Bound), CannotStart> {
        let tls = connections::tls(settings)?;
        let own = settings.tls.as_ref();
        let own = own.map(|files| OwnCertificate::load(&files.certificate));
        let own = own.transpose()?;
        if let Some(own) = own.clone() {
            tokio::spawn(causeway_serving::watch_certificate(own));
        }
        let (listeners, addresses) = listen(&settings.listen)?;
        let watchers = connections::watchers(tls.as_ref(), settings)?;
        let watched_at = watchers.as_ref().map(Listener::address);
        let pages = connections::pages(tls.as_ref(), settings)?;
        let dashboard_at = pages.as_ref().map(Pages::address);
        let standing = others.as_ref().map(|of| of.standing.clone());
        let dashboard = dashboard_at
            .map(|at| Dashboard::new(at, tls.is_some(), settings.authenticate, standing));
        let port = Port {
            settings: settings.clone(),
            tls,
            listeners,
            watchers,
            watching: Watching::new(others, own),
            dashboard,
            pages,
        };
        let bound = Bound {
            addresses,
            watched_at,
            dashboard_at,
        };
        Ok((port, bound))
    }

    /// Says where others reach this manager.
    pub(super) fn advertise(&mut self, address: String) {
        self.settings.advertise = Some(address);
    }

    /// The dashboard, if there is one.
    pub(super) fn dashboard(&self) -> Option<Dashboard> {
        self.dashboard.clone()
    }

    /// Serves a state, until it stops or its tenure ends. Returns the owner's task.
    pub(super) async fn serve(
        &self,
        state: LoadedStore,
        others: Option<Others>,
        stopping: watch::Receiver<bool>,
    ) -> Result<JoinHandle<Result<(), OwnerEnd>>, CannotStart> {
        let (inbox, inputs) = mpsc::channel(INBOX);
        let owner = tokio::spawn(state.owner.run(inputs, stopping.clone()));
        if let Some(policy) = self.settings.policy.clone() {
            let (done, _) = oneshot::channel();
            // Fails only if the tenure has ended already.
            let _ = inbox
                .send(Input::Order(Event::PolicyChanged(policy), done))
                .await;
        }
        let authenticator = Authenticator::new(self.settings.authenticate, state.directory);
        self.watching.set(Some(ServedState {
            owner: inbox.clone(),
            health: state.healthy.clone(),
            counters: state.counters,
            term: state.term,
        }));
        let identity = Identity::new(state.cluster, state.term, inbox.clone());
        if let Some(others) = others.clone() {
            let leader = self.settings.advertise.clone().unwrap_or_default();
            let (owner, tenure) = (inbox.clone(), state.tenure.clone());
            tokio::spawn(aside::watch(owner, others, leader, tenure));
        }
        let links = ReportedLinks::default();
        let managers = ManagerListing {
            started: Instant::now(),
            identity: identity.clone(),
            address: self.settings.advertise.clone().unwrap_or_default(),
            others,
        };
        if let Some(dashboard) = &self.dashboard {
            dashboard.set(Some(Served {
                owner: inbox,
                authenticator: authenticator.clone(),
                visible: self.settings.visible,
                managers: managers.clone(),
                links: links.clone(),
                tenure: state.tenure.clone(),
            }));
        }
        let incoming = Connections::new(
            self.tls.clone(),
            authenticator.clone(),
            state.certified,
            state.tenure.clone(),
        )
        .accept(&self.listeners, self.watching.clone());
        let services = self
            .services(&authenticator, &identity, managers, (links, state.key))
            .with_health(state.healthy, |health| health.problem.is_none())
            .with_reflection(causeway_proto::SERVICES)?;
        run(services, incoming, state.tenure, stopping);
        Ok(owner)
    }

    /// Answers that another manager leads, until the tenure ends.
    pub(super) fn stand_by(
        &self,
        standing: &watch::Receiver<Standing>,
        turned_away: &SharedTurnedAway,
        tenure: Tenure,
        stopping: watch::Receiver<bool>,
    ) -> Result<(), NotReflected> {
        self.watching.set(None);
        if let Some(dashboard) = &self.dashboard {
            dashboard.set(None);
        }
        // A standby knows nobody, so all its callers count as strangers.
        let nobody = Directory::new(Vec::new(), Vec::new(), Vec::new());
        let directory = Arc::new(RwLock::new(nobody));
        let authenticator = Authenticator::new(self.settings.authenticate, directory);
        let certified = Certified::default();
        let incoming = Connections::new(self.tls.clone(), authenticator, certified, tenure.clone())
            .accept(&self.listeners, self.watching.clone());
        let services = standby::services(standing, turned_away)?.within(ANSWER_WITHIN);
        run(services, incoming, tenure, stopping);
        Ok(())
    }

    fn services(
        &self,
        authenticator: &Authenticator,
        identity: &Identity,
        managers: ManagerListing,
        (links, key): (ReportedLinks, Arc<LeaseKey>),
    ) -> Services {
        let (settings, owner) = (&self.settings, identity.owner.clone());
        let nodes = nodes::NodesService {
            authenticator: authenticator.clone(),
            owner: owner.clone(),
            silence_limit: settings.heartbeat_limit,
            identity: identity.clone(),
            links: links.clone(),
        };
        let leases = leases::LeasesService {
            authenticator: authenticator.clone(),
            owner: owner.clone(),
            visible: settings.visible,
            insecure: settings.exposed().is_some(),
            started: Instant::now(),
            pace: Mutex::new(Pace::new(pace::CONSIDERED)),
            refusals: Arc::new(Mutex::new(Pace::new(pace::REFUSED))),
            links: links.clone(),
            key,
            claims: Mutex::new(Pace::new(pace::CLAIMED)),
        };
        let admin = admin::AdminService {
            authenticator: authenticator.clone(),
            owner,
            visible: settings.visible,
            managers,
            links,
        };
        let nodes = NodesServer::new(nodes).max_decoding_message_size(MAX_NODE_WORD);
        let leases = LeasesServer::new(leases).max_decoding_message_size(MAX_WORD);
        let admin = AdminServer::new(admin).max_decoding_message_size(MAX_WORD);
        let judge = TermJudge::new(identity, authenticator);
        // The mark is outside, so that refusals have it, too.
        Services::default()
            .within(ANSWER_WITHIN)
            .with(Marked::new(identity, Judged::new(&judge, nodes)))
            .with(Marked::new(identity, Judged::new(&judge, leases)))
            .with(Marked::new(identity, Judged::new(&judge, admin)))
    }

    /// Serves `/metrics` and `/healthz`, and the dashboard, on their own listeners until the manager stops.
    pub(super) fn watch_over(&mut self, mut stopping: watch::Receiver<bool>) {
        let watching = self.watching.clone();
        let watchers = self.watchers.take();
        let (dashboard, pages) = (self.dashboard.clone(), self.pages.take());
        tokio::spawn(async move {
            let serving = async {
                match watchers {
                    Some(watchers) => watchers.serve(watching.clone()).await,
                    None => std::future::pending().await,
                }
            };
            let showing = async {
                match (dashboard.clone(), pages) {
                    (Some(dashboard), Some(pages)) => dashboard.serve(pages).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = serving => {}
                () = showing => {}
                _ = stopping.wait_for(|&stop| stop) => {}
            }
            // Both hold a sender to the owner, which would keep that from ending.
            watching.set(None);
            if let Some(dashboard) = dashboard {
                dashboard.set(None);
            }
        });
    }
}

fn listen(
    addresses: &[SocketAddr],
) -> Result<(Vec<Arc<TcpListener>>, Vec<SocketAddr>), CannotStart> {
    let (mut listeners, mut bound) = (Vec::new(), Vec::new());
    for &address in addresses {
        let failed = |error| CannotStart::Listen { address, error };
        let listener = listen_at(address).map_err(failed)?;
        bound.push(listener.local_addr()?);
        listeners.push(Arc::new(listener));
    }
    Ok((listeners, bound))
}

/// As [`TcpListener::bind`], which has a backlog of 1,024.
fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves connections until the tenure ends or the manager stops.
fn run(
    services: Services,
    incoming: Incoming,
    tenure: Tenure,
    mut stopping: watch::Receiver<bool>,
) {
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
            () = tenure.ended() => {}
            // Calls that last as long as their callers want end with the process.
            _ = stopping.wait_for(|&stop| stop) => {}
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn nobody_has_to_dial_twice_when_all_dial_at_once() {
        const CALLERS: usize = 1_500;
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        if most.trim().parse::<usize>().unwrap() < CALLERS {
            eprintln!("skipped: net.core.somaxconn is {}", most.trim());
            return;
        }
        causeway_serving::raise_descriptors();
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if files.is_some_and(|files| files < 2 * CALLERS as u64) {
            eprintln!("skipped: {files:?} descriptors");
            return;
        }
        let listener = listen_at("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut dialled = JoinSet::new();
        for _ in 0..CALLERS {
            dialled.spawn(TcpStream::connect(address));
        }
        // None of them is accepted, so a discarded one would never be connected.
        let all = tokio::time::timeout(Duration::from_secs(30), dialled.join_all()).await;
        let all = all.expect("all connections are open");
        assert!(
            all.iter().all(Result::is_ok),
            "{:?}",
            all.iter().find(|of| of.is_err())
        );
    }
}
