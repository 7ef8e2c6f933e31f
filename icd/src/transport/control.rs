//! Calls to a node's supervisor over ordinary gRPC: inventory, status, opening a session. The module
//! `manager` reaches the device manager in the same way.
//!
//! Every function is a future for a runtime that lives only as long as the conversation. Each
//! conversation uses one socket, which closes with it.

use std::future::Future;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{
    Client, EndAwayRequest, GetInventoryRequest, GetLinksRequest, GetSessionEndRequest,
    GetStatusRequest, Inventory, Link, MeasureLinkReply, MeasureLinkRequest, NodeStatus,
    OpenSessionReply, OpenSessionRequest, SessionEnd,
};
use causeway_proto::endpoint::{KeepAlive, over_connection};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::status::WireError;
use causeway_proto::version::{self, WireVersion};
use causeway_security::{NotSecured, secure};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Code;
use tonic::transport::Channel;

use super::ended::{Ended, is_end};
use super::local::Peer;
use super::process;
use super::rails::Rail;
use super::resolve::{self, Candidate, Connected, NotConnected};
use super::security::Credentials;
use super::socket::plain;
use super::standard;
use crate::config::{Address, ServerSettings};

/// Maximum size of an inventory message. An inventory takes a few kilobytes per device.
const INVENTORY_LIMIT: usize = 16 << 20;
/// Most addresses of a node that are used, and most speeds of its interfaces. A node tells fewer.
const MOST_ADDRESSES: usize = 64;

/// Advice for a node that accepts no unencrypted connections.
const WANTS_TLS: &str = "the node requires TLS; name the CA of its certificate (ca below [tls] in servers.toml, or CAUSEWAY_CA)";

/// A conversation with a supervisor.
pub(super) struct Supervisor {
    client: NodeClient<Channel>,
    credentials: Credentials,
    pub(super) caller: Caller,
    /// The address that was reached, for the session's other connections.
    pub(super) rail: Rail,
    /// Duration of the TCP handshake: one round trip.
    pub(super) round_trip: Duration,
}

/// Runs a conversation to its end, on a separate thread that has ended when this returns. So the
/// application's stack size and a runtime of its own do not matter.
pub(super) fn converse<T, F>(conversation: impl FnOnce() -> F + Send + 'static) -> io::Result<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    super::thread::run_aside("cw-control", move || {
        let kept_free = standard::kept_free();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        drop(kept_free);
        let result = runtime.block_on(conversation());
        // Unanswered calls are dropped without waiting.
        runtime.shutdown_background();
        Ok(result)
    })?
}

/// A connection to a gRPC server.
pub(super) struct Reached {
    pub(super) channel: Channel,
    pub(super) credentials: Credentials,
    pub(super) rail: Rail,
    pub(super) caller: Caller,
    pub(super) round_trip: Duration,
}

/// Facts about a connection that explain the outcome of its calls.
#[derive(Debug)]
pub(super) struct Caller {
    address: String,
    /// Whether the connection is authenticated and encrypted by TLS.
    pub(super) is_secured: bool,
    ended: Ended,
}

impl Reached {
    /// Connects to the first of the server's addresses that answers. The peer has not sent anything yet when this
    /// succeeds. An `attempt` begins with the address of this number, and goes round all.
    ///
    /// If no host has the addresses, this takes `connect_within` at most.
    pub(super) async fn at(
        server: &ServerSettings,
        connect_within: Duration,
        attempt: usize,
        keep_alive: KeepAlive,
    ) -> Result<Reached, WireError> {
        let credentials = Credentials::load(server)?;
        let Connected {
            stream,
            rail,
            round_trip,
        } = within(connect_within, &server.address, connect(server, attempt)).await?;
        let address = server.addresses().nth(rail.number);
        let address = address.unwrap_or(&server.address);
        let handshake = credentials.handshake(server, address)?;
        let is_secured = handshake.is_some();
        let ended = Ended::default();
        let channel = match handshake {
            None => channel_over(TokioIo::new(ended.of(stream)), keep_alive).await,
            Some(handshake) => {
                let secured = secure(handshake, stream, &[]).await;
                let secured = secured.map_err(|error| not_secured(address, &error))?;
                channel_over(TokioIo::new(ended.of(secured)), keep_alive).await
            }
        };
        let caller = Caller {
            address: address.to_string(),
            is_secured,
            ended,
        };
        let channel = channel.map_err(|error| caller.broke(error.to_string()))?;
        Ok(Reached {
            channel,
            credentials,
            rail,
            caller,
            round_trip,
        })
    }
}

