//! A stream through shared memory: one ring to send into, one to receive from.
//!
//! One thread at a time sends, one receives. Each copies what there is room or bytes for, says how far it
//! is, and goes on; so both ends copy at the same time. Amid a transfer a thread that has nothing to do looks for a
//! while, and before one as far as that has lately been worth its cost ([`Patience`]). It offers its core to others
//! between two looks: the other end may be on the same. Then it says that it sleeps and waits for its bell; so an idle
//! lane costs nothing.
//!
//! Invariant: after [`Shared::shut_down`], and when the other process is gone, nobody stays inside longer
//! than a look and one step's copy take.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use causeway_proto::patience::{self, Patience};
use parking_lot::Mutex;

use crate::bell::Bell;
use crate::memory::{Memory, Which};
use crate::ring::{self, Impossible};

/// So long it is looked for more of what has begun: some wake-ups, so that both ends stay awake while they copy.
const LOOK_FOR_MORE: Duration = Duration::from_micros(200);

static CARRIED: AtomicU64 = AtomicU64::new(0);

/// Bytes that this process has sent and received through shared memory.
#[must_use]
pub fn carried_bytes() -> u64 {
    CARRIED.load(Ordering::Relaxed)
}

/// How received bytes are put into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Somebody will look at them soon.
    Keep,
    /// There are more than the caches hold.
    Bypass,
}

/// See the module.
#[derive(Debug)]
pub struct Shared {
    memory: Memory,
    sending: End,
    receiving: End,
    // Of the thread that receives and is not amid a transfer.
    patience: Patience,
    closed: AtomicBool,
}

/// How a thread that has nothing to do looks before it sleeps.
enum Look<'a> {
    /// For more of what has begun, since then.
    Amid(Instant),
    /// For something new.
    Before(patience::Look<'a>),
}

impl Look<'_> {
    fn amid() -> Self {
        Look::Amid(Instant::now())
    }

    // Offers the core before.
    fn goes_on(&mut self) -> bool {
        match self {
            Look::Amid(begun) => {
                let goes_on = may_look() && begun.elapsed() < LOOK_FOR_MORE;
                if goes_on {
                    std::thread::yield_now();
                }
                goes_on
            }
            Look::Before(look) => look.goes_on(),
        }
    }

    fn end(self, found: bool) {
        if let Look::Before(look) = self {
            look.end(found);
        }
    }
}

/// One ring from this side.
#[derive(Debug)]
struct End {
    which: Which,
    // Where this side is: the truth, of which the shared word is a copy.
    position: Mutex<u64>,
    bell: Bell,
}

