//! The address at which a daemon was reached, and how further connections to it are made: over TCP, or
//! over a Unix socket of this host.
//!
//! Every connection uses std's type for a TCP stream. That type supports timeouts, and the calls used
//! here work on any stream socket.
#![forbid(unsafe_code)]

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The address of a reached daemon; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

impl Peer {
    /// The daemon's address, for other nodes. For a Unix socket, the loopback address without a port.
    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Peer::Tcp(address) => *address,
            Peer::Unix(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// Opens a connection within `limit`.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) fn connect(&self, limit: Duration) -> io::Result<TcpStream> {
        let path = match self {
            Peer::Tcp(address) => return TcpStream::connect_timeout(address, limit),
            Peer::Unix(path) => path,
        };
        let kind = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = rustix::net::socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
        // The timeout limits how long connecting waits while the daemon's queue is full.
        set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(&**path)?)?;
        set_socket_timeout(&socket, Timeout::Send, None)?;
        Ok(socket.into())
    }

    /// Opens a connection for a conversation.
    ///
    /// # Errors
    /// Errors of the system.
    pub(super) async fn reach(&self) -> io::Result<tokio::net::TcpStream> {
        match self {
            Peer::Tcp(address) => tokio::net::TcpStream::connect(address).await,
            Peer::Unix(path) => {
                let socket = tokio::net::UnixStream::connect(path).await?.into_std()?;
                tokio::net::TcpStream::from_std(OwnedFd::from(socket).into())
            }
        }
    }
}
