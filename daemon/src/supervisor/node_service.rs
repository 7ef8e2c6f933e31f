//! The `Node` service: the calls of clients, tools and the device manager.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_lane::DaemonPlace;
use causeway_links::Terms;
use causeway_proto::control::node_server::{Node, NodeServer};
use causeway_proto::control::{
    self, Client, CloseSessionReply, CloseSessionRequest, EndAwayReply, EndAwayRequest,
    GetInventoryRequest, GetLinksRequest, GetSessionEndRequest, GetStatusRequest, Inventory,
    LinkEnd, MeasureLinkReply, MeasureLinkRequest, NodeStatus, OpenSessionReply,
    OpenSessionRequest, SessionEnd, SessionPart, SessionsTaken,
};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::Verdict;
use causeway_proto::version;
use causeway_serving::gate::{Connection, Judged, Peer};
use causeway_serving::services::{NotReflected, Services};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::authentication::{self, ClientJudge, User, caller};
use super::counts::Refusals;
use super::description::{Description, milliseconds};
use super::domains::{Domain, DomainRequest, Domains};
use super::exclusive::Claim;
use super::holders::Holder;
use super::inventory::Known;
use super::links::{self, Links};
use super::managed::{DeviceAt, LeasePlace, Managed, Measurer, NoLease};
use super::readiness::Readiness;
use super::workers::{
    AWAY_LONG, Checkpoint, ClientProcess, Neighbor, NotOpened, Opened, Opening, Reopened, Workers,
};
use crate::config::Settings;
use crate::handover::{AwayTimes, Leased, Owner};

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
/// Maximum number of simultaneous calls on one connection.
const MAX_STREAMS: u32 = 16;
/// Maximum length of a message, in bytes. The longest is a credential for many devices. Strings of messages
/// are shortened before they are logged.
const MAX_MESSAGE: usize = 64 << 10;

/// Why a session's commands are not executed again if its worker dies.
const NOT_REEXECUTED: &str = "it may use devices in exclusive mode only, or the node keeps no session whose connections \
    break";
/// Why a session is not opened again.
const NOT_OPENED_AGAIN: &str = "the session cannot be executed again on this node: ";

