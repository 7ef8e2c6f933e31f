//! The sending side of a lane, which its own thread has, and now and then another for a moment.
//!
//! The thread sends what the lane's queue has. A word or a short read before which nothing waits needs no queue:
//! whoever has it sends it, as far as the stream takes it without waiting, and nobody is woken for it. What the
//! stream does not take is left to the lane's thread. Invariant: bytes of one message are sent one behind
//! the other, for the rest of a message goes before all else; only the lane's own thread ever waits, and only it sends
//! where the client wants less speed or smaller chunks.
#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use causeway_lane::Stream;
use causeway_proto::bulk::{HEADER, Header};
use parking_lot::Mutex;

use super::memory::{send_bytes, send_some};
use super::outgoing::{Look, Outgoing};

/// See the module.
pub(super) struct Outlet {
    stream: Arc<Stream>,
    // Locked by who sends.
    rest: Mutex<Option<Rest>>,
    // Whether there is one; changed under that lock.
    has_rest: AtomicBool,
    gone: AtomicBool,
    // Whether the client has said how to send: only the lane's thread paces and packs.
    by_thread: AtomicBool,
}

/// A header, and the bytes that follow it.
pub(super) struct Message {
    pub(super) header: Header,
    pub(super) bytes: Bytes,
}

/// A message that was sent in part.
struct Rest {
    message: Message,
    sent: usize,
}

impl Outlet {
    /// Of a stream on which nobody sends yet.
    pub(super) fn new(stream: Arc<Stream>) -> Outlet {
        Outlet {
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

    /// Where it sends.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The lane is over. Whether it was already.
    pub(super) fn end(&self) -> bool {
        self.gone.swap(true, Ordering::AcqRel)
    }

    /// What the lane's thread has to know before it takes something from the queue.
    pub(super) fn look(&self) -> Look {
        if self.gone.load(Ordering::Acquire) {
            Look::Gone
        } else if self.has_rest.load(Ordering::Acquire) {
            Look::Own
        } else {
            Look::Free
        }
    }

    /// The turn to send, for the lane's thread: `send` comes behind whatever was begun before.
    ///
    /// # Errors
    /// The stream's.
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

    /// Sends on the calling thread, without waiting. Whether the lane's thread has to be told that there is
    /// a rest of it; `Err`: the lane is over or full, or somebody else sends.
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
                // Whoever reads the lane meets its end, and tells it.
                tracing::debug!(%error, "a bulk connection broke");
                self.stream.shut_down();
                Ok(false)
            }
        }
    }
}

/// Those of one way's lanes.
#[derive(Default)]
pub(super) struct Outlets(Mutex<Vec<Arc<Outlet>>>);

impl Outlets {
    /// One more.
    pub(super) fn add(&self, outlet: Arc<Outlet>) {
        self.0.lock().push(outlet);
    }

    /// It is over: its connection ends when its threads have.
    pub(super) fn remove(&self, outlet: &Outlet) {
        self.0
            .lock()
            .retain(|other| !std::ptr::eq(Arc::as_ptr(other), outlet));
    }

    /// Sends on one that is free, if nothing waits in `queue`, which is theirs. `Err`: it is for the queue.
    pub(super) fn send_at_once(
        &self,
        queue: &Outgoing,
        mut message: Message,
    ) -> Result<(), Message> {
        if !queue.is_empty() {
            return Err(message);
        }
        for place in 0.. {
            let Some(outlet) = self.0.lock().get(place).map(Arc::clone) else {
                break;
            };
            match outlet.send_at_once(message) {
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
        for outlet in self.0.lock().drain(..) {
            outlet.stream().shut_down();
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

    fn pair() -> (Outlet, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        (Outlet::new(Arc::new(Stream::from(near))), far)
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
        let (outlet, mut far) = pair();
        let mut last = 0;
        // Nobody reads: some time the stream is full.
        while outlet.look() == Look::Free {
            last += 1;
            match outlet.send_at_once(read(last, LENGTH)) {
                Ok(rest) => assert_eq!(rest, outlet.look() == Look::Own),
                // Full to the byte.
                Err(refused) => {
                    assert_eq!(refused.header.transfer, EventId(last));
                    last -= 1;
                    break;
                }
            }
        }
        if outlet.look() == Look::Own {
            assert!(
                outlet.send_at_once(read(100, LENGTH)).is_err(),
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
        outlet
            .in_turn(|mut stream| stream.write_all(b"next"))
            .unwrap();
        assert_eq!(outlet.look(), Look::Free);
        let mut far = reader.join().unwrap();
        assert!(matches!(outlet.send_at_once(read(7, 5000)), Ok(false)));
        expect(&mut far, 7, 5000);
    }

    #[test]
    fn a_lane_that_is_over_takes_nothing() {
        let (outlet, far) = pair();
        assert!(!outlet.end());
        assert!(outlet.end());
        assert!(outlet.send_at_once(read(1, 100)).is_err());
        assert_eq!(outlet.look(), Look::Gone);
        drop(far);
    }

    #[test]
    fn who_sends_keeps_others_out() {
        let (outlet, _far) = pair();
        let held = outlet.in_turn(|_| {
            assert!(outlet.send_at_once(read(1, 100)).is_err());
            Ok(())
        });
        held.unwrap();
    }
}
