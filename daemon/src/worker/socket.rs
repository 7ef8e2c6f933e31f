//! Settings of a connection's socket, and reads and writes with a deadline.
//!
//! This module knows no protocol. Invariant: a peer that sends its bytes one by one cannot extend a deadline.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use causeway_security::Line;
use rustix::net::sockopt;

use crate::sys;

/// Priority for interactive traffic: the highest that needs no privilege.
const PRIORITY: i32 = 6;

/// Turns on TCP keep-alive, so that the kernel detects a dead peer machine within about five seconds.
///
/// A peer that is stopped in a debugger stays connected, because its kernel still answers.
pub(super) fn keep_alive(socket: &TcpStream) -> io::Result<()> {
    // For a Unix socket, the one kernel reports at once that the other end is gone.
    if is_local(socket)? {
        return Ok(());
    }
    let (fd, second) = (socket.as_fd(), Duration::from_secs(1));
    sockopt::set_tcp_keepidle(fd, second)?;
    sockopt::set_tcp_keepintvl(fd, second)?;
    sockopt::set_tcp_keepcnt(fd, 4)?;
    Ok(sockopt::set_socket_keepalive(fd, true)?)
}

/// Breaks the connection when the peer has acknowledged or taken nothing for `silence` (`TCP_USER_TIMEOUT`).
pub(super) fn give_up_after(socket: &TcpStream, silence: Duration) -> io::Result<()> {
    if is_local(socket)? {
        return Ok(());
    }
    let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(socket.as_fd(), milliseconds)?)
}

/// Gives the socket's packets priority over bulk data. This is a hint for the first hop. Some containers
/// forbid it, so a failure is only logged.
pub(super) fn hurry(socket: &TcpStream) {
    if let Err(error) = sys::set_priority(socket.as_fd(), PRIORITY) {
        tracing::debug!(%error, "cannot set SO_PRIORITY on the connection, so heartbeats may wait behind data");
    }
}

/// Whether the socket is a Unix socket, so the peer is a process of this host.
pub(super) fn is_local(socket: &TcpStream) -> io::Result<bool> {
    Ok(sockopt::socket_domain(socket)? == rustix::net::AddressFamily::UNIX)
}

/// Returns the time until `deadline`.
///
/// # Errors
/// `TimedOut` when the deadline has passed.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

/// Writes the few bytes of a handshake.
///
/// A fresh connection's send buffer has room for far more. The time limit is for a peer that closed its
/// receive window from the start.
///
/// # Errors
/// Returns the socket's error, or `TimedOut` after the deadline.
pub(super) fn write_within(mut line: &Line, bytes: &[u8], deadline: Instant) -> io::Result<()> {
    line.socket().set_write_timeout(Some(left(deadline)?))?;
    line.write_all(bytes).map_err(timed_out)
}

/// Fills `into` from the socket.
///
/// # Errors
/// As [`write_within`]; `UnexpectedEof` when the peer closes the connection first.
pub(super) fn read_within(
    mut line: &Line,
    mut into: &mut [u8],
    deadline: Instant,
) -> io::Result<()> {
    while !into.is_empty() {
        // The limit is set before every read, so that a slow peer cannot extend the deadline.
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

/// Clears the time limits that [`read_within`] and [`write_within`] set.
pub(super) fn no_limits(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)
}

// The system reports an expired time limit of a blocking socket as `WouldBlock`.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}
