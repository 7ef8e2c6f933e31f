//! What lanes send: messages with their bytes, and chunks of transfers.
//!
//! This module decides neither what is sent nor when. Invariant: until it is dropped, a chunk can be put again, as
//! after a break.
#![forbid(unsafe_code)]

use std::io;

use bytes::Bytes;
use causeway_lane::Stream;
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;

use super::memory::send_bytes;
use crate::runtime::block::Blocks;

/// Bytes that a lane sends in one message.
pub(super) trait Chunk: Send {
    /// The header that precedes the bytes.
    fn header(&self) -> Header;

    /// Whether the transfer still wants these bytes sent.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Writes `before`, then the bytes without the first `skip`.
    ///
    /// # Errors
    /// The stream's error.
    fn put(
        &self,
        stream: &Stream,
        before: &[u8],
        skip: u64,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()>;

    /// Notes that the bytes were handed to the socket. A chunk that is dropped without was not sent. The memory is
    /// released when the chunk is dropped.
    fn sent(&mut self);

    /// The bytes as a message of its own memory, if the chunk's memory must not wait for the other end's
    /// acknowledgement. `leaves`: the acknowledgement comes over a network.
    fn copied(&self, leaves: bool) -> Option<Message>;
}

/// A header and its payload.
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) bytes: Bytes,
}

impl Message {
    /// The length on the wire, in bytes.
    pub(super) fn length(&self) -> u64 {
        (HEADER + self.bytes.len()) as u64
    }

    /// Makes a message whose bytes `copy` writes.
    pub(super) fn copy(blocks: &Blocks, header: Header, copy: impl FnOnce(&mut [u8])) -> Message {
        let mut block = blocks.take(header.length as usize);
        copy(block.as_mut());
        let bytes = Bytes::from_owner(block);
        Message { header, bytes }
    }

    /// Sends the message without its first `skip` bytes.
    ///
    /// # Errors
    /// The stream's error.
    pub(super) fn send_from(&self, stream: &Stream, skip: usize) -> io::Result<()> {
        let of_header = skip.min(HEADER);
        let of_bytes = skip - of_header;
        let header = &self.header.encode()[of_header..];
        send_bytes(stream, header, &self.bytes[of_bytes..])
    }
}

impl Chunk for Message {
    fn header(&self) -> Header {
        self.header
    }

    fn put(&self, stream: &Stream, before: &[u8], skip: u64, _: &mut Vec<u8>) -> io::Result<()> {
        send_bytes(stream, before, &self.bytes[skip as usize..])
    }

    fn sent(&mut self) {}

    fn copied(&self, _: bool) -> Option<Message> {
        None
    }
}

/// Returns the header of a data chunk of `length` bytes.
pub(super) fn data(transfer: EventId, offset: u64, length: u32) -> Header {
    Header {
        kind: Kind::Data,
        transfer,
        offset,
        length,
    }
}
