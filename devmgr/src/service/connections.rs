//! From a listening socket to connections that tonic serves.
//!
//! Strangers' connections are limited in number, in total and per address. They are limited in time until
//! their protocol is known, and then until a caller is authenticated over them. With TLS on, connections
//! in the clear are refused. Invariant: reads from a stranger's connection always have a timeout.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causeway_security::{BadFile, ClientCertificates, ServerTls, TLS_HANDSHAKE, secure};
use causeway_serving::admission::Admission;
use causeway_serving::gate::{Connection, Full, Peer, Places, Port, Standing};
use causeway_serving::pages::Pages;
use causeway_serving::refusal;
use causeway_serving::watched::{self, FIRST_BYTE, Listener};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::authentication::Authenticator;
use super::certified::Certified;
use super::error::CannotStart;
use super::watching::Watching;
use crate::etcd::Tenure;
use crate::settings::Settings;

/// Labels of the reasons for which connections are refused, as a node has them.
pub(super) const REASONS: [&str; 6] = [
    TOO_MANY,
    "silent",
    "broken",
    "tls_is_off",
    "in_the_clear",
    "tls",
];
const TOO_MANY: &str = "too_many";
/// Maximum number of connections whose protocol is not known yet, in total and per address.
const HANDSHAKES: (usize, usize) = (512, 128);
/// Maximum number of connections over which no caller is authenticated yet, in total and per address.
const STRANGERS: (usize, usize) = (2_048, 256);
/// Maximum lifetime of those connections, including those that ask only for gRPC's health.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);
/// Maximum number of connections of known callers, in total and per address: ten thousand clients, all
/// behind one address if necessary.
const CONNECTIONS: (usize, usize) = (16_384, 12_288);
/// Timeout for the TLS handshake, or for the first byte without TLS.
const WITHIN: Duration = Duration::from_secs(5);
/// Pause after a failed accept: file descriptors may be short until other connections close.
const BREATHER: Duration = Duration::from_millis(100);

/// Accepts connections. See the module.
#[derive(Clone)]
pub(super) struct Connections {
    tls: Option<ServerTls>,
    authenticator: Authenticator,
    certified: Certified,
    tenure: Tenure,
    handshakes: Admission,
    places: Places,
}

/// Why a connection is not served.
#[derive(Debug, thiserror::Error)]
enum NotServed {
    #[error("the caller sent nothing in time")]
    Silent,
    #[error("the caller sent nothing, and its place was given to another caller")]
    Displaced,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] causeway_security::NotSecured),
    #[error("the caller requested TLS, but TLS is disabled")]
    TlsIsOff,
    #[error("the caller does not use TLS, but TLS is required")]
    Clear,
    #[error(transparent)]
    Full(#[from] Full),
}

impl NotServed {
    /// The label under which the error is counted, one of [`REASONS`].
    fn reason(&self) -> &'static str {
        match self {
            NotServed::Silent => "silent",
            NotServed::Io(_) => "broken",
            NotServed::Tls(_) => "tls",
            NotServed::TlsIsOff => "tls_is_off",
            NotServed::Clear => "in_the_clear",
            NotServed::Displaced | NotServed::Full(_) => TOO_MANY,
        }
    }
}

/// Loads the TLS settings of the ports.
///
/// # Errors
/// A file cannot be used.
pub(super) fn tls(settings: &Settings) -> Result<Option<ServerTls>, BadFile> {
    let tls = settings.tls.as_ref().map(|files| {
        let clients = match &files.client_ca {
            Some(ca) => ClientCertificates::Optional(ca),
            None => ClientCertificates::None,
        };
        ServerTls::load(&files.certificate, &files.key, clients)
    });
    tls.transpose()
}

/// Binds the separate listener for `/metrics` and `/healthz`, if one is configured, with the same
/// certificate.
pub(super) fn watchers(
    tls: Option<&ServerTls>,
    settings: &Settings,
) -> Result<Option<Listener>, CannotStart> {
    let bind = |address: SocketAddr| {
        Listener::bind(address, tls, settings.insecure)
            .map_err(|error| CannotStart::Listen { address, error })
    };
    settings.metrics.map(bind).transpose()
}

/// Binds the listener of the dashboard, if one is configured, with the same certificate.
pub(super) fn pages(
    tls: Option<&ServerTls>,
    settings: &Settings,
) -> Result<Option<Pages>, CannotStart> {
    let bind = |address: SocketAddr| {
        Pages::bind(address, tls, settings.insecure)
            .map_err(|error| CannotStart::Listen { address, error })
    };
    settings.dashboard.map(bind).transpose()
}