async fn connect(server: &ServerSettings, attempt: usize) -> Result<Connected, WireError> {
    let of_rail = |(rail, address): (usize, &Address)| Candidate {
        rail,
        address: address.clone(),
        known: None,
        moves: 0,
    };
    let mut candidates: Vec<Candidate> = server.addresses().enumerate().map(of_rail).collect();
    let first = attempt % candidates.len();
    candidates.rotate_left(first);
    let _kept_free = standard::kept_free();
    let connected = resolve::connect(candidates, &[], Duration::MAX).await;
    let connected = connected.map_err(|errors| WireError::Unreachable {
        address: server.address.to_string(),
        reason: unreached(server, &errors),
    })?;
    if matches!(connected.rail.peer, Peer::Tcp(_)) {
        let set = connected.stream.set_nodelay(true);
        set.map_err(|error| WireError::Unreachable {
            address: server.address.to_string(),
            reason: plain(&error),
        })?;
    }
    Ok(connected)
}

/// Why no address answered: the reason of the first, or that of each.
pub(super) fn unreached(server: &ServerSettings, errors: &[NotConnected]) -> String {
    let of = |rail: usize| errors.iter().find(|error| error.rail == Some(rail));
    let reasons = server
        .addresses()
        .enumerate()
        .filter_map(|(rail, address)| {
            let reason = plain(&of(rail)?.error);
            Some(match server.further.is_empty() {
                true => reason,
                false => format!("{address}: {reason}"),
            })
        });
    reasons.collect::<Vec<_>>().join("; ")
}

/// Why a session was not opened again.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotReopened {
    /// The node has not answered, or another one has. Another attempt may help.
    #[error("the session was not opened again: {0}")]
    NotReached(WireError),
    /// The node has answered. Another attempt may help.
    #[error("the session was not opened again: {0}")]
    ForNow(WireError),
    /// No further attempt helps.
    #[error("the session was not opened again: {0}")]
    ForGood(WireError),
}

impl Supervisor {
    /// Connects; as [`Reached::at`].
    pub(super) async fn reach(
        server: &ServerSettings,
        connect_within: Duration,
        attempt: usize,
    ) -> Result<Supervisor, WireError> {
        let reached = Reached::at(server, connect_within, attempt, KeepAlive::USUAL).await?;
        let client = NodeClient::new(reached.channel).max_decoding_message_size(INVENTORY_LIMIT);
        Ok(Supervisor {
            client,
            credentials: reached.credentials,
            caller: reached.caller,
            rail: reached.rail,
            round_trip: reached.round_trip,
        })
    }

    /// The node's devices. A managed node lists those that the credential names.
    pub(super) async fn inventory(&mut self, credential: Bytes) -> Result<Inventory, WireError> {
        let request = GetInventoryRequest {
            wire_version: u32::from(WireVersion::CURRENT.number()),
            credential,
        };
        let request = self.credentials.request(request);
        let reply = self.client.get_inventory(request).await;
        let mut inventory = reply
            .map_err(|status| self.caller.explain(&status))?
            .into_inner();
        inventory.peer_addresses.truncate(MOST_ADDRESSES);
        inventory.link_speeds.truncate(MOST_ADDRESSES);
        version::check(inventory.wire_version).map_err(|error| self.nonsense(error.to_string()))?;
        if inventory.node_uuid.len() == 16 {
            Ok(inventory)
        } else {
            Err(self.nonsense("the node's inventory has no valid uuid".to_owned()))
        }
    }

    /// The node's load and health.
    pub(super) async fn status(&mut self) -> Result<NodeStatus, WireError> {
        let request = GetStatusRequest {
            wire_version: u32::from(WireVersion::CURRENT.number()),
        };
        let request = self.credentials.request(request);
        let reply = self.client.get_status(request).await;
        Ok(reply
            .map_err(|status| self.caller.explain(&status))?
            .into_inner())
    }

