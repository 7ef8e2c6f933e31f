//! Buffers for relayed chunks: a header and its bytes, as they are on the wire.
//!
//! Buffers of a full chunk are reused while there are relayed transfers. Invariant: a buffer is at most
//! about twice as large as its contents.
#![forbid(unsafe_code)]

use std::io::{self, Read};

use causeway_lane::Stream;
use causeway_proto::bulk::{HEADER, Header};
use causeway_proto::limits::BULK_CHUNK;
use parking_lot::Mutex;

/// Number of idle buffers that are kept for the next chunks.
const MOST_IDLE: usize = 8;

static IDLE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// One relayed chunk; see the module.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    /// Reads the bytes that follow `header` on the socket.
    ///
    /// # Errors
    /// Errors of the connection.
    pub(super) fn receive(header: Header, mut stream: &Stream) -> io::Result<Buffer> {
        let length = header.length as usize;
        let mut buffer = Buffer::of(length);
        buffer.bytes[..HEADER].copy_from_slice(&header.encode());
        stream.read_exact(&mut buffer.bytes[HEADER..HEADER + length])?;
        Ok(buffer)
    }

    fn of(length: usize) -> Buffer {
        let bytes = if length > BULK_CHUNK / 2 {
            let idle = IDLE.lock().pop();
            idle.unwrap_or_else(|| vec![0; HEADER + BULK_CHUNK])
        } else {
            vec![0; HEADER + length]
        };
        Buffer { bytes, length }
    }

    /// Header and bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..HEADER + self.length]
    }

    /// Number of bytes after the header.
    pub(super) fn length(&self) -> u64 {
        self.length as u64
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.bytes.len() == HEADER + BULK_CHUNK {
            let mut idle = IDLE.lock();
            if idle.len() < MOST_IDLE {
                idle.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

/// Frees the idle buffers, when no relayed transfer is left.
pub(super) fn let_go() {
    let idle = std::mem::take(&mut *IDLE.lock());
    drop(idle);
}
