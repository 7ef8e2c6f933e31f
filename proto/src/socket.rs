//! What both ends set on the socket of every connection of a session or link.
//!
//! The kernel's choices stay as they are but for two: messages leave at once, and a connection that does
//! not leave the machine is not paced. Invariant: what is only a matter of speed fails nothing.

use std::io;
use std::net::TcpStream;

use rustix::net::{AddressFamily, sockopt};

/// Paces nothing, is part of every kernel, and every process may choose it.
const UNPACED: &str = "reno";

/// Sets them; the connection is established.
///
/// # Errors
/// What the system says to `TCP_NODELAY`.
pub fn set_options(socket: &TcpStream) -> io::Result<()> {
    if is_unix(socket) {
        return Ok(());
    }
    socket.set_nodelay(true)?;
    // BBR, some systems' default, sends by a timer's clock. Between two processes of one machine there is
    // no queue that this would keep short, and it costs two thirds of the throughput.
    if stays_inside(socket) {
        let _ = sockopt::set_tcp_congestion(socket, UNPACED);
    }
    Ok(())
}

/// Whether it is a Unix socket: std has one type for a stream socket with time limits, which asks for no more than that.
#[must_use]
pub fn is_unix(socket: &TcpStream) -> bool {
    sockopt::socket_domain(socket).is_ok_and(|domain| domain == AddressFamily::UNIX)
}

/// Whether both ends are on this machine.
#[must_use]
pub fn stays_inside(socket: &TcpStream) -> bool {
    if is_unix(socket) {
        return true;
    }
    match (socket.local_addr(), socket.peer_addr()) {
        (Ok(local), Ok(peer)) => peer.ip().is_loopback() || local.ip() == peer.ip(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_connection_inside_the_machine_is_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        for end in [one, other] {
            set_options(&end).unwrap();
            assert!(end.nodelay().unwrap());
            assert!(stays_inside(&end));
            assert_eq!(sockopt::tcp_congestion(&end).unwrap(), UNPACED);
        }
    }
}
