//! Sends further files of sessions to another node, over connections of their own.
//!
//! A file leaves while a worker writes it. Each has a thread of its own. This module decides nothing about sessions.
//! Invariant: no connection lasts longer than the call whose transfer it belongs to.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_links::{FarNode, NotDialled, WrongDigest, certificate, dial_with};
use causeway_proto::control::ContentsWay;
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{Preamble, Purpose};
use causeway_security::Line;
use parking_lot::Mutex;

use super::super::super::contents::Contents;
use super::super::super::workers::Progress;
use super::further::{Head, MOST_CHUNK};
use super::{LOOK_EVERY, STILL_WAITS, TAKEN_WITHIN};
use crate::config::ManagerAddress;

/// Time for a connection to be made.
const DIALLED_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a file that are read at once for TLS.
const BATCH: usize = 256 << 10;

/// The connections of one call for sessions. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Connections(Arc<Mutex<SendState>>);

#[derive(Default)]
struct SendState {
    /// Where the other node takes connections, once it has said so.
    way: Option<(FarNode, ManagerAddress)>,
    sockets: Vec<Arc<TcpStream>>,
    is_over: bool,
}

/// A connection, which is one of its call's until this is dropped.
struct Open<'a> {
    all: &'a Connections,
    line: Line,
    socket: Arc<TcpStream>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.all.0.lock();
        state.sockets.retain(|of| !Arc::ptr_eq(of, &self.socket));
    }
}

/// Ends all connections of a call when it is dropped.
pub(super) struct EndsWithCall(Connections);

impl Drop for EndsWithCall {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A further file of a session.
pub(super) struct File<'a> {
    /// The number of the session in its call, from 1.
    pub(super) session: u64,
    /// The number of the file, from 1.
    pub(super) number: u8,
    pub(super) contents: &'a Contents,
}

/// Why a file was not sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSent {
    /// The contents cannot be read.
    #[error("{0}")]
    Here(io::Error),
    /// The other node was not reached.
    #[error(transparent)]
    NotDialled(#[from] NotDialled),
    /// The connection has failed.
    #[error("a connection for contents has failed: {0}")]
    There(io::Error),
    /// The other node has written another number of bytes.
    #[error("the node has written a file only in part")]
    InPart,
    /// The call has ended.
    #[error("the call has ended")]
    Over,
}

/// Why the other node's answer is no way for contents.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoWay {
    #[error(
        "the node's answer has no address, id or certificate as expected; it may run another version"
    )]
    Unusable,
    #[error("the node takes contents without TLS, which this node uses")]
    Clear,
}

impl From<WrongDigest> for NoWay {
    fn from(_: WrongDigest) -> NoWay {
        NoWay::Unusable
    }
}

impl Connections {
    /// Returns what ends all connections when it is dropped.
    pub(super) fn end_with_call(&self) -> EndsWithCall {
        EndsWithCall(self.clone())
    }

    /// Notes how the other node takes connections.
    ///
    /// # Errors
    /// The answer is nonsense, or TLS is needed and the node does without.
    pub(super) fn found(
        &self,
        way: &ContentsWay,
        address: ManagerAddress,
        needs_tls: bool,
    ) -> Result<(), NoWay> {
        let far = FarNode {
            id: SessionId(way.id[..].try_into().map_err(|_| NoWay::Unusable)?),
            secret: SessionSecret(way.secret[..].try_into().map_err(|_| NoWay::Unusable)?),
            fingerprint: certificate(&way.certificate_sha256)?,
            addresses: Vec::new(),
        };
        if needs_tls && far.fingerprint.is_none() {
            return Err(NoWay::Clear);
        }
        self.0.lock().way = Some((far, address));
        Ok(())
    }

    /// Ends all connections.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
        state.is_over = true;
        for socket in state.sockets.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn is_over(&self) -> bool {
        self.0.lock().is_over
    }

