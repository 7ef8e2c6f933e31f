//! From a listening socket to connections that tonic serves.
//!
//! Strangers are bounded in number, in all and from one address, and in time until they have said what they
//! speak, and then until somebody was let in over their connection. With TLS on, whoever speaks in the clear is
//! turned away. Invariant: nothing is read from a connection of nobody known without a limit of time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use causeway_security::{
    BadFile, ClientCertificates, SecureStream, ServerTls, TLS_HANDSHAKE, secure, user_of,
};
use causeway_serving::admission::Admission;
use causeway_serving::watched::{self, FIRST_BYTE, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use super::CannotStart;
use super::gate::Peer;
use super::standing::{Full, Places, Standing};
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
    /// Otherwise everybody is known by his word.
    authenticate: bool,
    handshakes: Admission,
    places: Places,
}

/// A connection is not served.
#[derive(Debug, thiserror::Error)]
enum NotServed {
    #[error("it was silent for too long")]
    Silent,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] causeway_security::NotSecured),
    #[error("it speaks TLS, which is off here")]
    TlsIsOff,
    #[error("it speaks in the clear, and TLS is on")]
    Clear,
    #[error(transparent)]
    Full(#[from] Full),
}

/// What tonic is to serve.
pub(super) type Incoming = mpsc::Receiver<io::Result<Connection>>;

impl Connections {
    pub(super) fn new(settings: &Settings) -> Result<Connections, BadFile> {
        let tls = settings.tls.as_ref().map(|files| {
            let clients = match &files.client_ca {
                Some(ca) => ClientCertificates::Optional(ca),
                None => ClientCertificates::None,
            };
            ServerTls::load(&files.certificate, &files.key, clients)
        });
        Ok(Connections {
            tls: tls.transpose()?,
            authenticate: settings.authenticate,
            handshakes: Admission::new(HANDSHAKES.0, HANDSHAKES.1),
            places: Places {
                strangers: Admission::new(STRANGERS.0, STRANGERS.1),
                known: Admission::new(CONNECTIONS.0, CONNECTIONS.1),
            },
        })
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
        let (io, certified) = match &self.tls {
            Some(tls) if speaks_tls => {
                let stream = secure(tls.handshake()?, socket, &[]).await?;
                let certified = stream.records().peer_certificate();
                (Io::Secure(stream), certified.map(|of| user_of(&of)))
            }
            Some(_) => return Err(NotServed::Clear),
            None if speaks_tls => return Err(NotServed::TlsIsOff),
            None if first[0] == FIRST_BYTE => {
                watched::answer(watching, socket).await?;
                return Ok(None);
            }
            None => (Io::Clear(socket), None),
        };
        let is_known = certified.is_some() || !self.authenticate;
        let standing = Standing::new(address, is_known, &self.places)?;
        let peer = Peer {
            address,
            certified,
            standing: Arc::new(standing),
        };
        Ok(Some(Connection::new(io, peer, KNOWN_WITHIN)))
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
        let Some(handshake) = shared.0.handshakes.admit(address.ip()) else {
            tracing::debug!(%address, "too many connections that say nothing");
            continue;
        };
        let (shared, send) = (Arc::clone(shared), send.clone());
        tokio::spawn(async move {
            let opened =
                tokio::time::timeout(WITHIN, shared.0.open(socket, address, &shared.1)).await;
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

/// A connection that is served.
pub(super) struct Connection {
    io: Io,
    peer: Peer,
    /// Until somebody was let in.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    fn new(io: Io, peer: Peer, known_within: Duration) -> Connection {
        let deadline = Some(Box::pin(tokio::time::sleep(known_within)));
        Connection { io, peer, deadline }
    }

    /// Whatever is done with it: a stranger's may be over.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(deadline) = &mut self.deadline else {
            return Ok(());
        };
        if self.peer.standing.is_known() {
            self.deadline = None;
        } else if deadline.as_mut().poll(cx).is_ready() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

enum Io {
    Clear(TcpStream),
    Secure(SecureStream<TcpStream>),
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        match &mut self.io {
            Io::Clear(socket) => Pin::new(socket).poll_read(cx, into),
            Io::Secure(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        match &mut self.io {
            Io::Clear(socket) => Pin::new(socket).poll_write(cx, bytes),
            Io::Secure(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        match &mut self.io {
            Io::Clear(socket) => Pin::new(socket).poll_flush(cx),
            Io::Secure(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Clear(socket) => Pin::new(socket).poll_shutdown(cx),
            Io::Secure(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_connection_over_which_nobody_was_let_in_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stranger = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (socket, address) = listener.accept().await.unwrap();
        let places = Places {
            strangers: Admission::new(1, 1),
            known: Admission::new(1, 1),
        };
        let peer = Peer {
            address,
            certified: None,
            standing: Arc::new(Standing::new(address, false, &places).unwrap()),
        };
        let standing = Arc::clone(&peer.standing);
        let mut connection = Connection::new(Io::Clear(socket), peer, Duration::ZERO);
        let mut word = [0; 4];
        let over = connection.read_exact(&mut word).await.unwrap_err();
        assert_eq!(over.kind(), io::ErrorKind::TimedOut);
        standing.let_in().unwrap();
        stranger.write_all(b"word").await.unwrap();
        connection.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"word");
    }
}
