//! What HTTP/2 runs over: a connection in the clear, or one with TLS.
//!
//! What it is not: it decides nothing about who may use it.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use causeway_security::{SecureStream, user_of};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// See the module.
pub(crate) enum Port {
    /// In the clear.
    Clear(TcpStream),
    /// With TLS, whose handshake is over.
    Tls(Box<SecureStream<TcpStream>>),
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Where from; `None` when it is gone already.
    pub(crate) peer: Option<SocketAddr>,
    /// Whom its certificate names, if it has shown one.
    pub(crate) certified: Option<String>,
}

impl Port {
    pub(crate) fn caller(&self) -> Caller {
        let (socket, certificate) = match self {
            Port::Clear(socket) => (socket, None),
            Port::Tls(stream) => (stream.socket(), stream.records().peer_certificate()),
        };
        Caller {
            peer: socket.peer_addr().ok(),
            certified: certificate.map(|certificate| user_of(&certificate)),
        }
    }

    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Port::Clear(socket) => socket.set_nodelay(true),
            Port::Tls(stream) => stream.socket().set_nodelay(true),
        }
    }
}

impl AsyncRead for Port {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Port::Clear(socket) => Pin::new(socket).poll_read(cx, into),
            Port::Tls(stream) => Pin::new(stream).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Port {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Port::Clear(socket) => Pin::new(socket).poll_write(cx, bytes),
            Port::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Port::Clear(socket) => Pin::new(socket).poll_write_vectored(cx, parts),
            Port::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self, Port::Clear(socket) if socket.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Port::Clear(socket) => Pin::new(socket).poll_flush(cx),
            Port::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Port::Clear(socket) => Pin::new(socket).poll_shutdown(cx),
            Port::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
