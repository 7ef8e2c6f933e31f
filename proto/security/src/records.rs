//! An established connection without its socket: plain bytes in, sealed ones out, and the other way round.
//!
//! Sealing and opening share one state behind one lock, which is held while bytes are worked on and never
//! while a socket is read or written. What it is not: it does no I/O. Invariants: what [`Records::seal`] gives
//! must leave in the order of the calls, whole, and what [`Records::open`] takes must be what came, in its
//! order; after an error nothing more comes out of it.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::Connection;

/// Plain bytes that are sealed at once: a few records.
const AT_ONCE: usize = 48 << 10;
/// Sealed bytes that are read at once: four full records.
const READ_AT_ONCE: usize = 4 * (16 << 10) + 4 * 22;

/// See the module.
pub struct Records(Mutex<Connection>);

impl Records {
    /// Of a connection whose handshake is complete.
    pub(crate) fn new(connection: Connection) -> Arc<Records> {
        Arc::new(Records(Mutex::new(connection)))
    }

    /// Appends `plain`, sealed, to `into`.
    ///
    /// # Errors
    /// `InvalidData` when the connection is beyond use.
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
                if taken == 0 && into.len() == before {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
        }
        Ok(())
    }

    /// Appends what is in `sealed`, and in what came before it, to `into`. Part of a record waits for its rest.
    /// Says whether more may come: what follows the other end's own end (RFC 8446, 6.1) is not looked at.
    ///
    /// # Errors
    /// `InvalidData` for what the other end has not sealed.
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
            // It takes nothing any more after an end; who asked it again would ask for ever.
            if connection.read_tls(&mut sealed)? == 0 {
                return Ok(false);
            }
        }
    }

    /// The certificate that the other end has shown, in DER.
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

/// The reading half of a connection: opened bytes that nobody has taken yet.
#[derive(Debug)]
pub struct Opener {
    records: Arc<Records>,
    sealed: Box<[u8]>,
    plain: Vec<u8>,
    taken: usize,
    has_ended: bool,
}

impl Opener {
    /// There is one of each connection.
    ///
    /// # Errors
    /// As [`Records::open`], of what came with the handshake.
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

    /// Whether [`Opener::read`] has something without receiving anything.
    #[must_use]
    pub fn holds_more(&self) -> bool {
        self.taken < self.plain.len()
    }

    /// Gives what is there, at least a byte; if there is none, has `receive` read from the socket until there
    /// is. 0 at the end of the stream.
    ///
    /// # Errors
    /// What `receive` says, after which it may be called again; as [`Records::open`].
    pub fn read(
        &mut self,
        into: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let piece = self.next(into.len(), &mut receive)?;
        into[..piece.len()].copy_from_slice(piece);
        Ok(piece.len())
    }

    /// The same without a copy: at most so many bytes, where they lie; none at the end of the stream.
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
