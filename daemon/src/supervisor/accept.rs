//! From an accepted connection to who serves it: over TCP, or over a Unix socket from this host.
//!
//! Whatever a connection says, the worst that happens is that it is closed: logged at debug, nothing
//! else changes.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use causeway_proto::preamble::{BadPreamble, Greeting, PREAMBLE, Preamble, Verdict};
use causeway_security::{NotSecured, ServerTls, TLS_HANDSHAKE, secure};
use causeway_serving::door::{Connection, Full, Peer, Port, Standing};
use causeway_serving::refusal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::Instant;

use super::admission::Permit;
use super::node_service::ControlConnections;
use super::opening::{self, Opening};
use super::{Supervisor, authentication};

/// Why connections are refused.
pub(super) const REASONS: [&str; 9] = [
    TOO_MANY,
    "silent",
    "broken",
    "foreign",
    "tls_is_off",
    "in_the_clear",
    "tls",
    "preamble",
    "session",
];
const TOO_MANY: &str = "too_many";
/// After a failed accept: descriptors are short, and somebody has to close some.
const BREATHER: Duration = Duration::from_millis(100);

/// Accepts for ever.
pub(super) async fn accept(
    supervisor: Arc<Supervisor>,
    listener: TcpListener,
    control: ControlConnections,
) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => {
                // Those that are served have places of their own, so there is always one for a newcomer.
                let Some(permit) = supervisor.handshakes.admit(peer.ip()) else {
                    continue;
                };
                let (supervisor, control) = (Arc::clone(&supervisor), control.clone());
                tokio::spawn(async move {
                    if let Err(error) = route(&supervisor, socket, peer, &control, permit).await {
                        supervisor.refused.count(error.reason());
                        tracing::debug!(%peer, %error, "a connection was closed");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(BREATHER).await;
            }
        }
    }
}