    /// Measures a link, or makes the node the other end of a measurement.
    pub(super) async fn measure_link(
        &mut self,
        request: MeasureLinkRequest,
    ) -> Result<MeasureLinkReply, WireError> {
        let request = self.credentials.request(request);
        let reply = self.client.measure_link(request).await;
        let reply = reply.map_err(|status| self.caller.explain(&status))?;
        Ok(reply.into_inner())
    }

    /// The figures of links that the node keeps for the caller.
    pub(super) async fn links(&mut self, request: GetLinksRequest) -> Result<Vec<Link>, WireError> {
        let request = self.credentials.request(request);
        let reply = self.client.get_links(request).await;
        let reply = reply.map_err(|status| self.caller.explain(&status))?;
        Ok(reply.into_inner().links)
    }

    /// Opens a session.
    pub(super) async fn open_session(
        &mut self,
        generation: u64,
        credential: Bytes,
        server: &ServerSettings,
    ) -> Result<OpenSessionReply, WireError> {
        let request = opening(generation, &credential, server);
        let request = self.credentials.request(request);
        let reply = self.client.open_session(request).await;
        let reply = reply
            .map_err(|status| self.caller.explain(&status))?
            .into_inner();
        let ended: Vec<Client> = process::ended(&reply.away);
        if !ended.is_empty() {
            self.end_away(ended, credential).await;
        }
        Ok(reply)
    }

    /// Opens a session again that was lost with its node. `is_replaceable`: the device manager replaces lost nodes of the
    /// session's lease, so a node may not know its grant yet.
    pub(super) async fn open_again(
        &mut self,
        generation: u64,
        credential: &Bytes,
        server: &ServerSettings,
        (session, secret): (SessionId, &SessionSecret),
        is_replaceable: bool,
    ) -> Result<OpenSessionReply, NotReopened> {
        let request = OpenSessionRequest {
            session_id: Bytes::copy_from_slice(&session.0),
            session_secret: Bytes::copy_from_slice(&secret.0),
            ..opening(generation, credential, server)
        };
        let request = self.credentials.request(request);
        let reply = self.client.open_session(request).await;
        let reply = reply.map_err(|status| {
            let error = self.caller.explain(&status);
            match status.code() {
                Code::Unavailable | Code::ResourceExhausted | Code::AlreadyExists => {
                    NotReopened::ForNow(error)
                }
                // The code for a session that this node has ended.
                Code::Aborted => NotReopened::ForGood(error),
                _ if is_replaceable => NotReopened::ForNow(error),
                _ => NotReopened::ForGood(error),
            }
        })?;
        Ok(reply.into_inner())
    }

    // Ends sessions of this host's processes that have ended, so that nothing of them stays in the way.
    async fn end_away(&mut self, ended: Vec<Client>, credential: Bytes) {
        let request = EndAwayRequest {
            wire_version: u32::from(WireVersion::CURRENT.number()),
            credential,
            client: Some(this_process()),
            ended,
        };
        let request = self.credentials.request(request);
        if let Err(status) = self.client.end_away(request).await {
            tracing::debug!(%status, "sessions of ended processes were not ended");
        }
    }

    /// How a session has ended; `None` if the node does not know.
    pub(super) async fn session_end(
        &mut self,
        session: SessionId,
        secret: SessionSecret,
    ) -> Result<Option<SessionEnd>, WireError> {
        let request = GetSessionEndRequest {
            session_id: Bytes::copy_from_slice(&session.0),
            session_secret: Bytes::copy_from_slice(&secret.0),
        };
        let request = self.credentials.request(request);
        let end = self.client.get_session_end(request).await;
        let end = end
            .map_err(|status| self.caller.explain(&status))?
            .into_inner();
        Ok((end.known && !end.reason.is_empty()).then_some(end))
    }

    /// An error for an answer that no correct node sends.
    pub(super) fn nonsense(&self, reason: String) -> WireError {
        WireError::Protocol {
            address: self.caller.address.clone(),
            reason,
        }
    }
}

