//! From a listening socket to connections that tonic serves.
//!
//! Strangers are bounded in number, in all and from one address, and in time until they have said what they
//! speak, and then until somebody was let in over their connection. With TLS on, whoever speaks in the clear is
//! turned away. Invariant: nothing is read from a connection of nobody known without a limit of time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causeway_security::{BadFile, ClientCertificates, ServerTls, TLS_HANDSHAKE, secure};
use causeway_serving::admission::Admission;
use causeway_serving::door::{Connection, Full, Peer, Places, Port, Standing};
use causeway_serving::refusal;
use causeway_serving::watched::{self, FIRST_BYTE, Listener};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::CannotStart;
use super::certified::Certified;
use super::gate::Gate;
use super::watching::Watching;
use crate::settings::Settings;

/// Connections that have not said yet what they are, in all and from one address.
const HANDSHAKES: (usize, usize) = (512, 128);
/// Connections that have, and over which nobody was let in yet, likewise.
const STRANGERS: (usize, usize) = (2_048, 256);
/// So long they stay; those that ask for gRPC's health, too.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);
/// Connections of callers who are known, likewise: ten thousand clients, all behind one address if need be.
const CONNECTIONS: (usize, usize) = (16_384, 12_288);
/// For the handshake of TLS, or the first byte without.
const WITHIN: Duration = Duration::from_secs(5);
/// After a failed accept: descriptors are short, and somebody has to close some.
const BREATHER: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Clone)]
pub(super) struct Connections {
    tls: Option<ServerTls>,
    gate: Gate,
    certified: Certified,
    handshakes: Admission,
    places: Places,
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
    #[error(transparent)]
    Tls(#[from] causeway_security::NotSecured),
    #[error("the caller speaks TLS, which is off here")]
    TlsIsOff,
    #[error("the caller speaks in the clear, and TLS is on")]
    Clear,
    #[error(transparent)]
    Full(#[from] Full),
}

/// With what the port is secured.
///
/// # Errors
/// A file.
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

/// What tonic is to serve.
pub(super) type Incoming = mpsc::Receiver<io::Result<Connection>>;

impl Connections {
    pub(super) fn new(tls: Option<ServerTls>, gate: Gate, certified: Certified) -> Connections {
        Connections {
            tls,
            gate,
            certified,
            handshakes: Admission::new(HANDSHAKES.0, HANDSHAKES.1),
            places: Places {
                strangers: Admission::new(STRANGERS.0, STRANGERS.1),
                known: Admission::new(CONNECTIONS.0, CONNECTIONS.1),
            },
        }
    }

    /// Where those come who watch machines, if they are to; with the same certificate.
    pub(super) fn watchers(&self, settings: &Settings) -> Result<Option<Listener>, CannotStart> {
        let bind = |address: SocketAddr| {
            Listener::bind(address, self.tls.as_ref(), settings.insecure)
                .map_err(|error| CannotStart::Listen { address, error })
        };
        settings.metrics.map(bind).transpose()
    }

    /// Accepts for as long as somebody takes what comes.
    pub(super) fn accept(self, listeners: Vec<TcpListener>, watching: Watching) -> Incoming {
        let (send, incoming) = mpsc::channel(64);
        let connections = Arc::new((self, watching));
        for listener in listeners {
            let (connections, send) = (Arc::clone(&connections), send.clone());
            tokio::spawn(async move { listen(&connections, listener, send).await });
        }
        incoming
    }

    /// What is to be served as gRPC; `None`: it was answered here.
    async fn open(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        watching: &Watching,
    ) -> Result<Option<Connection>, NotServed> {
        let mut first = [0];
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
        let is_known = self.gate.knows(certified.as_deref());
        let standing = Arc::new(Standing::new(address, is_known, &self.places)?);
        if let Some(name) = &certified {
            self.certified.add(name, &standing);
            // He may have been removed meanwhile.
            if is_known && !self.gate.knows(certified.as_deref()) {
                standing.turn_out();
            }
        }
        let peer = Peer {
            address,
            certified,
            standing,
        };
        let connection = Connection::new(port, Bytes::new(), peer, KNOWN_WITHIN);
        Ok(Some(connection))
    }
}

/// Accepts for as long as somebody takes what comes.
async fn listen(
    shared: &Arc<(Connections, Watching)>,
    listener: TcpListener,
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
        // Those that are served have places of their own, so there is always one for a newcomer.
        let Some(mut handshake) = shared.0.handshakes.admit(address.ip()) else {
            continue;
        };
        let (shared, send) = (Arc::clone(shared), send.clone());
        tokio::spawn(async move {
            let opened = shared.0.open(socket, address, &shared.1);
            let opened = tokio::select! {
                opened = tokio::time::timeout(WITHIN, opened) => opened,
                () = handshake.displaced() => Ok(Err(NotServed::Displaced)),
            };
            drop(handshake);
            match opened.unwrap_or(Err(NotServed::Silent)) {
                // It fails only when nobody is served any more.
                Ok(Some(connection)) => drop(send.send(Ok(connection)).await),
                Ok(None) => {}
                Err(error) => tracing::debug!(%address, %error, "a connection was closed"),
            }
        });
    }
}
