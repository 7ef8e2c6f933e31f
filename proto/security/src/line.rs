//! A session's connection, with or without TLS: for its handshakes, and to be passed on.
//!
//! A line proves nothing. Invariant: on a line with TLS, only the preamble was sent unencrypted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use crate::records::{Opener, Records};
use crate::stream::TlsStream;

/// One connection of a session; see the module.
#[derive(Debug)]
pub enum Line {
    /// A socket.
    Clear(TcpStream),
    /// A socket with TLS.
    Tls(TlsStream),
}

impl Line {
    /// The socket, for options, waiting and shutting down.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match self {
            Line::Clear(socket) => socket,
            Line::Tls(stream) => stream.socket(),
        }
    }

    /// The socket and, with TLS, its encryption state for sending and receiving.
    #[must_use]
    pub fn into_parts(self) -> (TcpStream, Option<(Arc<Records>, Opener)>) {
        match self {
            Line::Clear(socket) => (socket, None),
            Line::Tls(stream) => {
                let (socket, records, opener) = stream.into_parts();
                (socket, Some((records, opener)))
            }
        }
    }

    /// Ends the connection in both directions. Blocked reads and writes return.
    pub fn shut_down(&self) {
        let _ = self.socket().shutdown(Shutdown::Both);
    }
}

impl Read for &Line {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Clear(socket) => (&*socket).read(into),
            Line::Tls(stream) => (&*stream).read(into),
        }
    }
}

impl Write for &Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Line::Clear(socket) => (&*socket).write(bytes),
            Line::Tls(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<TcpStream> for Line {
    fn from(socket: TcpStream) -> Line {
        Line::Clear(socket)
    }
}
