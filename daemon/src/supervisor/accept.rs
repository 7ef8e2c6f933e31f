//! Determines what an accepted connection is and who serves it. Connections come over TCP, or over a Unix
//! socket from this host.
//!
//! Whatever a peer sends, the worst consequence is that its connection is closed and logged at debug level.

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
use causeway_proto::preamble::{BadPreamble, Greeting, PREAMBLE, Preamble, Purpose, Verdict};
use causeway_security::{NotSecured, ServerTls, TLS_HANDSHAKE, secure};
use causeway_serving::admission::{Admission, Permit};
use causeway_serving::counts::Reasons;
use causeway_serving::gate::{Connection, Full, Peer, Places, Port, Standing};
use causeway_serving::refusal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::Instant;

use super::authentication;
use super::links::Links;
use super::managed::Managed;
use super::node_service::ControlConnections;
use super::opening::{self, Opening};
use super::workers::Workers;
use crate::config::Settings;

/// Labels of the reasons for which connections are refused.
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
/// Pause after a failed accept. The usual cause is a lack of descriptors, and other tasks must close some
/// first.
const BREATHER: Duration = Duration::from_millis(100);
/// Address under which connections over Unix sockets are admitted. Port 0 tells them from TCP.
const THIS_HOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What accepted connections are served with.
pub(super) struct Acceptor {
    pub(super) settings: Arc<Settings>,
    /// Admission of connections that have not yet shown what they are.
    pub(super) handshakes: Admission,
    /// Limits on gRPC connections: one for callers that have not been identified, one for others.
    pub(super) places: Places,
    pub(super) workers: Workers,
    pub(super) links: Links,
    pub(super) managed: Option<Managed>,
    /// Connections that were not served, by reason.
    pub(super) refused: Arc<Reasons>,
    pub(super) control: ControlConnections,
}

impl Acceptor {
    /// Admits a new connection, if need be in the place of a silent one.
    fn admit(&self, peer: IpAddr) -> Option<Permit> {
        let permit = self.handshakes.admit(peer);
        if permit.is_none() {
            self.refused.count(TOO_MANY);
            tracing::debug!(%peer, "a connection was closed: too many connections have sent nothing");
        }
        permit
    }

    /// Counts and logs a connection that was not served.
    fn note(&self, peer: SocketAddr, served: Result<(), NotServed>) {
        if let Err(error) = served {
            self.refused.count(error.reason());
            tracing::debug!(%peer, %error, "a connection was closed");
        }
    }

    /// Serves an accepted connection in the background.
    fn serve(self: &Arc<Self>, socket: TcpStream, peer: SocketAddr) {
        let Some(permit) = self.admit(peer.ip()) else {
            return;
        };
        let acceptor = Arc::clone(self);
        tokio::spawn(async move {
            let served = route(&acceptor, socket, peer, permit).await;
            acceptor.note(peer, served);
        });
    }

    /// As [`Acceptor::serve`], for a lane through shared memory.
    fn serve_local(self: &Arc<Self>, socket: UnixStream) {
        let Some(mut permit) = self.admit(THIS_HOST.ip()) else {
            return;
        };
        let acceptor = Arc::clone(self);
        tokio::spawn(async move {
            let routed = tokio::select! {
                routed = route_local(&acceptor, socket) => routed,
                () = permit.displaced() => Err(NotServed::Displaced),
            };
            acceptor.note(THIS_HOST, routed);
            drop(permit);
        });
    }
}

/// Accepts TCP connections forever.
pub(super) async fn accept(acceptor: Arc<Acceptor>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, peer)) => acceptor.serve(socket, peer),
            Err(error) => pause(error).await,
        }
    }
}

/// Accepts connections forever on a Unix socket that the settings name. They come from this host.
pub(super) async fn accept_socket(acceptor: Arc<Acceptor>, listener: UnixListener) {
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|(socket, _)| as_stream(socket)) {
            Ok(socket) => acceptor.serve(socket, THIS_HOST),
            Err(error) => pause(error).await,
        }
    }
}

/// Accepts lanes through shared memory forever. They come from this host, so they are admitted under its
/// loopback address.
pub(super) async fn accept_local(acceptor: Arc<Acceptor>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => acceptor.serve_local(socket),
            Err(error) => pause(error).await,
        }
    }
}

async fn pause(error: io::Error) {
    tracing::warn!(%error, "cannot accept a connection; retrying");
    tokio::time::sleep(BREATHER).await;
}

/// Converts to the type that all connections have here. `TcpStream` works because only stream socket
/// operations are used.
fn as_stream(socket: UnixStream) -> io::Result<TcpStream> {
    TcpStream::from_std(OwnedFd::from(socket.into_std()?).into())
}

