//! The kinds of streams below a lane.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use causeway_security::{Line, TlsStream};

use crate::buffer::Buffer;
use crate::shared::{Caching, Shared};

/// The stream below a lane. One thread may read while another writes.
#[derive(Debug)]
pub enum Stream {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A connection with TLS.
    Tls(TlsStream),
    /// Memory that both ends share.
    Shared(Shared),
    /// One chunk in memory of this process: the input or output of compression.
    Buffer(Buffer),
}

impl Stream {
    /// Ends the stream in both directions. Blocked reads and writes return.
    pub fn shut_down(&self) {
        match self {
            Stream::Tcp(socket) => drop(socket.shutdown(std::net::Shutdown::Both)),
            Stream::Tls(stream) => stream.shut_down(),
            Stream::Shared(shared) => shared.shut_down(),
            Stream::Buffer(_) => {}
        }
    }

    /// The socket below the stream, if there is one; for socket options.
    #[must_use]
    pub fn socket(&self) -> Option<&TcpStream> {
        match self {
            Stream::Tcp(socket) => Some(socket),
            Stream::Tls(stream) => Some(stream.socket()),
            Stream::Shared(_) | Stream::Buffer(_) => None,
        }
    }

    /// Whether the stream uses shared memory.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self, Stream::Shared(_))
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => (&*socket).read(into),
            Stream::Tls(stream) => (&*stream).read(into),
            #[allow(unsafe_code)]
            Stream::Shared(shared) => {
                // SAFETY: the slice is memory of its length.
                unsafe { shared.receive_some(into.as_mut_ptr(), into.len(), Caching::Keep) }
            }
            #[allow(unsafe_code)]
            Stream::Buffer(buffer) => {
                // SAFETY: the slice is memory of its length.
                Ok(unsafe { buffer.take_some(into.as_mut_ptr(), into.len()) })
            }
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(socket) => (&*socket).write(bytes),
            Stream::Tls(stream) => (&*stream).write(bytes),
            #[allow(unsafe_code)]
            Stream::Shared(shared) => {
                // SAFETY: the slice is memory of its length.
                unsafe { shared.send(bytes.as_ptr(), bytes.len())? };
                Ok(bytes.len())
            }
            #[allow(unsafe_code)]
            Stream::Buffer(buffer) => {
                // SAFETY: the slice is memory of its length.
                unsafe { buffer.put(bytes.as_ptr(), bytes.len()) };
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<TcpStream> for Stream {
    fn from(socket: TcpStream) -> Stream {
        Stream::Tcp(socket)
    }
}

impl From<Line> for Stream {
    fn from(line: Line) -> Stream {
        match line {
            Line::Clear(socket) => Stream::Tcp(socket),
            Line::Tls(stream) => Stream::Tls(stream),
        }
    }
}
