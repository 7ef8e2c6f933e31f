//! Opens a session's connections: socket options, preamble, TLS and proof of the secret. Lanes through
//! shared memory begin in the same way.
//!
//! Blocking sockets of std. The handshake has a deadline; later reads and writes have none. Invariant: a
//! socket leaves this module only after both sides have proved that they know the session's secret.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_lane::{DaemonPlace, RingPair};
use causeway_proto::frame::COMES_BACK;
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{
    ClientWord, GREETING, Greeting, PREAMBLE, Preamble, Purpose, Verdict, WORKER_PROOF,
    check_worker_proof, client_proof,
};
use causeway_proto::status::WireError;
use causeway_proto::version;
use causeway_security::{Fingerprint, Line, NotSecured, TlsStream, complete, pinned};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use super::ended::is_end;
use super::local::Peer;
use super::rails::{Rail, Rails};
use super::resolve::{self, Candidate, Connected, NotConnected};
use super::retry::{Retry, persistently_by};
use super::{control, standard};

/// SO_PRIORITY for commands and heartbeats, which overtake bulk data in the sender's own queues.
const PRIORITY: i32 = 6;

/// Time limit for a connection on one rail while another one works.
pub(super) const RAIL_LIMIT: Duration = Duration::from_secs(2);

/// Everything that is needed to open further connections of a session.
#[derive(Debug, Clone)]
pub(super) struct Dialer {
    /// The addresses of the server. Shared by all that open connections of the session.
    pub(super) rails: Arc<Rails>,
    /// The daemon's place, if the daemon is on this host.
    pub(super) here: Option<DaemonPlace>,
    /// The configured address, for messages.
    pub(super) address: String,
    /// The session.
    pub(super) session: SessionId,
    /// The session's secret.
    pub(super) secret: SessionSecret,
    /// Silence after which the peer counts as lost.
    pub(super) heartbeat_limit: Duration,
    /// The node's shared-memory place, if the node is on this machine and sharing is enabled.
    pub(super) place: Option<DaemonPlace>,
}

/// Why a connection of a session was not opened.
#[derive(Debug)]
pub(super) struct NotOpened {
    pub(super) error: WireError,
    /// The peer that did not answer, if it is known.
    pub(super) peer: Option<Peer>,
    pub(super) fault: Fault,
}

/// Whether another attempt may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The node does not have the session, or not any more.
    UnknownSession,
    /// The daemon that had the session is gone.
    NoDaemon,
    /// The session is parked.
    Parked,
    /// Another attempt may help.
    Other,
}

impl From<WireError> for NotOpened {
    fn from(error: WireError) -> NotOpened {
        NotOpened {
            error,
            peer: None,
            fault: Fault::Other,
        }
    }
}

impl Dialer {
    /// Opens a connection where the session was opened; both sides prove that they know the session's secret.
    pub(super) fn open(
        &self,
        purpose: Purpose,
        retry: Retry,
        deadline: Instant,
    ) -> Result<Line, NotOpened> {
        let _kept_free = standard::kept_free();
        let rail = self.rails.current();
        let opened = persistently_by(deadline, retry, || {
            self.open_on(rail, purpose, 0, ClientWord::default(), deadline)
        });
        Ok(opened?.0)
    }

    /// Opens a lane on its rail, or on another one that works. `word` has this side's position and its generation.
    /// Returns the lane's rail and the other side's position too.
    pub(super) fn open_lane(
        &self,
        lane: u8,
        word: ClientWord,
        deadline: Instant,
    ) -> Result<(Line, usize, u64), WireError> {
        let _kept_free = standard::kept_free();
        loop {
            let rail = self.rails.of_lane(lane);
            let limit = match self.rails.have_other(rail) {
                true => deadline.min(Instant::now() + RAIL_LIMIT),
                false => deadline,
            };
            let dialer = self.on_rail(rail);
            let opened = persistently_by(limit, Retry::Closed, || {
                dialer.open_on(rail, Purpose::Bulk, lane, word, limit)
            });
            let not_opened = match opened {
                Ok((line, theirs)) => return Ok((line, rail, theirs)),
                Err(not_opened) => not_opened,
            };
            let NotOpened { error, fault, .. } = not_opened;
            // A worker that refuses a lane does so on every rail.
            let is_refused = matches!(error, WireError::Refused { .. })
                && matches!(fault, Fault::Other | Fault::Parked);
            if is_refused || !self.rails.note_dead(rail, &error.to_string()) {
                return Err(error);
            }
        }
    }

