//! From a listening socket to connections that tonic serves.
//!
//! Strangers are bounded in number, in all and from one address, and in time until they have said what they
//! speak. With TLS on, whoever speaks in the clear is turned away. Invariant: nothing is read from a
//! connection without a limit of time before it speaks HTTP/2.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use causeway_security::{
    BadFile, ClientCertificates, SecureStream, ServerTls, TLS_HANDSHAKE, secure, user_of,
};
use causeway_serving::admission::{Admission, Permit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tonic::transport::server::Connected;

use super::gate::Peer;
use super::watching::{FIRST_BYTE, Watching};
use crate::settings::Settings;

/// Connections that have not said yet what they are, in all and from one address.
const HANDSHAKES: (usize, usize) = (512, 128);
/// Connections that have, likewise: ten thousand clients, all behind one address if need be.
const CONNECTIONS: (usize, usize) = (16_384, 12_288);
/// For the handshake of TLS, or the first byte without.
const WITHIN: Duration = Duration::from_secs(5);
/// After a failed accept: descriptors are short, and somebody has to close some.
const BREATHER: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Clone)]
pub(super) struct Connections {
    tls: Option<ServerTls>,
    strangers: Admission,
    connected: Admission,
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
    #[error("too many connections")]
    TooMany,
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
            strangers: Admission::new(HANDSHAKES.0, HANDSHAKES.1),
            connected: Admission::new(CONNECTIONS.0, CONNECTIONS.1),
        })
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
                watching.answer(socket).await?;
                return Ok(None);
            }
            None => (Io::Clear(socket), None),
        };
        let admitted = self.connected.admit(address.ip());
        Ok(Some(Connection {
            io,
            peer: Peer { address, certified },
            _permit: admitted.ok_or(NotServed::TooMany)?,
        }))
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
        let Some(stranger) = shared.0.strangers.admit(address.ip()) else {
            tracing::debug!(%address, "too many connections that say nothing");
            continue;
        };
        let (shared, send) = (Arc::clone(shared), send.clone());
        tokio::spawn(async move {
            let opened =
                tokio::time::timeout(WITHIN, shared.0.open(socket, address, &shared.1)).await;
            drop(stranger);
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
    _permit: Permit,
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
        match &mut self.io {
            Io::Clear(socket) => Pin::new(socket).poll_write(cx, bytes),
            Io::Secure(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