    /// Sends a file as far as it is written, until it is whole. Blocks.
    ///
    /// # Errors
    /// [`NotSent`].
    pub(super) fn send(
        &self,
        file: &File<'_>,
        progress: &dyn Fn() -> Progress,
    ) -> Result<(), NotSent> {
        loop {
            // Asked before the length: then the file is whole when the session is parked.
            let now = progress();
            if self.is_over() {
                return Err(NotSent::Over);
            }
            let is_empty = file.contents.length().map_err(NotSent::Here)? == 0;
            match now {
                Progress::Over | Progress::Stays => return Ok(()),
                Progress::Parked(_) if is_empty => return Ok(()),
                Progress::Parks if is_empty => {}
                Progress::Parks | Progress::Parked(_) => break,
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let open = self.dial(file)?;
        self.send_over(&open.line, file, progress)
    }

    fn send_over(
        &self,
        mut line: &Line,
        file: &File<'_>,
        progress: &dyn Fn() -> Progress,
    ) -> Result<(), NotSent> {
        let (mut at, mut last) = (0, Instant::now());
        loop {
            let (now, before) = (progress(), at);
            if matches!(now, Progress::Over | Progress::Stays) {
                let head = Head::GivenUp.encode();
                return line.write_all(&head).map_err(NotSent::There);
            }
            let length = file.contents.length().map_err(NotSent::Here)?;
            while at < length {
                let chunk = MOST_CHUNK.min(length - at);
                send_chunk(line, file.contents, at, chunk)?;
                at += chunk;
            }
            if self.is_over() {
                return Err(NotSent::Over);
            }
            if matches!(now, Progress::Parked(_)) {
                break;
            }
            if at > before {
                last = Instant::now();
            } else if last.elapsed() >= STILL_WAITS {
                let head = Head::Chunk(0).encode();
                line.write_all(&head).map_err(NotSent::There)?;
                last = Instant::now();
            }
            std::thread::sleep(LOOK_EVERY);
        }
        end(line, at)
    }

    // Waits until the other node has said where, and connects.
    fn dial(&self, file: &File<'_>) -> Result<Open<'_>, NotSent> {
        let (far, address) = loop {
            {
                let state = self.0.lock();
                if state.is_over {
                    return Err(NotSent::Over);
                }
                if let Some((far, address)) = &state.way {
                    break (far.clone(), address.clone());
                }
            }
            std::thread::sleep(LOOK_EVERY);
        };
        let preamble = Preamble {
            purpose: Purpose::Contents,
            lane: file.number,
            session: far.id,
            link: file.session,
        };
        let deadline = Instant::now() + DIALLED_WITHIN;
        let found = (address.host.as_str(), address.port).to_socket_addrs();
        let mut last = NotDialled::Nowhere("the name has no address".to_owned());
        for at in found.map_err(NotDialled::Io)? {
            match dial_with(&far, at, &preamble, deadline) {
                Ok(line) => return self.keep(line),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }

    fn keep(&self, line: Line) -> Result<Open<'_>, NotSent> {
        // This node has too many files open if this fails.
        let socket = Arc::new(line.socket().try_clone().map_err(NotSent::Here)?);
        let mut state = self.0.lock();
        if state.is_over {
            return Err(NotSent::Over);
        }
        state.sockets.push(Arc::clone(&socket));
        Ok(Open {
            all: self,
            line,
            socket,
        })
    }
}

fn send_chunk(mut line: &Line, contents: &Contents, at: u64, length: u64) -> Result<(), NotSent> {
    let head = Head::Chunk(length).encode();
    line.write_all(&head).map_err(NotSent::There)?;
    let mut done = 0;
    while done < length {
        let left = (length - done) as usize;
        done += match line {
            Line::Clear(socket) => {
                let sent = contents.send_at(socket, at + done, left);
                sent.map_err(of_sending)? as u64
            }
            Line::Tls(_) => {
                let bytes = contents.read_at(at + done, left.min(BATCH));
                let bytes = bytes.map_err(NotSent::Here)?;
                if bytes.is_empty() {
                    return Err(NotSent::Here(io::ErrorKind::UnexpectedEof.into()));
                }
                line.write_all(&bytes).map_err(NotSent::There)?;
                bytes.len() as u64
            }
        };
    }
    Ok(())
}

// `sendfile` fails for the file and for the socket alike. A disk that fails and a file that is too short are this node's.
fn of_sending(error: io::Error) -> NotSent {
    let is_here = error.kind() == io::ErrorKind::UnexpectedEof
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    match is_here {
        true => NotSent::Here(error),
        false => NotSent::There(error),
    }
}

// Says that the file is whole, and waits until the other node has written it.
fn end(mut line: &Line, length: u64) -> Result<(), NotSent> {
    let mut taken = [0; 8];
    let said = line.write_all(&Head::Ended.encode());
    let limited = said.and_then(|()| line.socket().set_read_timeout(Some(TAKEN_WITHIN)));
    let answered = limited.and_then(|()| line.read_exact(&mut taken));
    answered.map_err(NotSent::There)?;
    match u64::from_le_bytes(taken) == length {
        true => Ok(()),
        false => Err(NotSent::InPart),
    }
}
