//! How many batches of a gRPC stream the system has, so that the end of the process loses none of them.
//!
//! HTTP/2 takes a batch from the queue and writes it later, in another task of the same thread. The batches taken so far
//! are written when this thread has nothing to do and the stream has flushed what it wrote. If the node accepts less
//! than a batch, such a batch counts as written too early.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Numbers of batches of one connection.
#[derive(Debug, Default)]
pub(super) struct Written {
    // Changed by the writer only, of which there is one at a time.
    queued: AtomicU64,
    // These two are accessed on the stream's thread only.
    taken: AtomicU64,
    is_unflushed: AtomicBool,
    count: Mutex<u64>,
    grew: Condvar,
}

impl Written {
    /// Records that a batch was put into the queue.
    pub(super) fn note_queued(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that HTTP/2 has taken a batch from the queue.
    pub(super) fn note_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that the stream's thread has nothing to do.
    pub(super) fn note_idle(&self) {
        if !self.is_unflushed.load(Ordering::Relaxed) {
            *self.count.lock() = self.taken.load(Ordering::Relaxed);
            self.grew.notify_all();
        }
    }

    /// Waits until all queued batches are written, at most until `deadline`. For the writer.
    pub(super) fn wait(&self, deadline: Instant) {
        let queued = self.queued.load(Ordering::Relaxed);
        let mut count = self.count.lock();
        while *count < queued && !self.grew.wait_until(&mut count, deadline).timed_out() {}
    }
}

/// A stream that records whether everything written has been flushed.
pub(super) struct Flushes<S> {
    stream: S,
    written: Arc<Written>,
}

impl<S> Flushes<S> {
    pub(super) fn new(stream: S, written: Arc<Written>) -> Flushes<S> {
        Flushes { stream, written }
    }

    fn note_unflushed(&self, is_unflushed: bool) {
        let noted = &self.written.is_unflushed;
        noted.store(is_unflushed, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Flushes<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Flushes<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.note_unflushed(true);
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.note_unflushed(true);
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.note_unflushed(false);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn is_all_written(written: &Written) -> bool {
        let begun = Instant::now();
        written.wait(begun);
        *written.count.lock() == written.queued.load(Ordering::Relaxed)
    }

    #[test]
    fn a_batch_is_written_when_the_thread_that_took_it_is_idle_and_has_flushed() {
        let written = Written::default();
        assert!(is_all_written(&written));
        written.note_queued();
        written.note_idle();
        assert!(!is_all_written(&written));
        written.note_taken();
        assert!(!is_all_written(&written));
        written.is_unflushed.store(true, Ordering::Relaxed);
        written.note_idle();
        assert!(!is_all_written(&written));
        written.is_unflushed.store(false, Ordering::Relaxed);
        written.note_idle();
        assert!(is_all_written(&written));
    }

    #[test]
    fn who_waits_is_woken() {
        let written = Arc::new(Written::default());
        written.note_queued();
        written.note_taken();
        let stream = Arc::clone(&written);
        let idle = std::thread::spawn(move || stream.note_idle());
        let begun = Instant::now();
        written.wait(begun + Duration::from_secs(60));
        assert!(begun.elapsed() < Duration::from_secs(60));
        idle.join().unwrap();
    }
}
