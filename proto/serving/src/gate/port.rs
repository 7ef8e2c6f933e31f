//! The stream under HTTP/2: a plain connection, or one with TLS.
//!
//! This module does not decide who may use a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use causeway_security::{SecureStream, user_of};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The stream of a connection.
pub enum Port {
    /// Without TLS.
    Clear(TcpStream),
    /// With TLS. The handshake is complete.
    Tls(Box<SecureStream<TcpStream>>),
}

impl Port {
    /// The name in the client certificate, if the client has shown one.
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

    /// Sends data at once, without waiting for more (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The system's error.
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
