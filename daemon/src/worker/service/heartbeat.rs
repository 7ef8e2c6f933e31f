//! Heartbeats, sent by a thread that never calls a driver. So a long build does not look like
//! the worker's death.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_security::{Line, Opener, Records};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{RecvFlags, SendFlags};

use super::acknowledgements::Acknowledgements;
use super::ending::Ending;
use super::window::BadNumber;

const CONNECTION: &str = "heartbeat";

/// Sends one zero byte per interval until the connection ends. Returns why it ended. The client sends nothing, or if
/// the session outlives its connections, the numbers of event batches for `acknowledge`.
///
/// A stopped client does not read. Its kernel keeps and acknowledges the bytes, hours of
/// them, so the client counts as alive. After a network failure they stay unacknowledged, and
/// `TCP_USER_TIMEOUT` ends the connection.
pub(super) fn beat(
    line: Line,
    interval: Duration,
    acknowledge: Option<impl Fn(u64) -> Result<(), BadNumber>>,
) -> Ending {
    let (socket, tls) = line.into_parts();
    let (records, opener) = tls.unzip();
    let mut beats = Beats {
        records,
        ..Beats::default()
    };
    let mut heard = Heard {
        opener,
        ..Heard::default()
    };
    let mut acknowledgements = Acknowledgements::default();
    let lost = |error: io::Error| Ending::ClientLost {
        connection: CONNECTION,
        error,
    };
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            if let Err(error) = beats.send(&socket) {
                return lost(error);
            }
            next = Instant::now() + interval;
        }
        match heard.next(&socket, next) {
            Ok(Said::Nothing) => {}
            Ok(Said::End) => return Ending::ClientClosed,
            Ok(Said::Bytes) => {
                let Some(acknowledge) = &acknowledge else {
                    return Ending::Violation(
                        "the client sent unexpected bytes on the heartbeat connection".to_owned(),
                    );
                };
                let bytes = std::mem::take(&mut heard.bytes);
                if let Err(wrong) = acknowledgements.read(&bytes, acknowledge) {
                    return Ending::Violation(wrong.to_string());
                }
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

/// What the client sent.
enum Said {
    Nothing,
    Bytes,
    End,
}

/// The bytes of the client that are not handled.
#[derive(Default)]
struct Heard {
    opener: Option<Opener>,
    bytes: Vec<u8>,
}

impl Heard {
    /// Receives what the client sends, `until` at most.
    fn next(&mut self, socket: &TcpStream, until: Instant) -> io::Result<Said> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or_default();
            let mut fds = [PollFd::new(socket, PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Ok(Said::Nothing),
                Ok(_) => {
                    let received = self.receive(socket);
                    return match received {
                        Ok(0) => Ok(Said::End),
                        Ok(_) => Ok(Said::Bytes),
                        Err(error) => match error.kind() {
                            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {
                                Ok(Said::Nothing)
                            }
                            _ => Err(error),
                        },
                    };
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive(&mut self, socket: &TcpStream) -> io::Result<usize> {
        let mut bytes = [0; 512];
        let mut receive = |into: &mut [u8]| {
            let received = rustix::net::recv(socket, into, RecvFlags::DONTWAIT);
            received.map(|(count, _)| count).map_err(io::Error::from)
        };
        let mut count = match &mut self.opener {
            None => receive(&mut bytes)?,
            Some(opener) => opener.read(&mut bytes, &mut receive)?,
        };
        let first = count;
        self.bytes.extend_from_slice(&bytes[..count]);
        // Bytes that were decrypted do not make the socket readable.
        while let Some(opener) = self.opener.as_mut().filter(|of| of.holds_more()) {
            count = opener.read(&mut bytes, &mut receive)?;
            self.bytes.extend_from_slice(&bytes[..count]);
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    const NONE: Option<fn(u64) -> Result<(), BadNumber>> = None;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn zeros_come_until_the_client_leaves() {
        let (mut client, worker) = pair();
        let interval = Duration::from_millis(5);
        let beating = std::thread::spawn(move || beat(worker.into(), interval, NONE));
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
        let ending = beat(worker.into(), Duration::from_secs(5), NONE);
        assert!(matches!(ending, Ending::Violation(_)));
    }

    #[test]
    fn acknowledgements_are_whole_however_they_are_cut() {
        let (mut client, worker) = pair();
        let (tell, heard) = std::sync::mpsc::channel();
        let acknowledge = move |number| match tell.send(number) {
            Ok(()) if number < 1000 => Ok(()),
            _ => Err(BadNumber::Unsent {
                got: number,
                last: 999,
            }),
        };
        let beating = std::thread::spawn(move || {
            beat(worker.into(), Duration::from_secs(5), Some(acknowledge))
        });
        client.set_nodelay(true).unwrap();
        let numbers = [0u64, 1, 500, 500, 999];
        let bytes = numbers.map(u64::to_le_bytes).concat();
        for piece in bytes.chunks(3) {
            client.write_all(piece).unwrap();
        }
        for number in numbers {
            assert_eq!(heard.recv().unwrap(), number);
        }
        client.write_all(&1000u64.to_le_bytes()).unwrap();
        assert!(matches!(beating.join().unwrap(), Ending::Violation(_)));
    }
}