/// Starts the service. It serves the connections that are sent to the returned channel.
///
/// # Errors
/// [`NotReflected`] if the service descriptions are invalid.
pub(super) fn serve(service: NodeService) -> Result<ControlConnections, NotReflected> {
    let (connections, incoming) = mpsc::channel(64);
    let judge = ClientJudge {
        settings: Arc::clone(&service.settings),
        refusals: Arc::clone(&service.refusals),
    };
    let health = service.readiness.subscribe();
    // A request for devices may wait for another request's probes and then for its own. Each may take two
    // probes.
    let probes = 4 * service.settings.inventory.probe_time_limit;
    let node = NodeServer::new(service).max_decoding_message_size(MAX_MESSAGE);
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

/// The service.
pub(super) struct NodeService {
    pub(super) settings: Arc<Settings>,
    pub(super) description: Arc<Description>,
    pub(super) readiness: Arc<Readiness>,
    /// Which sessions may have one host process.
    pub(super) domains: Arc<Domains>,
    pub(super) workers: Workers,
    pub(super) links: Links,
    pub(super) managed: Option<Managed>,
    /// Sessions that were not opened, by reason.
    pub(super) refusals: Arc<Refusals>,
    /// Rendezvous for lanes through shared memory, if the daemon offers them.
    pub(super) place: Option<DaemonPlace>,
    pub(super) started: Instant,
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn get_inventory(
        &self,
        request: Request<GetInventoryRequest>,
    ) -> Result<Response<Inventory>, Status> {
        let user = caller(&request)?;
        self.check_version(request.get_ref().wire_version)?;
        let credential = &request.get_ref().credential;
        let is_known = self.let_in(&request, credential, &user)?;
        let has_devices = |managed: &Managed| managed.knows(credential, &user);
        let is_shown = is_known && self.managed.as_ref().is_none_or(has_devices);
        // No probe runs on behalf of a caller who is shown no device.
        let known = match is_shown {
            true => self.readiness.current_inventory().await,
            false => self.readiness.latest_inventory(),
        };
        let is_stopping = self.workers.counts().draining;
        let mut inventory = self.description.inventory(&known, is_stopping);
        if is_known {
            let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
            let own = self.workers.held_by(&holder(&user, &request));
            (inventory.own_sessions, inventory.own_away) = (count(own.sessions), count(own.away));
            // The start of a program must not wait for cards.
            inventory.uses = self.readiness.uses(Duration::ZERO).await;
            inventory.remarks.extend(self.readiness.cards_remark());
        }
        if is_shown {
            let speeds = self.description.link_speeds(&inventory.peer_addresses);
            inventory.link_speeds = speeds.await;
        }
        Ok(Response::new(match &self.managed {
            None => inventory,
            Some(managed) => managed.shown(inventory, credential, &user),
        }))
    }

    async fn open_session(
        &self,
        request: Request<OpenSessionRequest>,
    ) -> Result<Response<OpenSessionReply>, Status> {
        let opened = self.open(request).await;
        if let Err(status) = &opened {
            self.refusals.count(status);
        }
        opened.map(Response::new)
    }

    async fn close_session(
        &self,
        request: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionReply>, Status> {
        caller(&request)?;
        let request = request.get_ref();
        let (id, secret) = session_of(&request.session_id, &request.session_secret)?;
        match self.workers.close(id, &secret) {
            Ok(()) => Ok(Response::new(CloseSessionReply {})),
            Err(verdict @ Verdict::UnknownSession) => Err(Status::not_found(verdict.to_string())),
            Err(verdict) => Err(Status::permission_denied(verdict.to_string())),
        }
    }

    async fn end_away(
        &self,
        request: Request<EndAwayRequest>,
    ) -> Result<Response<EndAwayReply>, Status> {
        let user = caller(&request)?;
        self.check_version(request.get_ref().wire_version)?;
        self.let_in(&request, &request.get_ref().credential, &user)?;
        let address = holder(&user, &request).address;
        let request = request.into_inner();
        let owner = {
            let lease = self.lease(&request.credential, &user)?;
            lease.map_or_else(|| owner(&user), |(place, _)| place.owner().clone())
        };
        let client = ClientProcess::of(&request.client.unwrap_or_default());
        let ended: Vec<_> = request.ended.iter().map(ClientProcess::of).collect();
        let caller = Neighbor {
            process: &client,
            user: owner.user.as_deref(),
            address,
        };
        let ended = self.workers.end_away(&caller, &ended).await;
        Ok(Response::new(EndAwayReply {
            ended: u32::try_from(ended).unwrap_or(u32::MAX),
        }))
    }

    async fn get_session_end(
        &self,
        request: Request<GetSessionEndRequest>,
    ) -> Result<Response<SessionEnd>, Status> {
        caller(&request)?;
        let request = request.get_ref();
        let (id, secret) = session_of(&request.session_id, &request.session_secret)?;
        let end = self.workers.session_end(&id, &secret).await;
        Ok(Response::new(end.map_or_else(SessionEnd::default, |end| {
            SessionEnd {
                known: true,
                reason: end.reason,
                lease_lost: end.lease_lost,
            }
        })))
    }

    type TakeSessionsStream = ReceiverStream<Result<SessionsTaken, Status>>;

    async fn take_sessions(
        &self,
        request: Request<Streaming<SessionPart>>,
    ) -> Result<Response<Self::TakeSessionsStream>, Status> {
        caller(&request)?;
        let managed = self.managed.clone().ok_or_else(|| {
            Status::failed_precondition("only nodes of a device manager take over sessions")
        })?;
        if self.workers.counts().draining {
            return Err(Status::unavailable("the node is shutting down"));
        }
        let readiness = Arc::clone(&self.readiness);
        let (answer, answered) = mpsc::channel(2);
        // The answer's stream begins at once, because the transfer takes longer than calls may.
        tokio::spawn(async move {
            let peer = request.extensions().get::<Peer>().cloned();
            let parts = request.into_inner();
            let known = readiness.current_inventory();
            let taken = managed.take_sessions(parts, known, peer, &answer).await;
            if let Err(status) = &taken {
                tracing::warn!(
                    reason = status.message(),
                    "sessions of another node are not taken"
                );
            }
            // The other node may be gone. Its sessions then wait here in vain, for a bounded time.
            let _ = answer.send(taken).await;
        });
        Ok(Response::new(ReceiverStream::new(answered)))
    }

    async fn measure_link(
        &self,
        request: Request<MeasureLinkRequest>,
    ) -> Result<Response<MeasureLinkReply>, Status> {
        let (user, may_force) = self.link_caller(&request)?;
        // A claim is no lease, so the connection may still be a stranger's. A measurement takes longer than strangers have.
        let peer = request.extensions().get::<Peer>();
        let _kept_open = peer.map(|peer| peer.standing.keep_open());
        if self.workers.counts().draining {
            return Err(Status::unavailable("the node is shutting down"));
        }
        let request = request.into_inner();
        if request.force && !may_force {
            return Err(Status::permission_denied(
                "only administrators of the device manager, and users that [links] administrators names in the node's \
                 daemon.toml, may measure with --force",
            ));
        }
        let own_addresses = self.description.peer_addresses();
        let link_speeds = self.description.link_speeds(&own_addresses).await;
        let end = match (request.end, &self.managed) {
            (None, _) => None,
            (Some(end), None) => Some(links::ordered(end, &link_speeds)),
            (Some(end), Some(managed)) => Some(managed.placed(end, &link_speeds)?),
        };
        let rate = Some(request.rate).filter(|rate| *rate > 0);
        let terms = Terms::new(asked_ms(request.stream_ms), rate);
        let terms = terms.ok_or_else(|| {
            Status::invalid_argument("a link is measured for 0.05 s to 10 s in each direction")
        })?;
        let wanted = links::Wanted {
            user,
            terms,
            is_forced: request.force,
            is_managed: self.managed.is_some(),
        };
        let own = LinkEnd {
            addresses: own_addresses,
            link_speeds,
            node_uuid: self.description.uuid.as_bytes().to_vec().into(),
            node_name: self.description.name().to_owned(),
            ..LinkEnd::default()
        };
        let mut reply = self.links.measure(wanted, end, own).await?;
        if let Some(managed) = &self.managed {
            reply.end = reply.end.map(|end| managed.proved(end));
        }
        Ok(Response::new(reply))
    }

    async fn get_links(
        &self,
        request: Request<GetLinksRequest>,
    ) -> Result<Response<control::Links>, Status> {
        let user = caller(&request)?;
        self.check_version(request.get_ref().wire_version)?;
        if self.managed.is_some() {
            return Err(Status::failed_precondition(
                "the device manager has the figures of this node's links; configure it, and see causeway links",
            ));
        }
        let links = self.links.of(&user).await;
        Ok(Response::new(control::Links { links }))
    }

    async fn get_status(
        &self,
        request: Request<GetStatusRequest>,
    ) -> Result<Response<NodeStatus>, Status> {
        caller(&request)?;
        self.check_version(request.get_ref().wire_version)?;
        let counts = self.workers.counts();
        let known = self.readiness.latest_inventory();
        let count = |n| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(Response::new(NodeStatus {
            node_name: self.settings.name.clone(),
            daemon_version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            sessions: count(counts.sessions),
            session_limit: self.settings.sessions.limit,
            spare_workers: count(counts.spares),
            draining: counts.draining || self.managed.as_ref().is_some_and(Managed::is_draining),
            problems: self
                .description
                .exposed()
                .into_iter()
                .chain(known.inventory.problems.clone())
                .collect(),
        }))
    }
}

impl NodeService {
    async fn open(&self, request: Request<OpenSessionRequest>) -> Result<OpenSessionReply, Status> {
        let begun = Instant::now();
        let user = caller(&request)?;
        let holder = holder(&user, &request);
        self.check_version(request.get_ref().wire_version)?;
        self.let_in(&request, &request.get_ref().credential, &user)?;
        let request = request.into_inner();
        if let Some(reply) = self.opened_again(&request, &user)? {
            return Ok(reply);
        }
        let opening = Opening {
            begun: Some(begun),
            ..self.opening(&request, &user, &holder).await?
        };
        let (granted, restart) = (opening.away, opening.restart.max(opening.moves));
        let reexecutes = opening.checkpoint.is_some();
        let is_refused = request.reexecute && !reexecutes;
        let owner = opening.owner.clone();
        let away = self.workers.away_beside(&Neighbor {
            process: &opening.client,
            user: owner.user.as_deref(),
            address: holder.address,
        });
        let opened = self.workers.open(opening);
        let opened = opened.map_err(|error| self.not_opened(&error, &holder))?;
        if let (Some(managed), Some(place)) = (&self.managed, opened.place) {
            managed.opened(place);
        }
        log_client(opened.id, &owner, request.client);
        Ok(OpenSessionReply {
            away,
            restart_ms: milliseconds(restart),
            reexecutes,
            not_reexecuted: match is_refused {
                true => NOT_REEXECUTED.to_owned(),
                false => String::new(),
            },
            ..self.reply(opened, granted)
        })
    }

    /// The reply of an earlier call that has opened the same session again. It needs no room, and takes no place in a lease.
    fn opened_again(
        &self,
        request: &OpenSessionRequest,
        user: &User,
    ) -> Result<Option<OpenSessionReply>, Status> {
        let Some(again) = again(request)? else {
            return Ok(None);
        };
        let lease = self.lease(&request.credential, user)?;
        let grant = lease.as_ref().map(|(place, _)| place.grant());
        // The place taken here is released again at once.
        drop(lease);
        let opened = self.workers.opened_again(&again, grant);
        let opened = opened.map_err(|error| not_opened_again(&error))?;
        Ok(opened.map(|of| OpenSessionReply {
            restart_ms: milliseconds(of.restart),
            reexecutes: true,
            ..self.reply(of.opened, of.away)
        }))
    }

    /// Waits until there is room for the session of a caller who knows the node's devices, and returns these.
    async fn make_room(
        &self,
        request: &OpenSessionRequest,
        user: &User,
        holder: &Holder,
    ) -> Result<Arc<Known>, Status> {
        // Callers without a lease are refused before the next steps: on their account no probe runs, and no
        // other session is displaced. The place taken here is released again at once.
        drop(self.lease(&request.credential, user)?);
        let known = self.readiness.current_inventory().await;
        if request.inventory_generation != known.inventory.generation {
            return Err(Status::failed_precondition(
                "the node's devices have changed since its inventory was read; read it again",
            ));
        }
        let made = self.workers.make_room(holder).await;
        made.map_err(|error| self.full(&error, holder))?;
        Ok(known)
    }

    /// Checks what the caller may open, waits until there is room for it, and takes its place in a lease.
    async fn opening(
        &self,
        request: &OpenSessionRequest,
        user: &User,
        holder: &Holder,
    ) -> Result<Opening, Status> {
        let known = self.make_room(request, user, holder).await?;
        // The credential is checked again, because the lease may have ended while this call waited.
        let lease = self.lease(&request.credential, user)?;
        let owner = lease
            .as_ref()
            .map_or_else(|| owner(user), |(place, _)| place.owner().clone());
        // A session that is opened again may go by another machine's clock, and a process has one clock.
        let isolated = request.isolated || !request.session_id.is_empty();
        let asked = DomainRequest {
            user: owner.user.as_deref(),
            leased: lease.as_ref().map(|(place, _)| place.devices()),
            isolated,
        };
        let domain = self.domains.of(&asked, &known.inventory);
        let may_use = |at: &DeviceAt| asked.leased.is_none_or(|leased| leased.contains_key(at));
        let claim = Claim::of(&known.inventory, may_use, domain.as_ref());
        let lease = match self.wait_for_process(claim.as_ref(), domain.as_ref()).await {
            false => lease,
            // As above.
            true => {
                drop(lease);
                self.lease(&request.credential, user)?
            }
        };
        let (place, leased) = lease.unzip();
        let away = self.granted(request, place.as_ref());
        let may_change_process = claim.is_none() && !away.resume.is_zero();
        let asked = asked_ms(request.restart_ms);
        let (restart, moves) = match (may_change_process, &place) {
            (true, None) => (self.workers.grants_restart(asked), Duration::ZERO),
            (true, Some(_)) => (Duration::ZERO, self.workers.grants_move(asked)),
            (false, _) => (Duration::ZERO, Duration::ZERO),
        };
        let again = again(request)?;
        let checkpoint = (request.reexecute && may_change_process).then(Checkpoint::nothing);
        if again.is_some() && checkpoint.is_none() {
            let reason = format!("{NOT_OPENED_AGAIN}{NOT_REEXECUTED}");
            return Err(Status::failed_precondition(reason));
        }
        Ok(Opening {
            checkpoint,
            again,
            holder: holder.clone(),
            owner,
            client: ClientProcess::of(request.client.as_ref().unwrap_or(&Client::default())),
            away,
            restart,
            moves,
            place,
            leased,
            domain,
            isolated,
            claim,
            begun: None,
        })
    }

    /// The times that the session may be away, of those that the client asks for.
    fn granted(&self, request: &OpenSessionRequest, place: Option<&LeasePlace>) -> AwayTimes {
        let limit = self.settings.sessions.resume_limit;
        let of_lease = place.and_then(LeasePlace::resume);
        AwayTimes::granted(
            asked_ms(request.resume_ms),
            asked_ms(request.keep_ms),
            of_lease.map_or(limit, |of_lease| of_lease.min(limit)),
        )
    }

    /// The refusal of a session that was not opened.
    fn not_opened(&self, error: &NotOpened, holder: &Holder) -> Status {
        match error {
            NotOpened::Draining | NotOpened::Moves => Status::unavailable(error.to_string()),
            NotOpened::IsHere | NotOpened::HasEnded(_) => not_opened_again(error),
            NotOpened::Full(_) | NotOpened::TooMuch(_) => self.full(error, holder),
            NotOpened::Exclusive | NotOpened::NoWorker(_) => {
                Status::resource_exhausted(error.to_string())
            }
        }
    }

    /// What the client needs to know of its session.
    fn reply(&self, opened: Opened, granted: AwayTimes) -> OpenSessionReply {
        let heartbeat = self.settings.heartbeat;
        OpenSessionReply {
            session_id: opened.id.0.to_vec().into(),
            session_secret: opened.secret.0.to_vec().into(),
            certificate_sha256: opened
                .fingerprint
                .map(|fingerprint| fingerprint.0.to_vec().into())
                .unwrap_or_default(),
            heartbeat_interval_ms: milliseconds(heartbeat.interval),
            heartbeat_limit_ms: milliseconds(heartbeat.limit),
            bulk_connections: self.settings.sessions.bulk_connections,
            shared_memory: match &self.place {
                Some(place) => place.tell().to_vec().into(),
                None => Default::default(),
            },
            resume_ms: milliseconds(granted.resume),
            keep_ms: milliseconds(granted.keep),
            ..OpenSessionReply::default()
        }
    }

    /// Waits until other processes are out of the way of a session with this claim and domain. Returns whether it has
    /// waited.
    async fn wait_for_process(&self, claim: Option<&Claim>, domain: Option<&Domain>) -> bool {
        match (claim, domain) {
            (Some(claim), domain) => {
                self.workers.make_way(claim, domain).await;
                true
            }
            (None, Some(domain)) => self.workers.wait_for_host(domain).await,
            (None, None) => false,
        }
    }

    /// The refusal by a limit. Sessions of the caller that are away use up limits, and nobody sees them.
    fn full(&self, error: &dyn std::fmt::Display, holder: &Holder) -> Status {
        let away = match self.workers.held_by(holder).away {
            0 => String::new(),
            away => {
                let long = AWAY_LONG.as_secs();
                format!(
                    "; your sessions that are away: {away}; one that has been away for {long} s ends when you try again"
                )
            }
        };
        Status::resource_exhausted(format!("{error}{away}"))
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
        if !peer.standing.is_known() && self.managed.as_ref().is_some_and(is_leased) {
            authentication::let_in(peer)?;
        }
        Ok(peer.standing.is_known())
    }

    /// On a managed node, takes a place in the lease that the credential proves.
    fn lease(
        &self,
        credential: &[u8],
        user: &User,
    ) -> Result<Option<(LeasePlace, Vec<Leased>)>, Status> {
        let Some(managed) = &self.managed else {
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

    /// The user who asks for a measurement, and whether the node's limits need not apply to them.
    fn link_caller(&self, request: &Request<MeasureLinkRequest>) -> Result<(User, bool), Status> {
        let user = caller(request)?;
        self.check_version(request.get_ref().wire_version)?;
        let administrators = &self.settings.link_administrators;
        let Some(managed) = &self.managed else {
            // Without authentication, every caller may use the node as they like.
            let may_force = (user.0.as_ref()).is_none_or(|user| administrators.contains(user));
            return Ok((user, may_force));
        };
        let Measurer { user, is_admin } = managed.measurer(&request.get_ref().credential, &user)?;
        let may_force = is_admin || administrators.contains(&user);
        Ok((User(Some(user)), may_force))
    }

    fn check_version(&self, theirs: u32) -> Result<(), Status> {
        version::check(theirs).map_err(|mismatch| {
            let name = &self.settings.name;
            Status::failed_precondition(format!("causewayd on {name}: {mismatch}"))
        })
    }
}

/// A time that a client asks for.
fn asked_ms(milliseconds: u32) -> Duration {
    Duration::from_millis(u64::from(milliseconds))
}

/// Returns the session that a request opens again.
fn again(request: &OpenSessionRequest) -> Result<Option<Reopened>, Status> {
    if request.session_id.is_empty() {
        return Ok(None);
    }
    let (id, secret) = session_of(&request.session_id, &request.session_secret)?;
    Ok(Some(Reopened { id, secret }))
}

/// The refusal of a session that is not opened again.
fn not_opened_again(error: &NotOpened) -> Status {
    match error {
        // No other refusal has this code, so that clients know that they ask in vain.
        NotOpened::HasEnded(_) => Status::aborted(error.to_string()),
        _ => Status::already_exists(error.to_string()),
    }
}

/// Returns the session that a request names.
fn session_of(id: &[u8], secret: &[u8]) -> Result<(SessionId, SessionSecret), Status> {
    let named = id.try_into().ok().zip(secret.try_into().ok());
    let (id, secret) = named.ok_or_else(|| {
        Status::invalid_argument("the request has no valid session id and secret")
    })?;
    Ok((SessionId(id), SessionSecret(secret)))
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
