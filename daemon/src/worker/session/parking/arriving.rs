//! A checkpoint that comes from the client that holds it, before the record of its session.
//!
//! Nobody but the client is harmed by its bytes: they are looked at as the file of another worker is, and every id in them
//! is looked up. Invariant: no more bytes are kept than the node allows for a checkpoint, and than the client has announced.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Seek, Write};

use causeway_proto::command::ClientCheckpoint;
use causeway_proto::preamble::{REEXECUTES, WANTS_RECORD};
use rustix::fs::MemfdFlags;

use crate::worker::session::violation::Violation;

/// The checkpoint; see the module.
pub(super) struct Arriving {
    file: File,
    applied: u64,
    /// Bytes that are still to come.
    left: u64,
}

impl Arriving {
    /// Begins with what the client announces. The node allows `most` bytes.
    pub(super) fn begin(announced: &ClientCheckpoint, most: u64) -> Result<Arriving, Violation> {
        let ClientCheckpoint { applied, bytes } = *announced;
        // Positions in connections have this number beside the flags.
        if applied & (WANTS_RECORD | REEXECUTES) != 0 {
            return Err(Violation::Malformed(
                "the client sent a checkpoint of more commands than a session can have",
            ));
        }
        if bytes > most {
            return Err(Violation::NotRestored(format!(
                "the program's checkpoint has {bytes} bytes, and may have {most} (`held` and `held_per_user` below \
                 [survival] in daemon.toml)"
            )));
        }
        let file = rustix::fs::memfd_create("checkpoint", MemfdFlags::CLOEXEC);
        Ok(Arriving {
            file: file.map_err(|error| unusable(&error.into()))?.into(),
            applied,
            left: bytes,
        })
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or(Violation::Malformed(
            "the client sent more bytes of a checkpoint than it has",
        ))?;
        self.file.write_all(bytes).map_err(|error| unusable(&error))
    }

    /// Returns the whole checkpoint, with the number of the last command that it covers.
    pub(super) fn end(mut self) -> Result<(File, u64), Violation> {
        if self.left > 0 {
            return Err(Violation::Malformed(
                "the client sent its record before its whole checkpoint",
            ));
        }
        self.file.rewind().map_err(|error| unusable(&error))?;
        Ok((self.file, self.applied))
    }
}

fn unusable(error: &io::Error) -> Violation {
    Violation::NotRestored(format!(
        "the node cannot keep the program's checkpoint: {error}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn announced(bytes: u64) -> ClientCheckpoint {
        ClientCheckpoint { applied: 9, bytes }
    }

    #[test]
    fn a_checkpoint_comes_in_pieces_and_is_whole() {
        let mut arriving = Arriving::begin(&announced(5), 5).unwrap();
        arriving.take(b"ab").unwrap();
        arriving.take(b"cde").unwrap();
        let (mut file, applied) = arriving.end().unwrap();
        let mut got = Vec::new();
        file.read_to_end(&mut got).unwrap();
        assert_eq!((&got[..], applied), (&b"abcde"[..], 9));
    }

    #[test]
    fn a_checkpoint_has_as_many_bytes_as_it_may_and_says() {
        let too_long = Arriving::begin(&announced(6), 5).err();
        assert!(matches!(too_long, Some(Violation::NotRestored(_))));
        let mut arriving = Arriving::begin(&announced(2), 5).unwrap();
        let more = arriving.take(b"abc");
        assert!(matches!(more, Err(Violation::Malformed(_))));
        let arriving = Arriving::begin(&announced(2), 5).unwrap();
        assert!(matches!(arriving.end(), Err(Violation::Malformed(_))));
    }

    #[test]
    fn a_checkpoint_covers_no_more_commands_than_a_position_can_say() {
        let covering = |applied| ClientCheckpoint { applied, bytes: 0 };
        for applied in [u64::MAX, u64::MAX - 1, WANTS_RECORD, REEXECUTES] {
            let refused = Arriving::begin(&covering(applied), 5).err();
            assert!(matches!(refused, Some(Violation::Malformed(_))));
        }
        let most = REEXECUTES - 1;
        let (_, applied) = Arriving::begin(&covering(most), 5).unwrap().end().unwrap();
        assert_eq!(applied, most);
    }
}
