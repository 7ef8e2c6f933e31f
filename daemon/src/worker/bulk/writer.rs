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

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use causeway_lane::{Condition, Impossible, Kept, Packer, Reservation, Resumed, Stream};
use causeway_proto::bulk::{HEADER, Header};
use parking_lot::Mutex;

use super::incoming::LaneError;
use super::memory::send_some;
use super::message::{Chunk, Message};
use super::outgoing::{Look, Outgoing};

/// With more bytes than this that the other end has not acknowledged, a lane sends no further data. A receiver
/// acknowledges each MiB, so this is far more than a connection has under way.
const UNACKNOWLEDGED: u64 = 32 << 20;

/// The sending side of a lane. See the module.
pub(super) struct LaneWriter {
    number: u8,
    stream: Arc<Stream>,
    // Rest of a message that was sent in part. The sending thread holds this lock.
    rest: Mutex<Option<Rest>>,
    // Whether `rest` is set; changed under its lock.
    has_rest: AtomicBool,
    gone: AtomicBool,
    // Whether the client has set a rate or compression; only the lane's thread applies these.
    by_thread: AtomicBool,
    // Used only if the stream outlives its connections.
    kept: Kept<Sent>,
    // Whether the lane's thread waits, or is about to, until more is acknowledged.
    is_full: AtomicBool,
}

/// What was sent and may have to be sent again.
enum Sent {
    Message(Message),
    /// A chunk whose memory waits for the acknowledgement.
    Chunk(Box<dyn Chunk>),
    /// Header and bytes of a compressed chunk.
    Packed(Vec<u8>),
}

impl Sent {
    // Sends the item without its first `skip` bytes.
    fn put_again(&self, mut stream: &Stream, skip: u64, scratch: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Sent::Message(message) => message.send_from(stream, skip as usize),
            Sent::Packed(bytes) => stream.write_all(&bytes[skip as usize..]),
            Sent::Chunk(chunk) => {
                let of_header = skip.min(HEADER as u64);
                let header = &chunk.header().encode()[of_header as usize..];
                chunk.put(stream, header, skip - of_header, scratch)
            }
        }
    }
}

/// A message of which `sent` bytes were sent.
struct Rest {
    message: Message,
    sent: usize,
}

