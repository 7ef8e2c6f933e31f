//! The framing of the direct carrier: length-prefixed messages.
//!
//! A frame is a little-endian `u32`, the number of bytes that follow, and one encoded
//! [`crate::command::CommandBatch`] or [`crate::command::EventBatch`].

use crate::limits::MAX_BATCH;

/// Size of the length prefix in bytes.
pub const PREFIX: usize = 4;

/// An acknowledgement of this number, in place of the number of an event batch, is the client's word that it closes its
/// connections because one of them broke, and that it comes back.
pub const COMES_BACK: u64 = u64::MAX;

/// The peer announced a frame that is larger than any valid one.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("a frame of {0} bytes exceeds the limit of {MAX_BATCH} bytes")]
pub struct FrameTooLarge(pub u64);

/// The prefix for a frame of `length` bytes.
///
/// # Errors
/// [`FrameTooLarge`] beyond [`MAX_BATCH`].
pub fn prefix(length: usize) -> Result<[u8; PREFIX], FrameTooLarge> {
    match u32::try_from(length) {
        Ok(n) if length <= MAX_BATCH => Ok(n.to_le_bytes()),
        _ => Err(FrameTooLarge(length as u64)),
    }
}

/// The length that a prefix announces.
///
/// # Errors
/// [`FrameTooLarge`] beyond [`MAX_BATCH`], so that the caller allocates nothing for such a frame.
pub fn length(prefix: [u8; PREFIX]) -> Result<usize, FrameTooLarge> {
    let n = u32::from_le_bytes(prefix) as usize;
    if n <= MAX_BATCH {
        Ok(n)
    } else {
        Err(FrameTooLarge(n as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_round_trip_within_the_limit() {
        for n in [0, 1, 4096, MAX_BATCH] {
            assert_eq!(length(prefix(n).unwrap()), Ok(n));
        }
        assert!(prefix(MAX_BATCH + 1).is_err());
        assert!(length(u32::MAX.to_le_bytes()).is_err());
    }
}
