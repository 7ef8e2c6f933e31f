//! The connection of a link that carries event messages in both directions.
//!
//! The thread that learns of an event's end writes the message as far as the socket takes it at once. A
//! thread of the link writes the rest. A dedicated thread reads the messages. It settles the mirror in
//! the graph, which is plain memory. It leaves the commands that can then run to the session's `mirrors`
//! thread. So no driver call, however long, delays a message on either end.
//!
//! Bulk data has its own connections, so that no message waits behind megabytes.
//!
//! If the link outlives its connections, each end keeps the messages that the other end has not acknowledged.
//! [`Messages::succeed`] sends them again on the next connection. Positions are numbers of event messages;
//! acknowledgements are not counted. [`Handled`] makes each message count once.
//!
//! `Resumed` and `Kept` of the lanes do the same for bytes, and do not fit here. They count what was read, and their
//! senders block. A driver's thread calls [`Messages::put`], which must not wait for a socket or for what is sent again.
//!
//! Invariant: [`Messages::put`] never blocks. A peer that reads nothing costs at most [`MAX_WAITING`] bytes.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Weak};

use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::LinkId;
use causeway_proto::preamble::EVENT_LANE;
use causeway_proto::status::Status;
use causeway_security::{Line, Opener, Records};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::Mirrors;

/// Number of waiting bytes at which the link is closed, because its peer reads nothing.
const MAX_WAITING: usize = 8 << 20;
/// How many batches a calling thread writes before it leaves the rest to the writing thread.
const TURNS: usize = 4;
/// Maximum number of messages read from the socket at once.
const READ_AT_ONCE: usize = 256;

/// After so many messages the receiver acknowledges them.
const ACKNOWLEDGED_EACH: u64 = 256;

/// The messages that the other end may not have.
#[derive(Default)]
struct Log {
    kept: VecDeque<Header>,
    /// How many earlier messages the other end has acknowledged.
    acknowledged: u64,
}

/// The other end claims a position that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other node claims {claimed} event messages; expected {from} to {to}")]
pub(super) struct BadPosition {
    claimed: u64,
    from: u64,
    to: u64,
}

impl Log {
    /// Drops the first messages of the log, up to this position.
    fn drop_to(&mut self, position: u64) -> Result<(), BadPosition> {
        let to = self.acknowledged + self.kept.len() as u64;
        if position < self.acknowledged || position > to {
            return Err(BadPosition {
                claimed: position,
                from: self.acknowledged,
                to,
            });
        }
        self.kept.drain(..(position - self.acknowledged) as usize);
        self.acknowledged = position;
        Ok(())
    }
}

/// The number of event messages that were handled over all connections of a link.
#[derive(Default)]
pub(super) struct Handled(Mutex<HandledState>);

#[derive(Default)]
struct HandledState {
    count: u64,
    /// Number of the connection whose messages count.
    connection: u64,
}

impl Handled {
    /// Ends the handling of messages of the present connection. Returns the position, and the number of the next
    /// connection.
    pub(super) fn next_connection(&self) -> (u64, u64) {
        let mut state = self.0.lock();
        state.connection += 1;
        (state.count, state.connection)
    }

    /// Calls `handle` with a message of this connection and counts it. Returns the count, or `None` if a later
    /// connection has replaced this one. `handle` is short, because [`Handled::next_connection`] waits for it.
    fn count<E>(
        &self,
        connection: u64,
        handle: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let mut state = self.0.lock();
        if state.connection != connection {
            return Ok(None);
        }
        handle()?;
        state.count += 1;
        Ok(Some(state.count))
    }
}

/// The sending half.
pub(super) struct Messages {
    socket: TcpStream,
    /// Encrypts outgoing records; only with TLS.
    records: Option<Arc<Records>>,
    state: Mutex<MessagesState>,
    stuck: Condvar,
}

#[derive(Default)]
struct MessagesState {
    waiting: Vec<u8>,
    /// The encoded bytes of a batch that the socket has not taken.
    rest: Vec<u8>,
    writer: Writer,
    closed: bool,
    /// Set if the link outlives its connections.
    log: Option<Log>,
    /// Whether a later connection has the log.
    is_replaced: bool,
}

#[derive(Default, PartialEq, Eq)]
enum Writer {
    #[default]
    Nobody,
    /// A thread inside [`Messages::put`].
    Somebody,
    /// The thread in [`Messages::write`].
    Thread,
}

