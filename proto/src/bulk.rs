//! Bulk connections: messages with a 32-byte header, which raw bytes may follow.
//!
//! The event of a command names its transfer. Offsets count bytes in the packed order of the command's
//! [`Region`](crate::region::Region). The receiver of a transfer grants credit: the packed offset up to
//! which it can accept bytes *now*. The sender sends no byte beyond it. So all bytes on the wire can
//! always be received, and no transfer blocks another.
//!
//! Downloads to the client need no credit, since the application's memory is available from the start. A
//! client's write of one chunk needs none either, while less than
//! [`EAGER_BYTES`](crate::limits::EAGER_BYTES) are in use. The command then announces an eager chunk,
//! which may arrive before the command. Completion of the write frees its share.
//!
//! Chunks between client and worker may be compressed into one LZ4 block, whose size is in the header.
//! All other numbers, credit too, count uncompressed bytes. A worker compresses only on a connection
//! where its client has allowed it.
//!
//! Between two workers, the sender offers a transfer when it may run, so that the receiver reserves none
//! of its few buffers too early. Messages may be lost when the route between the two changes. Senders
//! then repeat their offers, and receivers repeat their credit, even if it is 0. A side that has given
//! the transfer up meanwhile answers with a cancellation.

use crate::id::EventId;
use crate::limits::BULK_CHUNK;

/// Names the transfer of a checkpoint to the client that holds it. No command has this event.
pub const CHECKPOINT: EventId = EventId(u64::MAX);

/// Size of a header in bytes.
pub const HEADER: usize = 32;

const MAGIC: u16 = 0x4b42; // "BK"

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `length` bytes of the transfer follow, from packed offset `offset`.
    Data,
    /// The receiver can accept bytes up to packed offset `offset` (exclusive). The offset never
    /// decreases.
    Credit,
    /// The sending side of this message gives the transfer up. Nothing of the transfer is sent or
    /// accepted any more. `offset` contains the reason (read by [`Header::status`]; 0 from a client).
    Cancel,
    /// Between workers: the event that the mirror `transfer` represents has ended with the status in
    /// `offset` (read by [`Header::status`]).
    Event,
    /// Between workers: the sender's command may run. The transfer has `offset` bytes in all.
    Offer,
    /// All `length` bytes of a client's write follow, without granted credit. `offset` is 0.
    Eager,
    /// From a client, when a connection begins: the worker sends at most `offset` bytes per second on it.
    /// `transfer` is 0.
    Pace,
    /// From a client, when a connection begins: the worker may compress the chunks that it sends on it.
    /// `transfer` and `offset` are 0.
    Compress,
    /// The sender of this message has received `offset` bytes in all over lane `transfer`, headers included. The
    /// other end forgets what it keeps of these bytes. The offset never decreases.
    Ack,
    /// From a client: the worker acknowledges at once what it has received on this connection. `transfer` and `offset`
    /// are 0.
    Ping,
}

impl Kind {
    /// Whether bytes follow the header.
    #[must_use]
    pub fn has_bytes(self) -> bool {
        matches!(self, Kind::Data | Kind::Eager)
    }
}

/// The header of every message on a bulk connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of message.
    pub kind: Kind,
    /// The transfer that the message belongs to.
    pub transfer: EventId,
    /// A packed offset; see [`Kind`].
    pub offset: u64,
    /// Number of bytes that follow: at least one if [`Kind::has_bytes`], otherwise 0.
    pub length: u32,
}

/// The peer sent an invalid header.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum BadHeader {
    /// The first two bytes are wrong.
    #[error("bulk header without its magic")]
    Magic,
    /// The kind is unknown.
    #[error("bulk header of the unknown kind {0}")]
    Kind(u8),
    /// The length exceeds a chunk, is 0 for data, or is not 0 for a message without bytes.
    #[error("bulk header with the invalid length {0}")]
    Length(u32),
    /// `offset + length` overflows.
    #[error("bulk header with the invalid offset {0}")]
    Offset(u64),
    /// The compressed length is not less than the length, or the message must not be compressed.
    #[error("bulk header with the invalid compressed length {0}")]
    Packed(u32),
}

impl Header {
    /// Reports that the event which `mirror` represents has ended.
    #[must_use]
    pub fn event(mirror: EventId, status: i32) -> Header {
        Header::with_status(Kind::Event, mirror, status)
    }

    /// Gives a transfer up with this status.
    #[must_use]
    pub fn cancel(transfer: EventId, status: i32) -> Header {
        Header::with_status(Kind::Cancel, transfer, status)
    }

    /// Limits the worker's rate on this connection, in bytes per second.
    #[must_use]
    pub fn pace(bytes_a_second: u64) -> Header {
        Header {
            kind: Kind::Pace,
            transfer: EventId(0),
            offset: bytes_a_second,
            length: 0,
        }
    }

    /// Allows the worker to compress chunks on this connection.
    #[must_use]
    pub fn compress() -> Header {
        Header {
            kind: Kind::Compress,
            transfer: EventId(0),
            offset: 0,
            length: 0,
        }
    }

    /// Asks the worker for an acknowledgement.
    #[must_use]
    pub fn ping() -> Header {
        Header {
            kind: Kind::Ping,
            transfer: EventId(0),
            offset: 0,
            length: 0,
        }
    }

    /// Reports that `bytes` bytes have been received in all over this lane.
    #[must_use]
    pub fn ack(lane: u8, bytes: u64) -> Header {
        Header {
            kind: Kind::Ack,
            transfer: EventId(u64::from(lane)),
            offset: bytes,
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

    /// The encoded header, little-endian.
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
            Kind::Ack => 9,
            Kind::Ping => 10,
        };
        out[4..8].copy_from_slice(&self.length.to_le_bytes());
        out[8..16].copy_from_slice(&self.transfer.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out
    }

    /// The encoded header for a chunk that is compressed into an LZ4 block of `packed` bytes. `None`
    /// means uncompressed.
    #[must_use]
    pub fn encode_packed(&self, packed: Option<u32>) -> [u8; HEADER] {
        let mut out = self.encode();
        out[24..28].copy_from_slice(&packed.unwrap_or(0).to_le_bytes());
        out
    }

    /// Decodes the result of [`Header::encode_packed`]. The second value is the size of the LZ4 block
    /// that follows, if the chunk is compressed. It is less than the header's length, which is the
    /// uncompressed size.
    ///
    /// # Errors
    /// [`BadHeader`] for anything else.
    pub fn decode_packed(bytes: &[u8; HEADER]) -> Result<(Header, Option<u32>), BadHeader> {
        let packed = u32::from_le_bytes(std::array::from_fn(|i| bytes[24 + i]));
        let header = Header::decode_plain(bytes)?;
        // If nothing follows, the length is 0, and no compressed length is less than that.
        match packed {
            0 => Ok((header, None)),
            less if less < header.length => Ok((header, Some(less))),
            other => Err(BadHeader::Packed(other)),
        }
    }

    /// Decodes the result of [`Header::encode`], for receivers that do not accept compressed chunks.
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
            9 => Kind::Ack,
            10 => Kind::Ping,
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
            for kind in [Kind::Data, Kind::Credit, Kind::Cancel, Kind::Event, Kind::Offer, Kind::Eager, Kind::Pace, Kind::Compress, Kind::Ack, Kind::Ping] {
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
