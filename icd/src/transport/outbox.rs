//! The outgoing buffer: commands in the order in which they were appended, encoded on the appending
//! thread.
//!
//! Two byte vectors alternate: one is filled under a short lock while the other is being written, so
//! steady traffic allocates nothing. The outbox knows no socket; [`Outbox::write_with`] passes a finished
//! batch to the caller's closure. Invariant: batches leave in the order of their numbers. One writer at a
//! time takes the oldest batch in one step, and writes it before it takes the next.
//!
//! Back-pressure: an appender that may wait gets [`Appended::Full`] once a batch has its target size. A
//! transport thread may not wait, because it may be the thread that makes room on the connection. For it,
//! full batches queue behind each other. That queue needs no bound of its own: transport threads append
//! only releases and states of user events, whose number the live objects bound.
//!
//! If the session can be resumed, written batches are [kept](super::kept) until the worker has applied them. While
//! the session has no connection, the outbox is closed: appenders queue up to [`kept::MOST`], then wait. The first
//! writer on a new connection writes the kept batches again.
//!
//! If the node may park the session, the outbox keeps the session's [record](super::record). While the outbox *stands*
//! ([`Outbox::stand`]), no batch leaves, and appenders queue as without a connection. A worker that takes the place of
//! the one before gets the record first.
//!
//! If the session's commands can be executed again, applied batches are retained. While a new worker gets them
//! ([`Outbox::replay`]), appenders queue as without a connection, too. They also do while too much is retained and a
//! checkpoint comes ([`Outbox::hold_back`]).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Instant;

use causeway_proto::frame::PREFIX;
use causeway_proto::limits::{BATCH_TARGET, MAX_BATCH};
use causeway_proto::preamble::WANTS_RECORD;
use causeway_proto::status::WireError;
use parking_lot::{Condvar, Mutex, MutexGuard};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use self::reexecution::Cut;
pub(super) use self::reexecution::{Marked, NotReplayed, Replayed};
use super::encode::EncodeCommand;
use super::held::HeldCheckpoint;
use super::kept::{self, Batch, Impossible, KeptBatches};
use super::record::Record;
use super::replay::Replay;
use crate::host_clock::host_ns;
use crate::trace;

mod reexecution;

/// Once this many bytes are queued, the appending thread also writes them. That is one packet of the
/// loopback interface, and each packet costs the sender several microseconds. Smaller amounts leave with
/// the flusher's next tick.
pub(super) const WRITE_AT: usize = 64 << 10;

/// Capacity that a buffer keeps after one huge command has grown it.
const KEEP_CAPACITY: usize = 2 * BATCH_TARGET;

const COMMANDS_TAG: u32 = 1;
const FIRST_TAG: u32 = 2;
const CLOSES_TAG: u32 = 3;
const STANDS_TAG: u32 = 4;

/// Buffers for a session's outgoing commands.
#[derive(Debug)]
pub(super) struct Outbox {
    filling: Mutex<Filling>,
    writing: Mutex<Vec<u8>>,
    // Present if the session can be resumed.
    kept: Option<Keeping>,
    // Whether there is a connection to write to.
    is_open: AtomicBool,
    // The node's number in the program's trace, if there is one.
    traced: Option<u32>,
}

#[derive(Debug, Default)]
struct Keeping {
    state: Mutex<KeptBatches>,
    // Whether the kept batches must be written again before anything else. Accessed under `writing` only.
    is_behind: AtomicBool,
    // Signals that the worker has applied commands, or that the outbox was opened or closed, or stands or goes on.
    changed: Condvar,
    // Whether no batch leaves. Changed under `state`.
    stands: AtomicBool,
    // Whether the worker must be told so.
    must_say: AtomicBool,
    // The record that the present worker has been or will be given, until it has applied a command behind it.
    record: Mutex<Option<EncodedRecord>>,
    // Whether the commands of the worker before are sent again. Changed under `state` and `writing`.
    replays: AtomicBool,
    // Those of them that have not left. Locked under `writing`.
    replay: Mutex<Replay>,
    // The last checkpoint.
    cut: Mutex<Cut>,
    // Whether the worker must be asked for another one.
    must_ask: AtomicBool,
    // Whether the program may hold it.
    may_hold: AtomicBool,
    // Who holds the checkpoint that the worker has copied; 0: this was not decided.
    holder: AtomicI32,
    // Whether the worker must be told so.
    must_answer: AtomicBool,
    // Whether no batch leaves until a checkpoint has come. Changed under `state`.
    holds_back: AtomicBool,
}

