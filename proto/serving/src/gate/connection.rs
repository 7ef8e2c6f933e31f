//! A connection for tonic to serve. It is closed at a deadline unless somebody has authenticated over it.
//!
//! Bytes that were read before, to detect the protocol, are returned first. Invariant: from a stranger's
//! connection nothing is read without a deadline and a [`Budget`], and it never blocks its thread for
//! others.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_security::LINGER;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use super::budget::{Budget, Spent};
use super::port::Port;
use super::standing::Standing;

/// The peer of a connection, known since the connection was accepted.
#[derive(Clone)]
pub struct Peer {
    /// The peer's address.
    pub address: SocketAddr,
    /// The name in its client certificate, which was verified. `None` without one.
    pub certified: Option<String>,
    /// Whether the connection counts as a stranger's or as a known caller's.
    pub standing: Arc<Standing>,
}

/// Largest piece that is read from a stranger at once, in bytes. After each piece other tasks have their
/// turn.
const PIECE: usize = 4 << 10;
/// Bytes that are discarded of a stranger over its limits. A correct client sends no more, because HTTP/2's
/// window has this size here.
const DISCARDED: usize = 1 << 20;

/// A served connection; see the module.
pub struct Connection {
    port: Port,
    replay: Bytes,
    peer: Peer,
    known_within: Duration,
    /// The deadline for authentication, while the connection is a stranger's.
    deadline: Option<Pin<Box<Sleep>>>,
    budget: Budget,
    /// While this runs, nothing is read.
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether a piece was read since the last yield to other tasks.
    has_read: bool,
    /// Set once a stranger has exceeded its limits.
    closing: Option<Closing>,
    end: ConnectionEnd,
}

/// When a connection ends whoever its caller is.
enum ConnectionEnd {
    Never,
    /// When nothing more is read or written, and then when the connection fails.
    Due(Moment, Moment),
    /// Nothing is read or written until then.
    Silent(Moment),
    Over,
}

type Moment = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ConnectionEnd {
    /// Pending while the connection is silent.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let ConnectionEnd::Due(end, _) = self
            && end.as_mut().poll(cx).is_ready()
            && let ConnectionEnd::Due(_, closed) = std::mem::replace(self, ConnectionEnd::Over)
        {
            *self = ConnectionEnd::Silent(closed);
        }
        if let ConnectionEnd::Silent(closed) = self {
            ready!(closed.as_mut().poll(cx));
            *self = ConnectionEnd::Over;
        }
        Poll::Ready(match self {
            ConnectionEnd::Over => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => Ok(()),
        })
    }
}

/// The last moment of a connection whose stranger has exceeded its limits.
///
/// Closing a socket with unread bytes resets the connection, and the peer may lose the answers to its calls.
/// So bytes that still arrive are discarded while the answers leave; see [`refusal`](crate::refusal).
struct Closing {
    until: Pin<Box<Sleep>>,
    /// Bytes that may still be discarded.
    left: usize,
}

impl Closing {
    fn begin() -> Closing {
        Closing {
            until: Box::pin(tokio::time::sleep(LINGER)),
            left: DISCARDED,
        }
    }

    /// Discards a piece of what arrives. Ready when the peer has closed the connection.
    fn poll(&mut self, port: &mut Port, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Pending;
        }
        let mut piece = [0; PIECE];
        let mut piece = ReadBuf::new(&mut piece);
        ready!(Pin::new(port).poll_read(cx, &mut piece))?;
        if piece.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.left = self.left.saturating_sub(piece.filled().len());
        // Wakes the task again at once: others run in between, and answers are sent.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Connection {
    /// Creates a connection from which the bytes `read` have been read already. Whenever nobody is
    /// authenticated over it, a caller must authenticate within `known_within`.
    #[must_use]
    pub fn new(port: Port, read: Bytes, peer: Peer, known_within: Duration) -> Connection {
        let is_known = peer.standing.is_known();
        Connection {
            port,
            replay: read,
            peer,
            known_within,
            deadline: (!is_known).then(|| Box::pin(tokio::time::sleep(known_within))),
            budget: Budget::new(Instant::now()),
            pause: None,
            has_read: false,
            closing: None,
            end: ConnectionEnd::Never,
        }
    }

    /// Ends the connection in two steps. Once `end` is ready, nothing is read or written, not even what waited to be.
    /// The connection fails when `closed` is ready after that. Both are polled before each read and write.
    #[must_use]
    pub fn until(
        self,
        end: impl Future<Output = ()> + Send + 'static,
        closed: impl Future<Output = ()> + Send + 'static,
    ) -> Connection {
        let end = ConnectionEnd::Due(Box::pin(end), Box::pin(closed));
        Connection { end, ..self }
    }

