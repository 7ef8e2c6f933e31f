//! A stream through shared memory: one ring for sending, one for receiving.
//!
//! One thread at a time sends, and one receives. Each copies as much as fits or is there, publishes its
//! position and goes on, so both ends copy at the same time. A thread that has nothing to do polls before
//! it sleeps. Within a transfer it polls for a fixed time, before one for as long as polling has lately
//! been worth its cost ([`SpinBudget`]). Between two polls it yields its core, since the other end may need
//! the same one. Then it marks itself as sleeping and waits for its notifier, so an idle lane costs nothing.
//!
//! Invariant: after [`RingPair::shut_down`], and when the other process is gone, no call takes longer than
//! polling and copying one step.
#![allow(unsafe_code)]

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use causeway_proto::spin_budget::{self, SpinBudget};
use parking_lot::Mutex;

use crate::memory::{Memory, Which};
use crate::notifier::Notifier;
use crate::ring::{self, Impossible};

/// How long a thread polls within a transfer: several wake-ups, so that both ends stay awake while they
/// copy.
const LOOK_FOR_MORE: Duration = Duration::from_micros(200);

static CARRIED: AtomicU64 = AtomicU64::new(0);

/// Number of bytes that this process has sent and received through shared memory.
#[must_use]
pub fn carried_bytes() -> u64 {
    CARRIED.load(Ordering::Relaxed)
}

/// How received bytes are written to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// The bytes will be read soon.
    Keep,
    /// The bytes exceed the caches.
    Bypass,
}

/// Both rings from one side; see the module.
#[derive(Debug)]
pub struct RingPair {
    memory: Memory,
    sending: Ring,
    receiving: Ring,
    // For the receiving thread when it is not within a transfer.
    spin_budget: SpinBudget,
    closed: AtomicBool,
}

/// How an idle thread polls before it sleeps.
enum Look<'a> {
    /// Within a transfer, since this time.
    Amid(Instant),
    /// Between transfers.
    Before(spin_budget::Look<'a>),
}

impl Look<'_> {
    fn amid() -> Self {
        Look::Amid(Instant::now())
    }

    // Yields the core before it returns true.
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

/// One ring, seen from this side.
#[derive(Debug)]
struct Ring {
    which: Which,
    // This side's own position. The shared word is only a copy, which the other process could overwrite.
    position: Mutex<u64>,
    notifier: Notifier,
}

