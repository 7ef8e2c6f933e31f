//! A socket for tonic to serve, together with a value that is dropped when the socket is dropped.
//!
//! The value can be the sender of a channel: the receiver then learns that the connection has ended.
//!
//! The peer's last bytes may be unread when a write fails, because the peer has closed the connection. HTTP/2 gives a
//! connection up then. So such bytes are discarded here, and the connection ends when everything is read.
#![forbid(unsafe_code)]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use causeway_serving::gate::Port;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// A socket and the value that lives exactly as long as the socket.
pub(crate) struct GuardedIo<T> {
    socket: Port,
    _guard: T,
}

impl<T> GuardedIo<T> {
    pub(crate) fn new(socket: Port, guard: T) -> GuardedIo<T> {
        GuardedIo {
            socket,
            _guard: guard,
        }
    }
}

impl<T> Connected for GuardedIo<T> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<T: Unpin> AsyncRead for GuardedIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, into)
    }
}

impl<T: Unpin> AsyncWrite for GuardedIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        discarded(Pin::new(&mut self.socket).poll_write(cx, bytes), || {
            bytes.len()
        })
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, parts);
        discarded(written, || parts.iter().map(|part| part.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        discarded(Pin::new(&mut self.socket).poll_flush(cx), || ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

// Turns an error of the system, after which the socket takes nothing more, into `success`.
fn discarded<R>(written: Poll<io::Result<R>>, success: impl FnOnce() -> R) -> Poll<io::Result<R>> {
    match written {
        Poll::Ready(Err(error)) if error.raw_os_error().is_some() => Poll::Ready(Ok(success())),
        written => written,
    }
}