    /// The dialer with the address of this rail in its messages.
    pub(super) fn on_rail(&self, rail: usize) -> Dialer {
        Dialer {
            address: self.rails.address(rail).to_string(),
            ..self.clone()
        }
    }

    // Opens a connection on this rail.
    fn open_on(
        &self,
        rail: usize,
        purpose: Purpose,
        lane: u8,
        word: ClientWord,
        deadline: Instant,
    ) -> Result<(Line, u64), NotOpened> {
        let stream = self.connect_on(rail, deadline)?;
        self.open_over(stream, purpose, lane, word, deadline)
    }

    // Connects on this rail.
    fn connect_on(&self, rail: usize, deadline: Instant) -> Result<TcpStream, NotOpened> {
        let limit = time_left(deadline).map_err(|error| self.unreachable(&error))?;
        match self.rails.peer(rail) {
            Some(peer) => self.connect_to(&peer, deadline),
            None => self.connect_anew(rail, limit),
        }
    }

    /// Connects to this peer.
    pub(super) fn connect_to(
        &self,
        peer: &Peer,
        deadline: Instant,
    ) -> Result<TcpStream, NotOpened> {
        let limit = time_left(deadline).map_err(|error| self.unreachable(&error))?;
        let connected = peer.connect(limit);
        connected.map_err(|error| self.not_connected(Some(peer.clone()), &error))
    }

    fn not_connected(&self, peer: Option<Peer>, error: &io::Error) -> NotOpened {
        let fault = peer.as_ref().map(|peer| self.fault_of(peer, error));
        NotOpened {
            error: self.unreachable(error),
            fault: fault.unwrap_or(Fault::Other),
            peer,
        }
    }

    // Connects to what the rail's address means now.
    fn connect_anew(&self, rail: usize, limit: Duration) -> Result<TcpStream, NotOpened> {
        let connected = self.connect_first(vec![self.rails.candidate(rail)], &[], limit);
        let (stream, rail) = connected.map_err(|errors| {
            let error = errors.into_iter().next();
            error.unwrap_or_else(|| self.unreachable(&io::ErrorKind::TimedOut.into()).into())
        })?;
        self.rails.note_peer(rail);
        Ok(stream)
    }

    /// Connects to the first of the candidates that answers, except the peers that were `tried` before.
    ///
    /// # Errors
    /// Why none answered; nothing if all were tried before.
    pub(super) fn connect_first(
        &self,
        candidates: Vec<Candidate>,
        tried: &[Peer],
        limit: Duration,
    ) -> Result<(TcpStream, Rail), Vec<NotOpened>> {
        let tried = tried.to_vec();
        let connected = control::converse(move || async move {
            let _kept_free = standard::kept_free();
            let connected = resolve::connect(candidates, &tried, limit).await;
            connected.map(|Connected { stream, rail, .. }| (stream.into_std(), rail))
        });
        let failed = |error: io::Error| vec![self.unreachable(&error).into()];
        let not_connected =
            |NotConnected { peer, error, .. }: NotConnected| self.not_connected(peer, &error);
        let (stream, rail) = (connected.map_err(failed)?)
            .map_err(|errors| errors.into_iter().map(not_connected).collect::<Vec<_>>())?;
        let blocking = |stream: TcpStream| stream.set_nonblocking(false).map(|()| stream);
        let stream = stream.and_then(blocking).map_err(failed)?;
        Ok((stream, rail))
    }

    /// Makes a connection one of the session. `word` has this side's position and its generation. Returns the other
    /// side's position too.
    pub(super) fn open_over(
        &self,
        stream: TcpStream,
        purpose: Purpose,
        lane: u8,
        word: ClientWord,
        deadline: Instant,
    ) -> Result<(Line, u64), NotOpened> {
        let unreachable = |error: io::Error| self.unreachable(&error);
        let word = ClientWord {
            origin: stream.local_addr().ok(),
            ..word
        };
        let (line, preamble) = self.introduced(stream, purpose, lane, deadline)?;
        let theirs = self.prove(&line, &preamble, &word, deadline)?;
        let socket = line.socket();
        socket.set_read_timeout(None).map_err(unreachable)?;
        socket.set_write_timeout(None).map_err(unreachable)?;
        Ok((line, theirs))
    }