/// The connections for tonic to serve.
pub(super) type Incoming = mpsc::Receiver<io::Result<Connection>>;

impl Connections {
    pub(super) fn new(
        tls: Option<ServerTls>,
        authenticator: Authenticator,
        certified: Certified,
        tenure: Tenure,
    ) -> Connections {
        Connections {
            tls,
            authenticator,
            certified,
            tenure,
            handshakes: Admission::new(HANDSHAKES.0, HANDSHAKES.1),
            places: Places {
                strangers: Admission::new(STRANGERS.0, STRANGERS.1),
                known: Admission::new(CONNECTIONS.0, CONNECTIONS.1),
            },
        }
    }

    /// Accepts connections until the receiver is dropped.
    pub(super) fn accept(self, listeners: &[Arc<TcpListener>], watching: Watching) -> Incoming {
        let (send, incoming) = mpsc::channel(64);
        let connections = Arc::new((self, watching));
        for listener in listeners {
            let (connections, send) = (Arc::clone(&connections), send.clone());
            let listener = Arc::clone(listener);
            tokio::spawn(async move { listen(&connections, &listener, send).await });
        }
        incoming
    }

    /// Opens a connection for gRPC. `None`: the connection was answered here.
    async fn open(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        watching: &Watching,
    ) -> Result<Option<Connection>, NotServed> {
        let mut first = [0];
        // Peeked, not read: TLS and HTTP/2 need this byte again.
        if socket.peek(&mut first).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let speaks_tls = first[0] == TLS_HANDSHAKE;
        socket.set_nodelay(true)?;
        let port = match &self.tls {
            Some(tls) if speaks_tls => {
                Port::Tls(Box::new(secure(tls.handshake()?, socket, &[]).await?))
            }
            Some(_) => {
                refusal::refuse(socket, &refusal::NOT_IN_THE_CLEAR).await;
                return Err(NotServed::Clear);
            }
            None if speaks_tls => {
                refusal::refuse(socket, &refusal::NO_TLS).await;
                return Err(NotServed::TlsIsOff);
            }
            None if first[0] == FIRST_BYTE => {
                watched::answer(watching, socket).await?;
                return Ok(None);
            }
            None => Port::Clear(socket),
        };
        let certified = port.certified();
        let is_known = self.authenticator.knows(certified.as_deref());
        let standing = Arc::new(Standing::new(address, is_known, &self.places)?);
        if let Some(name) = &certified {
            self.certified.add(name, &standing);
            // The user may have been removed before the connection was added.
            if is_known && !self.authenticator.knows(certified.as_deref()) {
                standing.turn_out();
            }
        }
        let peer = Peer {
            address,
            certified,
            standing,
        };
        let connection = Connection::new(port, Bytes::new(), peer, KNOWN_WITHIN);
        Ok(Some(match self.tenure.over() {
            Some(over) => {
                let tenure = self.tenure.clone();
                connection.until(over, async move { tenure.closed().await })
            }
            None => connection,
        }))
    }
}

/// Accepts connections until the receiver is dropped.
async fn listen(
    shared: &Arc<(Connections, Watching)>,
    listener: &TcpListener,
    send: mpsc::Sender<io::Result<Connection>>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = send.closed() => return,
        };
        let (socket, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(BREATHER).await;
                continue;
            }
        };
        // Connections that are served are counted elsewhere, so there is always room for a new handshake.
        let Some(mut handshake) = shared.0.handshakes.admit(address.ip()) else {
            shared.1.refused.count(TOO_MANY);
            continue;
        };
        let (shared, send) = (Arc::clone(shared), send.clone());
        tokio::spawn(async move {
            let opened = shared.0.open(socket, address, &shared.1);
            let opened = tokio::select! {
                opened = tokio::time::timeout(WITHIN, opened) => opened,
                () = handshake.displaced() => Ok(Err(NotServed::Displaced)),
            };
            // A served connection has a place of its own, so the handshake's place is free now.
            drop(handshake);
            match opened.unwrap_or(Err(NotServed::Silent)) {
                // Fails only when the service has ended.
                Ok(Some(connection)) => drop(send.send(Ok(connection)).await),
                Ok(None) => {}
                Err(error) => {
                    shared.1.refused.count(error.reason());
                    tracing::debug!(%address, %error, "a connection was closed");
                }
            }
        });
    }
}
