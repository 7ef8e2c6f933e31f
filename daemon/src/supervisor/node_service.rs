//! The `Node` service: what clients, tools and the device manager ask a node.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::control::node_server::Node;
use causeway_proto::control::{
    Client, CloseSessionReply, CloseSessionRequest, GetInventoryRequest, GetStatusRequest,
    Inventory, NodeStatus, OpenSessionReply, OpenSessionRequest,
};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::Verdict;
use causeway_proto::version;
use causeway_serving::door::{Connection, Judged, Peer};
use causeway_serving::services::{NotReflected, Services};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

use super::Supervisor;
use super::authentication::{self, Door, User, caller};
use super::holders::Holder;
use super::long_messages::ByHead;
use super::managed::{Managed, NoLease, Place};
use super::workers::NotOpened;
use crate::handover::{Leased, MAX_USER, Owner};

/// Where accepted connections that speak HTTP/2 go.
pub(super) type ControlConnections = mpsc::Sender<io::Result<Connection>>;

/// A peer that vanished is noticed by a ping, so that its place is free again.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WITHIN: Duration = Duration::from_secs(10);
/// Nobody needs a control connection for longer; who does opens another.
const MAX_AGE: Duration = Duration::from_secs(600);
/// A call's message has to come, and its answer to begin, beside the time for which drivers load.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// What tools are told of a node that `--insecure` has opened to everybody.
const EXPOSED: &str =
    "INSECURE: everyone who can reach this node can use it, and read what crosses the network";
/// What tools are told of a node that was told to end.
const STOPPING: &str =
    "STOPPING: this node opens no session any more, and ends when those that run are over";
/// The path of the call that opens a session.
const OPEN_SESSION: &str = "/causeway.control.v1.Node/OpenSession";
/// Calls at once on one connection.
const MAX_STREAMS: u32 = 16;
/// Why sessions are not opened.
pub(super) const REASONS: [&str; 6] = [
    "unauthenticated",
    "no_lease",
    "full",
    "unavailable",
    "outdated",
    "other",
];

/// Starts the service; it serves the connections that are sent to it.
///
/// # Errors
/// When reflection has nothing to tell of it.
pub(super) fn serve(supervisor: &Arc<Supervisor>) -> Result<ControlConnections, NotReflected> {
    let (connections, incoming) = mpsc::channel(64);
    let door = Door(Arc::clone(supervisor));
    let node = NodeService(Arc::clone(supervisor));
    let node = ByHead::new(supervisor, node);
    let health = supervisor.health.subscribe();
    // Who asks for devices may wait for others' look at them and for his own; each is up to two probes.
    let probes = 4 * supervisor.settings.inventory.probe_time_limit;
    let services = Services::default()
        .within(probes + ANSWER_WITHIN)
        .with(Judged::new(&door, node))
        .with_health(health, Option::is_none)
        .with_reflection(causeway_proto::SERVICES)?;
    let serving = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .http2_max_header_list_size(16 << 10)
        .http2_keepalive_interval(Some(PING_EVERY))
        .http2_keepalive_timeout(Some(PING_WITHIN))
        .max_connection_age(MAX_AGE)
        .max_connection_age_grace(Duration::from_secs(60))
        .serve_with_incoming(services, ReceiverStream::new(incoming));
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "the Node service ended");
        }
    });
    Ok(connections)
}

struct NodeService(Arc<Supervisor>);

#[tonic::async_trait]
impl Node for NodeService {
    async fn get_inventory(
        &self,
        request: Request<GetInventoryRequest>,
    ) -> Result<Response<Inventory>, Status> {
        let user = caller(&request)?;
        self.check_version(request.get_ref().wire_version)?;
        // A stranger is shown no device, so nobody looks for them on his account.
        let known = match self.let_in(&request, &request.get_ref().credential, &user)? {
            true => self.0.current_inventory().await,
            false => self.0.inventory.latest(),
        };
        let inventory = self.0.told(&known);
        Ok(Response::new(match &self.0.managed {
            None => inventory,
            Some(managed) => managed.shown(inventory, &request.get_ref().credential, &user),
        }))
    }