impl Messages {
    /// Splits a connection into its two halves.
    ///
    /// # Errors
    /// Returns the system's error if it has no more descriptors.
    pub(super) fn new(line: Line) -> io::Result<(Messages, Heard)> {
        let (socket, tls) = line.into_parts();
        let (records, opener) = tls.unzip();
        let heard = Heard {
            socket: socket.try_clone()?,
            opener,
        };
        let messages = Messages {
            socket,
            records,
            state: Mutex::default(),
            stuck: Condvar::new(),
        };
        Ok((messages, heard))
    }

    /// Keeps messages from now on, because the link outlives its connections.
    pub(super) fn keep(&self) {
        self.state.lock().log = Some(Log::default());
    }

    /// Makes the sending half of the next connection, which first sends the messages after `position`.
    /// [`Messages::write`] must follow.
    ///
    /// # Errors
    /// [`BadPosition`] as the error's source; the system's error if it has no more descriptors.
    pub(super) fn succeed(&self, line: Line, position: u64) -> io::Result<(Messages, Heard)> {
        let (next, heard) = Messages::new(line)?;
        {
            let mut state = self.state.lock();
            // There is no log after too many messages.
            let mut log = state.log.take().ok_or(io::ErrorKind::OutOfMemory)?;
            let dropped = log.drop_to(position);
            if let Err(error) = dropped {
                state.log = Some(log);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            state.is_replaced = true;
            self.break_off(&mut state);
            let mut own = next.state.lock();
            for message in &log.kept {
                own.waiting.extend_from_slice(&message.encode());
            }
            if !own.waiting.is_empty() {
                own.writer = Writer::Thread;
            }
            own.log = Some(log);
        }
        Ok((next, heard))
    }

    /// Processes an acknowledgement of the other end. An acknowledgement for a replaced connection has no effect.
    fn acknowledged(&self, position: u64) -> Result<(), BadPosition> {
        let mut state = self.state.lock();
        match &mut state.log {
            Some(log) => log.drop_to(position),
            None => Ok(()),
        }
    }

    /// Sends a message. If the connection is broken, the reading thread notices. Returns false if a later
    /// connection has replaced this one, which then must send the message.
    #[must_use]
    pub(super) fn put(&self, message: Header) -> bool {
        let mut state = self.state.lock();
        if state.is_replaced {
            return false;
        }
        if let Some(log) = &mut state.log {
            if log.kept.len() * HEADER >= MAX_WAITING {
                tracing::warn!("the other node acknowledges no event messages from a link");
                state.log = None;
                self.break_off(&mut state);
                return true;
            }
            log.kept.push_back(message);
        }
        self.send(state, message);
        true
    }

    fn send<'a>(&'a self, mut state: MutexGuard<'a, MessagesState>, message: Header) {
        if state.closed {
            return;
        }
        if state.waiting.len() >= MAX_WAITING {
            tracing::warn!("the other node reads no event messages from a link");
            self.break_off(&mut state);
            return;
        }
        state.waiting.extend_from_slice(&message.encode());
        if state.writer != Writer::Nobody {
            return;
        }
        state.writer = Writer::Somebody;
        for _ in 0..TURNS {
            // The lock is free during the write, so that other threads can append. This thread sends their
            // messages too.
            let batch = state.take();
            drop(state);
            let sent = self
                .sealed(batch)
                .and_then(|bytes| send_some(&self.socket, bytes));
            state = self.state.lock();
            match sent {
                Ok(rest) if rest.is_empty() => {}
                Ok(rest) => {
                    state.rest = rest;
                    break;
                }
                Err(_) => {
                    self.break_off(&mut state);
                    return;
                }
            }
            if state.waiting.is_empty() {
                state.writer = Writer::Nobody;
                return;
            }
        }
        state.writer = Writer::Thread;
        self.stuck.notify_one();
    }

    /// Writes the bytes that callers left over, until the link ends.
    pub(super) fn write(&self) {
        let mut state = self.state.lock();
        loop {
            while state.writer != Writer::Thread && !state.closed {
                self.stuck.wait(&mut state);
            }
            if state.closed {
                return;
            }
            let batch = state.take();
            drop(state);
            let written = self
                .sealed(batch)
                .and_then(|bytes| (&self.socket).write_all(&bytes));
            state = self.state.lock();
            if written.is_err() {
                self.break_off(&mut state);
            } else if state.waiting.is_empty() {
                state.writer = Writer::Nobody;
            }
        }
    }