/// The record of a cut. It leaves before anything else, and again if the worker did not get all of it.
#[derive(Debug)]
struct EncodedRecord {
    cut: u64,
    batches: Vec<Vec<u8>>,
    // The contents of memory, if the program holds them. They leave first.
    contents: Option<Arc<HeldCheckpoint>>,
    is_due: bool,
}

impl EncodedRecord {
    fn write(&mut self, write: &mut impl FnMut(&mut [u8]) -> io::Result<()>) -> io::Result<()> {
        if let Some(contents) = &self.contents {
            contents.write(self.cut, write)?;
        }
        self.batches.iter_mut().try_for_each(|of| write(of))
    }
}

#[derive(Debug)]
struct Filling {
    // Full batches. If there are any, `bytes` is not empty.
    full: VecDeque<Batch>,
    // Bytes in `full`.
    in_full: usize,
    // Room for the frame's prefix, followed by commands.
    bytes: Vec<u8>,
    first: u64,
    next: u64,
    flusher_sleeps: bool,
    // Present if the node may park the session.
    record: Option<Record>,
}

/// Next step for the caller of [`Outbox::append`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appended {
    /// Nothing to do.
    Queued,
    /// Wake the flusher, which is asleep.
    WakeFlusher,
    /// Write the queue: enough is queued.
    Write,
    /// Write the queue, then append again: this batch has no room.
    Full,
}

impl Outbox {
    /// An outbox. `keeps`: the session can be resumed, so written batches are kept.
    pub(super) fn new(keeps: bool) -> Outbox {
        Outbox {
            kept: keeps.then(Keeping::default),
            is_open: AtomicBool::new(true),
            traced: None,
            filling: Mutex::new(Filling {
                full: VecDeque::new(),
                in_full: 0,
                bytes: vec![0; PREFIX],
                first: 1,
                next: 1,
                flusher_sleeps: false,
                record: None,
            }),
            writing: Mutex::new(vec![0; PREFIX]),
        }
    }

    /// Reports batches to the program's trace from now on.
    pub(super) fn trace_as(&mut self, node: u32) {
        self.traced = Some(node);
    }

    /// Keeps the session's record from now on.
    pub(super) fn records(&self) {
        self.filling.lock().record = Some(Record::default());
    }

    /// Appends a command. With `may_refuse`, a batch never grows beyond its target, and the result is
    /// [`Appended::Full`] instead. The thread that makes room on the connection must pass false. With
    /// `wake` false, for a caller that writes next, a sleeping flusher stays asleep. The next caller with
    /// `wake` true wakes it.
    pub(super) fn append(
        &self,
        command: &impl EncodeCommand,
        may_refuse: bool,
        wake: bool,
    ) -> Result<Appended, WireError> {
        let length = command.encoded_len();
        let entry = length + 1 + encoded_len_varint(length as u64);
        // `seal` adds 11 bytes at most: the number's tag and its longest varint.
        if entry + 11 > MAX_BATCH {
            return Err(WireError::TooLarge(length));
        }
        let mut filling = self.filling.lock();
        let queued = filling.bytes.len() - PREFIX;
        let limit = if may_refuse {
            BATCH_TARGET
        } else {
            MAX_BATCH - 11
        };
        if queued > 0 && queued + entry > limit {
            if may_refuse && !self.takes_more(&filling) {
                return Ok(Appended::Full);
            }
            filling.close_batch();
        }
        let bytes = &mut filling.bytes;
        encode_key(COMMANDS_TAG, WireType::LengthDelimited, bytes);
        encode_varint(length as u64, bytes);
        let begin = bytes.len();
        command.encode(bytes);
        debug_assert_eq!(bytes.len() - begin, length, "encoded_len must be exact");
        filling.note(command);
        filling.next += 1;
        if filling.bytes.len() - PREFIX >= WRITE_AT {
            Ok(Appended::Write)
        } else if wake && std::mem::take(&mut filling.flusher_sleeps) {
            Ok(Appended::WakeFlusher)
        } else {
            Ok(Appended::Queued)
        }
    }

