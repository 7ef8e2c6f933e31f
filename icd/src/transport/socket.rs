//! A session's connections: options, preamble, proof; and lanes through shared memory, which begin so.
//!
//! Blocking sockets of std; the handshake has a deadline, what comes after has none. Invariant: a
//! socket leaves here only after both sides have proved the session's secret.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use causeway_lane::{Place, Shared};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{
    GREETING, Greeting, PREAMBLE, Preamble, Purpose, Verdict, WORKER_PROOF, check_worker_proof,
    client_proof,
};
use causeway_proto::status::WireError;
use causeway_proto::version;
use causeway_security::{Fingerprint, Line, NotSecured, TlsStream, complete, pinned};
use rustix::net::sockopt;

use super::local::Peer;
use super::standard;

/// Commands and heartbeats go before bulk in the sender's own queues.
const PRIORITY: i32 = 6;

/// What is needed to open further connections of a session.
#[derive(Debug, Clone)]
pub(super) struct Door {
    /// The daemon, as resolved and reached when the session was opened.
    pub(super) peer: Peer,
    /// How people call it.
    pub(super) address: String,
    /// The session.
    pub(super) session: SessionId,
    /// Its secret.
    pub(super) secret: SessionSecret,
    /// Of its certificate, if its connections are secured.
    pub(super) fingerprint: Option<Fingerprint>,
    /// Silence after which the peer counts as lost.
    pub(super) heartbeat_limit: Duration,
    /// Where it shares memory, if that is here and wanted.
    pub(super) place: Option<Place>,
}

impl Door {
    /// Opens a connection and proves the secret, both ways.
    ///
    /// # Errors
    /// [`WireError::Unreachable`], [`WireError::Protocol`], [`WireError::Refused`].
    pub(super) fn open(
        &self,
        purpose: Purpose,
        lane: u8,
        deadline: Instant,
    ) -> Result<Line, WireError> {
        let unreachable = |error: io::Error| WireError::Unreachable {
            address: self.address.clone(),
            reason: plain(&error),
        };
        let _kept_free = standard::kept_free();
        let limit = time_left(deadline).map_err(unreachable)?;
        let stream = self.peer.connect(limit).map_err(unreachable)?;
        self.set_options(&stream, purpose).map_err(unreachable)?;
        let mut line = Line::Clear(stream);
        let preamble = self.introduce(&line, purpose, lane, deadline)?;
        if let Some(fingerprint) = self.fingerprint {
            line = self.secure(line, fingerprint, deadline)?;
        }
        self.prove(&line, &preamble, deadline)?;
        let socket = line.socket();
        socket.set_read_timeout(None).map_err(unreachable)?;
        socket.set_write_timeout(None).map_err(unreachable)?;
        Ok(line)
    }

    /// Whether there may be memory to share with the node.
    pub(super) fn shares_memory(&self) -> bool {
        self.place.is_some()
    }

    /// Opens a lane through shared memory: proves the secret over a Unix socket, both ways, and hands the
    /// memory over.
    ///
    /// # Errors
    /// As [`Door::open`]; also where there is no memory to share, which is no failure of the session.
    pub(super) fn open_shared(&self, lane: u8, deadline: Instant) -> Result<Shared, WireError> {
        let failed = |reason: String| WireError::Unreachable {
            address: self.address.clone(),
            reason,
        };
        let Some(place) = self.place else {
            return Err(failed("it shares no memory with this process".to_owned()));
        };
        let _kept_free = standard::kept_free();
        let socket = place.connect().map_err(|error| failed(plain(&error)))?;
        // std has one type for a stream socket with time limits, and it asks for no more than that.
        let line = Line::Clear(TcpStream::from(socket));
        // Nobody can stand between the ends of a socket that does not leave this system: no TLS.
        let preamble = self.introduce(&line, Purpose::SharedBulk, lane, deadline)?;
        self.prove(&line, &preamble, deadline)?;
        let (socket, _) = line.into_parts();
        causeway_lane::offer(OwnedFd::from(socket), deadline)
            .map_err(|error| failed(error.to_string()))
    }