    /// Encodes a batch for the socket. At most one thread has a batch, so records leave in the order in
    /// which they are sealed.
    fn sealed(&self, batch: Batch) -> io::Result<Vec<u8>> {
        match (batch, &self.records) {
            (Batch::Begun(bytes), _) | (Batch::Fresh(bytes), None) => Ok(bytes),
            (Batch::Fresh(plain), Some(records)) => {
                let mut bytes = Vec::with_capacity(plain.len() + 64);
                records.seal(&plain, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// Acknowledges the messages up to this position, if the link outlives its connections.
    fn acknowledge(&self, position: u64) {
        let state = self.state.lock();
        if state.log.is_some() {
            self.send(state, Header::ack(EVENT_LANE, position));
        }
    }

    /// Closes the connection.
    pub(super) fn close(&self) {
        self.break_off(&mut self.state.lock());
    }

    fn break_off(&self, state: &mut MessagesState) {
        state.closed = true;
        (state.waiting, state.rest) = (Vec::new(), Vec::new());
        let _ = self.socket.shutdown(Shutdown::Both);
        self.stuck.notify_one();
    }
}

/// Bytes for one thread to write.
enum Batch {
    /// Messages, not yet encrypted.
    Fresh(Vec<u8>),
    /// Encoded bytes that the socket has not taken of an earlier batch.
    Begun(Vec<u8>),
}

impl MessagesState {
    fn take(&mut self) -> Batch {
        if self.rest.is_empty() {
            Batch::Fresh(std::mem::take(&mut self.waiting))
        } else {
            Batch::Begun(std::mem::take(&mut self.rest))
        }
    }
}

/// Sends the bytes that the socket takes at once. Returns the rest.
fn send_some(socket: &TcpStream, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut sent = 0;
    while sent < bytes.len() {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(socket, &bytes[sent..], flags) {
            Ok(n) => sent += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    bytes.drain(..sent);
    Ok(bytes)
}

/// The receiving half.
pub(super) struct Heard {
    socket: TcpStream,
    opener: Option<Opener>,
}

impl Read for Heard {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Heard { socket, opener } = self;
        match opener {
            None => socket.read(into),
            Some(opener) => opener.read(into, |sealed| socket.read(sealed)),
        }
    }
}

/// Why no more event messages are read from a connection.
#[must_use]
pub(super) enum ReadEnd {
    Broken(String),
    /// The link cannot go on.
    Nonsense(String),
}

/// Reads event messages until the connection ends. Returns why it ended. `own` is the sending half of the same
/// connection, whose number in `handled` is `connection`.
pub(super) fn hear(
    mut heard: Heard,
    own: &Messages,
    (handled, connection): (&Handled, u64),
    mirrors: &Weak<dyn Mirrors>,
    link: LinkId,
) -> ReadEnd {
    let mut bytes = [0; HEADER * READ_AT_ONCE];
    let mut filled = 0;
    loop {
        filled += match heard.read(&mut bytes[filled..]) {
            Ok(0) => {
                return ReadEnd::Broken("the other node closed the event connection".to_owned());
            }
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return ReadEnd::Broken(error.to_string()),
        };
        let (messages, rest) = bytes[..filled].as_chunks::<HEADER>();
        for message in messages {
            match Header::decode(message) {
                Ok(message) if message.kind == Kind::Event && message.status() <= 0 => {
                    let status = Status(message.status());
                    let Some(mirrors) = mirrors.upgrade() else {
                        return ReadEnd::Nonsense("the session has ended".to_owned());
                    };
                    let ended = || mirrors.ended(link, message.transfer, status);
                    match handled.count(connection, ended) {
                        Ok(Some(count)) if count % ACKNOWLEDGED_EACH == 0 => own.acknowledge(count),
                        Ok(Some(_)) => {}
                        Ok(None) => {
                            return ReadEnd::Broken(
                                "a later connection has replaced this one".to_owned(),
                            );
                        }
                        Err(error) => return ReadEnd::Nonsense(error.to_string()),
                    }
                }
                Ok(message)
                    if message.kind == Kind::Ack && message.transfer.0 == u64::from(EVENT_LANE) =>
                {
                    if let Err(error) = own.acknowledged(message.offset) {
                        return ReadEnd::Nonsense(error.to_string());
                    }
                }
                Ok(_) => {
                    return ReadEnd::Nonsense(
                        "the other node sent something else than an event's end".to_owned(),
                    );
                }
                Err(error) => return ReadEnd::Nonsense(error.to_string()),
            }
        }
        // A message may be split between two reads.
        let left = rest.len();
        bytes.copy_within(filled - left..filled, 0);
        filled = left;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Foreign;
    use super::*;
    use causeway_proto::id::EventId;
    use std::net::TcpListener;
    use std::time::Duration;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn message(n: u64) -> Header {
        Header::event(EventId(n), 0)
    }

    #[test]
    fn a_peer_that_does_not_read_holds_nobody_up_and_gets_all_in_order() {
        const WORDS: u64 = 200_000;
        let (near, mut far) = pair();
        let messages = Arc::new(Messages::new(near.into()).unwrap().0);
        let writer = std::thread::spawn({
            let messages = Arc::clone(&messages);
            move || messages.write()
        });
        for n in 0..WORDS {
            assert!(messages.put(message(n)));
        }
        far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = [0; HEADER];
        for n in 0..WORDS {
            far.read_exact(&mut bytes).unwrap();
            assert_eq!(Header::decode(&bytes), Ok(message(n)));
        }
        messages.close();
        writer.join().unwrap();
    }

    #[test]
    fn a_peer_that_never_reads_is_given_up() {
        let (near, far) = pair();
        let messages = Messages::new(near.into()).unwrap().0;
        let most = (MAX_WAITING / HEADER) as u64;
        // The kernel's buffers take some megabytes besides.
        let given_up = (0..most * 8).any(|n| {
            assert!(messages.put(message(n)));
            messages.state.lock().closed
        });
        assert!(given_up);
        drop(far);
    }

    struct Counting(Mutex<Vec<EventId>>);

    impl Mirrors for Counting {
        fn ended(self: Arc<Self>, _: LinkId, mirror: EventId, _: Status) -> Result<(), Foreign> {
            self.0.lock().push(mirror);
            Ok(())
        }
    }

    #[test]
    fn messages_of_a_cut_connection_come_once_over_the_next() {
        // Acknowledgements come in between.
        const BEFORE: u64 = 3 * ACKNOWLEDGED_EACH;
        for cut in [0, 1, HEADER, 5 * HEADER + 7, BEFORE as usize * HEADER] {
            let counting = Arc::new(Counting(Mutex::default()));
            let mirrors: Arc<dyn Mirrors> = Arc::<Counting>::clone(&counting);
            let mirrors = Arc::downgrade(&mirrors);
            let (near, mut wire) = pair();
            let sender = Messages::new(near.into()).unwrap().0;
            sender.keep();
            for n in 0..BEFORE {
                assert!(sender.put(message(n)));
            }
            let mut bytes = vec![0; cut];
            wire.read_exact(&mut bytes).unwrap();
            // The receiver gets only these bytes of the first connection.
            let (mut to, far) = pair();
            let (receiver, heard) = Messages::new(far.into()).unwrap();
            receiver.keep();
            to.write_all(&bytes).unwrap();
            to.shutdown(Shutdown::Write).unwrap();
            let handled = Handled::default();
            let (_, connection) = handled.next_connection();
            let _ = hear(
                heard,
                &receiver,
                (&handled, connection),
                &mirrors,
                LinkId(1),
            );
            let (position, connection) = handled.next_connection();
            assert_eq!(position, (cut / HEADER) as u64);
            let (near, far) = pair();
            let (next, _) = sender.succeed(near.into(), position).unwrap();
            assert!(!sender.put(message(BEFORE)));
            assert!(next.put(message(BEFORE)));
            let (answers, heard) = receiver.succeed(far.into(), 0).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| next.write());
                scope.spawn(|| {
                    let _ = hear(heard, &answers, (&handled, connection), &mirrors, LinkId(1));
                });
                let until = std::time::Instant::now() + Duration::from_secs(20);
                while counting.0.lock().len() as u64 <= BEFORE {
                    assert!(std::time::Instant::now() < until, "a message is missing");
                    std::thread::yield_now();
                }
                next.close();
                answers.close();
            });
            let expected: Vec<_> = (0..=BEFORE).map(EventId).collect();
            assert_eq!(*counting.0.lock(), expected);
        }
    }

    #[test]
    fn positions_that_cannot_be_are_errors() {
        let (near, _far) = pair();
        let messages = Messages::new(near.into()).unwrap().0;
        messages.keep();
        for n in 0..10 {
            assert!(messages.put(message(n)));
        }
        messages.acknowledged(7).unwrap();
        for claimed in [6, 11] {
            let (from, to) = (7, 10);
            assert_eq!(
                messages.acknowledged(claimed),
                Err(BadPosition { claimed, from, to })
            );
        }
    }
}