    // Whether batches leave.
    fn moves(&self) -> bool {
        self.is_open() && !self.stands() && !self.replays() && !self.holds_back()
    }

    // Whether an outbox from which no batch leaves has room for another one.
    fn takes_more(&self, filling: &Filling) -> bool {
        let is_open = self.moves();
        let queued = filling.in_full + filling.bytes.len();
        let room = |kept: &Keeping| kept.state.lock().bytes() + queued < kept::MOST;
        !is_open && self.kept.as_ref().is_some_and(room)
    }

    /// Takes everything queued and passes it to `write`, mostly as one batch: [`PREFIX`] bytes of room,
    /// then an encoded `CommandBatch`. Other writers wait meanwhile. Returns whether there was anything.
    pub(super) fn write_with(
        &self,
        write: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        self.write_locked(&mut self.writing.lock(), None, write)
    }

    /// Like [`Outbox::write_with`], but returns `Ok(false)` if the outbox is not free within `patience`.
    pub(super) fn write_within(
        &self,
        patience: std::time::Duration,
        write: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        let deadline = Instant::now() + patience;
        match self.writer_until(deadline) {
            Some(mut writing) => self.write_locked(&mut writing, Some(deadline), write),
            None => Ok(false),
        }
    }

    // Waits until no thread writes. Returns `None` at the deadline, and if the calling thread has a lock of the outbox:
    // a signal handler that has interrupted this thread there has called `exit`, and the lock is never free again. What
    // this thread could lock once, it does not have.
    fn writer_until(&self, deadline: Instant) -> Option<MutexGuard<'_, Vec<u8>>> {
        let writing = self.writing.try_lock_until(deadline)?;
        drop(self.filling.try_lock_until(deadline)?);
        if let Some(kept) = &self.kept {
            drop(kept.state.try_lock_until(deadline)?);
            drop(kept.record.try_lock_until(deadline)?);
        }
        Some(writing)
    }

    fn write_locked(
        &self,
        writing: &mut Vec<u8>,
        deadline: Option<Instant>,
        mut write: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        self.write_again(deadline, &mut write)?;
        if !self.replays() {
            self.answer(&mut write)?;
            if !self.stands() {
                self.ask(&mut write)?;
            }
        }
        // `filling` is unlocked while a batch is written, so appenders may close more batches meanwhile.
        // The loop ends with the batch that was being filled.
        loop {
            if self.replays() {
                return Ok(false);
            }
            if self.stands() {
                return self.say_that_it_stands(&mut write);
            }
            if self.holds_back() {
                return Ok(false);
            }
            if !self.wait_for_room(deadline) {
                return Ok(false);
            }
            let oldest = self.filling.lock().take_oldest(writing);
            match oldest {
                Oldest::None => return Ok(false),
                Oldest::Filling(first, last) => {
                    // A batch is kept also if writing fails.
                    let result = self.write_first(first, last, writing, &mut write);
                    if let Some(kept) = &self.kept {
                        let (mut state, bytes) = (kept.state.lock(), std::mem::take(writing));
                        state.keep(Batch { first, last, bytes });
                        *writing = state.buffer();
                    }
                    writing.truncate(PREFIX);
                    writing.shrink_to(KEEP_CAPACITY);
                    return result.map(|()| true);
                }
                Oldest::Full(mut batch) => {
                    let Batch { first, last, .. } = batch;
                    let result = self.write_first(first, last, &mut batch.bytes, &mut write);
                    if let Some(kept) = &self.kept {
                        kept.state.lock().keep(batch);
                    }
                    result?;
                }
            }
        }
    }

    // Writes a batch for the first time.
    fn write_first(
        &self,
        first: u64,
        last: u64,
        bytes: &mut Vec<u8>,
        write: &mut impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(node) = self.traced else {
            return write_sealed(first, bytes, write);
        };
        let (begin, length) = (host_ns(), bytes.len() - PREFIX);
        let result = write_sealed(first, bytes, write);
        trace::report(trace::record::Record::Batch(trace::record::Batch {
            node,
            first,
            last,
            bytes: length as u64,
            span: [begin, host_ns()],
        }));
        result
    }

    // Waits while too much is kept. Returns whether a batch may be written: there is a connection, and there was room
    // before the deadline.
    fn wait_for_room(&self, deadline: Option<Instant>) -> bool {
        let Some(kept) = &self.kept else { return true };
        let mut state = kept.state.lock();
        while state.is_full() && self.is_open.load(Ordering::Acquire) {
            match deadline {
                None => kept.changed.wait(&mut state),
                Some(deadline) => {
                    if kept.changed.wait_until(&mut state, deadline).timed_out() {
                        return false;
                    }
                }
            }
        }
        self.is_open.load(Ordering::Acquire)
    }

    /// Records that the worker has applied the commands up to `number`.
    pub(super) fn applied(&self, number: u64) {
        if let Some(node) = self.traced {
            let at = host_ns();
            trace::report(trace::record::Record::Applied { node, number, at });
        }
        let Some(kept) = &self.kept else { return };
        let mut state = kept.state.lock();
        let was_full = state.is_full();
        state.applied(number);
        // Behind its record, the worker is whole.
        kept.record.lock().take_if(|record| number > record.cut);
        if was_full && !state.is_full() {
            kept.changed.notify_all();
        }
    }

    /// Number of the commands that the worker is known to have applied.
    pub(super) fn known_applied(&self) -> u64 {
        let kept = self.kept.as_ref();
        kept.map_or(0, |kept| kept.state.lock().known_applied())
    }

    /// Handles that the connection is gone, until [`Outbox::reopen`] or for good. Threads that wait for room go on.
    pub(super) fn close(&self) {
        if let Some(kept) = &self.kept {
            // Under the lock, so that no thread is between its look and its wait.
            let _state = kept.state.lock();
            self.is_open.store(false, Ordering::Release);
            kept.changed.notify_all();
        }
    }

    /// Waits while the outbox is closed and `may_open` holds. Whoever changes that must call [`Outbox::close`].
    pub(super) fn wait_until_open(&self, may_open: impl Fn() -> bool) {
        let Some(kept) = &self.kept else { return };
        let mut state = kept.state.lock();
        while !self.moves() && may_open() {
            kept.changed.wait(&mut state);
        }
    }

    /// Whether no batch leaves, because the node parks the session.
    pub(super) fn stands(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|kept| kept.stands.load(Ordering::Acquire))
    }

    /// Lets no further batch leave. The next writer tells the worker so. Returns false if the session has no record, so
    /// that it cannot be parked.
    pub(super) fn stand(&self) -> bool {
        if self.filling.lock().record.is_none() {
            return false;
        }
        self.set_standing(true)
    }

    /// Lets batches leave again.
    pub(super) fn go_on(&self) {
        self.set_standing(false);
    }

    fn set_standing(&self, stands: bool) -> bool {
        let Some(kept) = &self.kept else { return false };
        let _state = kept.state.lock();
        kept.must_say.store(stands, Ordering::Relaxed);
        kept.stands.store(stands, Ordering::Release);
        kept.changed.notify_all();
        true
    }

    // Tells the worker, once on each connection, that nothing follows.
    fn say_that_it_stands(
        &self,
        write: &mut impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        let Some(kept) = self.kept.as_ref().filter(|_| self.is_open()) else {
            return Ok(false);
        };
        if !kept.must_say.swap(false, Ordering::Relaxed) {
            return Ok(false);
        }
        let mut batch = vec![0; PREFIX];
        encode_key(STANDS_TAG, WireType::Varint, &mut batch);
        encode_varint(1, &mut batch);
        write(&mut batch).map(|()| true)
    }

    // Returns the record for a worker in the place of one that has applied `cut` commands.
    fn record_at(&self, kept: &Keeping, cut: u64) -> Result<EncodedRecord, Impossible> {
        let batches = if self.stands() {
            let filling = self.filling.lock();
            let record = filling.record.as_ref();
            record.map(|record| super::record::batches(&record.commands(cut)))
        } else {
            // The connection broke before the worker was whole.
            let given = kept.record.lock().take();
            given.filter(|of| of.cut == cut).map(|of| of.batches)
        };
        let batches = batches.ok_or(Impossible::NotRestored)?;
        Ok(EncodedRecord {
            cut,
            batches,
            contents: None,
            is_due: true,
        })
    }

    /// Waits until no thread writes. Other writers wait until the result is dropped.
    pub(super) fn writer(&self) -> MutexGuard<'_, Vec<u8>> {
        self.writing.lock()
    }

    /// Opens the outbox for a new connection to a worker that has applied `position` commands. The next writer first
    /// writes the kept batches again, so the caller does not wait for the connection. Returns the number of their bytes.
    /// `_writer` comes from [`Outbox::writer`].
    ///
    /// # Errors
    /// [`Impossible`]. The outbox stays closed.
    pub(super) fn reopen(
        &self,
        _writer: MutexGuard<'_, Vec<u8>>,
        position: u64,
    ) -> Result<usize, Impossible> {
        let Some(kept) = &self.kept else { return Ok(0) };
        let wants_record = position & WANTS_RECORD != 0;
        let position = position & !WANTS_RECORD;
        let record = match wants_record {
            true => Some(self.record_at(kept, position)?),
            false => None,
        };
        let mut state = kept.state.lock();
        state.skip_to(position)?;
        if wants_record && self.stands() && state.bytes() > 0 {
            // The worker before has applied what the other one does not have.
            return Err(Impossible::NotRestored);
        }
        // The words may have been lost with the connection.
        kept.must_say.store(!wants_record, Ordering::Relaxed);
        let is_decided = kept.holder.load(Ordering::Relaxed) != 0;
        kept.must_answer
            .store(!wants_record && is_decided, Ordering::Relaxed);
        if record.is_some() {
            kept.stands.store(false, Ordering::Release);
            *kept.record.lock() = record;
        }
        kept.is_behind.store(true, Ordering::Relaxed);
        self.is_open.store(true, Ordering::Release);
        kept.changed.notify_all();
        Ok(state.bytes())
    }

    // Writes the kept batches again if a new connection needs them. The caller has locked `writing`.
    fn write_again(
        &self,
        deadline: Option<Instant>,
        write: &mut impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        if !kept.is_behind.load(Ordering::Relaxed) || !self.is_open() {
            return Ok(());
        }
        // Unlocked meanwhile, so that events can be handled.
        let due = kept.record.lock().take_if(|record| record.is_due);
        if let Some(mut record) = due {
            let result = record.write(write);
            record.is_due = result.is_err();
            *kept.record.lock() = Some(record);
            result?;
        }
        let again = kept.state.lock().take();
        let mut result = Ok(());
        for mut batch in again {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                result = Err(io::ErrorKind::TimedOut.into());
            }
            if result.is_ok() {
                // The lock is free meanwhile: the worker may first have to report what it has applied.
                result = write_sealed(batch.first, &mut batch.bytes, write);
            }
            kept.state.lock().put_back(batch);
        }
        kept.is_behind.store(result.is_err(), Ordering::Relaxed);
        result
    }

    /// At the end of the session: tells the worker that nothing follows, after everything queued. Gives up after
    /// `patience` if the outbox is not free.
    pub(super) fn write_farewell(
        &self,
        patience: std::time::Duration,
        mut write: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        let Some(mut writing) = self.writer_until(deadline) else {
            return Ok(());
        };
        self.write_locked(&mut writing, Some(deadline), &mut write)?;
        // If commands are left, the worker must not take this for the end.
        if self.is_open.load(Ordering::Acquire) && self.filling.lock().is_empty() {
            let mut batch = vec![0; PREFIX];
            encode_key(CLOSES_TAG, WireType::Varint, &mut batch);
            encode_varint(1, &mut batch);
            write(&mut batch)?;
        }
        Ok(())
    }

    /// For the flusher: returns true if nothing is queued. The next append then returns
    /// [`Appended::WakeFlusher`].
    pub(super) fn sleep_if_empty(&self) -> bool {
        let mut filling = self.filling.lock();
        filling.flusher_sleeps = filling.bytes.len() == PREFIX;
        filling.flusher_sleeps
    }

    /// Whether there is a connection to write to.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Whether no append has woken the flusher since [`Outbox::sleep_if_empty`] returned true.
    pub(super) fn flusher_sleeps(&self) -> bool {
        self.filling.lock().flusher_sleeps
    }

    /// Number of the last appended command.
    pub(super) fn last(&self) -> u64 {
        self.filling.lock().next - 1
    }
}

