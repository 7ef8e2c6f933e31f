//! A connection for tonic to serve, which ends in time unless somebody was let in over it.
//!
//! Bytes that were read to find out what it is are read again first. Invariant: nothing is read from a connection of
//! nobody known without a limit of time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use super::port::Port;
use super::standing::Standing;

/// The other end of a connection, known since it was accepted.
#[derive(Clone)]
pub struct Peer {
    /// Where from.
    pub address: SocketAddr,
    /// The name in its client certificate, which was checked.
    pub certified: Option<String>,
    /// Among whom the connection counts.
    pub standing: Arc<Standing>,
}

/// See the module.
pub struct Connection {
    port: Port,
    replay: Bytes,
    peer: Peer,
    known_within: Duration,
    /// While it is a stranger's.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    /// A connection from which `read` has been read. As long as it is a stranger's it has `known_within` from now on.
    #[must_use]
    pub fn new(port: Port, read: Bytes, peer: Peer, known_within: Duration) -> Connection {
        let is_known = peer.standing.is_known();
        Connection {
            port,
            replay: read,
            peer,
            known_within,
            deadline: (!is_known).then(|| Box::pin(tokio::time::sleep(known_within))),
        }
    }

    /// Whatever is done with it: a stranger's may be over.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.peer.standing.is_known() {
            self.deadline = None;
            return Ok(());
        }
        let begin = || Box::pin(tokio::time::sleep(self.known_within));
        let deadline = self.deadline.get_or_insert_with(begin);
        if deadline.as_mut().poll(cx).is_ready() {
            tracing::debug!(peer = %self.peer.address, "nobody was let in over a connection: it is closed");
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        if self.replay.is_empty() {
            return Pin::new(&mut self.port).poll_read(cx, into);
        }
        let n = self.replay.len().min(into.remaining());
        into.put_slice(&self.replay[..n]);
        self.replay.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.port).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.port).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.port.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.port).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.port).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::admission::Admission;
    use crate::door::Places;

    /// A connection's two ends, what it counts as, and that it has so long.
    async fn opened(read: &'static [u8], known_within: Duration) -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stranger = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (socket, address) = listener.accept().await.unwrap();
        let places = Places {
            strangers: Admission::new(1, 1),
            known: Admission::new(1, 1),
        };
        let peer = Peer {
            address,
            certified: None,
            standing: Arc::new(Standing::new(address, false, &places).unwrap()),
        };
        let read = Bytes::from_static(read);
        let connection = Connection::new(Port::Clear(socket), read, peer, known_within);
        (stranger, connection)
    }

    #[tokio::test]
    async fn a_connection_over_which_nobody_was_let_in_ends() {
        let (mut stranger, mut connection) = opened(b"", Duration::ZERO).await;
        let standing = Arc::clone(&connection.peer.standing);
        let mut word = [0; 4];
        let over = connection.read_exact(&mut word).await.unwrap_err();
        assert_eq!(over.kind(), io::ErrorKind::TimedOut);
        standing.let_in().unwrap();
        stranger.write_all(b"word").await.unwrap();
        connection.read_exact(&mut word).await.unwrap();
        assert_eq!(&word, b"word");
        // Who is a stranger again has his time again, and no more.
        standing.turn_out();
        let over = connection.read_exact(&mut word).await.unwrap_err();
        assert_eq!(over.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn what_was_read_is_read_again_first() {
        let (mut peer, mut connection) = opened(b"first ", Duration::from_secs(3600)).await;
        peer.write_all(b"then").await.unwrap();
        let mut all = [0; 10];
        connection.read_exact(&mut all).await.unwrap();
        assert_eq!(&all, b"first then");
    }
}