    /// Called before every read and write. Pending while nothing is read or written, until the end; see
    /// [`Connection::until`].
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.end.poll_open(cx))?;
        Poll::Ready(self.check(cx))
    }

    /// Fails if the connection was displaced, or its deadline is over.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        // Before writes too: HTTP/2 with answers left to send does not read from a peer that does not.
        if let Some(closing) = &mut self.closing
            && closing.until.as_mut().poll(cx).is_ready()
        {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if self.peer.standing.poll_displaced(cx).is_ready() {
            tracing::debug!(
                peer = %self.peer.address,
                "an idle unauthenticated connection was closed to admit a new one"
            );
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if self.peer.standing.is_known() {
            self.deadline = None;
            return Ok(());
        }
        // A caller that lost its authentication gets a new deadline.
        let begin = || Box::pin(tokio::time::sleep(self.known_within));
        let deadline = self.deadline.get_or_insert_with(begin);
        if deadline.as_mut().poll(cx).is_ready() {
            let standing = &self.peer.standing;
            if let Some(later) = standing.kept_until(self.known_within, Instant::now()) {
                deadline.as_mut().reset(later.into());
                // Polled, so that this task is woken then.
                if deadline.as_mut().poll(cx).is_pending() {
                    return Ok(());
                }
            }
            tracing::debug!(
                peer = %self.peer.address,
                "a connection was closed because nobody authenticated over it in time"
            );
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Whether the connection may be read from now.
    fn poll_turn(&mut self, is_known: bool, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        // Wakes the task again at once: others run in between.
        if std::mem::take(&mut self.has_read) && !is_known {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Reads a piece: of the bytes that were read before, or of those that arrive.
    fn poll_piece(
        &mut self,
        is_known: bool,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.replay.is_empty() {
            let n = self.replay.len().min(into.remaining());
            into.put_slice(&self.replay.split_to(n));
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_turn(is_known, cx));
        if is_known {
            return Pin::new(&mut self.port).poll_read(cx, into);
        }
        let piece = into.initialize_unfilled_to(PIECE.min(into.remaining()));
        let mut piece = ReadBuf::new(piece);
        ready!(Pin::new(&mut self.port).poll_read(cx, &mut piece))?;
        let n = piece.filled().len();
        into.advance(n);
        Poll::Ready(Ok(()))
    }

    fn spend(&mut self, bytes: &[u8], is_known: bool) -> Result<(), Spent> {
        let pause = self.budget.spend(bytes, is_known, Instant::now())?;
        self.pause = pause.map(|pause| Box::pin(tokio::time::sleep(pause)));
        self.has_read = true;
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
        let this = &mut *self;
        ready!(this.poll_open(cx))?;
        if let Some(closing) = &mut this.closing {
            return closing.poll(&mut this.port, cx);
        }
        let is_known = this.peer.standing.is_known();
        let before = into.filled().len();
        ready!(this.poll_piece(is_known, cx, into))?;
        let Err(spent) = this.spend(&into.filled()[before..], is_known) else {
            return Poll::Ready(Ok(()));
        };
        tracing::info!(
            peer = %this.peer.address,
            %spent,
            "a connection is closed because its unauthenticated caller exceeded the limits"
        );
        // HTTP/2 gets no byte beyond the limits.
        into.set_filled(before);
        this.closing = Some(Closing::begin());
        // Again, so that this task is woken at the new deadline.
        self.poll_read(cx, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?;
        Pin::new(&mut self.port).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?;
        Pin::new(&mut self.port).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.port.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?;
        Pin::new(&mut self.port).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // With TLS, this sends what is left.
        ready!(self.poll_open(cx))?;
        Pin::new(&mut self.port).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::admission::Admission;
    use crate::gate::Places;

    /// The two ends of a connection to which the limits apply.
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
        // A caller that becomes a stranger again has a new deadline.
        standing.turn_out();
        let over = connection.read_exact(&mut word).await.unwrap_err();
        assert_eq!(over.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_call_keeps_a_strangers_connection_open_and_leaves_time_for_its_answer() {
        let within = Duration::from_millis(50);
        let (_stranger, mut connection) = opened(b"", within).await;
        let standing = Arc::clone(&connection.peer.standing);
        let kept = standing.keep_open();
        let mut word = [0; 4];
        let open = tokio::time::timeout(4 * within, connection.read_exact(&mut word)).await;
        assert!(open.is_err(), "{open:?}");
        assert!(!standing.is_known());
        let ended = Instant::now();
        drop(kept);
        let over = connection.read_exact(&mut word).await.unwrap_err();
        assert_eq!(over.kind(), io::ErrorKind::TimedOut);
        assert!(ended.elapsed() >= within);
    }

    #[tokio::test]
    async fn after_its_end_a_connection_neither_reads_nor_writes() {
        let (mut caller, connection) = opened(b"", Duration::from_secs(3600)).await;
        connection.peer.standing.let_in().unwrap();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (close, closed) = tokio::sync::oneshot::channel::<()>();
        let mut connection =
            connection.until(async { drop(ended.await) }, async { drop(closed.await) });
        caller.write_all(b"word").await.unwrap();
        let mut word = [0; 4];
        connection.read_exact(&mut word).await.unwrap();
        caller.write_all(b"more").await.unwrap();
        drop(end);
        let at_once = Duration::from_millis(20);
        let read = tokio::time::timeout(at_once, connection.read_exact(&mut word)).await;
        assert!(read.is_err(), "{read:?}");
        let written = tokio::time::timeout(at_once, connection.write_all(&word)).await;
        assert!(written.is_err(), "{written:?}");
        // The caller sees nothing of the end yet.
        let heard = tokio::time::timeout(at_once, caller.read(&mut word)).await;
        assert!(heard.is_err(), "{heard:?}");
        drop(close);
        for _ in 0..2 {
            let over = connection.read_exact(&mut word).await.unwrap_err();
            assert_eq!(over.kind(), io::ErrorKind::ConnectionAborted);
            let over = connection.write_all(&word).await.unwrap_err();
            assert_eq!(over.kind(), io::ErrorKind::ConnectionAborted);
        }
    }

    /// A preface, and 260 kB of frames that carry nothing.
    fn flood() -> Vec<u8> {
        let frame = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        [vec![b'P'; 24], frame.repeat(20_000)].concat()
    }

    #[tokio::test]
    async fn a_stranger_that_says_too_much_reads_its_answer_and_ends() {
        let (mut stranger, mut connection) = opened(b"", Duration::from_secs(3600)).await;
        let flooding = tokio::spawn(async move {
            stranger.write_all(&flood()).await.unwrap();
            let mut heard = Vec::new();
            stranger.read_to_end(&mut heard).await.unwrap();
            heard
        });
        connection.write_all(b"refused").await.unwrap();
        let mut piece = vec![0; 64 << 10];
        let mut read = 0;
        let end = loop {
            match connection.read(&mut piece).await {
                Ok(n) => {
                    assert!(n <= PIECE, "{n}");
                    read += n;
                }
                Err(end) => break end,
            }
        };
        assert_eq!(end.kind(), io::ErrorKind::ConnectionAborted);
        assert!(read < 16 << 10, "{read}");
        drop(connection);
        assert_eq!(flooding.await.unwrap(), b"refused");
    }

    #[tokio::test]
    async fn a_refused_stranger_that_does_not_read_ends_as_soon() {
        // The deadline for authentication is much later than the end of the last moment.
        let (mut stranger, mut connection) = opened(b"", 6 * LINGER).await;
        stranger.write_all(&flood()[..150_000]).await.unwrap();
        let mut piece = vec![0; 64 << 10];
        while connection.closing.is_none() {
            // Reads may end without a byte: the last one discards what it got.
            let read = tokio::time::timeout(Duration::ZERO, connection.read(&mut piece)).await;
            assert!(!matches!(read, Ok(Err(_))), "{read:?}");
        }
        // Fills the socket. From then on only writes are polled, as by HTTP/2 with answers left to send.
        let end = loop {
            if let Err(end) = connection.write_all(&piece).await {
                break end;
            }
        };
        assert_eq!(end.kind(), io::ErrorKind::ConnectionAborted);
        let end = connection.flush().await.unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::ConnectionAborted);
        drop(stranger);
    }

    #[tokio::test]
    async fn a_known_caller_that_says_much_is_only_slowed_down() {
        let (mut caller, mut connection) = opened(b"", Duration::from_secs(3600)).await;
        connection.peer.standing.let_in().unwrap();
        let flooding = tokio::spawn(async move {
            caller.write_all(&flood()).await.unwrap();
            caller
        });
        let mut all = vec![0; flood().len()];
        connection.read_exact(&mut all).await.unwrap();
        drop(connection);
        drop(flooding.await.unwrap());
    }

    #[tokio::test]
    async fn a_silent_connection_ends_for_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let places = Places {
            strangers: Admission::new(1, 1),
            known: Admission::new(1, 1),
        };
        let mut open = Vec::new();
        for is_known in [false, true] {
            let address = listener.local_addr().unwrap();
            let client = TcpStream::connect(address).await.unwrap();
            let (socket, address) = listener.accept().await.unwrap();
            let standing = Arc::new(Standing::new(address, is_known, &places).unwrap());
            let peer = Peer {
                address,
                certified: None,
                standing,
            };
            let port = Port::Clear(socket);
            let hour = Duration::from_secs(3600);
            let connection = Connection::new(port, Bytes::new(), peer, hour);
            open.push((client, connection, is_known));
        }
        for (_client, mut connection, is_known) in open {
            let address = connection.peer.address;
            let newcomers = async {
                // These exceed the limit, so one is displaced although each is young.
                (0..crate::admission::BURST)
                    .map(|_| Standing::new(address, is_known, &places).unwrap())
                    .collect::<Vec<_>>()
            };
            let mut word = [0];
            let (end, _newcomers) = tokio::join!(connection.read(&mut word), newcomers);
            assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        }
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
