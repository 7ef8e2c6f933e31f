//! Talking to a node's supervisor: inventory, status, opening a session. Ordinary gRPC. How a peer is reached for
//! that is the same for the device manager (`manager`).
//!
//! Every function is a future for a runtime that lives only as long as the conversation; each
//! conversation uses one socket, which closes with it.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{
    Client, GetInventoryRequest, GetStatusRequest, Inventory, NodeStatus, OpenSessionReply,
    OpenSessionRequest,
};
use causeway_proto::endpoint::over_connection;
use causeway_proto::status::WireError;
use causeway_proto::version::{self, WireVersion};
use causeway_security::{NotSecured, secure};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Channel;

use super::local::{self, Peer};
use super::resolve;
use super::security::Credentials;
use super::socket::plain;
use super::standard;
use crate::config::{Address, ServerSettings};

/// An inventory is a few kilobytes a device.
const INVENTORY_LIMIT: usize = 16 << 20;

/// What people can do about a node that serves nobody in the clear.
const WANTS_TLS: &str =
    "it wants TLS: name the CA of its certificate (ca below [tls] in servers.toml, or CAUSEWAY_CA)";

/// A conversation with a supervisor.
pub(super) struct Supervisor {
    client: NodeClient<Channel>,
    credentials: Credentials,
    address: String,
    /// Where it was reached, for the session's other connections.
    pub(super) peer: Peer,
    /// Whether what it says is its own word, and nobody else has heard it.
    pub(super) is_secured: bool,
    /// What the TCP handshake took: one round trip.
    pub(super) round_trip: Duration,
}

/// Runs a conversation to its end, on a thread of its own that is gone when this returns. So neither
/// the application's stack size nor a runtime that it may be running matters.
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
        // Whatever a peer has not answered is not waited for.
        runtime.shutdown_background();
        Ok(result)
    })?
}

/// A peer that speaks gRPC.
pub(super) struct Reached {
    pub(super) channel: Channel,
    pub(super) credentials: Credentials,
    pub(super) peer: Peer,
    pub(super) is_secured: bool,
    pub(super) round_trip: Duration,
}

impl Reached {
    /// Connects; the peer has not said anything yet when this succeeds.
    pub(super) async fn at(server: &ServerSettings) -> Result<Reached, WireError> {
        let address = &server.address;
        let credentials = Credentials::load(server)?;
        let handshake = credentials.handshake(server)?;
        let unreachable = |error: io::Error| WireError::Unreachable {
            address: address.to_string(),
            reason: plain(&error),
        };
        let (stream, peer, round_trip) = connect(address).await.map_err(unreachable)?;
        let is_secured = handshake.is_some();
        let channel = match handshake {
            None => channel_over(TokioIo::new(stream)).await,
            Some(handshake) => {
                let secured = secure(handshake, stream, &[]).await;
                let secured = secured.map_err(|error| WireError::Protocol {
                    address: address.to_string(),
                    reason: not_secured(&error),
                })?;
                channel_over(TokioIo::new(secured)).await
            }
        };
        let channel = channel.map_err(|error| WireError::Protocol {
            address: address.to_string(),
            reason: error.to_string(),
        })?;
        Ok(Reached {
            channel,
            credentials,
            peer,
            is_secured,
            round_trip,
        })
    }
}

/// A connection, where it leads, and what its handshake took.
async fn connect(address: &Address) -> io::Result<(TcpStream, Peer, Duration)> {
    if let Some(path) = address.path() {
        let _kept_free = standard::kept_free();
        let (stream, round_trip) = local::reach(path).await?;
        return Ok((stream, Peer::Unix(Arc::clone(path)), round_trip));
    }
    let resolved = resolve::resolve(address).await?;
    let _kept_free = standard::kept_free();
    let (stream, round_trip) = resolve::connect(&resolved).await?;
    stream.set_nodelay(true)?;
    let peer = Peer::Tcp(stream.peer_addr()?);
    Ok((stream, peer, round_trip))
}

impl Supervisor {
    /// Connects; the peer has not said anything yet when this succeeds.
    pub(super) async fn reach(server: &ServerSettings) -> Result<Supervisor, WireError> {
        let reached = Reached::at(server).await?;
        let client = NodeClient::new(reached.channel).max_decoding_message_size(INVENTORY_LIMIT);
        Ok(Supervisor {
            client,
            credentials: reached.credentials,
            is_secured: reached.is_secured,
            address: server.address.to_string(),
            peer: reached.peer,
            round_trip: reached.round_trip,
        })
    }