// What a client asks of a session.
fn opening(generation: u64, credential: &Bytes, server: &ServerSettings) -> OpenSessionRequest {
    OpenSessionRequest {
        wire_version: u32::from(WireVersion::CURRENT.number()),
        inventory_generation: generation,
        client: Some(this_process()),
        credential: credential.clone(),
        isolated: server.isolated,
        resume_ms: milliseconds(server.resume()),
        keep_ms: milliseconds(server.keep()),
        restart_ms: milliseconds(server.restart()),
        reexecute: server.survival.reexecute,
        ..OpenSessionRequest::default()
    }
}

impl Caller {
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Converts a status into an error. A status from the peer is a refusal. If gRPC created the status
    /// itself because it did not understand the peer, the status has a source error.
    pub(super) fn explain(&self, status: &tonic::Status) -> WireError {
        let address = self.address.clone();
        let reason = match std::error::Error::source(status) {
            // HTTP/2 reports a missing TLS connection as `INADEQUATE_SECURITY`.
            Some(_) if status.code() == Code::PermissionDenied && !self.is_secured => {
                let reason = WANTS_TLS.to_owned();
                return WireError::Protocol { address, reason };
            }
            Some(_) if status.code() == Code::Unavailable || status.code() == Code::Unknown => {
                return self.broke(format!("the connection broke: {}", innermost(status)));
            }
            _ => status.message().to_owned(),
        };
        match status.code() {
            Code::Unimplemented
            | Code::Internal
            | Code::Unknown
            | Code::OutOfRange
            | Code::DataLoss => WireError::Protocol { address, reason },
            Code::Unauthenticated => WireError::Unauthenticated { address, reason },
            _ => WireError::Refused { address, reason },
        }
    }

    /// An error for a broken conversation: the peer closed the connection, or violated the protocol.
    fn broke(&self, reason: String) -> WireError {
        let address = self.address.clone();
        if let Some(error) = self.ended.not_secured() {
            return tls_failed(address, error);
        }
        match self.ended.has_come() {
            true => WireError::Closed { address, reason },
            false => WireError::Protocol {
                address,
                reason: format!("{reason}; another service than Causeway's seems to listen there"),
            },
        }
    }
}

/// Opens HTTP/2 over a connected stream.
pub(super) async fn channel_over<S>(
    stream: TokioIo<S>,
    keep_alive: KeepAlive,
) -> Result<Channel, tonic::transport::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let once = Mutex::new(Some(stream));
    over_connection("http://causeway.node", keep_alive)
        .connect_with_connector(tower::service_fn(move |_| {
            // A second call is an attempt to reconnect, which this channel does not do.
            let stream = once.lock().ok().and_then(|mut once| once.take());
            std::future::ready(stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
        }))
        .await
}

/// Limits the time of `work`: returns its result, or [`WireError::Unreachable`] after `limit`.
pub(super) async fn within<T>(
    limit: Duration,
    address: &Address,
    work: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    let begun = Instant::now();
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(WireError::Unreachable {
            address: address.to_string(),
            reason: format!(
                "the peer did not answer within {} ms",
                begun.elapsed().as_millis()
            ),
        })
    })
}

fn not_secured(address: &Address, error: &NotSecured) -> WireError {
    let address = address.to_string();
    match error {
        NotSecured::Io(error) => {
            let reason = format!("the TLS handshake failed: {}", plain(error));
            match is_end(error) {
                true => WireError::Closed { address, reason },
                false => WireError::Protocol { address, reason },
            }
        }
        // These errors begin with advice for people, so nothing is put before them.
        NotSecured::InTheClear | NotSecured::Tls(_) => tls_failed(address, error),
    }
}

fn tls_failed(address: String, error: &NotSecured) -> WireError {
    WireError::Tls {
        address,
        fault: error.fault(),
        reason: error.to_string(),
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// A description of this process, for people.
#[must_use]
pub fn this_process() -> Client {
    let program = std::env::current_exe().ok();
    let program = program
        .as_deref()
        .and_then(|path| path.file_name())
        .map(|name| name.to_string_lossy().into_owned());
    Client {
        pid: std::process::id(),
        host: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        user: std::env::var("USER")
            .unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw())),
        program: program.unwrap_or_default(),
        library_version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: process::boot_id(),
        pid_namespace: process::pid_namespace(),
        start_time: process::start_time(std::process::id()).unwrap_or(0),
    }
}

fn milliseconds(time: std::time::Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}