    async fn open_session(
        &self,
        request: Request<OpenSessionRequest>,
    ) -> Result<Response<OpenSessionReply>, Status> {
        let opened = self.open(request).await;
        if let Err(status) = &opened {
            self.0.not_opened.count(reason(status.code()));
        }
        opened.map(Response::new)
    }

    async fn close_session(
        &self,
        request: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionReply>, Status> {
        caller(&request)?;
        let request = request.get_ref();
        let named = <[u8; 16]>::try_from(&request.session_id[..])
            .ok()
            .zip(<[u8; 32]>::try_from(&request.session_secret[..]).ok());
        let (id, secret) =
            named.ok_or_else(|| Status::invalid_argument("no session id and secret"))?;
        match self.0.workers.close(SessionId(id), &SessionSecret(secret)) {
            Ok(()) => Ok(Response::new(CloseSessionReply {})),
            Err(verdict @ Verdict::UnknownSession) => Err(Status::not_found(verdict.to_string())),
            Err(verdict) => Err(Status::permission_denied(verdict.to_string())),
        }
    }

    async fn get_status(
        &self,
        request: Request<GetStatusRequest>,
    ) -> Result<Response<NodeStatus>, Status> {
        caller(&request)?;
        self.check_version(request.get_ref().wire_version)?;
        let counts = self.0.workers.counts();
        let known = self.0.inventory.latest();
        let count = |n| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(Response::new(NodeStatus {
            node_name: self.0.settings.name.clone(),
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            sessions: count(counts.sessions),
            session_limit: self.0.settings.sessions.limit,
            spare_workers: count(counts.spares),
            draining: counts.draining || self.0.managed.as_ref().is_some_and(Managed::is_draining),
            problems: exposed(&self.0)
                .chain(known.inventory.problems.clone())
                .collect(),
        }))
    }
}

impl NodeService {
    async fn open(&self, request: Request<OpenSessionRequest>) -> Result<OpenSessionReply, Status> {
        let user = caller(&request)?;
        let holder = holder(&user, &request);
        self.check_version(request.get_ref().wire_version)?;
        self.let_in(&request, &request.get_ref().credential, &user)?;
        let request = request.into_inner();
        // Whoever has no lease is told why: nobody looks for devices, and no session makes room, on their account.
        drop(self.lease(&request.credential, &user)?);
        let generation = self.0.current_inventory().await.inventory.generation;
        if request.inventory_generation != generation {
            return Err(Status::failed_precondition(
                "the node's devices have changed since its inventory was read; read it again",
            ));
        }
        let made = self.0.workers.make_room(&holder).await;
        made.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        let lease = self.lease(&request.credential, &user)?;
        let owner = lease
            .as_ref()
            .map_or_else(|| owner(&user), |(place, _)| place.owner().clone());
        let opened = self
            .0
            .workers
            .open(&holder, &owner, lease)
            .map_err(|error| match error {
                NotOpened::Draining => Status::unavailable(error.to_string()),
                NotOpened::Full(_) | NotOpened::TooMuch(_) | NotOpened::NoWorker(_) => {
                    Status::resource_exhausted(error.to_string())
                }
            })?;
        if let (Some(managed), Some(place)) = (&self.0.managed, opened.place) {
            managed.opened(place);
        }
        log_client(opened.id, &owner, request.client);
        let milliseconds = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        let heartbeat = self.0.settings.heartbeat;
        Ok(OpenSessionReply {
            session_id: opened.id.0.to_vec().into(),
            session_secret: opened.secret.0.to_vec().into(),
            certificate_sha256: opened
                .fingerprint
                .map(|fingerprint| fingerprint.0.to_vec().into())
                .unwrap_or_default(),
            heartbeat_interval_ms: milliseconds(heartbeat.interval),
            heartbeat_limit_ms: milliseconds(heartbeat.limit),
            bulk_connections: self.0.settings.sessions.bulk_connections,
            shared_memory: match &self.0.place {
                Some(place) => place.tell().to_vec().into(),
                None => Default::default(),
            },
        })
    }

