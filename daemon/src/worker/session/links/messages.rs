//! The connection of a link that carries event messages in both directions.
//!
//! The thread that learns of an event's end writes the message as far as the socket takes it at once. A
//! thread of the link writes the rest. A dedicated thread reads the messages. It settles the mirror in
//! the graph, which is plain memory. It leaves the commands that can then run to the session's `mirrors`
//! thread. So no driver call, however long, delays a message on either end.
//!
//! Bulk data has its own connections, so that no message waits behind megabytes.
//!
//! Invariant: [`Messages::put`] never blocks. A peer that reads nothing costs at most [`MAX_WAITING`] bytes.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Weak};

use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::LinkId;
use causeway_proto::status::Status;
use causeway_security::{Line, Opener, Records};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::Mirrors;

/// Number of waiting bytes at which the link is closed, because its peer reads nothing.
const MAX_WAITING: usize = 8 << 20;
/// How many batches a calling thread writes before it leaves the rest to the writing thread.
const TURNS: usize = 4;
/// Maximum number of messages read from the socket at once.
const READ_AT_ONCE: usize = 256;

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

    /// Sends a message. If the connection is broken, the reading thread notices.
    pub(super) fn put(&self, message: Header) {
        let mut state = self.state.lock();
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

/// Reads event messages until the connection ends. Returns why it ended.
pub(super) fn hear(mut heard: Heard, mirrors: &Weak<dyn Mirrors>, link: LinkId) -> String {
    let mut bytes = [0; HEADER * READ_AT_ONCE];
    let mut filled = 0;
    loop {
        filled += match heard.read(&mut bytes[filled..]) {
            Ok(0) => return "the other node closed the event connection".to_owned(),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return error.to_string(),
        };
        let (messages, rest) = bytes[..filled].as_chunks::<HEADER>();
        for message in messages {
            match Header::decode(message) {
                Ok(message) if message.kind == Kind::Event && message.status() <= 0 => {
                    let status = Status(message.status());
                    let Some(mirrors) = mirrors.upgrade() else {
                        return "the session has ended".to_owned();
                    };
                    if let Err(error) = mirrors.ended(link, message.transfer, status) {
                        return error.to_string();
                    }
                }
                Ok(_) => {
                    return "the other node sent something else than an event's end".to_owned();
                }
                Err(error) => return error.to_string(),
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
            messages.put(message(n));
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
            messages.put(message(n));
            messages.state.lock().closed
        });
        assert!(given_up);
        drop(far);
    }
}