/// A connection whose descriptor can be passed to a worker.
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

/// Reasons for which a connection is not served.
#[derive(Debug, thiserror::Error)]
enum NotServed {
    #[error("the caller sent nothing in time")]
    Silent,
    #[error("the caller sent nothing, and its place was given to another caller")]
    Displaced,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the caller uses an unknown protocol")]
    Foreign,
    #[error("the caller requested TLS, but TLS is disabled")]
    Tls,
    #[error("the caller does not use TLS, but TLS is required")]
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
    /// Returns the label under which the error is counted, one of [`REASONS`].
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
    acceptor: &Acceptor,
    socket: TcpStream,
    address: SocketAddr,
    mut handshake: Permit,
) -> Result<(), NotServed> {
    let shown = AtomicBool::new(false);
    let mut opened = pin!(open_port(acceptor, socket, &shown));
    let opened = poll_fn(|cx| {
        if let Poll::Ready(opened) = opened.as_mut().poll(cx) {
            return Poll::Ready(opened);
        }
        // First bytes have arrived, so the connection loses its place less easily to a newer one.
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
    let limit = acceptor.settings.handshakes.time_limit;
    let certified = port.certified();
    let is_known = authentication::knows(&acceptor.settings, certified.as_deref());
    let standing = Arc::new(Standing::new(address, is_known, &acceptor.places)?);
    drop(handshake);
    // TCP_NODELAY does not exist on Unix sockets. Connections from Unix sockets have port 0 here.
    if address.port() != 0 {
        port.set_nodelay()?;
    }
    let peer = Peer {
        address,
        certified,
        standing,
    };
    // The caller gets the handshake time limit once more to present a credential.
    let connection = Connection::new(port, read, peer, limit);
    // The send fails only when the daemon is ending.
    let _ = acceptor.control.send(Ok(connection)).await;
    Ok(())
}

/// Reads the first bytes and returns the connection on which HTTP/2 will run. Returns `None` if the
/// connection belongs to a session and was passed to its worker. Sets `shown` once the first bytes have
/// arrived.
async fn open_port(
    acceptor: &Acceptor,
    mut socket: TcpStream,
    shown: &AtomicBool,
) -> Result<Option<(Bytes, Port)>, NotServed> {
    let deadline = Instant::now() + acceptor.settings.handshakes.time_limit;
    let tls = &acceptor.settings.security.tls;
    let opening = open(acceptor, &mut socket).await?;
    shown.store(true, Ordering::Relaxed);
    match (opening, tls) {
        (Opening::Control(read), None) => Ok(Some((read, Port::Clear(socket)))),
        (Opening::Tls, Some(tls)) => {
            let port = shake_hands(tls, socket, deadline).await?;
            Ok(Some((Bytes::new(), port)))
        }
        (Opening::Session(bytes), _) => {
            // No TLS here even if it is configured: a session's connections are secured in the worker, with
            // the session's own certificate.
            hand_over(acceptor, socket, bytes).await?;
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

/// Completes the TLS handshake before `deadline`, which also covers the first bytes.
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

/// Routes a local connection. Only lanes of sessions are served here.
async fn route_local(acceptor: &Acceptor, mut socket: UnixStream) -> Result<(), NotServed> {
    match open(acceptor, &mut socket).await? {
        Opening::Session(bytes) => hand_over(acceptor, socket, bytes).await,
        Opening::Control(_) | Opening::Tls | Opening::Foreign => Err(NotServed::Foreign),
    }
}

async fn open(acceptor: &Acceptor, socket: &mut impl Passed) -> Result<Opening, NotServed> {
    let limit = acceptor.settings.handshakes.time_limit;
    let opening = tokio::time::timeout(limit, opening::read(socket)).await;
    Ok(opening.map_err(|_| NotServed::Silent)??)
}

/// Passes the socket to the worker of the session that the preamble names. Refuses the connection with a
/// verdict if that fails.
async fn hand_over<Socket: Passed>(
    acceptor: &Acceptor,
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
    let passed = match preamble.purpose {
        Purpose::Measure => acceptor.links.pass(&preamble, bytes, descriptor),
        Purpose::Contents => match &acceptor.managed {
            Some(managed) => managed.pass(&preamble, bytes, descriptor),
            None => Err((descriptor, Verdict::UnknownSession)),
        },
        _ => acceptor.workers.pass(&preamble, bytes, descriptor).await,
    };
    match passed {
        Ok(()) => Ok(()),
        Err((descriptor, verdict)) => {
            let socket = Socket::from_descriptor(descriptor)?;
            refusal::refuse(socket, &Greeting::refusal(verdict).encode()).await;
            Err(verdict.into())
        }
    }
}