impl Shared {
    /// The stream of one who sends into the ring `sends`. Each ring has a bell of its own.
    pub(crate) fn new(memory: Memory, sends: Which, sending: Bell, receiving: Bell) -> Shared {
        let receives = match sends {
            Which::FromMaker => Which::ToMaker,
            Which::ToMaker => Which::FromMaker,
        };
        let end = |which, bell| End {
            which,
            position: Mutex::new(0),
            bell,
        };
        Shared {
            memory,
            sending: end(sends, sending),
            receiving: end(receives, receiving),
            patience: Patience::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Sends so many bytes. Returns when they are in the ring, which is not to say that they arrived.
    ///
    /// # Errors
    /// `BrokenPipe` when the stream was shut down or the other end is gone; `InvalidData` when that does
    /// what no lane does.
    ///
    /// # Safety
    /// `from` is memory of that length that may be read, though others may write it.
    pub unsafe fn send(&self, from: *const u8, length: usize) -> io::Result<()> {
        // SAFETY: the caller's word.
        unsafe { self.send_waiting(true, from, length) }.map(drop)
    }

    /// Sends as many of them as there is room for, and waits for no more; how many.
    ///
    /// # Errors
    /// As [`Shared::send`].
    ///
    /// # Safety
    /// As [`Shared::send`].
    pub unsafe fn send_some(&self, from: *const u8, length: usize) -> io::Result<usize> {
        // SAFETY: the caller's word.
        unsafe { self.send_waiting(false, from, length) }
    }

    /// [`Shared::send`], or with `waits` false [`Shared::send_some`].
    ///
    /// # Safety
    /// As [`Shared::send`].
    unsafe fn send_waiting(
        &self,
        waits: bool,
        mut from: *const u8,
        length: usize,
    ) -> io::Result<usize> {
        let End {
            which,
            position,
            bell,
        } = &self.sending;
        let control = self.memory.control(*which);
        let room = |head, most| ring::room(head, control.tail.load(Ordering::Acquire), most);
        let mut head = position.lock();
        let (mut left, mut step) = (length, 0);
        while left > 0 {
            self.check_open()?;
            step = ring::next_step(step);
            let span = room(*head, left.min(step)).map_err(nonsense)?;
            if span.length == 0 {
                if !waits {
                    break;
                }
                let has_room = || Ok(room(*head, 1)?.length > 0);
                if !self.wait(Look::amid(), control.sender_sleeps, bell, has_room)? {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                continue;
            }
            // SAFETY: the span is no longer than what is left of the caller's memory.
            unsafe { self.memory.put(*which, span, from) };
            // SAFETY: as above.
            from = unsafe { from.add(span.length) };
            left -= span.length;
            *head = head.wrapping_add(span.length as u64);
            control.head.store(*head, Ordering::Release);
            CARRIED.fetch_add(span.length as u64, Ordering::Relaxed);
            tell(control.receiver_sleeps, bell);
        }
        Ok(length - left)
    }

    /// Receives at least one byte and at most so many, none at the end of the stream; how many.
    ///
    /// # Errors
    /// `BrokenPipe` when it was shut down, `InvalidData` as [`Shared::send`].
    ///
    /// # Safety
    /// `to` is memory of that length that may be written, though others may look at it.
    pub unsafe fn receive_some(
        &self,
        to: *mut u8,
        length: usize,
        caching: Caching,
    ) -> io::Result<usize> {
        // SAFETY: the caller's word.
        unsafe { self.receive_looking(|| Look::Before(self.patience.begin()), to, length, caching) }
    }

    /// [`Shared::receive_some`], which looks so before it sleeps.
    ///
    /// # Safety
    /// As there.
    unsafe fn receive_looking<'a>(
        &'a self,
        look: impl Fn() -> Look<'a>,
        to: *mut u8,
        length: usize,
        caching: Caching,
    ) -> io::Result<usize> {
        let End {
            which,
            position,
            bell,
        } = &self.receiving;
        let control = self.memory.control(*which);
        let content = |tail, most| ring::content(control.head.load(Ordering::Acquire), tail, most);
        let mut tail = position.lock();
        if length == 0 {
            return Ok(0);
        }
        let span = loop {
            self.check_open()?;
            let span = content(*tail, length).map_err(nonsense)?;
            if span.length > 0 {
                break span;
            }
            let has_bytes = || Ok(content(*tail, 1)?.length > 0);
            if !self.wait(look(), control.receiver_sleeps, bell, has_bytes)? {
                return Ok(0);
            }
        };
        // SAFETY: the span is no longer than the caller's memory.
        unsafe {
            match caching {
                Caching::Keep => self.memory.take(*which, span, to),
                Caching::Bypass => self.memory.take_past_caches(*which, span, to),
            }
        }
        *tail = tail.wrapping_add(span.length as u64);
        control.tail.store(*tail, Ordering::Release);
        CARRIED.fetch_add(span.length as u64, Ordering::Relaxed);
        tell(control.sender_sleeps, bell);
        Ok(span.length)
    }

    /// Receives exactly so many bytes.
    ///
    /// # Errors
    /// As [`Shared::receive_some`], and `UnexpectedEof` when the stream ends before.
    ///
    /// # Safety
    /// As [`Shared::receive_some`].
    pub unsafe fn receive(
        &self,
        mut to: *mut u8,
        mut length: usize,
        caching: Caching,
    ) -> io::Result<()> {
        while length > 0 {
            // SAFETY: the caller's memory, of which `length` bytes are left from `to` on.
            let got = unsafe { self.receive_looking(Look::amid, to, length, caching)? };
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // SAFETY: `got` is at most `length`.
            to = unsafe { to.add(got) };
            length -= got;
        }
        Ok(())
    }

    /// Ends the stream in both directions: here at once, there when what was sent is received.
    pub fn shut_down(&self) {
        self.closed.store(true, Ordering::Release);
        self.sending.bell.shut();
        self.receiving.bell.shut();
    }

    fn check_open(&self) -> io::Result<()> {
        if self.closed.load(Ordering::Acquire) {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(())
        }
    }

    /// Waits until `ready` may hold; false when it does not and nobody is left to make it so.
    fn wait(
        &self,
        mut look: Look<'_>,
        sleeps: &AtomicU32,
        bell: &Bell,
        ready: impl Fn() -> Result<bool, Impossible>,
    ) -> io::Result<bool> {
        while look.goes_on() {
            for _ in 0..16 {
                if ready().map_err(nonsense)? {
                    look.end(true);
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            self.check_open()?;
        }
        sleeps.store(1, Ordering::Relaxed);
        // Either the other side sees that we sleep, or we see what it has done: see `tell`.
        fence(Ordering::SeqCst);
        let mut there = true;
        if !ready().map_err(nonsense)? {
            there = bell.wait()?;
        }
        sleeps.store(0, Ordering::Relaxed);
        look.end(false);
        self.check_open()?;
        // Who is gone may have sent before.
        Ok(there || ready().map_err(nonsense)?)
    }
}

/// This side has gone on: wakes the other if it sleeps.
fn tell(sleeps: &AtomicU32, bell: &Bell) {
    fence(Ordering::SeqCst);
    if sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0 {
        bell.ring();
    }
}

fn nonsense(error: Impossible) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

// With one processor whoever looks keeps the other side from going on.
fn may_look() -> bool {
    static MAY_LOOK: OnceLock<bool> = OnceLock::new();
    *MAY_LOOK.get_or_init(|| {
        let processors = std::thread::available_parallelism();
        processors.is_ok_and(|processors| processors.get() > 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Stream, accept, offer};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn pair() -> (Arc<Stream>, Arc<Stream>) {
        let (a, b) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let taking = std::thread::spawn(move || accept(b.into(), deadline).unwrap());
        let made = offer(a.into(), deadline).unwrap();
        let stream = |shared| Arc::new(Stream::Shared(shared));
        (stream(made), stream(taking.join().unwrap()))
    }

    fn shared(stream: &Stream) -> &Shared {
        match stream {
            Stream::Shared(shared) => shared,
            Stream::Tcp(_) | Stream::Tls(_) | Stream::Buffer(_) => unreachable!(),
        }
    }

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|i| (i * 31 + i / 257) as u8).collect()
    }

    #[test]
    fn both_directions_carry_more_than_fits_at_the_same_time() {
        let (a, b) = pair();
        let length = 3 * ring::CAPACITY + 12_345;
        let ends: Vec<_> = [(&a, &b), (&b, &a)]
            .into_iter()
            .flat_map(|(from, to)| {
                let (from, to) = (Arc::clone(from), Arc::clone(to));
                let sender = std::thread::spawn(move || {
                    for piece in pattern(length).chunks(700_001) {
                        (&*from).write_all(piece).unwrap();
                    }
                });
                let receiver = std::thread::spawn(move || {
                    let mut got = vec![0; length];
                    let (first, rest) = got.split_at_mut(100_000);
                    (&*to).read_exact(first).unwrap();
                    // SAFETY: the slice is memory of its length.
                    let past = unsafe {
                        shared(&to).receive(rest.as_mut_ptr(), rest.len(), Caching::Bypass)
                    };
                    past.unwrap();
                    assert!(got == pattern(length));
                });
                [sender, receiver]
            })
            .collect();
        for end in ends {
            end.join().unwrap();
        }
    }

    #[test]
    fn who_sleeps_is_woken_by_every_single_byte() {
        let (a, b) = pair();
        let echo = std::thread::spawn(move || {
            let mut byte = [0];
            while (&*b).read(&mut byte).unwrap() == 1 {
                (&*b).write_all(&byte).unwrap();
            }
        });
        for i in 0..200u8 {
            (&*a).write_all(&[i]).unwrap();
            if i % 50 == 0 {
                // Both ends give up looking and sleep.
                std::thread::sleep(10 * Patience::LIMIT);
            }
            let mut byte = [0];
            (&*a).read_exact(&mut byte).unwrap();
            assert_eq!(byte, [i]);
        }
        a.shut_down();
        echo.join().unwrap();
    }

    #[test]
    fn the_other_ends_end_is_heard_after_what_it_sent() {
        let (a, b) = pair();
        (&*a).write_all(b"last words").unwrap();
        drop(a);
        let mut got = Vec::new();
        (&*b).read_to_end(&mut got).unwrap();
        assert_eq!(got, b"last words");
        let much = vec![0; ring::CAPACITY + 1];
        let error = (&*b).write_all(&much).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn shutting_it_down_wakes_who_waits_here_and_there() {
        let (a, b) = pair();
        let waits: Vec<_> = [&a, &b]
            .into_iter()
            .flat_map(|end| {
                let (reads, writes) = (Arc::clone(end), Arc::clone(end));
                let reader =
                    std::thread::spawn(move || (&*reads).read_to_end(&mut Vec::new()).map(drop));
                let full = vec![0; 3 * ring::CAPACITY];
                let writer = std::thread::spawn(move || (&*writes).write_all(&full));
                [reader, writer]
            })
            .collect();
        a.shut_down();
        for wait in waits {
            // Which of them had come to their end before is open.
            let _ = wait.join().unwrap();
        }
        assert!((&*a).write_all(b"x").is_err());
    }

    #[test]
    fn positions_that_cannot_be_break_the_stream() {
        let (a, b) = pair();
        let words = shared(&a).memory.control(Which::FromMaker);
        words.head.store(u64::MAX, Ordering::Release);
        let error = (&*b).read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let words = shared(&b).memory.control(Which::FromMaker);
        words.tail.store(1, Ordering::Release);
        let error = (&*a).write_all(&[0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn nothing_is_taken_from_who_offers_nothing_fit() {
        for sent in [&b"M"[..], b"x", b""] {
            let (a, b) = UnixStream::pair().unwrap();
            (&a).write_all(sent).unwrap();
            a.shutdown(std::net::Shutdown::Write).unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            assert!(accept(b.into(), deadline).is_err());
            assert_eq!((&a).read(&mut [0]).unwrap(), 0);
        }
        let (a, b) = UnixStream::pair().unwrap();
        drop(a);
        assert!(offer(b.into(), Instant::now() + Duration::from_secs(10)).is_err());
    }
}