/// The batch that leaves next.
#[derive(Debug)]
enum Oldest {
    None,
    Full(Batch),
    // The batch that was still being filled, with the numbers of its first and last command.
    Filling(u64, u64),
}

impl Filling {
    // Notes a command that gets the next number.
    fn note(&mut self, command: &impl EncodeCommand) {
        if let (Some(record), Some(kind)) = (&mut self.record, command.for_record()) {
            let oldest = self.full.front().map_or(self.first, |oldest| oldest.first);
            record.note(self.next, kind, oldest - 1);
        }
    }

    fn is_empty(&self) -> bool {
        self.full.is_empty() && self.bytes.len() == PREFIX
    }

    // Takes the oldest batch under one lock. With two, an append between them could close the batch that
    // is being filled, and a newer batch would leave first. `writing` receives the batch that was being
    // filled; its memory becomes the next batch's.
    fn take_oldest(&mut self, writing: &mut Vec<u8>) -> Oldest {
        if let Some(batch) = self.full.pop_front() {
            self.in_full -= batch.bytes.len();
            return Oldest::Full(batch);
        }
        if self.bytes.len() == PREFIX {
            return Oldest::None;
        }
        std::mem::swap(&mut self.bytes, writing);
        let first = std::mem::replace(&mut self.first, self.next);
        Oldest::Filling(first, self.next - 1)
    }

    fn close_batch(&mut self) {
        let bytes = std::mem::replace(&mut self.bytes, vec![0; PREFIX]);
        let first = std::mem::replace(&mut self.first, self.next);
        self.in_full += bytes.len();
        let last = self.next - 1;
        self.full.push_back(Batch { first, last, bytes });
    }
}

// Writes a batch with the number of its first command, which the buffer then loses again.
fn write_sealed(
    first: u64,
    bytes: &mut Vec<u8>,
    write: &mut impl FnMut(&mut [u8]) -> io::Result<()>,
) -> io::Result<()> {
    let length = bytes.len();
    seal(first, bytes);
    let result = write(bytes);
    bytes.truncate(length);
    result
}

// Completes a batch with the number of its first command.
fn seal(first: u64, batch: &mut Vec<u8>) {
    encode_key(FIRST_TAG, WireType::Varint, batch);
    encode_varint(first, batch);
}

#[cfg(test)]
mod tests;
