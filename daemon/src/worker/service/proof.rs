//! Greeting and proof on a fresh connection, and the settings of its socket.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use causeway_lane::{NotShared, Shared, Stream};
use causeway_proto::id::SessionSecret;
use causeway_proto::preamble::{
    self, BadPreamble, CLIENT_PROOF, Greeting, PREAMBLE, Preamble, Purpose, Verdict,
};

use causeway_security::{Line, NotSecured, SessionTls, TlsStream, complete};

use crate::worker::connection::Connection;
use crate::worker::socket::{self, read_within, write_within};

/// For the client's part of the proof.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// A connection was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Preamble(#[from] BadPreamble),
    #[error(transparent)]
    Verdict(#[from] Verdict),
    #[error("connection: {0}")]
    Io(io::Error),
    #[error("the client was too slow to prove the secret")]
    Slow,
    #[error(transparent)]
    NotSecured(NotSecured),
    #[error("shared memory: {0}")]
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

/// A fresh connection, with TLS if the session has it. Shared memory's needs none: the socket does not leave this
/// system.
///
/// # Errors
/// [`Refused`]; the connection is to be closed.
pub(super) fn secure(
    socket: TcpStream,
    purpose: Purpose,
    tls: Option<&SessionTls>,
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

/// By when a connection that begins now has to be proved.
pub(super) fn deadline() -> Instant {
    Instant::now() + TIME_LIMIT
}

/// Greets, has the secret proved, takes a place for the connection by `claim`, proves the secret.
///
/// The place is taken before the client can know that it is connected, so that what it does next finds
/// the place taken.
///
/// # Errors
/// [`Refused`]; the connection is to be closed.
pub(super) fn prove<Place>(
    line: &Line,
    secret: &SessionSecret,
    preamble: &[u8; PREAMBLE],
    deadline: Instant,
    claim: impl FnOnce() -> Result<Place, Verdict>,
) -> Result<Place, Refused> {
    let greeting = Greeting::welcome();
    write_within(line, &greeting.encode(), deadline)?;
    let mut client = [0; CLIENT_PROOF];
    read_within(line, &mut client, deadline)?;
    let own = preamble::check_client_proof(secret, preamble, &greeting.nonce, &client);
    let Some(own) = own else {
        refuse(line, Verdict::Unproved);
        return Err(Verdict::Unproved.into());
    };
    let place = claim().inspect_err(|verdict| refuse(line, *verdict))?;
    write_within(line, &own, deadline)?;
    socket::no_limits(line.socket())?;
    Ok(place)
}

/// Says why not; before a session's TLS has begun, in the clear. The client may not hear it any more, and that is
/// no matter.
pub(super) fn refuse(mut line: &Line, verdict: Verdict) {
    let _ = line.socket().set_nonblocking(true);
    let _ = line.write_all(&Greeting::refusal(verdict).encode());
    let _ = line.socket().shutdown(Shutdown::Write);
}

/// Whether the purpose goes with the kind of socket that it came on. Memory is shared over Unix sockets
/// only: over another connection somebody may stand between the two.
pub(super) fn fits(socket: &TcpStream, purpose: Purpose) -> Result<(), Verdict> {
    match socket::is_local(socket) {
        Ok(local) if local || purpose != Purpose::SharedBulk => Ok(()),
        _ => Err(Verdict::Malformed),
    }
}

/// Takes the memory that the client offers on a proved connection.
fn share(socket: TcpStream) -> Result<Shared, NotShared> {
    causeway_lane::accept(OwnedFd::from(socket), Instant::now() + TIME_LIMIT)
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
    line: Line,
    preamble: &Preamble,
    heartbeat_limit: Duration,
) -> Result<Connection, Refused> {
    if preamble.purpose == Purpose::SharedBulk {
        // It came on a Unix socket, so there is no TLS.
        let (socket, _) = line.into_parts();
        return Ok(Connection::Bulk {
            lane: preamble.lane,
            stream: Stream::Shared(share(socket)?),
        });
    }
    let socket = line.socket();
    if preamble.purpose == Purpose::Pulse {
        socket::give_up_after(socket, heartbeat_limit)?;
    } else {
        socket::keep_alive(socket)?;
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
        Purpose::Pulse => Connection::Pulse(line),
        // The session's links take their own, and shared memory is dealt with above.
        Purpose::Peer | Purpose::SharedBulk => return Err(Verdict::Malformed.into()),
    })
}
