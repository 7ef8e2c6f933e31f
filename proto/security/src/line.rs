//! A session's connection: in the clear, or with TLS. For its handshakes, and to be handed on.
//!
//! What it is not: it proves nothing. Invariant: a line with TLS was never read or written in the clear but for
//! the preamble.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use crate::records::{Opener, Records};
use crate::stream::TlsStream;

/// See the module.
#[derive(Debug)]
pub enum Line {
    /// A socket.
    Clear(TcpStream),
    /// A socket with TLS.
    Tls(TlsStream),
}

impl Line {
    /// Its socket, for options, waiting and shutting down.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match self {
            Line::Clear(socket) => socket,
            Line::Tls(stream) => stream.socket(),
        }
    }

    /// Its socket, and what its bytes go through there and back, if they do.
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

    /// Ends it in both directions; who reads or writes returns.
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