impl RingPair {
    /// The stream of the side that sends into the ring `sends`. Each ring has its own notifier.
    pub(crate) fn new(
        memory: Memory,
        sends: Which,
        sending: Notifier,
        receiving: Notifier,
    ) -> RingPair {
        let receives = match sends {
            Which::FromMaker => Which::ToMaker,
            Which::ToMaker => Which::FromMaker,
        };
        let end = |which, notifier| Ring {
            which,
            position: Mutex::new(0),
            notifier,
        };
        RingPair {
            memory,
            sending: end(sends, sending),
            receiving: end(receives, receiving),
            spin_budget: SpinBudget::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Sends `length` bytes. Returns when they are in the ring, which does not mean that they were
    /// received.
    ///
    /// # Errors
    /// `BrokenPipe` when the stream was shut down or the other end is gone; `InvalidData` when the other
    /// end violates the protocol.
    ///
    /// # Safety
    /// `from` must be readable for `length` bytes. Others may write there at the same time.
    pub unsafe fn send(&self, from: *const u8, length: usize) -> io::Result<()> {
        // SAFETY: the caller guarantees `from`.
        unsafe { self.send_waiting(true, from, length) }.map(drop)
    }

    /// Sends as many of the bytes as there is room for, without waiting. Returns how many.
    ///
    /// # Errors
    /// As [`RingPair::send`].
    ///
    /// # Safety
    /// As [`RingPair::send`].
    pub unsafe fn send_some(&self, from: *const u8, length: usize) -> io::Result<usize> {
        // SAFETY: the caller guarantees `from`.
        unsafe { self.send_waiting(false, from, length) }
    }

    /// [`RingPair::send`], or [`RingPair::send_some`] if `waits` is false.
    ///
    /// # Safety
    /// As [`RingPair::send`].
    unsafe fn send_waiting(
        &self,
        waits: bool,
        mut from: *const u8,
        length: usize,
    ) -> io::Result<usize> {
        let Ring {
            which,
            position,
            notifier,
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
                if !self.wait(Look::amid(), control.sender_sleeps, notifier, has_room)? {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                continue;
            }
            // SAFETY: the span is no longer than the rest of the caller's memory.
            unsafe { self.memory.put(*which, span, from) };
            // SAFETY: as above.
            from = unsafe { from.add(span.length) };
            left -= span.length;
            *head = head.wrapping_add(span.length as u64);
            // The position is published after the bytes, so the receiver never sees bytes that are not
            // there.
            control.head.store(*head, Ordering::Release);
            CARRIED.fetch_add(span.length as u64, Ordering::Relaxed);
            tell(control.receiver_sleeps, notifier);
        }
        Ok(length - left)
    }

    /// Receives between 1 and `length` bytes, or none at the end of the stream. Returns how many.
    ///
    /// # Errors
    /// `BrokenPipe` when the stream was shut down; `InvalidData` as [`RingPair::send`].
    ///
    /// # Safety
    /// `to` must be writable for `length` bytes. Others may read there at the same time.
    pub unsafe fn receive_some(
        &self,
        to: *mut u8,
        length: usize,
        caching: Caching,
    ) -> io::Result<usize> {
        // SAFETY: the caller guarantees `to`.
        unsafe {
            self.receive_looking(
                || Look::Before(self.spin_budget.begin()),
                to,
                length,
                caching,
            )
        }
    }

    /// [`RingPair::receive_some`], which polls as `look` says before it sleeps.
    ///
    /// # Safety
    /// As [`RingPair::receive_some`].
    unsafe fn receive_looking<'a>(
        &'a self,
        look: impl Fn() -> Look<'a>,
        to: *mut u8,
        length: usize,
        caching: Caching,
    ) -> io::Result<usize> {
        let Ring {
            which,
            position,
            notifier,
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
            if !self.wait(look(), control.receiver_sleeps, notifier, has_bytes)? {
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
        // The room is released after the copy, so the sender cannot overwrite bytes that are still
        // needed.
        *tail = tail.wrapping_add(span.length as u64);
        control.tail.store(*tail, Ordering::Release);
        CARRIED.fetch_add(span.length as u64, Ordering::Relaxed);
        tell(control.sender_sleeps, notifier);
        Ok(span.length)
    }

    /// Receives exactly `length` bytes.
    ///
    /// # Errors
    /// As [`RingPair::receive_some`]; `UnexpectedEof` when the stream ends before.
    ///
    /// # Safety
    /// As [`RingPair::receive_some`].
    pub unsafe fn receive(
        &self,
        mut to: *mut u8,
        mut length: usize,
        caching: Caching,
    ) -> io::Result<()> {
        while length > 0 {
            // SAFETY: the caller's memory has `length` bytes left from `to` on.
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

    /// Ends the stream in both directions: on this side at once, on the other side after it has received
    /// all bytes sent.
    pub fn shut_down(&self) {
        self.closed.store(true, Ordering::Release);
        self.sending.notifier.shut();
        self.receiving.notifier.shut();
    }

    fn check_open(&self) -> io::Result<()> {
        if self.closed.load(Ordering::Acquire) {
            Err(io::ErrorKind::BrokenPipe.into())
        } else {
            Ok(())
        }
    }

    /// Waits until `ready` may hold. Returns false if it does not hold and the other end is gone.
    fn wait(
        &self,
        mut look: Look<'_>,
        sleeps: &AtomicU32,
        notifier: &Notifier,
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
        // Pairs with the fence in `tell`: either the other side sees that this thread sleeps, or this
        // thread sees the other side's progress.
        fence(Ordering::SeqCst);
        let mut there = true;
        if !ready().map_err(nonsense)? {
            there = notifier.wait()?;
        }
        sleeps.store(0, Ordering::Relaxed);
        look.end(false);
        self.check_open()?;
        // An end that is gone may have sent bytes before.
        Ok(there || ready().map_err(nonsense)?)
    }
}

/// Wakes the other side if it sleeps. Called after this side has moved its position.
fn tell(sleeps: &AtomicU32, notifier: &Notifier) {
    fence(Ordering::SeqCst);
    if sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0 {
        notifier.ring();
    }
}

fn nonsense(error: Impossible) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

// With one processor, polling would keep the other side from running.
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

    fn shared(stream: &Stream) -> &RingPair {
        match stream {
            Stream::Shared(shared) => shared,
            Stream::Tcp(_) | Stream::Tls(_) | Stream::Buffer(_) | Stream::Resumed(_) => {
                unreachable!()
            }
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
                // Both ends stop polling and sleep.
                std::thread::sleep(10 * SpinBudget::LIMIT);
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
            // Either thread may have finished before.
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
