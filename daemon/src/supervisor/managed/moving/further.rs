//! What the connection of a session's further file carries: the heads of its chunks. `control.proto` describes it.
//!
//! This module reads and writes no socket. Invariant: a length that no sender writes is no head.

use crate::handover::MOST_FILES;

/// Most further files of a session.
pub(super) const MOST_FURTHER: usize = MOST_FILES - 1;
/// Size of a head in bytes.
pub(super) const HEAD: usize = 8;
/// Most bytes of a chunk.
pub(super) const MOST_CHUNK: u64 = 8 << 20;
const ENDED: u64 = u64::MAX;
const GIVEN_UP: u64 = u64::MAX - 1;

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// So many bytes of the file, at most [`MOST_CHUNK`]. 0: the sender still waits.
    Chunk(u64),
    /// Nothing: the file is whole.
    Ended,
    /// Nothing: the session has ended, or does not leave.
    GivenUp,
}

impl Head {
    pub(super) fn encode(self) -> [u8; HEAD] {
        let number = match self {
            Head::Chunk(length) => length,
            Head::Ended => ENDED,
            Head::GivenUp => GIVEN_UP,
        };
        number.to_le_bytes()
    }

    pub(super) fn decode(bytes: [u8; HEAD]) -> Option<Head> {
        match u64::from_le_bytes(bytes) {
            ENDED => Some(Head::Ended),
            GIVEN_UP => Some(Head::GivenUp),
            length if length <= MOST_CHUNK => Some(Head::Chunk(length)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_arrives_and_no_other_number_is_one() {
        for head in [
            Head::Chunk(0),
            Head::Chunk(1),
            Head::Chunk(MOST_CHUNK),
            Head::Ended,
            Head::GivenUp,
        ] {
            assert_eq!(Head::decode(head.encode()), Some(head));
        }
        for wrong in [MOST_CHUNK + 1, GIVEN_UP - 1] {
            assert_eq!(Head::decode(wrong.to_le_bytes()), None);
        }
    }
}
