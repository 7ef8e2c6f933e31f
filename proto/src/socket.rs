//! Socket options that both ends set on every connection of a session or link.
//!
//! The kernel's defaults stay except for two: messages leave at once, and connections inside the machine
//! are not paced. Invariant: a refused option that affects only speed is no error.

use std::io;
use std::net::TcpStream;

use rustix::net::{AddressFamily, sockopt};

/// A congestion control algorithm without pacing. Every kernel has it, and every process may choose it.
const UNPACED: &str = "reno";

/// Sets the options of an established connection.
///
/// # Errors
/// The system's error for `TCP_NODELAY`.
pub fn set_options(socket: &TcpStream) -> io::Result<()> {
    if is_unix(socket) {
        return Ok(());
    }
    socket.set_nodelay(true)?;
    // BBR, the default of some systems, sends by a timer. Between two processes of one machine there is
    // no queue that pacing would keep short, and it costs two thirds of the throughput.
    if stays_inside(socket) {
        let _ = sockopt::set_tcp_congestion(socket, UNPACED);
    }
    Ok(())
}

/// Whether the socket is a Unix socket. std has no common type for stream sockets with timeouts, so
/// `TcpStream` may wrap one.
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
