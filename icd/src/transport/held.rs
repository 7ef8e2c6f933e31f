//! Checkpoints in the program's memory, and how much of it they take.
//!
//! This module decides nothing, and opens no connection: [`Outbox`](super::outbox::Outbox) writes a checkpoint before the
//! record of its session. Invariant: all checkpoints of the process have no more bytes together than the settings say.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::command::{ClientCheckpoint, CommandBatch, Recorded};
use causeway_proto::frame::PREFIX;
use causeway_proto::limits::BATCH_TARGET;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::bulk::memory::HostRegion;

const RECORDED_TAG: u32 = 5;
const CONTENTS_TAG: u32 = 10;

/// Bytes of all checkpoints of the process.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Why there is no memory for a checkpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum NoMemory {
    #[error(
        "a checkpoint of {0} bytes does not fit into the program's memory for checkpoints (`held` in servers.toml)"
    )]
    Held(u64),
    #[error("the program has no memory for a checkpoint of {0} bytes")]
    System(u64),
}

/// The contents of a checkpoint; while they come, some of them are missing.
#[derive(Debug)]
pub(super) struct HeldCheckpoint {
    bytes: Arc<HostRegion>,
    _taken: Taken,
}

/// Bytes that count in [`TAKEN`].
#[derive(Debug)]
struct Taken(u64);

impl Taken {
    fn take(bytes: u64, most: u64) -> Option<Taken> {
        let fits = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= most);
        let taken = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        // Made only then: its drop gives the bytes back.
        taken.is_ok().then(|| Taken(bytes))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl HeldCheckpoint {
    /// Memory for a checkpoint of `bytes` bytes, if all have no more than `most` together.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub(super) fn new(bytes: u64, most: u64) -> Result<HeldCheckpoint, NoMemory> {
        let taken = Taken::take(bytes, most).ok_or(NoMemory::Held(bytes))?;
        let memory = HostRegion::zeroed(bytes).ok_or(NoMemory::System(bytes))?;
        Ok(HeldCheckpoint {
            bytes: Arc::new(memory),
            _taken: taken,
        })
    }

    /// Where the contents come.
    pub(super) fn target(&self) -> Arc<HostRegion> {
        Arc::clone(&self.bytes)
    }

    /// Number of bytes.
    pub(super) fn length(&self) -> u64 {
        self.bytes.length()
    }

    /// Writes the contents as batches of a record. The checkpoint covers `applied` commands.
    ///
    /// # Errors
    /// The error of `write`.
    pub(super) fn write(
        &self,
        applied: u64,
        write: &mut impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let bytes = self.length();
        let head = CommandBatch {
            recorded: Recorded::Part.into(),
            restores: Some(ClientCheckpoint { applied, bytes }),
            ..CommandBatch::default()
        };
        let mut batch = vec![0; PREFIX];
        // Encoding into a vector cannot fail.
        let _ = head.encode(&mut batch);
        write(&mut batch)?;
        for offset in (0..bytes).step_by(BATCH_TARGET) {
            let length = (bytes - offset).min(BATCH_TARGET as u64);
            batch.clear();
            batch.resize(PREFIX, 0);
            encode_key(RECORDED_TAG, WireType::Varint, &mut batch);
            encode_varint(Recorded::Part as u64, &mut batch);
            encode_key(CONTENTS_TAG, WireType::LengthDelimited, &mut batch);
            encode_varint(length, &mut batch);
            let part = self.bytes.part(offset, length);
            part.ok_or(io::ErrorKind::InvalidInput)?
                .append_to(&mut batch);
            write(&mut batch)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// The tests share the count.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn all_checkpoints_share_a_limit() {
        let _turn = TURN.lock();
        let first = HeldCheckpoint::new(60, 100).unwrap();
        let refused = HeldCheckpoint::new(41, 100).err();
        assert_eq!(refused, Some(NoMemory::Held(41)));
        let _second = HeldCheckpoint::new(40, 100).unwrap();
        drop(first);
        assert!(HeldCheckpoint::new(60, 100).is_ok());
        assert!(HeldCheckpoint::new(u64::MAX, u64::MAX).is_err());
    }

    #[test]
    fn a_checkpoint_is_written_in_order() {
        let _turn = TURN.lock();
        let bytes: Vec<u8> = (0..3 * BATCH_TARGET + 5)
            .map(|at| (at % 251) as u8)
            .collect();
        let held = HeldCheckpoint::new(bytes.len() as u64, u64::MAX).unwrap();
        assert!(held.target().copy_in(&bytes));
        let mut batches = Vec::new();
        let mut decode = |batch: &mut [u8]| {
            batches.push(CommandBatch::decode(&batch[PREFIX..]).unwrap());
            Ok(())
        };
        held.write(7, &mut decode).unwrap();
        let head = batches.remove(0);
        let checkpoint = ClientCheckpoint {
            applied: 7,
            bytes: bytes.len() as u64,
        };
        assert_eq!(head.restores, Some(checkpoint));
        assert_eq!(batches.len(), 4);
        let written: Vec<u8> = batches.iter().flat_map(|of| of.contents.to_vec()).collect();
        assert!(written == bytes);
        assert!(batches.iter().all(|of| of.recorded() == Recorded::Part));
    }
}
