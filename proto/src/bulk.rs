//! Bulk connections: a 32-byte header, then raw bytes.
//!
//! A transfer is named by the event of the command it belongs to. Its bytes are counted in the packed
//! order of the command's [`Region`](crate::region::Region). The receiver of a transfer grants credit
//! (the packed offset up to which it can take bytes *now*); the sender sends no byte beyond it. So what
//! is on the wire can always be taken off it, and no transfer blocks another.
//!
//! Downloads to the client need no credit: the application's memory is there from the start. A client's
//! write of one chunk needs none either while [`EAGER_BYTES`](crate::limits::EAGER_BYTES) are not used up:
//! it says in the command that the bytes come eagerly, and sends them at once; they may come before it. What
//! it uses is free again when the write is complete.
//!
//! The bytes of a chunk between client and worker may be one LZ4 block instead, where the header says how long that is;
//! everything else in it, credit too, counts the bytes themselves. A worker does so only on a connection where
//! its client has allowed it.
//!
//! Between two workers the sender offers a transfer when it may run, so that a receiver with few places
//! to receive into keeps none for a transfer that is far off. When the way between the two changes, what
//! was said may be lost: senders then offer again and receivers repeat their credit, be it none, and
//! who has given the transfer up meanwhile answers with a cancellation.

use crate::id::EventId;
use crate::limits::BULK_CHUNK;

/// Bytes of a header.
pub const HEADER: usize = 32;

const MAGIC: u16 = 0x4b42; // "BK"

/// What follows, or what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `length` bytes of the transfer follow, from packed offset `offset`.
    Data,
    /// The receiver can take bytes up to packed offset `offset` (exclusive, never shrinks).
    Credit,
    /// The side that speaks gives the transfer up; nothing of it will be sent or taken any more. `offset`
    /// says why (as [`Header::status`] reads it; 0 from a client).
    Cancel,
    /// Between workers: the event that the mirror named `transfer` stands for has ended with the status
    /// in `offset` (as [`Header::status`] reads it).
    Event,
    /// Between workers: the sender's command may run; it has `offset` bytes in all.
    Offer,
    /// All `length` bytes of a client's write follow, for which no credit was granted. `offset` is 0.
    Eager,
    /// From a client, as soon as a connection is there: from now on the worker sends at most `offset` bytes a
    /// second on it. `transfer` is 0.
    Pace,
    /// From a client, as soon as a connection is there: from now on the worker may compress what it sends on it.
    /// `transfer` and `offset` are 0.
    Compress,
}

impl Kind {
    /// Whether bytes follow.
    #[must_use]
    pub fn has_bytes(self) -> bool {
        matches!(self, Kind::Data | Kind::Eager)
    }
}

/// The header before every message of a bulk connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What kind of message.
    pub kind: Kind,
    /// Whose bytes.
    pub transfer: EventId,
    /// A packed offset; see [`Kind`].
    pub offset: u64,
    /// Bytes that follow: at least one where [`Kind::has_bytes`], else 0.
    pub length: u32,
}

/// The peer sent what no sender of ours makes.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum BadHeader {
    /// The first two bytes are wrong.
    #[error("bulk header without its magic")]
    Magic,
    /// Unknown kind.
    #[error("bulk header of unknown kind {0}")]
    Kind(u8),
    /// Longer than a chunk, data without bytes, or a length where none belongs.
    #[error("bulk header with length {0}")]
    Length(u32),
    /// `offset + length` overflows.
    #[error("bulk header with offset {0}")]
    Offset(u64),
    /// Compressed to so many bytes: not less than there are, or where no bytes or no compressed ones belong.
    #[error("bulk header with compressed length {0}")]
    Packed(u32),
}

impl Header {
    /// Says that the event which `mirror` stands for has ended.
    #[must_use]
    pub fn event(mirror: EventId, status: i32) -> Header {
        Header::with_status(Kind::Event, mirror, status)
    }

    /// Gives a transfer up because of `status`.
    #[must_use]
    pub fn cancel(transfer: EventId, status: i32) -> Header {
        Header::with_status(Kind::Cancel, transfer, status)
    }

    /// Bounds what the worker sends on this connection, in bytes a second.
    #[must_use]
    pub fn pace(bytes_a_second: u64) -> Header {
        Header {
            kind: Kind::Pace,
            transfer: EventId(0),
            offset: bytes_a_second,
            length: 0,
        }
    }

    /// Lets the worker compress what it sends on this connection.
    #[must_use]
    pub fn compress() -> Header {
        Header {
            kind: Kind::Compress,
            transfer: EventId(0),
            offset: 0,
            length: 0,
        }
    }

    fn with_status(kind: Kind, transfer: EventId, status: i32) -> Header {
        Header {
            kind,
            transfer,
            offset: u64::from(status.cast_unsigned()),
            length: 0,
        }
    }

    /// The status in a header of [`Kind::Event`] or [`Kind::Cancel`].
    #[must_use]
    pub fn status(&self) -> i32 {
        (self.offset as u32).cast_signed()
    }

