//! Where a daemon was reached, and how its further connections are made: over TCP, or by a Unix socket of this host.
//!
//! Every connection has std's type for a TCP stream: it has time limits, and asks for no more than a stream socket.
#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

impl Peer {
    /// The daemon's address for other nodes' sake; of a Unix socket loopback without a port.
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Peer::Tcp(address) => *address,
            Peer::Unix(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// One more connection, within `limit`.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn connect(&self, limit: Duration) -> io::Result<TcpStream> {
        let path = match self {
            Peer::Tcp(address) => return TcpStream::connect_timeout(address, limit),
            Peer::Unix(path) => path,
        };
        let kind = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = rustix::net::socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
        // For as long as the daemon's queue is full.
        set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&**path)?)?;
        set_socket_timeout(&socket, Timeout::Send, None)?;
        Ok(socket.into())
    }
}

/// Connects to the daemon of a Unix socket; also how long that took.
pub(super) async fn reach(path: &Path) -> io::Result<(tokio::net::TcpStream, Duration)> {
    let begun = Instant::now();
    let socket = tokio::net::UnixStream::connect(path).await?.into_std()?;
    let stream = tokio::net::TcpStream::from_std(OwnedFd::from(socket).into())?;
    Ok((stream, begun.elapsed()))
}
