//! A socket for tonic to serve, together with a value that is dropped when the socket is dropped.
//!
//! The value can be the sender of a channel: the receiver then learns that the connection has ended.
//!
//! The peer's last bytes may be unread when a write fails, because the peer has closed the connection. HTTP/2 gives a
//! connection up then. So such bytes are discarded here, and the connection ends when everything is read.
//!
//! HTTP/2 also drops a request that it reads together with the end of the connection. So the end waits for a few
//! further reads, between which the request is accepted.
#![forbid(unsafe_code)]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use causeway_serving::gate::Port;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// Reads without bytes between the last bytes and the end of the connection. A condition would need to know whether the
/// last bytes contain a request, and whether its call has begun. HTTP/2 tells neither: it accepts a request inside of its
/// own poll, and the call begins in a task that it starts. A connection without a request must end, too.
///
/// The number is no matter of time, because the runtime has one thread and runs its tasks in order. Each request takes a
/// read, and at most four come together. One read finds no further request, and the next one comes after the calls have
/// begun.
const TURNS: u8 = 8;

/// A socket and the value that lives exactly as long as the socket.
pub(crate) struct GuardedIo<T> {
    socket: Port,
    // How the connection has ended, until HTTP/2 learns it.
    end: Option<io::Result<()>>,
    turns: u8,
    _guard: T,
}

impl<T> GuardedIo<T> {
    pub(crate) fn new(socket: Port, guard: T) -> GuardedIo<T> {
        GuardedIo {
            socket,
            end: None,
            turns: TURNS,
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
        if self.end.is_none() {
            let (before, has_room) = (into.filled().len(), into.remaining() > 0);
            let read = ready!(Pin::new(&mut self.socket).poll_read(cx, into));
            if read.is_ok() && (into.filled().len() > before || !has_room) {
                return Poll::Ready(read);
            }
            self.end = Some(read);
        }
        if self.turns > 0 {
            self.turns -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.end.take().unwrap_or(Ok(())))
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
