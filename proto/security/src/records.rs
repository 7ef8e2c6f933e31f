//! An established TLS connection without its socket: converts plain bytes to encrypted ones and back.
//!
//! Encrypting (`seal`) and decrypting (`open`) share one state behind one lock. The lock is held while
//! bytes are processed, never during I/O. Invariants: the results of [`Records::seal`] must be sent
//! completely, in the order of the calls. [`Records::open`] must get the received bytes in their order.
//! After an error it returns nothing more.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::Connection;

/// Number of plain bytes that are encrypted at once: a few records.
const AT_ONCE: usize = 48 << 10;
/// Number of encrypted bytes that are read at once: four full records.
const READ_AT_ONCE: usize = 4 * (16 << 10) + 4 * 22;

/// The TLS state of one connection; see the module.
pub struct Records(Mutex<Connection>);

impl Records {
    /// Takes over a connection whose handshake is complete.
    pub(crate) fn new(connection: Connection) -> Arc<Records> {
        Arc::new(Records(Mutex::new(connection)))
    }

    /// Appends the encrypted form of `plain` to `into`.
    ///
    /// # Errors
    /// `InvalidData` when the connection is unusable.
    pub fn seal(&self, plain: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
        let mut connection = self.0.lock();
        for mut part in plain.chunks(AT_ONCE) {
            while !part.is_empty() {
                let taken = connection.writer().write(part)?;
                part = &part[taken..];
                let before = into.len();
                while connection.wants_write() {
                    connection.write_tls(into)?;
                }
                // rustls took nothing and gave nothing, so the loop would not end.
                if taken == 0 && into.len() == before {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
        }
        Ok(())
    }

    /// Decrypts `sealed`, together with earlier bytes, and appends the result to `into`. An incomplete
    /// record waits for its rest. Returns whether more may come: bytes after the other end's close alert
    /// (RFC 8446, 6.1) are ignored.
    ///
    /// # Errors
    /// `InvalidData` for bytes that the other end has not encrypted.
    pub fn open(&self, mut sealed: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
        let mut connection = self.0.lock();
        loop {
            let state = connection.process_new_packets().map_err(invalid)?;
            let mut left = state.plaintext_bytes_to_read();
            let mut reader = connection.reader();
            while left > 0 {
                let chunk = reader.fill_buf()?;
                let length = chunk.len();
                into.extend_from_slice(chunk);
                reader.consume(length);
                left -= length;
            }
            if state.peer_has_closed() {
                return Ok(false);
            }
            if sealed.is_empty() {
                return Ok(true);
            }
            // After the end, rustls takes no more bytes, so the loop would never finish.
            if connection.read_tls(&mut sealed)? == 0 {
                return Ok(false);
            }
        }
    }

    /// The certificate that the other end has presented, in DER format.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        let connection = self.0.lock();
        let certificates = connection.peer_certificates()?;
        certificates.first().map(|first| first.to_vec())
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Records(…)")
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The reading half of a connection, which keeps decrypted bytes until they are taken.
#[derive(Debug)]
pub struct Opener {
    records: Arc<Records>,
    sealed: Box<[u8]>,
    plain: Vec<u8>,
    taken: usize,
    has_ended: bool,
}

impl Opener {
    /// Creates the opener. A connection must have only one.
    ///
    /// # Errors
    /// As [`Records::open`], for bytes that came with the handshake.
    pub fn new(records: Arc<Records>) -> io::Result<Opener> {
        let mut plain = Vec::new();
        let goes_on = records.open(&[], &mut plain)?;
        Ok(Opener {
            records,
            sealed: vec![0; READ_AT_ONCE].into_boxed_slice(),
            plain,
            taken: 0,
            has_ended: !goes_on,
        })
    }

    /// Whether [`Opener::read`] can return bytes without receiving any.
    #[must_use]
    pub fn holds_more(&self) -> bool {
        self.taken < self.plain.len()
    }

    /// Returns available bytes, at least one. If there are none, calls `receive` to read from the socket
    /// until there are. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// Errors of `receive`, after which this may be called again; as [`Records::open`].
    pub fn read(
        &mut self,
        into: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let piece = self.next(into.len(), &mut receive)?;
        into[..piece.len()].copy_from_slice(piece);
        Ok(piece.len())
    }

    /// Like [`Opener::read`], but without a copy: returns a slice of at most `most` bytes, which is empty
    /// at the end of the stream.
    ///
    /// # Errors
    /// As [`Opener::read`].
    pub fn next(
        &mut self,
        most: usize,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<&[u8]> {
        while !self.holds_more() {
            self.taken = 0;
            self.plain.clear();
            if self.has_ended {
                break;
            }
            let got = receive(&mut self.sealed)?;
            if got == 0 {
                break;
            }
            let goes_on = self.records.open(&self.sealed[..got], &mut self.plain)?;
            self.has_ended = !goes_on;
        }
        let begin = self.taken;
        self.taken += most.min(self.plain.len() - begin);
        Ok(&self.plain[begin..self.taken])
    }
}
