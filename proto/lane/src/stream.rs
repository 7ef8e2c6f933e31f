//! The kinds of streams below a lane.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use causeway_security::{Line, TlsStream};

use crate::buffer::Buffer;
use crate::resumed::Resumed;
use crate::shared::{Caching, RingPair};

/// The stream below a lane. One thread may read while another writes.
#[derive(Debug)]
pub enum Stream {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A connection with TLS.
    Tls(TlsStream),
    /// Memory that both ends share.
    Shared(RingPair),
    /// One chunk in memory of this process: the input or output of compression.
    Buffer(Buffer),
    /// A connection that is replaced when it breaks.
    Resumed(Box<Resumed>),
}

impl Stream {
    /// Ends the stream in both directions. Blocked reads and writes return.
    pub fn shut_down(&self) {
        match self {
            Stream::Tcp(socket) => drop(socket.shutdown(std::net::Shutdown::Both)),
            Stream::Tls(stream) => stream.shut_down(),
            Stream::Shared(shared) => shared.shut_down(),
            Stream::Buffer(_) => {}
            Stream::Resumed(resumed) => resumed.close(),
        }
    }

    /// Calls `look` with the present socket below the stream, if there is one; for socket options.
    pub fn with_socket<T>(&self, look: impl FnOnce(&TcpStream) -> T) -> Option<T> {
        match self {
            Stream::Tcp(socket) => Some(look(socket)),
            Stream::Tls(stream) => Some(look(stream.socket())),
            Stream::Shared(_) | Stream::Buffer(_) => None,
            Stream::Resumed(resumed) => resumed.present()?.with_socket(look),
        }
    }

    /// The stream, if it outlives its connections.
    #[must_use]
    pub fn resumed(&self) -> Option<&Resumed> {
        match self {
            Stream::Resumed(resumed) => Some(resumed),
            _ => None,
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
            Stream::Resumed(_) if into.is_empty() => Ok(0),
            Stream::Resumed(resumed) => resumed.receive(|mut connection| connection.read(into)),
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
            Stream::Resumed(resumed) => resumed.send(|mut connection| connection.write(bytes)),
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