/// Accepts for ever what comes over a Unix socket of the settings, from this host.
pub(super) async fn accept_socket(
    supervisor: Arc<Supervisor>,
    listener: UnixListener,
    control: ControlConnections,
) {
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    loop {
        match listener
            .accept()
            .await
            .and_then(|(socket, _)| as_stream(socket))
        {
            Ok(socket) => {
                let Some(permit) = supervisor.handshakes.admit(peer.ip()) else {
                    supervisor.refused.count(TOO_MANY);
                    tracing::debug!("too many local connections that say nothing");
                    continue;
                };
                let (supervisor, control) = (Arc::clone(&supervisor), control.clone());
                tokio::spawn(async move {
                    if let Err(error) = route(&supervisor, socket, peer, &control, permit).await {
                        supervisor.refused.count(error.reason());
                        tracing::debug!(%error, "a local connection was closed");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(BREATHER).await;
            }
        }
    }
}

/// The type that all connections have here, which asks for no more than a stream socket.
fn as_stream(socket: UnixStream) -> io::Result<TcpStream> {
    TcpStream::from_std(OwnedFd::from(socket.into_std()?).into())
}

/// Accepts lanes through shared memory for ever. They come from this host, so they are admitted as its own.
pub(super) async fn accept_local(supervisor: Arc<Supervisor>, listener: UnixListener) {
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let Some(mut permit) = supervisor.handshakes.admit(peer) else {
                    continue;
                };
                let supervisor = Arc::clone(&supervisor);
                tokio::spawn(async move {
                    let routed = tokio::select! {
                        routed = route_local(&supervisor, socket) => routed,
                        () = permit.displaced() => Err(NotServed::Displaced),
                    };
                    if let Err(error) = routed {
                        supervisor.refused.count(error.reason());
                        tracing::debug!(%error, "a local connection was closed");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(BREATHER).await;
            }
        }
    }
}

/// A connection that can be passed to a worker.
trait Passed: AsyncRead + AsyncWrite + Unpin + Sized {
    fn into_descriptor(self) -> io::Result<OwnedFd>;
    fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self>;
}

impl Passed for TcpStream {
    fn into_descriptor(self) -> io::Result<OwnedFd> {
        Ok(self.into_std()?.into())
    }

    fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        TcpStream::from_std(descriptor.into())
    }
}

impl Passed for UnixStream {
    fn into_descriptor(self) -> io::Result<OwnedFd> {
        Ok(self.into_std()?.into())
    }

    fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        UnixStream::from_std(descriptor.into())
    }
}

/// A connection is not served.
#[derive(Debug, thiserror::Error)]
enum NotServed {
    #[error("the caller was silent for too long")]
    Silent,
    #[error("the caller was silent, and another caller needed the place")]
    Displaced,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the caller speaks nothing that is spoken here")]
    Foreign,
    #[error("TLS is not served here")]
    Tls,
    #[error("the caller speaks in the clear where TLS is spoken")]
    Clear,
    #[error(transparent)]
    NotSecured(#[from] NotSecured),
    #[error("gRPC: {0}")]
    Control(#[from] Full),
    #[error(transparent)]
    Preamble(#[from] BadPreamble),
    #[error(transparent)]
    Verdict(#[from] Verdict),
}

impl NotServed {
    /// What it counts as: one of [`REASONS`].
    fn reason(&self) -> &'static str {
        match self {
            NotServed::Silent => "silent",
            NotServed::Io(_) => "broken",
            NotServed::Foreign => "foreign",
            NotServed::Tls => "tls_is_off",
            NotServed::Clear => "in_the_clear",
            NotServed::NotSecured(_) => "tls",
            NotServed::Control(_) | NotServed::Displaced => TOO_MANY,
            NotServed::Preamble(_) => "preamble",
            NotServed::Verdict(_) => "session",
        }
    }
}

async fn route(
    supervisor: &Supervisor,
    socket: TcpStream,
    address: SocketAddr,
    control: &ControlConnections,
    mut handshake: Permit,
) -> Result<(), NotServed> {
    let shown = AtomicBool::new(false);
    let mut opened = pin!(open_port(supervisor, socket, &shown));
    let opened = poll_fn(|cx| {
        if let Poll::Ready(opened) = opened.as_mut().poll(cx) {
            return Poll::Ready(opened);
        }
        if shown.swap(false, Ordering::Relaxed) {
            handshake.progress();
        }
        handshake
            .poll_displaced(cx)
            .map(|()| Err(NotServed::Displaced))
    });
    let Some((read, port)) = opened.await? else {
        return Ok(());
    };
    let limit = supervisor.settings.handshakes.time_limit;
    let certified = port.certified();
    let is_known = authentication::knows(&supervisor.settings, certified.as_deref());
    let standing = Arc::new(Standing::new(address, is_known, &supervisor.control)?);
    drop(handshake);
    // Of a Unix socket everything leaves at once.
    if address.port() != 0 {
        port.set_nodelay()?;
    }
    let peer = Peer {
        address,
        certified,
        standing,
    };
    // Once more the time of a handshake, for a credential.
    let connection = Connection::new(port, read, peer, limit);
    // It fails only when the daemon is ending.
    let _ = control.send(Ok(connection)).await;
    Ok(())
}

/// What HTTP/2 is to run over; `None`: the connection is a session's, and with its worker. Says by `shown` that the
/// first bytes have come.
async fn open_port(
    supervisor: &Supervisor,
    mut socket: TcpStream,
    shown: &AtomicBool,
) -> Result<Option<(Bytes, Port)>, NotServed> {
    let deadline = Instant::now() + supervisor.settings.handshakes.time_limit;
    let tls = &supervisor.settings.security.tls;
    let opening = open(supervisor, &mut socket).await?;
    shown.store(true, Ordering::Relaxed);
    match (opening, tls) {
        (Opening::Control(read), None) => Ok(Some((read, Port::Clear(socket)))),
        (Opening::Tls, Some(tls)) => {
            let port = shake_hands(tls, socket, deadline).await?;
            Ok(Some((Bytes::new(), port)))
        }
        (Opening::Session(bytes), _) => {
            hand_over(supervisor, socket, bytes).await?;
            Ok(None)
        }
        (Opening::Control(_), Some(_)) => {
            refusal::refuse(socket, &refusal::NOT_IN_THE_CLEAR).await;
            Err(NotServed::Clear)
        }
        (Opening::Tls, None) => {
            refusal::refuse(socket, &refusal::NO_TLS).await;
            Err(NotServed::Tls)
        }
        (Opening::Foreign, _) => Err(NotServed::Foreign),
    }
}

/// The rest of TLS' handshake, within what is left of the time for the first bytes.
async fn shake_hands(
    tls: &ServerTls,
    socket: TcpStream,
    deadline: Instant,
) -> Result<Port, NotServed> {
    let secured = secure(tls.handshake()?, socket, &[TLS_HANDSHAKE]);
    let secured = tokio::time::timeout_at(deadline, secured).await;
    let stream = secured.map_err(|_| NotServed::Silent)??;
    Ok(Port::Tls(Box::new(stream)))
}

/// Nothing but lanes is served here.
async fn route_local(supervisor: &Supervisor, mut socket: UnixStream) -> Result<(), NotServed> {
    match open(supervisor, &mut socket).await? {
        Opening::Session(bytes) => hand_over(supervisor, socket, bytes).await,
        Opening::Control(_) | Opening::Tls | Opening::Foreign => Err(NotServed::Foreign),
    }
}

async fn open(supervisor: &Supervisor, socket: &mut impl Passed) -> Result<Opening, NotServed> {
    let limit = supervisor.settings.handshakes.time_limit;
    let opening = tokio::time::timeout(limit, opening::read(socket)).await;
    Ok(opening.map_err(|_| NotServed::Silent)??)
}

/// Passes the socket to the worker of the session that the preamble names.
async fn hand_over<Socket: Passed>(
    supervisor: &Supervisor,
    socket: Socket,
    bytes: [u8; PREAMBLE],
) -> Result<(), NotServed> {
    let preamble = match Preamble::decode(&bytes) {
        Ok(preamble) => preamble,
        Err(error) => {
            let verdict = match error {
                BadPreamble::Version(_) => Verdict::Version,
                BadPreamble::Magic | BadPreamble::Purpose(_) => Verdict::Malformed,
            };
            refusal::refuse(socket, &Greeting::refusal(verdict).encode()).await;
            return Err(error.into());
        }
    };
    let descriptor = socket.into_descriptor()?;
    match supervisor.workers.pass(&preamble, bytes, descriptor) {
        Ok(()) => Ok(()),
        Err((descriptor, verdict)) => {
            let socket = Socket::from_descriptor(descriptor)?;
            refusal::refuse(socket, &Greeting::refusal(verdict).encode()).await;
            Err(verdict.into())
        }
    }
}
