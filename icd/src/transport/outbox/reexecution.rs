//! What the outbox does so that another worker can execute the session's commands again.
//!
//! Applied batches are retained until a checkpoint covers them. A worker that takes the place of one that has died gets the
//! record of the last checkpoint, then the retained batches, and then those that wait. Invariant: while commands are sent
//! again, nothing else leaves.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_proto::command::{Command, Holder};
use causeway_proto::frame::PREFIX;
use parking_lot::MutexGuard;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::{EncodedRecord, Outbox, write_sealed};
use crate::transport::held::HeldCheckpoint;
use crate::transport::kept::{Impossible, KeptBatches};
use crate::transport::{record, replay};

const CHECKPOINT_TAG: u32 = 6;
const MAY_HOLD_TAG: u32 = 7;
const HOLDER_TAG: u32 = 8;

/// How far the commands of the worker before are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport) enum Replayed {
    /// All have left.
    All,
    /// The next one waits: for the connection, for room, or for what must come before.
    Waits,
}

/// Why the commands of the worker before are not sent again.
#[derive(Debug, thiserror::Error)]
pub(in crate::transport) enum NotReplayed {
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A command cannot be executed again.
    #[error("{0}")]
    Command(String),
}

/// A checkpoint: the number of the last command before it, and the record of what was there.
#[derive(Debug)]
pub(super) struct Cut {
    number: u64,
    record: Vec<Vec<u8>>,
    /// The contents of memory, if the program holds them.
    contents: Option<Arc<HeldCheckpoint>>,
}

/// The cut of a checkpoint that is copied, and not whole yet.
#[derive(Debug)]
pub(in crate::transport) struct Marked {
    number: u64,
    record: Vec<Vec<u8>>,
}

impl Default for Cut {
    fn default() -> Cut {
        Cut {
            number: 0,
            record: record::batches(&[]),
            contents: None,
        }
    }
}

impl Outbox {
    /// Retains applied batches from now on.
    pub(in crate::transport) fn retains(&self) {
        if let Some(kept) = &self.kept {
            kept.state.lock().retain();
        }
    }

    /// Retains nothing any more.
    pub(in crate::transport) fn lets_go(&self) {
        if let Some(kept) = &self.kept {
            kept.state.lock().let_go();
            // Much memory, which is freed without the lock.
            let contents = kept.cut.lock().contents.take();
            drop(contents);
        }
    }

    /// Number of bytes that are retained, and that are kept for a worker that has not applied them.
    pub(in crate::transport) fn retained_bytes(&self) -> usize {
        let kept = self.kept.as_ref();
        kept.map_or(0, |kept| {
            let state = kept.state.lock();
            state.retained_bytes() + state.bytes()
        })
    }

