//! Where chunks lie on their way through: a header and its bytes, as they go on the wire.
//!
//! Buffers of a full chunk are used again and again while there are transfers to pass on. Invariant: a
//! buffer is at most about twice as large as what it holds.
#![forbid(unsafe_code)]

use std::io::{self, Read};

use causeway_lane::Stream;
use causeway_proto::bulk::{HEADER, Header};
use causeway_proto::limits::BULK_CHUNK;
use parking_lot::Mutex;

/// So many are kept for the next chunks.
const MOST_IDLE: usize = 8;

static IDLE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// See the module.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    /// What follows `header` on the socket.
    ///
    /// # Errors
    /// The connection's.
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

    /// Bytes behind the header.
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

/// No transfer is left to pass on.
pub(super) fn let_go() {
    let idle = std::mem::take(&mut *IDLE.lock());
    drop(idle);
}
