//! What the end of a connection means, and whether the peer has closed one. The gRPC library reports that only as text.
#![forbid(unsafe_code)]

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use causeway_security::NotSecured;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Why a connection is not read any more.
#[derive(Debug)]
pub(super) enum Broken {
    /// The connection ended. The session may be resumed.
    Connection(String),
    /// The node sent something that no correct node sends, or has ended the session.
    Nonsense(String),
}

/// Whether the connection has ended, and why; shared by all clones.
#[derive(Clone, Debug, Default)]
pub(super) struct Ended(Arc<EndedState>);

#[derive(Debug, Default)]
struct EndedState {
    has_come: AtomicBool,
    /// The first error of TLS. A peer may refuse a certificate after the handshake.
    not_secured: OnceLock<NotSecured>,
}

/// A stream that records its end.
pub(super) struct Noted<S> {
    stream: S,
    ended: Ended,
}

impl Ended {
    pub(super) fn of<S>(&self, stream: S) -> Noted<S> {
        let ended = self.clone();
        Noted { stream, ended }
    }

    pub(super) fn has_come(&self) -> bool {
        self.0.has_come.load(Ordering::Acquire)
    }

    pub(super) fn not_secured(&self) -> Option<&NotSecured> {
        self.0.not_secured.get()
    }

    fn set(&self) {
        self.0.has_come.store(true, Ordering::Release);
    }

    fn note<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            if is_end(error) {
                self.set();
            }
            if let Some(not_secured) = NotSecured::behind(error) {
                let _ = self.0.not_secured.set(not_secured);
            }
        }
        result
    }
}

/// Whether an error means that the peer has closed the connection.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, into));
        if read.is_ok() && into.filled().len() == before && into.remaining() > 0 {
            self.ended.set();
        }
        Poll::Ready(self.ended.note(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.ended.note(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts));
        Poll::Ready(self.ended.note(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
