//! The sending side of a lane. The lane's own thread uses it, and at times another thread for a moment.
//!
//! The lane's thread sends the items of the queue. A message or short read needs no queue if nothing
//! waits before it. The calling thread then sends as much as the stream takes without waiting, and no
//! thread has to wake up. The lane's thread sends the rest. Measured over TCP with PoCL on two cores: if the
//! lane's thread sends all, a read of 64 or 128 KiB takes 1.1 to 1.2 times as long.
//!
//! Invariant: the bytes of one message are contiguous, because the rest of a message goes
//! before anything else. Only the lane's own thread waits. Only that thread sends where the
//! client has set a rate limit or compression.
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use causeway_lane::Stream;
use causeway_proto::bulk::{HEADER, Header};
use parking_lot::Mutex;

use super::memory::{send_bytes, send_some};
use super::outgoing::{Chunk, Look, Outgoing};

/// The sending side of a lane. See the module.
pub(super) struct LaneWriter {
    stream: Arc<Stream>,
    // Rest of a message that was sent in part. The sending thread holds this lock.
    rest: Mutex<Option<Rest>>,
    // Whether `rest` is set; changed under its lock.
    has_rest: AtomicBool,
    gone: AtomicBool,
    // Whether the client has set a rate or compression; only the lane's thread applies these.
    by_thread: AtomicBool,
}

/// A header and its payload.
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) bytes: Bytes,
}

impl Chunk for Message {
    fn header(&self) -> Header {
        self.header
    }

    fn put(&self, stream: &Stream, before: &[u8], _: &mut Vec<u8>) -> io::Result<()> {
        send_bytes(stream, before, &self.bytes)
    }

    fn sent(self: Box<Self>) {}
}

/// A message of which `sent` bytes were sent.
struct Rest {
    message: Message,
    sent: usize,
}

impl LaneWriter {
    /// Makes the lane writer of a stream on which nothing is being sent.
    pub(super) fn new(stream: Arc<Stream>) -> LaneWriter {
        LaneWriter {
            stream,
            rest: Mutex::default(),
            has_rest: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            by_thread: AtomicBool::new(false),
        }
    }

    /// From now on only the lane's thread sends.
    pub(super) fn leave_to_thread(&self) {
        self.by_thread.store(true, Ordering::Relaxed);
    }

    /// The stream of the lane.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Marks the lane as closed. Returns whether it was closed before.
    pub(super) fn end(&self) -> bool {
        self.gone.swap(true, Ordering::AcqRel)
    }

    /// Returns what the lane's thread has to know before it takes an item from the queue.
    pub(super) fn look(&self) -> Look {
        if self.gone.load(Ordering::Acquire) {
            Look::Gone
        } else if self.has_rest.load(Ordering::Acquire) {
            Look::Own
        } else {
            Look::Free
        }
    }

    /// Calls `send` for the lane's thread, after sending the rest of any message that was begun.
    ///
    /// # Errors
    /// The stream's error.
    pub(super) fn in_turn(&self, send: impl FnOnce(&Stream) -> io::Result<()>) -> io::Result<()> {
        let mut rest = self.rest.lock();
        if let Some(Rest { message, sent }) = rest.take() {
            self.has_rest.store(false, Ordering::Release);
            let Message { header, bytes } = message;
            let of_header = sent.min(HEADER);
            let of_bytes = sent - of_header;
            send_bytes(
                &self.stream,
                &header.encode()[of_header..],
                &bytes[of_bytes..],
            )?;
        }
        send(&self.stream)
    }

    /// Sends on the calling thread, without waiting. Returns whether a rest is left, of which
    /// the lane's thread must be notified. Returns the message as `Err` if the lane is closed
    /// or full, or another thread is sending.
    pub(super) fn send_at_once(&self, message: Message) -> Result<bool, Message> {
        if self.by_thread.load(Ordering::Relaxed) {
            return Err(message);
        }
        let Some(mut rest) = self.rest.try_lock() else {
            return Err(message);
        };
        if rest.is_some() || self.gone.load(Ordering::Acquire) {
            return Err(message);
        }
        match send_some(&self.stream, [&message.header.encode(), &message.bytes]) {
            Ok(0) => Err(message),
            Ok(sent) if sent == HEADER + message.bytes.len() => Ok(false),
            Ok(sent) => {
                *rest = Some(Rest { message, sent });
                self.has_rest.store(true, Ordering::Release);
                Ok(true)
            }
            Err(error) => {
                // The thread that reads the lane notices the end and reports it.
                tracing::debug!(%error, "a bulk connection broke");
                self.stream.shut_down();
                Ok(false)
            }
        }
    }
}