    /// Whether a rail leads to the session's worker. Takes no place from a connection.
    pub(super) fn leads_to_worker(&self, rail: usize, lane: u8, deadline: Instant) -> bool {
        let _kept_free = standard::kept_free();
        let answered = || {
            let limit = time_left(deadline).map_err(|error| self.unreachable(&error))?;
            let stream = self.connect_anew(rail, limit)?;
            let (line, _) = self.introduced(stream, Purpose::Bulk, lane, deadline)?;
            self.greeting(&line, deadline)
        };
        match answered() {
            Ok(_) => true,
            Err(NotOpened { error, .. }) => {
                tracing::debug!(rail, %error, "an address of the server still does not work");
                false
            }
        }
    }

    // Sends the preamble, and begins TLS if the session has it.
    fn introduced(
        &self,
        stream: TcpStream,
        purpose: Purpose,
        lane: u8,
        deadline: Instant,
    ) -> Result<(Line, [u8; PREAMBLE]), NotOpened> {
        self.set_options(&stream, purpose)
            .map_err(|error| self.unreachable(&error))?;
        let line = Line::Clear(stream);
        let preamble = self.introduce(&line, purpose, lane, deadline)?;
        let line = match self.rails.fingerprint() {
            Some(fingerprint) => self.secure(line, fingerprint, deadline)?,
            None => line,
        };
        Ok((line, preamble))
    }

    fn unreachable(&self, error: &io::Error) -> WireError {
        WireError::Unreachable {
            address: self.address.clone(),
            reason: plain(error),
        }
    }

    // Whether nobody but the daemon's own host can have refused the connection.
    fn fault_of(&self, peer: &Peer, error: &io::Error) -> Fault {
        let refused = error.kind() == io::ErrorKind::ConnectionRefused;
        match peer {
            Peer::Unix(_) if refused || error.kind() == io::ErrorKind::NotFound => Fault::NoDaemon,
            Peer::Tcp(address) if refused && !address.ip().is_loopback() => Fault::NoDaemon,
            // On loopback, the refused port may be that of a tunnel which is down.
            Peer::Tcp(_) if refused && self.is_daemon_gone() => Fault::NoDaemon,
            _ => Fault::Other,
        }
    }

    // Whether the daemon is known to have run on this host and to have ended: nobody listens at its place.
    fn is_daemon_gone(&self) -> bool {
        let here = self.here.filter(|_| !self.rails.have_moved());
        let connected = here.map(|place| place.connect());
        connected.is_some_and(|connected| {
            connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        })
    }

    /// Whether the node may share memory with this process.
    pub(super) fn shares_memory(&self) -> bool {
        self.place.is_some() && !self.rails.have_moved()
    }

    /// Opens a lane through shared memory. Both sides prove the secret over a Unix socket, and this side
    /// passes the memory over it.
    ///
    /// # Errors
    /// As [`Dialer::open`]. Also if there is no memory to share, which does not fail the session.
    pub(super) fn open_shared(
        &self,
        lane: u8,
        generation: u64,
        deadline: Instant,
    ) -> Result<RingPair, WireError> {
        let failed = |reason: String| WireError::Unreachable {
            address: self.address.clone(),
            reason,
        };
        let Some(place) = self.place else {
            return Err(failed(
                "the node shares no memory with this process".to_owned(),
            ));
        };
        let _kept_free = standard::kept_free();
        let socket = place.connect().map_err(|error| failed(plain(&error)))?;
        // std has no common type for stream sockets. `TcpStream` supports timeouts, and its socket calls
        // work on a Unix socket too.
        let line = Line::Clear(TcpStream::from(socket));
        // A Unix socket does not leave this machine, so nobody can intercept it. It needs no TLS.
        let preamble = self.introduce(&line, Purpose::SharedBulk, lane, deadline)?;
        let word = ClientWord {
            generation,
            ..ClientWord::default()
        };
        self.prove(&line, &preamble, &word, deadline)
            .map_err(|not_opened| not_opened.error)?;
        let (socket, _) = line.into_parts();
        causeway_lane::offer(OwnedFd::from(socket), deadline)
            .map_err(|error| failed(error.to_string()))
    }