    /// The node's devices; of a managed one those that the credential names.
    pub(super) async fn inventory(&mut self, credential: Bytes) -> Result<Inventory, WireError> {
        let request = GetInventoryRequest {
            wire_version: u32::from(WireVersion::CURRENT.number()),
            credential: credential.clone(),
        };
        let request = self.credentials.request_by_lease(request, &credential);
        let reply = self.client.get_inventory(request).await;
        let inventory = reply.map_err(|status| self.explain(&status))?.into_inner();
        version::check(inventory.wire_version).map_err(|error| self.nonsense(error.to_string()))?;
        if inventory.node_uuid.len() == 16 {
            Ok(inventory)
        } else {
            Err(self.nonsense("it did not say who it is".to_owned()))
        }
    }

    /// Load and health.
    pub(super) async fn status(&mut self) -> Result<NodeStatus, WireError> {
        let request = GetStatusRequest {
            wire_version: u32::from(WireVersion::CURRENT.number()),
        };
        let request = self.credentials.request(request);
        let reply = self.client.get_status(request).await;
        Ok(reply.map_err(|status| self.explain(&status))?.into_inner())
    }

    /// A worker of our own.
    pub(super) async fn open_session(
        &mut self,
        generation: u64,
        credential: Bytes,
    ) -> Result<OpenSessionReply, WireError> {
        let request = OpenSessionRequest {
            wire_version: u32::from(WireVersion::CURRENT.number()),
            inventory_generation: generation,
            client: Some(this_process()),
            credential: credential.clone(),
        };
        let request = self.credentials.request_by_lease(request, &credential);
        let reply = self.client.open_session(request).await;
        Ok(reply.map_err(|status| self.explain(&status))?.into_inner())
    }

    /// Not what a node of ours says.
    pub(super) fn nonsense(&self, reason: String) -> WireError {
        WireError::Protocol {
            address: self.address.clone(),
            reason,
        }
    }

    fn explain(&self, status: &tonic::Status) -> WireError {
        explain(status, self.address.clone(), self.is_secured)
    }
}

/// A status that the peer has sent is a refusal; one that the gRPC machinery made up because it did not understand
/// the peer has an error of that machinery as its source.
pub(super) fn explain(status: &tonic::Status, address: String, is_secured: bool) -> WireError {
    let reason = match std::error::Error::source(status) {
        // HTTP/2's own way of saying so, `INADEQUATE_SECURITY`.
        Some(_) if status.code() == Code::PermissionDenied && !is_secured => {
            let reason = WANTS_TLS.to_owned();
            return WireError::Protocol { address, reason };
        }
        Some(_) if status.code() == Code::Unavailable || status.code() == Code::Unknown => {
            let reason = format!("the connection broke: {}", innermost(status));
            return WireError::Protocol { address, reason };
        }
        _ => status.message().to_owned(),
    };
    match status.code() {
        Code::Unimplemented
        | Code::Internal
        | Code::Unknown
        | Code::OutOfRange
        | Code::DataLoss => WireError::Protocol { address, reason },
        _ => WireError::Refused { address, reason },
    }
}

/// HTTP/2 over a connected stream.
pub(super) async fn channel_over<S>(stream: TokioIo<S>) -> Result<Channel, tonic::transport::Error>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let once = Mutex::new(Some(stream));
    over_connection("http://causeway.node")
        .connect_with_connector(tower::service_fn(move |_| {
            // A second call wants to reconnect, which is not this channel's business.
            let stream = once.lock().ok().and_then(|mut once| once.take());
            std::future::ready(stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
        }))
        .await
}

/// Within `limit`, or [`WireError::Unreachable`].
pub(super) async fn within<T>(
    limit: Duration,
    address: &Address,
    work: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    let begun = Instant::now();
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(WireError::Unreachable {
            address: address.to_string(),
            reason: format!("no answer within {} ms", begun.elapsed().as_millis()),
        })
    })
}

// What people can do about it comes first.
fn not_secured(error: &NotSecured) -> String {
    match error {
        NotSecured::Io(error) => format!("in TLS' handshake: {}", plain(error)),
        NotSecured::InTheClear | NotSecured::Tls(_) => error.to_string(),
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// What this process says of itself, for people.
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
    }
}
