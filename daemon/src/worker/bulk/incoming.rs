//! What a lane asks of a transfer whose bytes it receives.
#![forbid(unsafe_code)]

use std::io::{self, Read};

use causeway_lane::{Impossible, Stream};
use causeway_proto::bulk::BadHeader;
use causeway_proto::id::EventId;

use super::peers::{Foreign, Origin, TransferInProgress};
use super::received_ranges::Refused;
use crate::worker::objects::task::Far;

/// A transfer whose bytes come from the client or another worker.
pub(super) trait Incoming: TransferInProgress {
    /// The transfer as the other worker names it; `None` if the client sends the bytes.
    fn far(&self) -> Option<&Far>;

    /// Reads `length` bytes off the stream. They belong at packed offset `offset`.
    fn receive(
        &self,
        stream: &Stream,
        offset: u64,
        length: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError>;

    /// Checks that `origin` may send bytes for this transfer, whose name in messages is `name`.
    ///
    /// # Errors
    /// [`Foreign`] if the transfer is another link's, or the client's.
    fn takes_from(&self, origin: Origin, name: EventId) -> Result<(), Foreign> {
        match (self.far(), origin) {
            (Some(far), _) => far.speaks(origin),
            (None, Origin::Client) => Ok(()),
            (None, Origin::Peer(_)) => Err(Foreign(name)),
        }
    }
}

/// Why a lane ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaneError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Header(#[from] BadHeader),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    UploadError(#[from] UploadError),
    #[error(transparent)]
    Foreign(#[from] Foreign),
    #[error("the other end sent an event message on a data connection")]
    Event,
    #[error("the other worker sent a message that only clients may send")]
    Pace,
    #[error("another worker sent a compressed chunk")]
    Packed,
    #[error("the other worker reads no messages from the link")]
    Unread,
    #[error(transparent)]
    Impossible(#[from] Impossible),
}

/// Why eager bytes are refused: they exceed the standing credit, or break a rule for eager writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum UploadError {
    #[error("the client sent more bytes of eager writes than its credit allows")]
    TooMany,
    #[error("the client sent the bytes of eager write {0:?} twice or in parts")]
    Twice(EventId),
    #[error(
        "the client sent {0:?} as an eager write, but its bytes are so few that they belong in the command"
    )]
    TooFew(EventId),
}

/// Reads and drops bytes that no transfer wants any more.
pub(super) fn discard(mut stream: &Stream, length: u32, scratch: &mut Vec<u8>) -> io::Result<()> {
    const PIECE: usize = 64 << 10;
    let mut left = length as usize;
    while left > 0 {
        let piece = left.min(PIECE);
        scratch.resize(piece, 0);
        stream.read_exact(scratch)?;
        left -= piece;
    }
    Ok(())
}
