//! The handshake and an established connection for tokio, below HTTP/2.
//!
//! `tokio-rustls` cannot replace this module: it takes over no connection whose handshake is complete, and
//! the gRPC carrier of a session has such a one ([`SecureStream::over`]). The caller limits the
//! time of a handshake. Invariant: encrypted bytes leave in their order, and
//! [`SecureStream::poll_flush`] completes when none is left here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::Handshake;
use crate::handshake::NotSecured;
use crate::records::{Opener, Records};

/// Number of plain bytes that are encrypted at once.
const AT_ONCE: usize = 32 << 10;

/// Longest time for which [`linger`] reads.
pub const LINGER: Duration = Duration::from_millis(500);

/// Completes a handshake. `read` contains the bytes that were read from the socket before.
///
/// # Errors
/// [`NotSecured`]. If the cause is in TLS, the other end has been sent an alert.
pub async fn secure<S>(
    mut handshake: Handshake,
    mut socket: S,
    read: &[u8],
) -> Result<SecureStream<S>, NotSecured>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut came = read.to_vec();
    let mut bytes = [0; 4096];
    loop {
        let taken = take(&mut handshake, &came);
        send(&mut handshake, &mut socket).await?;
        if let Err(error) = taken {
            linger(&mut socket).await;
            return Err(error);
        }
        if !handshake.is_handshaking() {
            break;
        }
        let got = socket.read(&mut bytes).await?;
        if got == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        came.clear();
        came.extend_from_slice(&bytes[..got]);
    }
    SecureStream::new(socket, Records::new(handshake)).map_err(NotSecured::from)
}

/// Ends a connection whose last message was sent: reads what the peer still sends, for [`LINGER`] at most. To close a socket
/// with unread bytes would reset the connection, and the peer might lose the message.
pub async fn linger(socket: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let drained = async {
        socket.shutdown().await?;
        let mut ignored = [0; 4096];
        while socket.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // Neither a timeout nor an error matters: the peer is gone or had its chance.
    let _ = tokio::time::timeout(LINGER, drained).await;
}

fn take(handshake: &mut Handshake, mut came: &[u8]) -> Result<(), NotSecured> {
    while !came.is_empty() {
        // 0 means that the connection ended during the handshake.
        if handshake.read_tls(&mut came)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        handshake.process_new_packets().map_err(NotSecured::Tls)?;
    }
    Ok(())
}

async fn send(handshake: &mut Handshake, socket: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut sealed = Vec::new();
    while handshake.wants_write() {
        handshake.write_tls(&mut sealed)?;
    }
    socket.write_all(&sealed).await
}

/// A connection with TLS over a tokio socket.
#[derive(Debug)]
pub struct SecureStream<S> {
    socket: S,
    records: Arc<Records>,
    opener: Opener,
    sealed: Vec<u8>,
    sent: usize,
}

impl<S> SecureStream<S> {
    /// A stream over a socket whose handshake is complete.
    ///
    /// # Errors
    /// As [`Records::open`], for bytes that came with the handshake.
    pub fn new(socket: S, records: Arc<Records>) -> io::Result<SecureStream<S>> {
        let opener = Opener::new(Arc::clone(&records))?;
        Ok(SecureStream::over(socket, records, opener))
    }

    /// A stream whose opener exists already.
    #[must_use]
    pub fn over(socket: S, records: Arc<Records>, opener: Opener) -> SecureStream<S> {
        SecureStream {
            socket,
            opener,
            records,
            sealed: Vec::new(),
            sent: 0,
        }
    }

    /// The socket, for options. It must not be read or written.
    #[must_use]
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// The TLS state that encrypts and decrypts.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.records
    }
}

impl<S: AsyncWrite + Unpin> SecureStream<S> {
    // Sends the encrypted bytes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.sealed.len() {
            let rest = &self.sealed[self.sent..];
            match ready!(Pin::new(&mut self.socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.sealed.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SecureStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let SecureStream { socket, opener, .. } = &mut *self;
        let got = opener.read(into.initialize_unfilled(), |bytes| {
            let mut buffer = ReadBuf::new(bytes);
            match Pin::new(&mut *socket).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) => Ok(buffer.filled().len()),
                Poll::Ready(Err(error)) => Err(error),
                Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        match got {
            Ok(got) => {
                into.advance(got);
                Poll::Ready(Ok(()))
            }
            // The socket has registered the waker.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SecureStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(cx))?;
        let part = &bytes[..bytes.len().min(AT_ONCE)];
        let SecureStream {
            records, sealed, ..
        } = &mut *self;
        records.seal(part, sealed)?;
        // Bytes that do not leave now leave with the next write or flush.
        match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(part.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