    /// Where leases are asked for, who shows a good one is let in. Whether the connection is no stranger's.
    fn let_in<T>(
        &self,
        request: &Request<T>,
        credential: &[u8],
        user: &User,
    ) -> Result<bool, Status> {
        let Some(peer) = request.extensions().get::<Peer>() else {
            return Ok(false);
        };
        let is_leased = |managed: &Managed| managed.knows(credential, user);
        if !peer.standing.is_known() && self.0.managed.as_ref().is_some_and(is_leased) {
            authentication::let_in(peer)?;
        }
        Ok(peer.standing.is_known())
    }

    /// On a managed node, the place in a lease that the credential is good for.
    fn lease(
        &self,
        credential: &[u8],
        user: &User,
    ) -> Result<Option<(Place, Vec<Leased>)>, Status> {
        let Some(managed) = &self.0.managed else {
            return Ok(None);
        };
        managed.admit(credential, user).map(Some).map_err(|error| {
            tracing::info!(%error, "a session was not admitted");
            match error {
                NoLease::NoManager => Status::unavailable(error.to_string()),
                NoLease::NoLedger(_) => Status::resource_exhausted(error.to_string()),
                _ => Status::permission_denied(error.to_string()),
            }
        })
    }

    fn check_version(&self, theirs: u32) -> Result<(), Status> {
        version::check(theirs).map_err(|mismatch| {
            let name = &self.0.settings.name;
            Status::failed_precondition(format!("causewayd on {name}: {mismatch}"))
        })
    }
}

/// What is said of a node that is open to everybody, or serves nobody new.
pub(super) fn remarks(supervisor: &Supervisor) -> impl Iterator<Item = String> + use<> {
    let is_stopping = supervisor.workers.counts().draining;
    exposed(supervisor).chain(is_stopping.then(|| STOPPING.to_owned()))
}

fn exposed(supervisor: &Supervisor) -> impl Iterator<Item = String> + use<> {
    let exposed = supervisor.is_exposed();
    exposed.then(|| EXPOSED.to_owned()).into_iter()
}

/// Whose session it is to be.
fn holder<T>(User(user): &User, request: &Request<T>) -> Holder {
    let peer = request.extensions().get::<Peer>();
    Holder {
        address: peer.map(|peer| peer.address.ip()),
        user: user.clone(),
    }
}

/// Whose it is where there is no lease.
fn owner(User(user): &User) -> Owner {
    Owner {
        lease: None,
        user: user
            .as_ref()
            .map(|user| user.chars().take(MAX_USER).collect()),
    }
}

/// A call was refused before the service heard of it.
pub(super) fn count_refusal(supervisor: &Supervisor, path: &str, status: &Status) {
    if path == OPEN_SESSION {
        supervisor.not_opened.count(reason(status.code()));
    }
}

/// What a refusal counts as: one of [`REASONS`].
fn reason(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => "unauthenticated",
        Code::PermissionDenied => "no_lease",
        Code::ResourceExhausted => "full",
        Code::Unavailable => "unavailable",
        Code::FailedPrecondition => "outdated",
        _ => "other",
    }
}

/// What a client says of itself is for people, and not to be believed; but for whose session it is.
fn log_client(session: SessionId, owner: &Owner, client: Option<Client>) {
    let client = client.unwrap_or_default();
    let short = |text: &str| -> String { text.chars().take(64).collect() };
    tracing::info!(
        ?session,
        lease = owner.lease,
        user = owner.user,
        program = ?short(&client.program),
        pid = client.pid,
        client_user = ?short(&client.user),
        host = ?short(&client.host),
        library = ?short(&client.library_version),
        "session of"
    );
}
