//! The direct carrier: batches as length-prefixed frames on a socket.
//!
//! The flushing thread writes; the thread that waits reads ([`super::super::reader`]). The reading side
//! keeps no state between two reads except its buffer.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::frame::{self, PREFIX};
use causeway_security::{Line, Opener, Records};
use parking_lot::Mutex;

use super::Carrier;

/// Frames up to this size are read without growing the buffer.
const BUFFER: usize = 64 << 10;

/// The sending half.
#[derive(Debug)]
pub(in crate::transport) struct Direct {
    // Replaced when the session is resumed.
    connection: Mutex<Arc<Connection>>,
}

#[derive(Debug)]
struct Connection {
    socket: Arc<TcpStream>,
    // With TLS: the encryption state, and a buffer that is reused for encrypted bytes.
    sealing: Option<(Arc<Records>, Mutex<Vec<u8>>)>,
}

impl Direct {
    /// Takes a connection after its handshake. Also returns the reading half.
    pub(in crate::transport) fn new(line: Line) -> (Direct, Readable) {
        let (connection, readable) = Connection::new(line);
        let connection = Mutex::new(Arc::new(connection));
        (Direct { connection }, readable)
    }

    fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection.lock())
    }
}

/// The reading half of a direct connection.
#[derive(Debug)]
pub(in crate::transport) struct Readable {
    pub(in crate::transport) socket: Arc<TcpStream>,
    /// With TLS.
    pub(in crate::transport) opener: Option<Opener>,
}

impl Connection {
    fn new(line: Line) -> (Connection, Readable) {
        let (socket, tls) = line.into_parts();
        let (records, opener) = tls.unzip();
        let socket = Arc::new(socket);
        let connection = Connection {
            socket: Arc::clone(&socket),
            sealing: records.map(|records| (records, Mutex::default())),
        };
        (connection, Readable { socket, opener })
    }

    fn write(&self, batch: &mut [u8]) -> io::Result<()> {
        let prefix = frame::prefix(batch.len() - PREFIX).map_err(io::Error::other)?;
        batch[..PREFIX].copy_from_slice(&prefix);
        let Some((records, sealed)) = &self.sealing else {
            return (&*self.socket).write_all(batch);
        };
        let mut sealed = sealed.lock();
        sealed.clear();
        records.seal(batch, &mut sealed)?;
        (&*self.socket).write_all(&sealed)
    }
}

impl Carrier for Direct {
    fn write(&self, batch: &mut [u8]) -> io::Result<()> {
        self.connection().write(batch)
    }

    fn write_last(&self, batch: &mut [u8], limit: Duration) -> io::Result<()> {
        let connection = self.connection();
        connection.socket.set_write_timeout(Some(limit))?;
        let written = connection.write(batch);
        // Functions that the program has registered for its end may write later, without a limit.
        connection.socket.set_write_timeout(None)?;
        written
    }

    fn replace(&self, line: Line, _generation: u64) -> io::Result<Option<Readable>> {
        let (connection, readable) = Connection::new(line);
        *self.connection.lock() = Arc::new(connection);
        Ok(Some(readable))
    }

    fn shut_down(&self) {
        let _ = self.connection().socket.shutdown(Shutdown::Both);
    }
}

/// Splits a stream of bytes into frames.
#[derive(Debug)]
pub(in crate::transport) struct FrameReader<R> {
    source: R,
    buffer: Vec<u8>,
    // The unread bytes are buffer[begin..end].
    begin: usize,
    end: usize,
}

impl<R: Read> FrameReader<R> {
    pub(in crate::transport) fn new(source: R) -> FrameReader<R> {
        FrameReader {
            source,
            buffer: vec![0; BUFFER],
            begin: 0,
            end: 0,
        }
    }

    /// The source of the bytes.
    pub(in crate::transport) fn source(&self) -> &R {
        &self.source
    }

    /// The contents of the next frame, if it has arrived completely. If this returns `None`, call
    /// [`FrameReader::fill`].
    pub(in crate::transport) fn whole(&mut self) -> io::Result<Option<&[u8]>> {
        let Some(length) = self.announced()? else {
            return Ok(None);
        };
        let begin = self.begin + PREFIX;
        if self.end - begin < length {
            return Ok(None);
        }
        self.begin = begin + length;
        Ok(Some(&self.buffer[begin..begin + length]))
    }