    /// Whether the commands of the worker before are sent again. Nothing else leaves meanwhile.
    pub(in crate::transport) fn replays(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.replays.load(Ordering::Acquire))
    }

    /// The batches that the present worker got.
    pub(in crate::transport) fn with_written<R>(
        &self,
        look: impl FnOnce(&KeptBatches) -> R,
    ) -> Option<R> {
        let kept = self.kept.as_ref()?;
        Some(look(&kept.state.lock()))
    }

    /// As [`Outbox::reopen`], for a worker that gets all commands behind the last checkpoint again.
    pub(in crate::transport) fn reopen_again(&self, _writer: MutexGuard<'_, Vec<u8>>) {
        let Some(kept) = &self.kept else { return };
        let (cut, record, contents) = {
            let cut = kept.cut.lock();
            (cut.number, cut.record.clone(), cut.contents.clone())
        };
        kept.must_ask.store(false, Ordering::Relaxed);
        self.forget_holder();
        let mut state = kept.state.lock();
        kept.replay.lock().put_before(state.take_all(cut));
        kept.replays.store(true, Ordering::Release);
        kept.must_say.store(false, Ordering::Relaxed);
        kept.stands.store(false, Ordering::Release);
        *kept.record.lock() = Some(EncodedRecord {
            cut,
            batches: record,
            contents,
            is_due: true,
        });
        kept.is_behind.store(true, Ordering::Relaxed);
        self.is_open.store(true, Ordering::Release);
        kept.changed.notify_all();
    }

    /// Sends the next commands of the worker before again, as far as `allowed` says. `prepare` is called before each of
    /// them leaves.
    ///
    /// # Errors
    /// [`NotReplayed`].
    pub(in crate::transport) fn replay(
        &self,
        allowed: impl Fn() -> u64,
        mut prepare: impl FnMut(&mut Command) -> Result<(), String>,
        mut write: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> Result<Replayed, NotReplayed> {
        let Some(kept) = &self.kept else {
            return Ok(Replayed::All);
        };
        let _writing = self.writing.lock();
        self.write_again(None, &mut write)?;
        loop {
            if !self.is_open() || kept.state.lock().is_full() {
                return Ok(Replayed::Waits);
            }
            let allowed = allowed();
            let next = {
                let mut replay = kept.replay.lock();
                let next = replay.next(allowed);
                // What was given after the last command belongs before new ones.
                if replay.is_empty() && allowed == u64::MAX && matches!(next, Ok(None)) {
                    let _state = kept.state.lock();
                    kept.replays.store(false, Ordering::Release);
                    kept.changed.notify_all();
                    return Ok(Replayed::All);
                }
                next
            };
            let next = next.map_err(|error| NotReplayed::Command(error.to_string()))?;
            let Some((first, mut commands)) = next else {
                return Ok(Replayed::Waits);
            };
            for command in &mut commands {
                prepare(command).map_err(NotReplayed::Command)?;
            }
            let mut batch = replay::encode(first, commands);
            let result = write_sealed(first, &mut batch.bytes, &mut write);
            kept.state.lock().keep(batch);
            result?;
        }
    }

    /// Has the next writer ask the worker for a checkpoint.
    pub(in crate::transport) fn ask_for_checkpoint(&self) {
        if let Some(kept) = &self.kept {
            kept.must_ask.store(true, Ordering::Relaxed);
        }
    }

    /// Handles that the checkpoint is whole for which the outbox stands: forgets the commands before it. Returns false if
    /// the worker cannot have made it.
    pub(in crate::transport) fn cut(&self) -> bool {
        let Some(kept) = self.kept.as_ref().filter(|_| self.stands()) else {
            return false;
        };
        let filling = self.filling.lock();
        let Some(record) = &filling.record else {
            return false;
        };
        let Some(number) = kept.state.lock().cut() else {
            return false;
        };
        let record = record::batches(&record.commands(number));
        drop(filling);
        let cut = Cut {
            number,
            record,
            contents: None,
        };
        let before = std::mem::replace(&mut *kept.cut.lock(), cut);
        // Much memory, which is freed without the lock.
        drop(before);
        self.forget_holder();
        true
    }

    /// Forgets what a worker has received that has applied `position` commands.
    ///
    /// # Errors
    /// [`Impossible`] if so many commands were never written.
    pub(in crate::transport) fn skip_to(&self, position: u64) -> Result<(), Impossible> {
        let kept = self.kept.as_ref();
        kept.map_or(Ok(()), |kept| kept.state.lock().skip_to(position))
    }

    /// Marks the cut of a checkpoint that the worker has copied. `None` if the worker cannot have copied it.
    pub(in crate::transport) fn mark(&self) -> Option<Marked> {
        let kept = self.kept.as_ref().filter(|_| self.stands())?;
        let filling = self.filling.lock();
        let record = filling.record.as_ref()?;
        let number = kept.state.lock().mark()?;
        let record = record::batches(&record.commands(number));
        Some(Marked { number, record })
    }

    /// Handles that the marked checkpoint is whole, and that the program holds its `contents`: forgets the commands before
    /// it. Returns the contents of the checkpoint before. They are much memory, so the caller drops them without locks.
    #[must_use]
    pub(in crate::transport) fn cut_at(
        &self,
        marked: Marked,
        contents: HeldCheckpoint,
    ) -> Option<Arc<HeldCheckpoint>> {
        let kept = self.kept.as_ref()?;
        let Marked { number, record } = marked;
        let contents = Some(Arc::new(contents));
        kept.state.lock().cut_at(number);
        let cut = Cut {
            number,
            record,
            contents,
        };
        let before = std::mem::replace(&mut *kept.cut.lock(), cut);
        self.forget_holder();
        before.contents
    }

    /// Whether the program holds the contents of the last checkpoint.
    pub(in crate::transport) fn holds_contents(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.cut.lock().contents.is_some())
    }

    /// From now on the program may hold the checkpoints that it asks for.
    pub(in crate::transport) fn may_hold(&self) {
        if let Some(kept) = &self.kept {
            kept.may_hold.store(true, Ordering::Relaxed);
        }
    }

    /// Has the next writer tell the worker who holds the checkpoint that it has copied.
    pub(in crate::transport) fn say_holder(&self, holder: Holder) {
        if let Some(kept) = &self.kept {
            kept.holder.store(holder.into(), Ordering::Relaxed);
            kept.must_answer.store(true, Ordering::Release);
        }
    }

    /// Does not tell the worker any more who holds its checkpoint.
    pub(in crate::transport) fn forget_holder(&self) {
        if let Some(kept) = &self.kept {
            kept.must_answer.store(false, Ordering::Relaxed);
            kept.holder.store(0, Ordering::Relaxed);
        }
    }

    /// Lets no batch leave while a checkpoint comes, or lets batches leave again. Returns whether that changes anything.
    #[must_use]
    pub(in crate::transport) fn hold_back(&self, holds: bool) -> bool {
        let kept = self.kept.as_ref();
        let kept = kept.filter(|kept| kept.holds_back.load(Ordering::Acquire) != holds);
        let Some(kept) = kept else { return false };
        let _state = kept.state.lock();
        let before = kept.holds_back.swap(holds, Ordering::AcqRel);
        kept.changed.notify_all();
        before != holds
    }

    /// Whether no batch leaves until a checkpoint has come.
    pub(in crate::transport) fn holds_back(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.holds_back.load(Ordering::Acquire))
    }

    /// The number of the last command before the last checkpoint.
    pub(in crate::transport) fn last_cut(&self) -> u64 {
        let kept = self.kept.as_ref();
        kept.map_or(0, |kept| kept.cut.lock().number)
    }

    // Asks the worker for a checkpoint if that is due.
    pub(super) fn ask(
        &self,
        write: &mut impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(kept) = self.kept.as_ref().filter(|_| self.is_open()) else {
            return Ok(());
        };
        // A load costs less than the exchange, and nearly every write ends here.
        if !kept.must_ask.load(Ordering::Relaxed) || !kept.must_ask.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let mut batch = vec![0; PREFIX];
        encode_key(CHECKPOINT_TAG, WireType::Varint, &mut batch);
        encode_varint(1, &mut batch);
        if kept.may_hold.load(Ordering::Relaxed) {
            encode_key(MAY_HOLD_TAG, WireType::Varint, &mut batch);
            encode_varint(1, &mut batch);
        }
        write(&mut batch)
    }

    // Tells the worker who holds its checkpoint, if that is due.
    pub(super) fn answer(
        &self,
        write: &mut impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(kept) = self.kept.as_ref().filter(|_| self.is_open()) else {
            return Ok(());
        };
        // As above.
        if !kept.must_answer.load(Ordering::Acquire)
            || !kept.must_answer.swap(false, Ordering::Acquire)
        {
            return Ok(());
        }
        let holder = u64::try_from(kept.holder.load(Ordering::Relaxed)).unwrap_or(0);
        let mut batch = vec![0; PREFIX];
        encode_key(HOLDER_TAG, WireType::Varint, &mut batch);
        encode_varint(holder, &mut batch);
        write(&mut batch)
    }
}
