//! Settings of a connection's socket, and reads and writes with a deadline.
//!
//! What it is not: it knows no protocol. Invariant: a peer that drips its bytes stretches no deadline.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use causeway_security::Line;
use rustix::net::sockopt;

use crate::sys;

/// Interactive traffic; the highest that needs no privilege.
const PRIORITY: i32 = 6;

/// Has the kernel find out that the peer's machine is gone, within about five seconds; a peer that is
/// stopped in a debugger has a kernel that answers.
///
/// # Errors
/// What the system says.
pub(super) fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    // The kernel that both ends share tells at once that one is gone.
    if is_local(socket)? {
        return Ok(());
    }
    let (fd, second) = (socket.as_fd(), Duration::from_secs(1));
    sockopt::set_tcp_keepidle(fd, second)?;
    sockopt::set_tcp_keepintvl(fd, second)?;
    sockopt::set_tcp_keepcnt(fd, 4)?;
    Ok(sockopt::set_socket_keepalive(fd, true)?)
}

/// Breaks the connection when the peer has acknowledged nothing, or taken nothing, for so long.
///
/// # Errors
/// What the system says.
pub(super) fn give_up_after(socket: &TcpStream, silence: Duration) -> io::Result<()> {
    if is_local(socket)? {
        return Ok(());
    }
    let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(socket.as_fd(), milliseconds)?)
}

/// Has packets go before bulk data's. A hint to the first hop, which some containers forbid.
pub(super) fn hurry(socket: &TcpStream) {
    if let Err(error) = sys::set_priority(socket.as_fd(), PRIORITY) {
        tracing::debug!(%error, "SO_PRIORITY");
    }
}

/// Whether its other end is a process of this host by its kind: a Unix socket.
///
/// # Errors
/// What the system says.
pub(super) fn is_local(socket: &TcpStream) -> io::Result<bool> {
    Ok(sockopt::socket_domain(socket)? == rustix::net::AddressFamily::UNIX)
}

/// The time until `deadline`.
///
/// # Errors
/// `TimedOut` when there is none.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

/// Writes a handshake's few bytes. A fresh connection's buffer holds far more than these; the limit is for
/// a peer that closed its window from the start.
///
/// # Errors
/// What the system says; `TimedOut` after the deadline.
pub(super) fn write_within(mut line: &Line, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    line.socket().set_write_timeout(Some(left(deadline)?))?;
    line.write_all(bytes).map_err(timed_out)
}

/// Fills `into`.
///
/// # Errors
/// As [`write_within`]; `UnexpectedEof` when the peer closed before.
pub(super) fn read_within(
    mut line: &Line,
    mut into: &mut [u8],
    deadline: Instant,
) -> io::Result<()> {
    while !into.is_empty() {
        line.socket().set_read_timeout(Some(left(deadline)?))?;
        match line.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = &mut into[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(timed_out(error)),
        }
    }
    Ok(())
}

/// Ends the time limits that [`read_within`] and [`write_within`] set.
///
/// # Errors
/// What the system says.
pub(super) fn no_limits(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)
}

// The system calls it so when a time limit of a blocking socket is over.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