impl LaneWriter {
    /// Makes the lane writer of a stream on which nothing is being sent.
    pub(super) fn new(number: u8, stream: Arc<Stream>) -> LaneWriter {
        LaneWriter {
            number,
            stream,
            rest: Mutex::default(),
            has_rest: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            by_thread: AtomicBool::new(false),
            kept: Kept::default(),
            is_full: AtomicBool::new(false),
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

    /// The lane's number.
    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// Marks the lane as closed. Returns whether it was closed before.
    pub(super) fn end(&self) -> bool {
        self.gone.swap(true, Ordering::AcqRel)
    }

    /// Drops what is kept, because the lane has ended. The caller's thread may call the driver.
    pub(super) fn forget(&self) {
        self.kept.clear();
    }

    /// Processes an acknowledgement of the other end. Returns whether the lane's thread has to look again, because it
    /// waits for acknowledgements.
    ///
    /// # Errors
    /// [`Impossible`] if so many bytes were not sent.
    pub(super) fn acknowledged(&self, position: u64) -> Result<bool, Impossible> {
        if self.stream.resumed().is_none() {
            return Ok(false);
        }
        self.kept.acknowledge(position)?;
        Ok(!self.has_much_unacknowledged() && self.is_full.swap(false, Ordering::SeqCst))
    }

    fn has_much_unacknowledged(&self) -> bool {
        self.kept.unacknowledged() > UNACKNOWLEDGED
    }

    // Whether the lane's thread must wait for acknowledgements. The flag is set before the look, so the
    // acknowledgement that changes the answer also sees the flag.
    fn looks_full(&self) -> bool {
        self.has_much_unacknowledged() && {
            self.is_full.store(true, Ordering::SeqCst);
            self.has_much_unacknowledged()
        }
    }

    /// Returns what the lane's thread has to know before it takes an item from the queue.
    pub(super) fn look(&self) -> Look {
        if self.gone.load(Ordering::Acquire) {
            return Look::Gone;
        }
        match self.stream.resumed().map(Resumed::condition) {
            Some(Condition::Closed) => Look::Gone,
            Some(Condition::Broken) => Look::Broken,
            Some(Condition::Behind) => Look::Own,
            _ if self.has_rest.load(Ordering::Acquire) => Look::Own,
            _ if self.looks_full() => Look::Full,
            _ => Look::Free,
        }
    }

    /// Sends what the other end of a new connection lacks, and the rest of any message that was begun. Returns
    /// whether there was a new connection.
    ///
    /// # Errors
    /// The stream's error, or [`Impossible`].
    pub(super) fn catch_up(&self, scratch: &mut Vec<u8>) -> Result<bool, LaneError> {
        let mut rest = self.rest.lock();
        let Some(resumed) = self.stream.resumed() else {
            self.send_rest(&mut rest)?;
            return Ok(false);
        };
        if resumed.condition() != Condition::Behind {
            self.send_rest(&mut rest)?;
            return Ok(false);
        }
        // Fails, as nothing may be sent yet, but keeps the message that was begun.
        self.send_rest(&mut rest)?;
        resumed.write_again(&self.kept, |stream, sent, skip| {
            sent.put_again(stream, skip, scratch)
        })?;
        Ok(true)
    }

    fn send_rest(&self, rest: &mut Option<Rest>) -> io::Result<()> {
        let Some(Rest { message, sent }) = rest.take() else {
            return Ok(());
        };
        self.has_rest.store(false, Ordering::Release);
        let done = message.send_from(&self.stream, sent);
        if self.stream.resumed().is_none() {
            return done;
        }
        // The bytes were reserved when the message was begun.
        self.kept.adopt(message.length(), Sent::Message(message));
        Ok(())
    }

    /// Sends a header for the lane's thread, after the rest of any message that was begun.
    ///
    /// # Errors
    /// The stream's error.
    pub(super) fn send_header(&self, header: Header) -> io::Result<()> {
        let mut rest = self.rest.lock();
        self.send_rest(&mut rest)?;
        let bytes = Bytes::new();
        let message = Message { header, bytes };
        if self.stream.resumed().is_none() {
            return message.send_from(&self.stream, 0);
        }
        let reserved = self.kept.reserve(message.length());
        // After a break the kept message is sent again.
        let _ = message.send_from(&self.stream, 0);
        reserved.keep(Sent::Message(message));
        Ok(())
    }

    /// Sends a chunk for the lane's thread, after the rest of any message that was begun. `leaves`: the bytes leave
    /// this machine.
    ///
    /// # Errors
    /// The stream's error.
    pub(super) fn send_chunk(
        &self,
        mut chunk: Box<dyn Chunk>,
        packer: Option<&mut Packer>,
        leaves: bool,
        scratch: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut rest = self.rest.lock();
        self.send_rest(&mut rest)?;
        let header = chunk.header();
        let mut stream: &Stream = &self.stream;
        let packer = packer.and_then(|packer| {
            let wants = packer.wants(header.transfer.0, header.length.into());
            wants.then_some(packer)
        });
        let packed = packer.map(|packer| {
            packer.pack(
                |packed| header.encode_packed(packed),
                |raw| chunk.put(raw, &[], 0, scratch),
            )
        });
        let packed = packed.transpose()?;
        let message = HEADER as u64 + u64::from(header.length);
        let length = (packed.as_ref()).map_or(message, |packed| packed.bytes.len() as u64);
        let is_kept = stream.resumed().is_some();
        let reserved = is_kept.then(|| self.kept.reserve(length));
        let done = match &packed {
            Some(packed) => stream.write_all(packed.bytes),
            None => chunk.put(stream, &header.encode(), 0, scratch),
        };
        let Some(reserved) = reserved else {
            drop(rest);
            done?;
            chunk.sent();
            return Ok(());
        };
        // After a break the kept item is sent again, so an error ends nothing.
        chunk.sent();
        let sent = match packed {
            Some(packed) if packed.is_smaller => Sent::Packed(packed.bytes.to_vec()),
            _ => match chunk.copied(leaves) {
                Some(message) => Sent::Message(message),
                None => Sent::Chunk(chunk),
            },
        };
        reserved.keep(sent);
        Ok(())
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
        if rest.is_some() || self.gone.load(Ordering::Acquire) || self.has_much_unacknowledged() {
            return Err(message);
        }
        let reserved = (self.stream.resumed()).map(|_| self.kept.reserve(message.length()));
        match send_some(&self.stream, [&message.header.encode(), &message.bytes]) {
            Ok(0) => {
                reserved.into_iter().for_each(Reservation::release);
                Err(message)
            }
            Ok(sent) if sent == HEADER + message.bytes.len() => {
                if let Some(reserved) = reserved {
                    reserved.keep(Sent::Message(message));
                }
                Ok(false)
            }
            Ok(sent) => {
                // The reservation lasts until `send_rest` adopts it.
                *rest = Some(Rest { message, sent });
                self.has_rest.store(true, Ordering::Release);
                Ok(true)
            }
            Err(_) if reserved.is_some() => {
                // The lane is broken, and nothing of the message was sent. Another lane may take it.
                reserved.into_iter().for_each(Reservation::release);
                Err(message)
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

    /// Finds a lane by its number, among those that can be resumed.
    pub(super) fn resumed(&self, number: u8) -> Option<Arc<LaneWriter>> {
        let writers = self.0.lock();
        let found = (writers.iter())
            .find(|writer| writer.number() == number && writer.stream().resumed().is_some());
        found.map(Arc::clone)
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
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (LaneWriter, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        (LaneWriter::new(0, Arc::new(Stream::from(near))), far)
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
            let mut word = [0; HEADER];
            far.read_exact(&mut word).unwrap();
            assert_eq!(Header::decode(&word), Ok(Header::cancel(EventId(100), 0)));
            far
        });
        let next = Header::cancel(EventId(100), 0);
        writer.send_header(next).unwrap();
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
        let _sending = writer.rest.lock();
        assert!(writer.send_at_once(read(1, 100)).is_err());
    }

    fn resumed() -> (LaneWriter, TcpStream) {
        let (near, far) = sockets();
        let stream = Stream::Resumed(Box::new(Resumed::new(near.into(), |_| {})));
        (LaneWriter::new(0, Arc::new(stream)), far)
    }

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, far)
    }

    #[test]
    fn a_lane_whose_bytes_are_not_acknowledged_sends_no_more() {
        const LENGTH: usize = 1 << 20;
        let (writer, far) = resumed();
        let reading = std::thread::spawn(move || std::io::copy(&mut &far, &mut std::io::sink()));
        let (mut scratch, mut sent) = (Vec::new(), 0);
        while writer.look() == Look::Free {
            let chunk = Box::new(read(1, LENGTH));
            writer.send_chunk(chunk, None, false, &mut scratch).unwrap();
            sent += (HEADER + LENGTH) as u64;
        }
        assert_eq!(writer.look(), Look::Full);
        assert!(sent > UNACKNOWLEDGED && sent < UNACKNOWLEDGED + 2 * LENGTH as u64);
        assert!(writer.send_at_once(read(2, 100)).is_err());
        writer.send_header(Header::cancel(EventId(9), 0)).unwrap();
        assert!(!writer.acknowledged(100).unwrap());
        assert_eq!(writer.look(), Look::Full);
        assert!(writer.acknowledged(sent / 2).unwrap());
        assert!(!writer.acknowledged(sent).unwrap());
        assert_eq!(writer.look(), Look::Free);
        assert!(matches!(writer.send_at_once(read(2, 100)), Ok(false)));
        writer.stream().shut_down();
        reading.join().unwrap().unwrap();
    }

    #[test]
    fn a_new_connection_gets_what_the_other_end_lacks() {
        let length = 3 * (HEADER + 100) + HEADER;
        for have in 0..=length {
            let (writer, far) = resumed();
            let mut scratch = Vec::new();
            assert!(matches!(writer.send_at_once(read(1, 100)), Ok(false)));
            writer
                .send_chunk(Box::new(read(2, 100)), None, false, &mut scratch)
                .unwrap();
            writer.send_header(Header::cancel(EventId(9), 0)).unwrap();
            drop(far);
            let lane = writer.stream().resumed().unwrap();
            let stopped = lane.stop_receiving(std::time::Duration::from_secs(4));
            assert_eq!(writer.look(), Look::Broken);
            // An item that was taken before the break is kept. A message is left to another lane.
            writer
                .send_chunk(Box::new(read(3, 100)), None, false, &mut scratch)
                .unwrap();
            assert!(writer.send_at_once(read(4, 100)).is_err());
            let (near, mut far) = sockets();
            assert!(lane.install(stopped.unwrap(), near.into(), have as u64));
            assert_eq!(writer.look(), Look::Own);
            assert!(writer.catch_up(&mut scratch).unwrap());
            assert_eq!(writer.look(), Look::Free);
            writer.send_header(Header::cancel(EventId(10), 0)).unwrap();
            let mut all = Vec::new();
            for message in [read(1, 100), read(2, 100)] {
                all.extend(message.header.encode());
                all.extend(&message.bytes);
            }
            all.extend(Header::cancel(EventId(9), 0).encode());
            all.extend(read(3, 100).header.encode());
            all.extend(&read(3, 100).bytes);
            assert_eq!(all.len(), length);
            all.extend(Header::cancel(EventId(10), 0).encode());
            let mut got = vec![0; all.len() - have];
            far.read_exact(&mut got).unwrap();
            assert!(got == all[have..], "{have}");
            writer.acknowledged(all.len() as u64).unwrap();
            assert!(writer.acknowledged(all.len() as u64 + 1).is_err());
        }
    }
}