/// The lane writers of one route's lanes.
#[derive(Default)]
pub(super) struct LaneWriters(Mutex<Vec<Arc<LaneWriter>>>);

impl LaneWriters {
    /// Adds an lane writer.
    pub(super) fn add(&self, writer: Arc<LaneWriter>) {
        self.0.lock().push(writer);
    }

    /// Removes the lane writer of a closed lane. Its connection closes when both threads have ended.
    pub(super) fn remove(&self, writer: &LaneWriter) {
        self.0
            .lock()
            .retain(|other| !std::ptr::eq(Arc::as_ptr(other), writer));
    }

    /// Sends on a free lane if `queue`, the queue of these lanes, is empty. `Err` returns the message,
    /// which the caller then queues.
    pub(super) fn send_at_once(
        &self,
        queue: &Outgoing,
        mut message: Message,
    ) -> Result<(), Message> {
        if !queue.is_empty() {
            return Err(message);
        }
        // The lock is released before each send, so that a slow send delays no other thread.
        for place in 0.. {
            let Some(writer) = self.0.lock().get(place).map(Arc::clone) else {
                break;
            };
            match writer.send_at_once(message) {
                Ok(has_rest) => {
                    if has_rest {
                        queue.look();
                    }
                    return Ok(());
                }
                Err(back) => message = back,
            }
        }
        Err(message)
    }

    /// Ends all lanes.
    pub(super) fn shut_down(&self) {
        for writer in self.0.lock().drain(..) {
            writer.stream().shut_down();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::bulk::Kind;
    use causeway_proto::id::EventId;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (LaneWriter, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        (LaneWriter::new(Arc::new(Stream::from(near))), far)
    }

    fn read(transfer: u64, length: usize) -> Message {
        let header = Header {
            kind: Kind::Data,
            transfer: EventId(transfer),
            offset: 0,
            length: length as u32,
        };
        Message {
            header,
            bytes: (0..length)
                .map(|i| (i * 7 + i / 251) as u8)
                .collect::<Bytes>(),
        }
    }

    fn expect(far: &mut TcpStream, transfer: u64, length: usize) {
        let mut header = [0; HEADER];
        far.read_exact(&mut header).unwrap();
        let header = Header::decode(&header).unwrap();
        assert_eq!(
            (header.transfer, header.length),
            (EventId(transfer), length as u32)
        );
        let mut got = vec![0; length];
        far.read_exact(&mut got).unwrap();
        assert!(got == read(transfer, length).bytes);
    }

    #[test]
    fn what_the_stream_does_not_take_goes_before_all_else() {
        const LENGTH: usize = 1 << 20;
        let (writer, mut far) = pair();
        let mut last = 0;
        // Nobody reads, so the stream fills up.
        while writer.look() == Look::Free {
            last += 1;
            match writer.send_at_once(read(last, LENGTH)) {
                Ok(rest) => assert_eq!(rest, writer.look() == Look::Own),
                // The stream was full exactly at the end of a message.
                Err(refused) => {
                    assert_eq!(refused.header.transfer, EventId(last));
                    last -= 1;
                    break;
                }
            }
        }
        if writer.look() == Look::Own {
            assert!(
                writer.send_at_once(read(100, LENGTH)).is_err(),
                "in its middle"
            );
        }
        let reader = std::thread::spawn(move || {
            for transfer in 1..=last {
                expect(&mut far, transfer, LENGTH);
            }
            let mut word = [0; 4];
            far.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"next");
            far
        });
        writer
            .in_turn(|mut stream| stream.write_all(b"next"))
            .unwrap();
        assert_eq!(writer.look(), Look::Free);
        let mut far = reader.join().unwrap();
        assert!(matches!(writer.send_at_once(read(7, 5000)), Ok(false)));
        expect(&mut far, 7, 5000);
    }

    #[test]
    fn a_lane_that_is_over_takes_nothing() {
        let (writer, far) = pair();
        assert!(!writer.end());
        assert!(writer.end());
        assert!(writer.send_at_once(read(1, 100)).is_err());
        assert_eq!(writer.look(), Look::Gone);
        drop(far);
    }

    #[test]
    fn who_sends_keeps_others_out() {
        let (writer, _far) = pair();
        let held = writer.in_turn(|_| {
            assert!(writer.send_at_once(read(1, 100)).is_err());
            Ok(())
        });
        held.unwrap();
    }
}
