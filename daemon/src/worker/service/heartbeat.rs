//! Heartbeats, sent by a thread that never calls a driver. So a long build does not look like
//! the worker's death.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_security::{Line, Records};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags};

use super::ending::Ending;

const CONNECTION: &str = "heartbeat";

/// Sends one zero byte per interval until the connection ends. Returns why it ended.
///
/// A stopped client does not read. Its kernel keeps and acknowledges the bytes, hours of
/// them, so the client counts as alive. After a network failure they stay unacknowledged, and
/// `TCP_USER_TIMEOUT` ends the connection.
pub(super) fn beat(line: Line, interval: Duration) -> Ending {
    let (socket, tls) = line.into_parts();
    let mut beats = Beats {
        records: tls.map(|(records, _)| records),
        ..Beats::default()
    };
    let lost = |error: io::Error| Ending::ClientLost {
        connection: CONNECTION,
        error,
    };
    loop {
        if let Err(error) = beats.send(&socket) {
            return lost(error);
        }
        match heard_within(&socket, interval) {
            Ok(None) => {}
            Ok(Some(0)) => return Ending::ClientClosed,
            Ok(Some(_)) => {
                return Ending::Violation(
                    "the client sent unexpected bytes on the heartbeat connection".to_owned(),
                );
            }
            Err(error) => return lost(error),
        }
    }
}

/// The bytes of heartbeats that the socket has not taken.
#[derive(Default)]
struct Beats {
    records: Option<Arc<Records>>,
    waiting: Vec<u8>,
}

impl Beats {
    /// Sends a heartbeat, unless an earlier one still waits.
    fn send(&mut self, socket: &TcpStream) -> io::Result<()> {
        if self.waiting.is_empty() {
            match &self.records {
                None => self.waiting.push(0),
                Some(records) => records.seal(&[0], &mut self.waiting)?,
            }
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(socket, &self.waiting, flags) {
            // A TLS record may leave in parts.
            Ok(sent) => drop(self.waiting.drain(..sent)),
            // The socket is full. The bytes in it count as heartbeats too, once they are read.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Waits for the interval. Returns `None` if the client sent nothing, as it should. `Some(0)` means that
/// it closed the connection, other counts that it sent bytes.
fn heard_within(socket: &TcpStream, interval: Duration) -> io::Result<Option<usize>> {
    let until = Instant::now() + interval;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let mut fds = [PollFd::new(socket, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(None),
            Ok(_) => {
                let mut byte = [0];
                return match rustix::net::recv(socket, &mut byte, RecvFlags::DONTWAIT) {
                    Ok((n, _)) => Ok(Some(n)),
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
                    Err(error) => Err(error.into()),
                };
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn zeros_come_until_the_client_leaves() {
        let (mut client, worker) = pair();
        let beating = std::thread::spawn(move || beat(worker.into(), Duration::from_millis(5)));
        let mut bytes = [1; 3];
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 3]);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(matches!(beating.join().unwrap(), Ending::ClientClosed));
    }

    #[test]
    fn a_client_has_nothing_to_say_here() {
        let (mut client, worker) = pair();
        client.write_all(b"x").unwrap();
        let ending = beat(worker.into(), Duration::from_secs(5));
        assert!(matches!(ending, Ending::Violation(_)));
    }
}