    fn set_options(&self, stream: &TcpStream, purpose: Purpose) -> io::Result<()> {
        causeway_proto::socket::set_options(stream)?;
        if matches!(
            purpose,
            Purpose::Commands | Purpose::CommandsGrpc | Purpose::Pulse
        ) {
            // A missing priority costs latency only, so a system that refuses it is no reason to fail.
            if let Err(error) = super::sys::set_priority(stream, PRIORITY) {
                tracing::debug!(%error, "SO_PRIORITY refused");
            }
        }
        if causeway_proto::socket::is_unix(stream) {
            // The kernel that both ends share tells at once that one is gone.
            return Ok(());
        }
        if purpose == Purpose::Pulse {
            let limit = u32::try_from(self.heartbeat_limit.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(stream, limit)?;
        } else {
            sockopt::set_socket_keepalive(stream, true)?;
            sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
            sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
            sockopt::set_tcp_keepcnt(stream, 4)?;
        }
        Ok(())
    }

    // Says what the connection is for.
    fn introduce(
        &self,
        line: &Line,
        purpose: Purpose,
        lane: u8,
        deadline: Instant,
    ) -> Result<[u8; PREAMBLE], WireError> {
        let preamble = Preamble {
            purpose,
            lane,
            session: self.session,
            link: 0,
        };
        let bytes = preamble.encode();
        self.spoken(write_by(line, &bytes, deadline))?;
        Ok(bytes)
    }

    // With the holder of the session's certificate, and with nobody else.
    fn secure(
        &self,
        line: Line,
        fingerprint: Fingerprint,
        deadline: Instant,
    ) -> Result<Line, WireError> {
        let (socket, _) = line.into_parts();
        let handshake = self.spoken(pinned(fingerprint))?;
        let records = match complete(handshake, &socket, deadline) {
            Ok(records) => records,
            Err(NotSecured::InTheClear) => {
                // Who does not let the connection in says so before TLS. No welcome is taken so.
                self.greeting(&Line::Clear(socket), deadline)?;
                return Err(self.nonsense(NotSecured::InTheClear.to_string()));
            }
            Err(NotSecured::Io(error)) => return self.spoken(Err(error)),
            Err(error @ NotSecured::Tls(_)) => {
                let reason =
                    format!("{error}: the connection does not end at the session's process");
                return Err(self.nonsense(reason));
            }
        };
        let stream = self.spoken(TlsStream::new(socket, records))?;
        Ok(Line::Tls(stream))
    }

    // The worker's welcome; anything else is an error.
    fn greeting(&self, line: &Line, deadline: Instant) -> Result<Greeting, WireError> {
        let mut greeting = [0; GREETING];
        self.spoken(read_by(line, &mut greeting, deadline))?;
        let greeting =
            Greeting::decode(&greeting).map_err(|error| self.nonsense(error.to_string()))?;
        if greeting.verdict == Verdict::Version || greeting.verdict == Verdict::Welcome {
            version::check(u32::from(greeting.version))
                .map_err(|error| self.nonsense(error.to_string()))?;
        }
        if greeting.verdict != Verdict::Welcome {
            return Err(WireError::Refused {
                address: self.address.clone(),
                reason: greeting.verdict.to_string(),
            });
        }
        Ok(greeting)
    }

    fn prove(
        &self,
        line: &Line,
        preamble: &[u8; PREAMBLE],
        deadline: Instant,
    ) -> Result<(), WireError> {
        let greeting = self.greeting(line, deadline)?;
        let ours = client_proof(&self.secret, preamble, &greeting.nonce);
        self.spoken(write_by(line, &ours, deadline))?;
        let mut theirs = [0; WORKER_PROOF];
        self.spoken(read_by(line, &mut theirs, deadline))?;
        if check_worker_proof(&self.secret, preamble, &greeting.nonce, &ours, &theirs) {
            Ok(())
        } else {
            Err(self.nonsense("it does not know the session's secret".to_owned()))
        }
    }

    fn spoken<T>(&self, result: io::Result<T>) -> Result<T, WireError> {
        result.map_err(|error| WireError::Protocol {
            address: self.address.clone(),
            reason: format!("in the handshake of a connection: {}", plain(&error)),
        })
    }

    fn nonsense(&self, reason: String) -> WireError {
        WireError::Protocol {
            address: self.address.clone(),
            reason,
        }
    }
}

// Fills `bytes`, however slowly the peer lets them drip, or fails at the deadline.
fn read_by(mut line: &Line, mut bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        line.socket().set_read_timeout(Some(time_left(deadline)?))?;
        match line.read(bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes = &mut bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

// A handshake's few bytes always find room in a fresh socket, so one limit is enough.
fn write_by(mut line: &Line, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    line.socket()
        .set_write_timeout(Some(time_left(deadline)?))?;
    line.write_all(bytes)
}

/// What is left until `deadline`, as an error when nothing is.
pub(super) fn time_left(deadline: Instant) -> io::Result<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| *left >= Duration::from_millis(1))
        .ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))
}

/// An I/O error without the number that std appends: people read it.
pub(super) fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_peer_that_drips_does_not_stretch_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = Door {
            peer: Peer::Tcp(listener.local_addr().unwrap()),
            address: "dripper".to_owned(),
            session: SessionId([1; 16]),
            secret: SessionSecret([2; 32]),
            fingerprint: None,
            heartbeat_limit: Duration::from_secs(4),
            place: None,
        };
        let dripper = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b"C").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let begun = Instant::now();
        let error = door
            .open(Purpose::Commands, 0, begun + Duration::from_millis(200))
            .unwrap_err();
        assert!(
            begun.elapsed() < Duration::from_millis(600),
            "{:?}",
            begun.elapsed()
        );
        assert!(
            matches!(&error, WireError::Protocol { reason, .. } if reason.contains("no answer in time")),
            "{error:?}"
        );
        dripper.join().unwrap();
    }
}