    // The length that the next frame's prefix announces, once the prefix has arrived.
    fn announced(&self) -> io::Result<Option<usize>> {
        if self.end - self.begin < PREFIX {
            return Ok(None);
        }
        let prefix = std::array::from_fn(|i| self.buffer[self.begin + i]);
        let length = frame::length(prefix);
        length
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Reads once from the source. Must be called only if no frame is complete. Returns false at an end
    /// of the stream between two frames.
    ///
    /// # Errors
    /// Errors of the system; `UnexpectedEof` for an end inside of a frame.
    pub(in crate::transport) fn fill(&mut self) -> io::Result<bool> {
        let wanted = PREFIX + self.announced()?.unwrap_or(0);
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
            // One huge frame must not hold its memory for the rest of the session.
            if self.buffer.len() > BUFFER {
                self.buffer.truncate(BUFFER);
                self.buffer.shrink_to_fit();
            }
        }
        if self.begin + wanted > self.buffer.len() && self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        if self.end == self.buffer.len() {
            // The buffer grows with the bytes that have arrived, not with the announced length, which a
            // peer could choose freely.
            let grown = (2 * self.buffer.len()).min(wanted.max(BUFFER));
            self.buffer.resize(grown, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) if self.end == self.begin => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.end += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::limits::MAX_BATCH;
    use proptest::prelude::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    // Returns its bytes in pieces of the given sizes.
    struct Pieces(Vec<u8>, Vec<usize>);

    impl Read for Pieces {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self
                .1
                .pop()
                .unwrap_or(usize::MAX)
                .min(out.len())
                .min(self.0.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    // The next frame, however many reads it takes.
    fn next<R: Read>(reader: &mut FrameReader<R>) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(frame) = reader.whole()? {
                return Ok(Some(frame.to_vec()));
            }
            if !reader.fill()? {
                return Ok(None);
            }
        }
    }

    fn framed(frames: &[Vec<u8>]) -> Vec<u8> {
        let one = |frame: &Vec<u8>| [&frame::prefix(frame.len()).unwrap()[..], frame].concat();
        frames.iter().flat_map(one).collect()
    }

    #[test]
    fn a_time_limit_holds_for_one_write() {
        let (near, _far) = UnixStream::pair().unwrap();
        let (direct, readable) = Direct::new(Line::Clear(OwnedFd::from(near).into()));
        let limit = Duration::from_secs(1);
        direct.write_last(&mut [0; PREFIX + 1], limit).unwrap();
        assert_eq!(readable.socket.write_timeout().unwrap(), None);
    }

    #[test]
    fn a_frame_larger_than_the_buffer_comes_whole_and_its_memory_goes_again() {
        let frames = [vec![1; 300_000], vec![2; 3]];
        let mut reader = FrameReader::new(Pieces(framed(&frames), vec![]));
        for frame in &frames {
            assert_eq!(next(&mut reader).unwrap().unwrap(), &frame[..]);
        }
        assert!(next(&mut reader).unwrap().is_none());
        assert_eq!(reader.buffer.len(), BUFFER);
    }

    #[test]
    fn half_a_frame_and_impossible_lengths_are_errors() {
        let half = framed(&[vec![1; 10]])[..9].to_vec();
        let error = next(&mut FrameReader::new(Pieces(half, vec![]))).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let huge = (MAX_BATCH as u32 + 1).to_le_bytes().to_vec();
        let mut reader = FrameReader::new(Pieces(huge, vec![]));
        assert_eq!(
            next(&mut reader).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        assert_eq!(reader.buffer.len(), BUFFER);
    }

    proptest! {
        #[test]
        fn frames_come_out_however_the_bytes_are_cut(
            frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
            sizes in proptest::collection::vec(1usize..300, 0..60),
        ) {
            let mut reader = FrameReader::new(Pieces(framed(&frames), sizes));
            for frame in &frames {
                prop_assert_eq!(next(&mut reader).unwrap().unwrap(), &frame[..]);
            }
            prop_assert!(next(&mut reader).unwrap().is_none());
        }
    }
}
