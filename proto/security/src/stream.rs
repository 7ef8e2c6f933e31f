//! A blocking connection with TLS, for one reading and one writing thread at the same time.
//!
//! Invariant: records leave in the order in which they were encrypted, because one lock covers both
//! steps.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::records::{Opener, Records};

/// Number of plain bytes that are encrypted and then written. Smaller pieces let the other end start
/// early.
const AT_ONCE: usize = 64 << 10;

/// A blocking connection with TLS; see the module.
#[derive(Debug)]
pub struct TlsStream {
    socket: TcpStream,
    records: Arc<Records>,
    reading: Mutex<Opener>,
    writing: Mutex<Writing>,
}

#[derive(Debug, Default)]
struct Writing {
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl TlsStream {
    /// Takes over a connection whose handshake is complete.
    ///
    /// # Errors
    /// As [`Records::open`], for bytes that came with the handshake.
    pub fn new(socket: TcpStream, records: Arc<Records>) -> io::Result<TlsStream> {
        Ok(TlsStream {
            socket,
            reading: Mutex::new(Opener::new(Arc::clone(&records))?),
            writing: Mutex::default(),
            records,
        })
    }

    /// The socket, for options, waiting and shutting down. It must not be read or written.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The encryption state, for code that sends without waiting. Whoever uses it must be the only sender.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The parts, for code that reads and writes the socket in another way.
    #[must_use]
    pub fn into_parts(self) -> (TcpStream, Arc<Records>, Opener) {
        (self.socket, self.records, self.reading.into_inner())
    }

    /// Ends the connection in both directions. Blocked reads and writes return.
    pub fn shut_down(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Sends `length` bytes, which `fill` writes into buffers piece by piece. For memory that is not a
    /// slice.
    ///
    /// # Errors
    /// Errors of the socket; as [`Records::seal`].
    pub fn send_filled(&self, length: usize, mut fill: impl FnMut(&mut [u8])) -> io::Result<()> {
        let mut writing = self.writing.lock();
        let Writing { plain, sealed } = &mut *writing;
        let mut left = length;
        while left > 0 {
            let piece = left.min(AT_ONCE);
            if plain.len() < piece {
                plain.resize(piece, 0);
            }
            fill(&mut plain[..piece]);
            self.send(&plain[..piece], sealed)?;
            left -= piece;
        }
        Ok(())
    }

    /// Receives `length` bytes and passes them to `take` piece by piece.
    ///
    /// # Errors
    /// Errors of the socket; `UnexpectedEof` when the stream ends before; as [`Records::open`].
    pub fn receive_with(&self, length: usize, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut opener = self.reading.lock();
        let mut left = length;
        while left > 0 {
            let piece = opener.next(left, |bytes| (&self.socket).read(bytes))?;
            if piece.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= piece.len();
            take(piece);
        }
        Ok(())
    }

    /// As [`Read::read`], with `receive` to read from the socket.
    ///
    /// # Errors
    /// As [`Opener::read`].
    pub fn read_by(
        &self,
        into: &mut [u8],
        receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.reading.lock().read(into, receive)
    }

    fn send(&self, plain: &[u8], sealed: &mut Vec<u8>) -> io::Result<()> {
        sealed.clear();
        self.records.seal(plain, sealed)?;
        (&self.socket).write_all(sealed)
    }
}

impl Read for &TlsStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_by(into, |bytes| (&self.socket).read(bytes))
    }
}

impl Write for &TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut writing = self.writing.lock();
        for piece in bytes.chunks(AT_ONCE) {
            self.send(piece, &mut writing.sealed)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
