//! Greeting and proof on a fresh connection, and the settings of its socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use causeway_proto::id::SessionSecret;
use causeway_proto::preamble::{
    self, BadPreamble, CLIENT_PROOF, Greeting, PREAMBLE, Preamble, Purpose, Verdict,
};
use rustix::net::sockopt;

use crate::sys;
use crate::worker::connection::Connection;

/// For the client's part of the proof.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Interactive traffic; the highest that needs no privilege.
const PRIORITY: i32 = 6;

/// A connection was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Preamble(#[from] BadPreamble),
    #[error(transparent)]
    Verdict(#[from] Verdict),
    #[error("connection: {0}")]
    Io(#[from] io::Error),
    #[error("the client was too slow to prove the secret")]
    Slow,
}

/// Greets, has the secret proved, takes a place for the connection by `claim`, proves the secret.
///
/// The place is taken before the client can know that it is connected, so that what it does next finds
/// the place taken.
///
/// # Errors
/// [`Refused`]; the connection is to be closed.
pub(super) fn prove<Place>(
    socket: &TcpStream,
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    claim: impl FnOnce() -> Result<Place, Verdict>,
) -> Result<Place, Refused> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    let deadline = Instant::now() + TIME_LIMIT;
    let greeting = Greeting::welcome();
    write_within(socket, &greeting.encode(), deadline)?;
    let mut client = [0; CLIENT_PROOF];
    read_within(socket, &mut client, deadline)?;
    let own = preamble::check_client_proof(secret, preamble, &greeting.nonce, &client);
    let Some(own) = own else {
        refuse(socket, Verdict::Unproved);
        return Err(Verdict::Unproved.into());
    };
    let place = claim().inspect_err(|verdict| refuse(socket, *verdict))?;
    write_within(socket, &own, deadline)?;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    Ok(place)
}

/// Says why not. The client may not hear it any more, and that is no matter.
pub(super) fn refuse(socket: &TcpStream, verdict: Verdict) {
    let _ = socket.set_nonblocking(true);
    let _ = (&*socket).write_all(&Greeting::refusal(verdict).encode());
    let _ = socket.shutdown(Shutdown::Write);
}

/// Sets the socket up for its purpose.
///
/// `TCP_USER_TIMEOUT` is for the pulse alone: there, unacknowledged bytes mean that the network is cut,
/// while on other connections they may mean that the client is stopped in a debugger. Those have
/// keep-alive, which the kernel of a stopped client answers.
///
/// # Errors
/// What the system says.
pub(super) fn connection(
    socket: TcpStream,
    preamble: &Preamble,
    heartbeat_limit: Duration,
) -> Result<Connection, Refused> {
    let fd = socket.as_fd();
    if preamble.purpose == Purpose::Pulse {
        let milliseconds = u32::try_from(heartbeat_limit.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(fd, milliseconds).map_err(io::Error::from)?;
    } else {
        keep_alive(fd).map_err(io::Error::from)?;
    }
    if preamble.purpose != Purpose::Bulk {
        // A hint to the first hop; some containers forbid it.
        if let Err(error) = sys::set_priority(fd, PRIORITY) {
            tracing::debug!(%error, "SO_PRIORITY");
        }
    }
    Ok(match preamble.purpose {
        Purpose::Commands => Connection::Commands(socket),
        Purpose::CommandsGrpc => Connection::CommandsGrpc(socket),
        Purpose::Bulk => Connection::Bulk {
            lane: preamble.lane,
            socket,
        },
        Purpose::Pulse => Connection::Pulse(socket),
        Purpose::Peer => return Err(Verdict::Malformed.into()),
    })
}

fn keep_alive(fd: impl AsFd) -> rustix::io::Result<()> {
    let second = Duration::from_secs(1);
    sockopt::set_tcp_keepidle(&fd, second)?;
    sockopt::set_tcp_keepintvl(&fd, second)?;
    sockopt::set_tcp_keepcnt(&fd, 4)?;
    sockopt::set_socket_keepalive(&fd, true)
}

fn left(deadline: Instant) -> Result<Duration, Refused> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(Refused::Slow)
    } else {
        Ok(left)
    }
}

fn write_within(mut socket: &TcpStream, bytes: &[u8], deadline: Instant) -> Result<(), Refused> {
    // A fresh connection's buffer holds far more than this; the limit is for a peer that closed its
    // window from the start.
    socket.set_write_timeout(Some(left(deadline)?))?;
    Ok(socket.write_all(bytes)?)
}

fn read_within(
    mut socket: &TcpStream,
    mut into: &mut [u8],
    deadline: Instant,
) -> Result<(), Refused> {
    while !into.is_empty() {
        socket.set_read_timeout(Some(left(deadline)?))?;
        match socket.read(into) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => into = &mut into[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Refused::Slow),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
