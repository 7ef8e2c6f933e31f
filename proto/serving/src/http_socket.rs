//! The listening socket of HTTP/1.1 servers, with TLS or without.
//!
//! This module reads no request. Invariant: without TLS nothing is sent, unless the server allows it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use causeway_security::{NotSecured, ServerTls, TLS_HANDSHAKE, secure};
use tokio::net::{TcpListener, TcpStream};

use crate::gate::Port;

/// Pause after a failed accept: file descriptors may have run out, and others must be closed first.
const BREATHER: Duration = Duration::from_millis(100);

/// The socket. See the module.
pub(crate) struct HttpSocket {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<ServerTls>,
    in_the_clear: bool,
}

/// The reason why a connection is not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotOpened {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] NotSecured),
    #[error("the caller requested TLS, but TLS is disabled")]
    TlsIsOff,
    #[error("the caller did not use TLS, which this address requires")]
    Clear,
}

impl HttpSocket {
    /// Listens, with the server's certificate if there is one. `in_the_clear`: connections may be without TLS.
    pub(crate) fn bind(
        address: SocketAddr,
        tls: Option<&ServerTls>,
        in_the_clear: bool,
    ) -> io::Result<HttpSocket> {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(HttpSocket {
            socket: TcpListener::from_std(socket)?,
            address,
            tls: tls.map(ServerTls::over_http1),
            in_the_clear,
        })
    }

    /// The address on which the socket listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> (TcpStream, SocketAddr) {
        loop {
            match self.socket.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    tracing::warn!(address = %self.address, %error, "a connection cannot be accepted");
                    tokio::time::sleep(BREATHER).await;
                }
            }
        }
    }

    /// Completes the TLS handshake, if there is one. The caller sets the timeout.
    pub(crate) async fn open(&self, socket: TcpStream) -> Result<Port, NotOpened> {
        // The first byte is only peeked at, so TLS or HTTP reads it again.
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match (first[0] == TLS_HANDSHAKE, &self.tls) {
            (true, Some(tls)) => {
                let stream = secure(tls.handshake()?, socket, &[]).await?;
                Ok(Port::Tls(Box::new(stream)))
            }
            (true, None) => Err(NotOpened::TlsIsOff),
            (false, _) if self.in_the_clear => Ok(Port::Clear(socket)),
            (false, _) => Err(NotOpened::Clear),
        }
    }
}
