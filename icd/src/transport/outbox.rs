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

use std::collections::VecDeque;
use std::io;

use causeway_proto::frame::PREFIX;
use causeway_proto::limits::{BATCH_TARGET, MAX_BATCH};
use causeway_proto::status::WireError;
use parking_lot::Mutex;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use super::encode::EncodeCommand;

/// Once this many bytes are queued, the appending thread also writes them. That is one packet of the
/// loopback interface, and each packet costs the sender several microseconds. Smaller amounts leave with
/// the flusher's next tick.
pub(super) const WRITE_AT: usize = 64 << 10;

/// Capacity that a buffer keeps after one huge command has grown it.
const KEEP_CAPACITY: usize = 2 * BATCH_TARGET;

const COMMANDS_TAG: u32 = 1;
const FIRST_TAG: u32 = 2;

/// Buffers for a session's outgoing commands.
#[derive(Debug)]
pub(super) struct Outbox {
    filling: Mutex<Filling>,
    writing: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct Filling {
    // Full batches, each with the number of its first command. If there are any, `bytes` is not empty.
    full: VecDeque<(u64, Vec<u8>)>,
    // Room for the frame's prefix, followed by commands.
    bytes: Vec<u8>,
    first: u64,
    next: u64,
    flusher_sleeps: bool,
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
    pub(super) fn new() -> Outbox {
        Outbox {
            filling: Mutex::new(Filling {
                full: VecDeque::new(),
                bytes: vec![0; PREFIX],
                first: 1,
                next: 1,
                flusher_sleeps: false,
            }),
            writing: Mutex::new(vec![0; PREFIX]),
        }
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
            if may_refuse {
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
        filling.next += 1;
        if filling.bytes.len() - PREFIX >= WRITE_AT {
            Ok(Appended::Write)
        } else if wake && std::mem::take(&mut filling.flusher_sleeps) {
            Ok(Appended::WakeFlusher)
        } else {
            Ok(Appended::Queued)
        }
    }

    /// Takes everything queued and passes it to `write`, mostly as one batch: [`PREFIX`] bytes of room,
    /// then an encoded `CommandBatch`. Other writers wait meanwhile. Returns whether there was anything.
    pub(super) fn write_with(
        &self,
        write: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        self.write_locked(&mut self.writing.lock(), write)
    }

    /// Like [`Outbox::write_with`], but returns `Ok(false)` if another writer is not done within
    /// `patience`.
    pub(super) fn write_within(
        &self,
        patience: std::time::Duration,
        write: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        match self.writing.try_lock_for(patience) {
            Some(mut writing) => self.write_locked(&mut writing, write),
            None => Ok(false),
        }
    }

    fn write_locked(
        &self,
        writing: &mut Vec<u8>,
        mut write: impl FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<bool> {
        // `filling` is unlocked while a batch is written, so appenders may close more batches meanwhile.
        // The loop ends with the batch that was being filled.
        loop {
            let oldest = self.filling.lock().take_oldest(writing);
            let first = match oldest {
                Oldest::None => return Ok(false),
                Oldest::Filling(first) => first,
                Oldest::Full(first, mut batch) => {
                    seal(first, &mut batch);
                    write(&mut batch)?;
                    continue;
                }
            };
            seal(first, writing);
            let result = write(writing);
            writing.truncate(PREFIX);
            writing.shrink_to(KEEP_CAPACITY);
            return result.map(|()| true);
        }
    }

    /// For the flusher: returns true if nothing is queued. The next append then returns
    /// [`Appended::WakeFlusher`].
    pub(super) fn sleep_if_empty(&self) -> bool {
        let mut filling = self.filling.lock();
        filling.flusher_sleeps = filling.bytes.len() == PREFIX;
        filling.flusher_sleeps
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

/// The batch that leaves next, with the number of its first command.
#[derive(Debug, PartialEq, Eq)]
enum Oldest {
    None,
    Full(u64, Vec<u8>),
    // The batch that was still being filled.
    Filling(u64),
}

impl Filling {
    // Takes the oldest batch under one lock. With two, an append between them could close the batch that
    // is being filled, and a newer batch would leave first. `writing` receives the batch that was being
    // filled; its memory becomes the next batch's.
    fn take_oldest(&mut self, writing: &mut Vec<u8>) -> Oldest {
        if let Some((first, batch)) = self.full.pop_front() {
            return Oldest::Full(first, batch);
        }
        if self.bytes.len() == PREFIX {
            return Oldest::None;
        }
        std::mem::swap(&mut self.bytes, writing);
        Oldest::Filling(std::mem::replace(&mut self.first, self.next))
    }

    fn close_batch(&mut self) {
        let batch = std::mem::replace(&mut self.bytes, vec![0; PREFIX]);
        let first = std::mem::replace(&mut self.first, self.next);
        self.full.push_back((first, batch));
    }
}

// Completes a batch with the number of its first command.
fn seal(first: u64, batch: &mut Vec<u8>) {
    encode_key(FIRST_TAG, WireType::Varint, batch);
    encode_varint(first, batch);
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::command::{CommandBatch, CreateUserEvent, command::Kind};
    use prost::Message;

    fn command(event: u64) -> Kind {
        Kind::CreateUserEvent(CreateUserEvent { event })
    }

    fn take(outbox: &Outbox) -> Option<CommandBatch> {
        let mut batch = None;
        outbox
            .write_with(|bytes| {
                batch = Some(CommandBatch::decode(&bytes[PREFIX..]).unwrap());
                Ok(())
            })
            .unwrap();
        batch
    }

    #[test]
    fn batches_continue_each_others_numbers() {
        let outbox = Outbox::new();
        assert_eq!(take(&outbox), None);
        for round in 0..3 {
            for event in 0..5 {
                assert_eq!(
                    outbox.append(&command(event), true, true).unwrap(),
                    Appended::Queued
                );
            }
            let batch = take(&outbox).unwrap();
            assert_eq!(batch.first, 1 + round * 5);
            assert_eq!(batch.commands.len(), 5);
            assert_eq!(batch.commands[4].kind, Some(command(4)));
        }
        assert_eq!(outbox.last(), 15);
    }

    #[test]
    fn a_sleeping_flusher_is_woken_once() {
        let outbox = Outbox::new();
        assert!(outbox.sleep_if_empty());
        assert_eq!(
            outbox.append(&command(1), true, true).unwrap(),
            Appended::WakeFlusher
        );
        assert_eq!(
            outbox.append(&command(2), true, true).unwrap(),
            Appended::Queued
        );
        assert!(!outbox.sleep_if_empty());
    }

    #[test]
    fn who_writes_next_leaves_the_flusher_to_the_next_who_does_not() {
        let outbox = Outbox::new();
        assert!(outbox.sleep_if_empty());
        let quietly = outbox.append(&command(1), true, false);
        assert_eq!(quietly.unwrap(), Appended::Queued);
        assert!(outbox.flusher_sleeps());
        let appended = outbox.append(&command(2), true, true);
        assert_eq!(appended.unwrap(), Appended::WakeFlusher);
    }

    #[test]
    fn what_is_too_large_is_refused_before_anything_is_queued() {
        struct Huge;
        impl EncodeCommand for Huge {
            fn encoded_len(&self) -> usize {
                MAX_BATCH
            }
            fn encode(&self, _: &mut Vec<u8>) {
                unreachable!("must be refused by its length")
            }
        }
        let outbox = Outbox::new();
        assert_eq!(
            outbox.append(&Huge, true, true),
            Err(WireError::TooLarge(MAX_BATCH))
        );
        assert_eq!(take(&outbox), None);
    }

    #[test]
    fn a_batch_stops_at_its_target_unless_the_caller_may_not_wait() {
        struct Large;
        impl EncodeCommand for Large {
            fn encoded_len(&self) -> usize {
                BATCH_TARGET - 100
            }
            fn encode(&self, out: &mut Vec<u8>) {
                out.resize(out.len() + BATCH_TARGET - 100, 0);
            }
        }
        let outbox = Outbox::new();
        assert_eq!(outbox.append(&Large, true, true).unwrap(), Appended::Write);
        assert_eq!(outbox.append(&Large, true, true).unwrap(), Appended::Full);
        assert_eq!(outbox.append(&Large, false, true).unwrap(), Appended::Write);
    }

    #[test]
    fn who_may_not_wait_is_never_refused_and_all_leaves_in_order() {
        struct Half;
        const LENGTH: usize = MAX_BATCH / 2;
        impl EncodeCommand for Half {
            fn encoded_len(&self) -> usize {
                LENGTH
            }
            fn encode(&self, out: &mut Vec<u8>) {
                out.resize(out.len() + LENGTH, 0);
            }
        }
        let outbox = Outbox::new();
        outbox.append(&command(1), true, true).unwrap();
        for _ in 0..3 {
            assert_eq!(outbox.append(&Half, false, true).unwrap(), Appended::Write);
        }
        assert_eq!(
            outbox.append(&command(2), true, true).unwrap(),
            Appended::Full
        );
        assert!(!outbox.sleep_if_empty());
        let mut firsts = Vec::new();
        let written = outbox.write_with(|bytes| {
            assert!(bytes.len() - PREFIX <= MAX_BATCH);
            // The number is one byte long here, and the last byte of the batch.
            firsts.push(bytes.last().copied());
            Ok(())
        });
        assert!(written.unwrap());
        assert_eq!(firsts, [Some(1), Some(3), Some(4)]);
        assert_eq!(outbox.last(), 4);
        assert!(outbox.sleep_if_empty());
    }

    #[test]
    fn what_is_closed_while_a_writer_looks_leaves_before_what_is_newer() {
        // Commands so large that every second one closes a batch.
        struct Half;
        const LENGTH: usize = MAX_BATCH / 2;
        impl EncodeCommand for Half {
            fn encoded_len(&self) -> usize {
                LENGTH
            }
            fn encode(&self, out: &mut Vec<u8>) {
                out.resize(out.len() + LENGTH, 0);
            }
        }
        // Each bit decides whether the appender or the writer gets the lock next.
        for turns in 0u32..1 << 4 {
            let outbox = Outbox::new();
            let (mut writing, mut firsts) = (vec![0; PREFIX], Vec::new());
            let mut take = |outbox: &Outbox| {
                let oldest = outbox.filling.lock().take_oldest(&mut writing);
                writing.truncate(PREFIX);
                match oldest {
                    Oldest::None => false,
                    Oldest::Full(first, _) | Oldest::Filling(first) => {
                        firsts.push(first);
                        true
                    }
                }
            };
            for turn in 0..4 {
                if turns & (1 << turn) == 0 {
                    outbox.append(&Half, false, true).unwrap();
                } else {
                    take(&outbox);
                }
            }
            while take(&outbox) {}
            let appended: Vec<u64> = (1..=outbox.last()).collect();
            assert_eq!(firsts, appended, "turns {turns:#b}");
        }
    }
}