    /// The bytes that travel, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        out[2] = match self.kind {
            Kind::Data => 1,
            Kind::Credit => 2,
            Kind::Cancel => 3,
            Kind::Event => 4,
            Kind::Offer => 5,
            Kind::Eager => 6,
            Kind::Pace => 7,
            Kind::Compress => 8,
        };
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..16].copy_from_slice(&self.transfer.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out
    }

    /// The same where the bytes that follow are an LZ4 block of `packed` bytes; `None` where they are themselves.
    #[must_use]
    pub fn encode_packed(&self, packed: Option<u32>) -> [u8; HEADER] {
        let mut out = self.encode();
        out[24..28].copy_from_slice(&packed.unwrap_or(0).to_le_bytes());
        out
    }

    /// Reads what [`Header::encode_packed`] made; the second is how many bytes follow, if they are an LZ4 block. That
    /// is fewer than the header's length, which is what the block becomes.
    ///
    /// # Errors
    /// [`BadHeader`] for anything else.
    pub fn decode_packed(bytes: &[u8; HEADER]) -> Result<(Header, Option<u32>), BadHeader> {
        let packed = u32::from_le_bytes(std::array::from_fn(|i| bytes[24 + i]));
        let header = Header::decode_plain(bytes)?;
        // Where nothing follows the length is 0, and so no packed one is less.
        match packed {
            0 => Ok((header, None)),
            less if less < header.length => Ok((header, Some(less))),
            other => Err(BadHeader::Packed(other)),
        }
    }

    /// Reads what [`Header::encode`] made, for who takes no compressed chunks.
    ///
    /// # Errors
    /// [`BadHeader`] for anything else.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, BadHeader> {
        match Header::decode_packed(bytes)? {
            (header, None) => Ok(header),
            (_, Some(packed)) => Err(BadHeader::Packed(packed)),
        }
    }

    fn decode_plain(bytes: &[u8; HEADER]) -> Result<Header, BadHeader> {
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if u16::from_le_bytes([bytes[0], bytes[1]]) != MAGIC {
            return Err(BadHeader::Magic);
        }
        let kind = match bytes[2] {
            1 => Kind::Data,
            2 => Kind::Credit,
            3 => Kind::Cancel,
            4 => Kind::Event,
            5 => Kind::Offer,
            6 => Kind::Eager,
            7 => Kind::Pace,
            8 => Kind::Compress,
            other => return Err(BadHeader::Kind(other)),
        };
        let length = u32::from_le_bytes(std::array::from_fn(|i| bytes[4 + i]));
        let fits = if kind.has_bytes() {
            (1..=BULK_CHUNK).contains(&(length as usize))
        } else {
            length == 0
        };
        if !fits {
            return Err(BadHeader::Length(length));
        }
        let offset = u64_at(16);
        if offset.checked_add(u64::from(length)).is_none() {
            return Err(BadHeader::Offset(offset));
        }
        Ok(Header {
            kind,
            transfer: EventId(u64_at(8)),
            offset,
            length,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_round_trip(transfer: u64, offset in 0..u64::MAX / 2, length in 1..=BULK_CHUNK as u32) {
            for kind in [Kind::Data, Kind::Credit, Kind::Cancel, Kind::Event, Kind::Offer, Kind::Eager, Kind::Pace, Kind::Compress] {
                let length = if kind.has_bytes() { length } else { 0 };
                let header = Header { kind, transfer: EventId(transfer), offset, length };
                prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
            }
        }

        #[test]
        fn a_compressed_chunk_is_shorter_than_what_it_becomes(
            length in 1..=BULK_CHUNK as u32, packed in 1..2 * BULK_CHUNK as u32,
        ) {
            let header = Header { kind: Kind::Data, transfer: EventId(1), offset: 5, length };
            let bytes = header.encode_packed(Some(packed));
            if packed < length {
                prop_assert_eq!(Header::decode_packed(&bytes), Ok((header, Some(packed))));
            } else {
                prop_assert_eq!(Header::decode_packed(&bytes), Err(BadHeader::Packed(packed)));
            }
            prop_assert_eq!(Header::decode(&bytes), Err(BadHeader::Packed(packed)));
            let word = Header::cancel(EventId(1), 0).encode_packed(Some(packed));
            prop_assert_eq!(Header::decode_packed(&word), Err(BadHeader::Packed(packed)));
        }

        #[test]
        fn a_status_stays_what_it_is(id: u64, status: i32) {
            for header in [Header::event(EventId(id), status), Header::cancel(EventId(id), status)] {
                prop_assert_eq!(Header::decode(&header.encode()).map(|of| of.status()), Ok(status));
            }
        }

        #[test]
        fn data_has_bytes(transfer: u64, offset: u64) {
            let header = Header { kind: Kind::Data, transfer: EventId(transfer), offset, length: 0 };
            prop_assert_eq!(Header::decode(&header.encode()), Err(BadHeader::Length(0)));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes: [u8; HEADER]) {
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert!(header.length as usize <= BULK_CHUNK);
            }
        }
    }
}
