//! A socket for tonic to serve, with something that lives as long as it does.
//!
//! What is held may be a permit, or the sender of a channel whose end somebody awaits. Bytes that were
//! read to find out what the connection is are read again first.
#![forbid(unsafe_code)]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use crate::port::{Caller, Port};

/// See the module.
pub(crate) struct Held<T> {
    socket: Port,
    replay: Bytes,
    _held: T,
}

impl<T> Held<T> {
    /// A socket from which nothing has been read.
    pub(crate) fn new(socket: Port, held: T) -> Held<T> {
        Held::after(Bytes::new(), socket, held)
    }

    /// A socket from which `read` has been read.
    pub(crate) fn after(read: Bytes, socket: Port, held: T) -> Held<T> {
        Held {
            socket,
            replay: read,
            _held: held,
        }
    }
}

impl<T> Connected for Held<T> {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.socket.caller()
    }
}

impl<T: Unpin> AsyncRead for Held<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replay.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, into);
        }
        let n = self.replay.len().min(into.remaining());
        into.put_slice(&self.replay[..n]);
        self.replay.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl<T: Unpin> AsyncWrite for Held<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
