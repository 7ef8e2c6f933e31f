//! The `Node` service: the calls of clients, tools and the device manager.

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
use causeway_serving::gate::{Connection, Judged, Peer};
use causeway_serving::services::{NotReflected, Services};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};

use super::Supervisor;
use super::authentication::{self, ClientJudge, User, caller};
use super::holders::Holder;
use super::long_messages::ByHead;
use super::managed::{Managed, NoLease, Place};
use super::workers::NotOpened;
use crate::handover::{Leased, Owner};

/// Sender for accepted connections that speak HTTP/2.
pub(super) type ControlConnections = mpsc::Sender<io::Result<Connection>>;

/// Interval of pings that detect vanished peers, so that their places become free.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WITHIN: Duration = Duration::from_secs(10);
/// Maximum age of a control connection. A client that needs one for longer opens another.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Time for a call's message to arrive and its answer to begin, in addition to the time in which drivers
/// load.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Remark shown by tools for a node that `--insecure` opens to everybody.
const EXPOSED: &str = "INSECURE: everyone who can reach this node can use it and read the traffic, because --insecure \
                       is set";
/// Remark shown by tools for a node that is shutting down.
const STOPPING: &str =
    "STOPPING: this node opens no new sessions, and ends when its running sessions have ended";
/// Path of the call that opens a session.
const OPEN_SESSION: &str = "/causeway.control.v1.Node/OpenSession";
/// Maximum number of simultaneous calls on one connection.
const MAX_STREAMS: u32 = 16;
/// Labels of the reasons for which sessions are not opened.
pub(super) const REASONS: [&str; 6] = [
    "unauthenticated",
    "no_lease",
    "full",
    "unavailable",
    "outdated",
    "other",
];

/// Starts the service. It serves the connections that are sent to the returned channel.
///
/// # Errors
/// [`NotReflected`] if the service descriptions are invalid.
pub(super) fn serve(supervisor: &Arc<Supervisor>) -> Result<ControlConnections, NotReflected> {
    let (connections, incoming) = mpsc::channel(64);
    let judge = ClientJudge(Arc::clone(supervisor));
    let node = NodeService(Arc::clone(supervisor));
    let node = ByHead::new(supervisor, node);
    let health = supervisor.health.subscribe();
    // A request for devices may wait for another request's probes and then for its own. Each may take two
    // probes.
    let probes = 4 * supervisor.settings.inventory.probe_time_limit;
    let services = Services::default()
        .within(probes + ANSWER_WITHIN)
        .with(Judged::new(&judge, node))
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
        // No probe runs on behalf of an unknown caller, because it is shown no device.
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
        let (id, secret) = named.ok_or_else(|| {
            Status::invalid_argument("the request has no valid session id and secret")
        })?;
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
        // Callers without a lease are refused before the next steps: on their account no probe runs, and no
        // other session is displaced. The place taken here is released again at once.
        drop(self.lease(&request.credential, &user)?);
        let generation = self.0.current_inventory().await.inventory.generation;
        if request.inventory_generation != generation {
            return Err(Status::failed_precondition(
                "the node's devices have changed since its inventory was read; read it again",
            ));
        }
        let made = self.0.workers.make_room(&holder).await;
        made.map_err(|error| Status::resource_exhausted(error.to_string()))?;
        // The credential is checked again, because the lease may have ended while this call waited.
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

    /// On a managed node, marks the connection as known if the credential is a valid lease. Returns whether
    /// the connection is known.
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

    /// On a managed node, takes a place in the lease that the credential proves.
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

/// Returns remarks for tools: the node is open to everybody, or it is shutting down.
pub(super) fn remarks(supervisor: &Supervisor) -> impl Iterator<Item = String> + use<> {
    let is_stopping = supervisor.workers.counts().draining;
    exposed(supervisor).chain(is_stopping.then(|| STOPPING.to_owned()))
}

fn exposed(supervisor: &Supervisor) -> impl Iterator<Item = String> + use<> {
    let exposed = supervisor.is_exposed();
    exposed.then(|| EXPOSED.to_owned()).into_iter()
}

/// Returns the party to which the session is charged.
fn holder<T>(User(user): &User, request: &Request<T>) -> Holder {
    let peer = request.extensions().get::<Peer>();
    Holder {
        address: peer.map(|peer| peer.address.ip()),
        user: user.clone(),
    }
}

/// Returns the owner of a session without a lease.
fn owner(User(user): &User) -> Owner {
    Owner {
        lease: None,
        user: user.clone(),
    }
}

/// Counts a call that was refused before it reached the service.
pub(super) fn count_refusal(supervisor: &Supervisor, path: &str, status: &Status) {
    if path == OPEN_SESSION {
        supervisor.not_opened.count(reason(status.code()));
    }
}

/// Returns the label under which a refusal is counted, one of [`REASONS`].
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

/// Logs what the client reports about itself. Only lease and user are verified; the other fields are for
/// people and are not trusted.
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
        "client of a session"
    );
}
