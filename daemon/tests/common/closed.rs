//! A port of loopback at which nobody listens.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType};

/// A port that refuses connections, and that no other test gets.
pub struct Closed {
    pub address: SocketAddr,
    socket: OwnedFd,
}

impl Closed {
    pub fn port() -> Closed {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let family = AddressFamily::INET;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        // A bound socket that does not listen keeps the port.
        let address = rustix::net::getsockname(&socket).unwrap();
        Closed {
            address: address.try_into().unwrap(),
            socket,
        }
    }

    /// Accepts connections from now on.
    pub fn listen(self) -> TcpListener {
        rustix::net::listen(&self.socket, 128).unwrap();
        TcpListener::from(self.socket)
    }
}
