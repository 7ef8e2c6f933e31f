//! What HTTP/2 runs over: a connection in the clear, or one with TLS.
//!
//! What it is not: it decides nothing about who may use it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use causeway_security::{SecureStream, user_of};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// See the module.
pub enum Port {
    /// In the clear.
    Clear(TcpStream),
    /// With TLS, whose handshake is over.
    Tls(Box<SecureStream<TcpStream>>),
}

impl Port {
    /// The name in the client certificate that it has shown, if it has.
    #[must_use]
    pub fn certified(&self) -> Option<String> {
        match self {
            Port::Clear(_) => None,
            Port::Tls(stream) => {
                let certificate = stream.records().peer_certificate();
                certificate.map(|certificate| user_of(&certificate))
            }
        }
    }

    /// What is said leaves at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_nodelay(&self) -> io::Result<()> {
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
