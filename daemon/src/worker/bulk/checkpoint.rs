//! Sends a checkpoint to the client that holds it, in turns with the bytes of reads.
//!
//! The bytes are read from the checkpoint's file by the lane that sends them. Invariant: the end is told once, when all bytes
//! were handed to sockets.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_lane::Stream;
use causeway_proto::bulk::{CHECKPOINT, Header};
use causeway_proto::limits::BULK_CHUNK;

use super::engine::Engine;
use super::memory::send_bytes;
use super::message::{Chunk, Message, data};
use super::outgoing::Divisible;

const CHUNK: u64 = BULK_CHUNK as u64;

/// A checkpoint on its way.
struct Sending {
    file: File,
    length: u64,
    /// Bytes before this offset were taken by lanes.
    taken: AtomicU64,
    sent: AtomicU64,
    done: Box<dyn Fn() + Send + Sync>,
}

impl Engine {
    /// Sends the `length` bytes of a checkpoint to the client. Nobody changes the file. Calls `done` when all bytes were
    /// handed to sockets, on a thread that must not wait.
    pub(crate) fn send_checkpoint(
        &self,
        file: File,
        length: u64,
        done: Box<dyn Fn() + Send + Sync>,
    ) {
        self.beside.note_transfer();
        let sending = Sending {
            file,
            length,
            taken: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            done,
        };
        self.outgoing.read(Arc::new(sending)).discard();
    }
}

impl Divisible for Sending {
    fn take_chunk(self: Arc<Self>) -> (Option<Box<dyn Chunk>>, bool) {
        let offset = self.taken.fetch_add(CHUNK, Ordering::Relaxed);
        let Some(left) = self.length.checked_sub(offset).filter(|left| *left > 0) else {
            return (None, false);
        };
        let part = Part {
            sending: self,
            offset,
            length: left.min(CHUNK) as u32,
        };
        (Some(Box::new(part)), left > CHUNK)
    }

    fn unqueued(&self) {}
}

/// A part of a checkpoint on its way to a lane.
struct Part {
    sending: Arc<Sending>,
    offset: u64,
    length: u32,
}

impl Chunk for Part {
    fn header(&self) -> Header {
        data(CHECKPOINT, self.offset, self.length)
    }

    fn put(
        &self,
        stream: &Stream,
        before: &[u8],
        skip: u64,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        scratch.clear();
        scratch.resize((u64::from(self.length) - skip) as usize, 0);
        let file = &self.sending.file;
        file.read_exact_at(scratch, self.offset + skip)?;
        send_bytes(stream, before, scratch)
    }

    fn sent(&mut self) {
        let sending = &self.sending;
        let length = u64::from(self.length);
        if sending.sent.fetch_add(length, Ordering::AcqRel) + length == sending.length {
            (sending.done)();
        }
    }

    fn copied(&self, _: bool) -> Option<Message> {
        // The file's memory waits for the acknowledgement. There is one file at a time.
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_parts_are_the_whole_file_and_the_end_comes_once() {
        let bytes: Vec<u8> = (0..2 * BULK_CHUNK + 5).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let ends = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&ends);
        let sending = Arc::new(Sending {
            file,
            length: bytes.len() as u64,
            taken: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            done: Box::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = Stream::from(listener.accept().unwrap().0);
        let (mut got, mut more) = (Vec::new(), true);
        while more {
            let (part, is_more) = Arc::clone(&sending).take_chunk();
            let mut part = part.unwrap();
            let header = part.header();
            assert_eq!(header.transfer, CHECKPOINT);
            assert_eq!(ends.load(Ordering::Relaxed), 0);
            // As after a break: the last bytes of each part are sent.
            let mut piece = vec![0; header.length as usize];
            piece[..3].copy_from_slice(&bytes[header.offset as usize..][..3]);
            let mut receiving = far.try_clone().unwrap();
            let received = std::thread::spawn(move || {
                receiving.read_exact(&mut piece[3..]).unwrap();
                piece
            });
            part.put(&near, &[], 3, &mut Vec::new()).unwrap();
            got.extend(received.join().unwrap());
            part.sent();
            more = is_more;
        }
        assert!(got == bytes);
        assert_eq!(ends.load(Ordering::Relaxed), 1);
        assert!(Arc::clone(&sending).take_chunk().0.is_none());
    }
}
