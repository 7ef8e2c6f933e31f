//! Greeting and proof on a new connection, and the settings of its socket.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use causeway_lane::{NotShared, RingPair, Stream};
use causeway_proto::id::SessionSecret;
use causeway_proto::preamble::{
    self, BadPreamble, CLIENT_PROOF, ClientWord, Greeting, Introduction, PREAMBLE, Purpose, Verdict,
};

use causeway_security::{Line, NotSecured, ServerTls, TlsStream, complete};

use crate::worker::connection::Connection;
use crate::worker::socket::{self, read_within, write_within};

/// Time limit for the client's part of the proof.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Why a connection was refused.
#[derive(Debug, thiserror::Error)]
pub(in crate::worker) enum Refused {
    #[error(transparent)]
    Preamble(#[from] BadPreamble),
    #[error(transparent)]
    Verdict(#[from] Verdict),
    #[error("the connection failed before the secret was proven: {0}")]
    Io(io::Error),
    #[error("the client did not prove the session's secret before the timeout")]
    Slow,
    #[error(transparent)]
    NotSecured(NotSecured),
    #[error("the worker cannot share memory with the client: {0}")]
    NotShared(#[from] NotShared),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Refused {
        match error.kind() {
            io::ErrorKind::TimedOut => Refused::Slow,
            _ => Refused::Io(error),
        }
    }
}

impl From<NotSecured> for Refused {
    fn from(error: NotSecured) -> Refused {
        match error {
            late if late.is_late() => Refused::Slow,
            other => Refused::NotSecured(other),
        }
    }
}

/// Prepares a new connection, with TLS if the session uses it. A shared-memory connection needs no TLS,
/// because its socket does not leave this system.
///
/// # Errors
/// [`Refused`]; the connection must then be closed.
pub(in crate::worker) fn secure(
    socket: TcpStream,
    purpose: Purpose,
    tls: Option<&ServerTls>,
    deadline: Instant,
) -> Result<Line, Refused> {
    socket.set_nonblocking(false)?;
    if purpose == Purpose::SharedBulk {
        return Ok(Line::Clear(socket));
    }
    causeway_proto::socket::set_options(&socket)?;
    let Some(tls) = tls else {
        return Ok(Line::Clear(socket));
    };
    let records = complete(tls.handshake()?, &socket, deadline)?;
    Ok(Line::Tls(TlsStream::new(socket, records)?))
}

/// The time by which a connection that begins now must be proved.
pub(super) fn deadline() -> Instant {
    Instant::now() + TIME_LIMIT
}

/// Sends the greeting, checks the peer's proof, reserves a place with `claim`, and proves the secret in turn. `claim`
/// gets the peer's word. It returns the place, and how much this end has received before for that place.
///
/// The place is reserved before the client can know that it is connected. So whatever the client does
/// next finds the place taken.
///
/// # Errors
/// [`Refused`]; the connection must then be closed.
pub(in crate::worker) fn prove<Place>(
    line: &Line,
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    deadline: Instant,
    claim: impl FnOnce(&ClientWord) -> Result<(Place, u64), Verdict>,
) -> Result<Place, Refused> {
    let greeting = Greeting::welcome();
    write_within(line, &greeting.encode(), deadline)?;
    let mut client = [0; CLIENT_PROOF];
    read_within(line, &mut client, deadline)?;
    let word = preamble::check_client_proof(secret, preamble, &greeting.nonce, &client);
    let Some(word) = word else {
        refuse(line, Verdict::Unproved);
        return Err(Verdict::Unproved.into());
    };
    let (place, position) = claim(&word).inspect_err(|verdict| refuse(line, *verdict))?;
    let own = preamble::worker_proof(secret, preamble, &greeting.nonce, &client, position);
    write_within(line, &own, deadline)?;
    socket::no_limits(line.socket())?;
    Ok(place)
}

/// Sends a refusal; in clear text if the session's TLS has not begun. Errors are ignored, because the
/// client may already be gone.
pub(in crate::worker) fn refuse(mut line: &Line, verdict: Verdict) {
    let _ = line.socket().set_nonblocking(true);
    let _ = line.write_all(&Greeting::refusal(verdict).encode());
    let _ = line.socket().shutdown(Shutdown::Write);
}

/// Checks that the purpose fits the kind of socket. Memory is shared over Unix sockets only, because on
/// other connections an attacker may be in between.
pub(super) fn fits(socket: &TcpStream, purpose: Purpose) -> Result<(), Verdict> {
    match socket::is_local(socket) {
        Ok(local) if local || purpose != Purpose::SharedBulk => Ok(()),
        _ => Err(Verdict::Malformed),
    }
}

/// Takes the shared memory that the client offers on an authenticated connection.
fn share(socket: TcpStream) -> Result<RingPair, NotShared> {
    causeway_lane::accept(OwnedFd::from(socket), Instant::now() + TIME_LIMIT)
}

/// Sets the socket up for its purpose.
///
/// Only the heartbeat connection gets `TCP_USER_TIMEOUT`. There, unacknowledged bytes mean a network
/// failure. On other connections the client may just be stopped in a debugger. All connections have
/// keep-alive, which the kernel of a stopped client answers.
///
/// # Errors
/// Returns the system call's error, or a [`Refused`] for shared memory or a wrong purpose.
pub(super) fn connection(
    line: Line,
    preamble: &Introduction,
    heartbeat_limit: Duration,
) -> Result<Connection, Refused> {
    if preamble.purpose == Purpose::SharedBulk {
        // The connection came on a Unix socket, so there is no TLS.
        let (socket, _) = line.into_parts();
        return Ok(Connection::Bulk {
            lane: preamble.lane,
            stream: Stream::Shared(share(socket)?),
        });
    }
    let socket = line.socket();
    // While this process is stopped, it sends no heartbeats that could go unacknowledged. Keep-alive then
    // detects that the client's machine is gone.
    socket::keep_alive(socket)?;
    if preamble.purpose == Purpose::Heartbeat {
        socket::give_up_after(socket, heartbeat_limit)?;
    }
    if preamble.purpose != Purpose::Bulk {
        socket::hurry(socket);
    }
    Ok(match preamble.purpose {
        Purpose::Commands => Connection::Commands(line),
        Purpose::CommandsGrpc => Connection::CommandsGrpc(line),
        Purpose::Bulk => Connection::Bulk {
            lane: preamble.lane,
            stream: line.into(),
        },
        Purpose::Heartbeat => Connection::Heartbeat(line),
        // Links take their own connections, and shared memory is handled above.
        Purpose::Peer | Purpose::SharedBulk | Purpose::Measure | Purpose::Contents => {
            return Err(Verdict::Malformed.into());
        }
    })
}