    fn set_options(&self, stream: &TcpStream, purpose: Purpose) -> io::Result<()> {
        causeway_proto::socket::set_options(stream)?;
        if matches!(
            purpose,
            Purpose::Commands | Purpose::CommandsGrpc | Purpose::Heartbeat
        ) {
            // A missing priority costs only latency, so a refusal by the system is no error.
            if let Err(error) = super::sys::set_priority(stream, PRIORITY) {
                tracing::debug!(%error, "the system refused SO_PRIORITY; commands may wait behind bulk data");
            }
        }
        if causeway_proto::socket::is_unix(stream) {
            // The kernel, which both ends share, reports at once that one end is gone.
            return Ok(());
        }
        if purpose == Purpose::Heartbeat {
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

    // Sends the preamble, which names the connection's purpose.
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

    // Runs a TLS handshake that accepts only the session's certificate.
    fn secure(
        &self,
        line: Line,
        fingerprint: Fingerprint,
        deadline: Instant,
    ) -> Result<Line, NotOpened> {
        let (socket, _) = line.into_parts();
        let handshake = self.spoken(pinned(fingerprint))?;
        let records = match complete(handshake, &socket, deadline) {
            Ok(records) => records,
            Err(NotSecured::InTheClear) => {
                // A refusal is sent before TLS begins. The greeting gives the reason. A welcome without
                // TLS is still an error.
                self.greeting(&Line::Clear(socket), deadline)?;
                return Err(self.nonsense(NotSecured::InTheClear.to_string()).into());
            }
            Err(NotSecured::Io(error)) => return Ok(self.spoken(Err(error))?),
            Err(error @ NotSecured::Tls(_)) => {
                let reason = format!(
                    "{error}: the peer is not the session's process; something intercepts the connection"
                );
                return Err(self.nonsense(reason).into());
            }
        };
        let stream = self.spoken(TlsStream::new(socket, records))?;
        Ok(Line::Tls(stream))
    }

    // Reads the worker's greeting. Any verdict but a welcome is an error.
    fn greeting(&self, line: &Line, deadline: Instant) -> Result<Greeting, NotOpened> {
        let mut greeting = [0; GREETING];
        self.spoken(read_by(line, &mut greeting, deadline))?;
        let greeting =
            Greeting::decode(&greeting).map_err(|error| self.nonsense(error.to_string()))?;
        if greeting.verdict == Verdict::Version || greeting.verdict == Verdict::Welcome {
            version::check(u32::from(greeting.version))
                .map_err(|error| self.nonsense(error.to_string()))?;
        }
        if greeting.verdict != Verdict::Welcome {
            return Err(self.refusal(greeting.verdict));
        }
        Ok(greeting)
    }

    // Returns the worker's position.
    fn prove(
        &self,
        line: &Line,
        preamble: &[u8; PREAMBLE],
        word: &ClientWord,
        deadline: Instant,
    ) -> Result<u64, NotOpened> {
        let greeting = self.greeting(line, deadline)?;
        let ours = client_proof(&self.secret, preamble, &greeting.nonce, word);
        self.spoken(write_by(line, &ours, deadline))?;
        let mut theirs = [0; WORKER_PROOF];
        self.spoken(read_by(line, &mut theirs, deadline))?;
        let proved = check_worker_proof(&self.secret, preamble, &greeting.nonce, &ours, &theirs);
        if let Some(position) = proved {
            return Ok(position);
        }
        // A refusal here is a greeting, which has the size of a proof.
        match Greeting::decode(&theirs) {
            Ok(refusal) if refusal.verdict != Verdict::Welcome => {
                Err(self.refusal(refusal.verdict))
            }
            _ => Err(self
                .nonsense("the peer does not know the session's secret".to_owned())
                .into()),
        }
    }

    fn refusal(&self, verdict: Verdict) -> NotOpened {
        NotOpened {
            error: WireError::Refused {
                address: self.address.clone(),
                reason: verdict.to_string(),
            },
            peer: None,
            fault: match verdict {
                Verdict::UnknownSession => Fault::UnknownSession,
                Verdict::Version => Fault::NoDaemon,
                Verdict::Parked => Fault::Parked,
                _ => Fault::Other,
            },
        }
    }

    fn spoken<T>(&self, result: io::Result<T>) -> Result<T, WireError> {
        result.map_err(|error| {
            let address = self.address.clone();
            let reason = format!(
                "the handshake of a session's connection failed: {}",
                plain(&error)
            );
            match error.kind() {
                _ if is_end(&error) => WireError::Closed { address, reason },
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    WireError::Unreachable { address, reason }
                }
                _ => WireError::Protocol { address, reason },
            }
        })
    }

    fn nonsense(&self, reason: String) -> WireError {
        WireError::Protocol {
            address: self.address.clone(),
            reason,
        }
    }
}

/// What identifies the line's socket among all files; `None` if its descriptor is closed.
pub(super) fn inode(line: &Line) -> Option<u64> {
    rustix::fs::fstat(line.socket())
        .ok()
        .map(|stat| stat.st_ino)
}

/// Encrypts `bytes` behind `into` as they are sent on this line.
///
/// # Errors
/// As [`causeway_security::Records::seal`].
pub(super) fn seal(line: &Line, bytes: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    match line {
        Line::Clear(_) => into.extend_from_slice(bytes),
        Line::Tls(stream) => stream.records().seal(bytes, into)?,
    }
    Ok(())
}

/// Sends as many of the bytes as the line takes at once, and removes them. Returns whether none is left.
///
/// # Errors
/// The system's error.
pub(super) fn send_now(line: &Line, unsent: &mut Vec<u8>) -> io::Result<bool> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    while !unsent.is_empty() {
        match rustix::net::send(line.socket(), unsent, flags) {
            Ok(sent) => drop(unsent.drain(..sent)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Says on a heartbeat connection that the client closes it and comes back. Does not wait.
pub(super) fn say_comes_back(line: &Line) {
    let mut bytes = Vec::new();
    let said = seal(line, &COMES_BACK.to_le_bytes(), &mut bytes);
    if let Err(error) = said.and_then(|()| send_now(line, &mut bytes)) {
        tracing::debug!(%error, "the node was not told that the client comes back");
    }
}

// Fills `bytes`, or fails at the deadline, however slowly the peer sends.
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

// The few bytes of a handshake always find room in a fresh socket, so one timeout is enough.
fn write_by(mut line: &Line, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    line.socket()
        .set_write_timeout(Some(time_left(deadline)?))?;
    line.write_all(bytes)
}

/// Time left until `deadline`, or a timeout error if there is none.
pub(super) fn time_left(deadline: Instant) -> io::Result<Duration> {
    deadline
        .checked_duration_since(Instant::now())
        .filter(|left| *left >= Duration::from_millis(1))
        .ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))
}

/// The text of an I/O error for people, without the error number that std appends.
pub(super) fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "the peer did not answer in time".to_owned()
        }
        io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerSettings;
    use std::net::TcpListener;

    #[test]
    fn a_peer_that_drips_does_not_stretch_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let settings = ServerSettings::at(address.to_string().parse().unwrap());
        let rail = Rail {
            number: 0,
            peer: Peer::Tcp(address),
            moves: 0,
        };
        let dialer = Dialer {
            rails: Arc::new(Rails::new(&settings, rail, &[], None)),
            here: None,
            address: "dripper".to_owned(),
            session: SessionId([1; 16]),
            secret: SessionSecret([2; 32]),
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
        let not_opened = dialer
            .open(
                Purpose::Commands,
                Retry::Closed,
                begun + Duration::from_millis(200),
            )
            .unwrap_err();
        let error = not_opened.error;
        assert!(
            begun.elapsed() < Duration::from_millis(600),
            "{:?}",
            begun.elapsed()
        );
        assert!(
            matches!(&error, WireError::Unreachable { reason, .. } if reason.contains("the peer did not answer in time")),
            "{error:?}"
        );
        dripper.join().unwrap();
    }
}
