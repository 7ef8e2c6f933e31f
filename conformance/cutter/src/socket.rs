//! Sockets of either kind, without blocking.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, connect_unspec, shutdown};

use crate::{Cut, Target};

/// How long one connection to the node may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

pub(crate) fn dial(target: &Target) -> io::Result<OwnedFd> {
    Ok(match target {
        Target::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, CONNECT_WITHIN)?;
            prepared(stream)?
        }
        Target::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            stream.into()
        }
    })
}

/// Makes an accepted or dialled socket ready for forwarding: nothing blocks, and nothing is delayed.
pub(crate) fn prepared(stream: TcpStream) -> io::Result<OwnedFd> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

/// Waits until the socket can be read, or has an error. False after `limit`.
pub(crate) fn readable(socket: &OwnedFd, limit: Duration) -> bool {
    wait(socket, PollFlags::IN, limit)
}

/// Whether the other end has closed the connection, even if bytes are still unread.
pub(crate) fn is_closed(socket: &OwnedFd) -> bool {
    let flags = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut polled = [PollFd::new(socket, flags)];
    let now = Timespec::default();
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
        && polled[0].revents().intersects(flags)
}

pub(crate) fn read(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::io::read(socket, bytes) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn write_all(socket: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::AGAIN | Errno::INTR) => {
                wait(socket, PollFlags::OUT, Duration::from_millis(100));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Ends the bytes towards the other end.
pub(crate) fn end_bytes(socket: &OwnedFd) {
    let _ = shutdown(socket, Shutdown::Write);
}

pub(crate) fn cut(socket: &OwnedFd, how: Cut) {
    // Dissolving the association of a TCP socket resets the connection. A Unix socket has no such thing.
    if how == Cut::Close || connect_unspec(socket).is_err() {
        let _ = shutdown(socket, Shutdown::Both);
    }
}

fn wait(socket: &OwnedFd, flags: PollFlags, limit: Duration) -> bool {
    let mut polled = [PollFd::new(socket, flags)];
    let limit = Timespec::try_from(limit).unwrap_or_default();
    poll(&mut polled, Some(&limit)).is_ok_and(|ready| ready > 0)
}
