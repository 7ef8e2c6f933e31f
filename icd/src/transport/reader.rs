//! Reading the direct carrier, and decoding, which both carriers share.
//!
//! A thread that waits for what the connection will bring reads it itself ([`Inlet::wait_until`]): the
//! system wakes it and nobody else, and nobody wakes it a second time. While none waits, a thread kept for
//! it sleeps at the connection and reads. [`super::turn`] says whose turn it is.
//!
//! The waiter that reads looks again and again before it sleeps, as far as that is worth its cost ([`super::wait`]);
//! in between it offers its core to other threads. The other waiters sleep.
//!
//! Invariants: frames are handed on in their order, by one thread at a time, which is a transport thread as
//! long as it does so; who leaves has handed on all that is whole in memory, so that what is left shows
//! at the socket; nothing is handed on that came behind nonsense; the session is buried by the reading thread
//! alone.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_proto::command::EventBatch;
use causeway_proto::patience::Look;
use causeway_security::Opener;
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::carrier::direct::FrameReader;
use super::core::Core;
use super::turn::{Turn, Who};
use super::wait::{Bell, Change};
use crate::thread::Stack;

const CLOSED: &str = "the node closed the connection";

/// Who sleeps at the connection looks up so often: a program that closes every descriptor it finds, ours included, leaves
/// nothing that could wake him.
const LOOKS_UP_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The receiving half of a direct connection.
pub(super) struct Inlet {
    socket: Arc<TcpStream>,
    // Where the reading thread sleeps.
    epoll: OwnedFd,
    // Wakes the waiter that sleeps at the socket.
    bell: Arc<Bell>,
    turn: Mutex<Turn>,
    // Of who has the turn.
    source: Mutex<Source>,
}

struct Source {
    frames: FrameReader<WithoutWaiting>,
    decoder: Decoder,
}

/// Reads what is there.
#[derive(Debug)]
struct WithoutWaiting {
    socket: Arc<TcpStream>,
    // With TLS.
    opener: Option<Opener>,
}

impl WithoutWaiting {
    // Whether there is something that does not show at the socket any more.
    fn holds_more(&self) -> bool {
        self.opener.as_ref().is_some_and(Opener::holds_more)
    }
}

impl Read for WithoutWaiting {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let socket = &*self.socket;
        let receive = |into: &mut [u8]| {
            let (count, _) = rustix::net::recv(socket, into, RecvFlags::DONTWAIT)?;
            Ok(count)
        };
        match &mut self.opener {
            None => receive(into),
            Some(opener) => opener.read(into, receive),
        }
    }
}

impl Inlet {
    /// Nobody reads yet; see [`start`].
    ///
    /// # Errors
    /// The system's, when it has no more descriptors.
    pub(super) fn new(socket: Arc<TcpStream>, opener: Option<Opener>) -> io::Result<Inlet> {
        let _kept_free = super::standard::kept_free();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &*socket,
            epoll::EventData::new_u64(0),
            epoll::EventFlags::IN,
        )?;
        let source = Source {
            frames: FrameReader::new(WithoutWaiting {
                socket: Arc::clone(&socket),
                opener,
            }),
            decoder: Decoder::default(),
        };
        Ok(Inlet {
            socket,
            epoll,
            bell: Arc::new(Bell::new()?),
            turn: Mutex::default(),
            source: Mutex::new(source),
        })
    }

    fn take(&self, who: Who) -> Option<Reading<'_>> {
        let mut turn = self.turn.lock();
        if !turn.take(who) {
            return None;
        }
        if who == Who::Waiter {
            self.arm(false);
        }
        drop(turn);
        Some(Reading {
            inlet: self,
            source: Some(self.source.lock()),
            is_last: false,
        })
    }

    // Whether bytes wake the reading thread. The turn is locked.
    fn arm(&self, armed: bool) {
        let events = if armed {
            epoll::EventFlags::IN
        } else {
            epoll::EventFlags::empty()
        };
        let data = epoll::EventData::new_u64(0);
        if let Err(error) = epoll::modify(&self.epoll, &*self.socket, data, events) {
            // Has never been seen. A shut socket shows whether or not one asks for it.
            tracing::error!(%error, "the reading of a connection cannot be handed over");
            let _ = self.socket.shutdown(Shutdown::Both);
        }
    }

    /// Waits until `condition` holds, which `awaits` makes true (or [`Change::Any`] change does); reads
    /// the connection meanwhile if nobody else does. The caller holds no lock that a session's
    /// events want.
    pub(super) fn wait_until(&self, core: &Core, awaits: Change, condition: &dyn Fn() -> bool) {
        let progress = &core.progress;
        if condition() {
            return;
        }
        let mut waiting = Waiting {
            awaits,
            condition,
            look: progress.patience().begin(),
            slept: false,
        };
        loop {
            if let Some(mut reading) = self.take(Who::Waiter) {
                if reading.read_until(core, &mut waiting) {
                    break;
                }
                drop(reading);
                // The connection is broken: the session's end ends all waits.
                waiting.slept = true;
                while !progress.sleep(awaits, condition) {}
                break;
            }
            if !waiting.slept && self.turn.lock().is_the_threads() && waiting.look.goes_on() {
                if condition() {
                    break;
                }
                continue;
            }
            // Another waiter reads, and wakes this thread. If both looked, they would take the processor from each
            // other and from the threads whose work they wait for.
            waiting.slept = true;
            if progress.sleep(awaits, condition) {
                break;
            }
        }
        waiting.look.end(!waiting.slept);
    }
}

/// A thread that waits.
struct Waiting<'a> {
    awaits: Change,
    condition: &'a dyn Fn() -> bool,
    look: Look<'a>,
    slept: bool,
}

/// The turn to read; given back when dropped.
struct Reading<'a> {
    inlet: &'a Inlet,
    source: Option<MutexGuard<'a, Source>>,
    // Nobody may read after it: the stream is at its end, or no longer at the begin of a frame.
    is_last: bool,
}

impl Reading<'_> {
    // False when the connection is broken.
    fn read_until(&mut self, core: &Core, waiting: &mut Waiting<'_>) -> bool {
        let _guard = core.guard();
        loop {
            match super::thread::as_ours(|| self.pump(core)) {
                Ok(true) => {}
                Ok(false) if !waiting.slept && waiting.look.goes_on() => {}
                Ok(false) => {
                    waiting.slept = true;
                    let (bell, sleep) = (&self.inlet.bell, || self.inlet.wait_for_bytes());
                    core.progress
                        .sleep_with(bell, waiting.awaits, waiting.condition, sleep);
                }
                Err(reason) => {
                    self.is_last = true;
                    core.fail(reason);
                    return false;
                }
            }
            if (waiting.condition)() {
                return true;
            }
        }
    }

    // Reads once, if there is something, and hands on what is whole then. Says whether there was.
    fn pump(&mut self, core: &Core) -> Result<bool, String> {
        let Some(Source { frames, decoder }) = self.source.as_deref_mut() else {
            return Ok(false);
        };
        loop {
            match frames.fill() {
                Ok(true) => {}
                Ok(false) => return Err(CLOSED.to_owned()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(super::socket::plain(&error)),
            }
            while let Some(frame) = frames
                .whole()
                .map_err(|error| super::socket::plain(&error))?
            {
                decoder.handle(core, frame)?;
            }
            // What was opened and found no room yet would wake nobody.
            if !frames.source().holds_more() {
                return Ok(true);
            }
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // Before somebody else has the turn.
        self.source = None;
        let mut turn = self.inlet.turn.lock();
        if self.is_last || std::thread::panicking() {
            turn.close();
        }
        if turn.leave() {
            self.inlet.arm(true);
        }
    }
}

impl Inlet {
    // Until there are bytes, or the end, or the bell rings, or it is time to look up.
    fn wait_for_bytes(&self) {
        let mut fds = [
            PollFd::new(&*self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.bell.fd(), PollFlags::IN),
        ];
        // An interruption ends it as well: the caller looks and comes back.
        let _ = rustix::event::poll(&mut fds, Some(&LOOKS_UP_EVERY));
    }
}

/// Starts the reading thread; it buries the session when the connection ends.
pub(super) fn start(core: &Arc<Core>) -> io::Result<()> {
    let core = Arc::clone(core);
    super::thread::spawn("cw-events", Stack::Small, move || {
        let undertaker = Undertaker(core);
        let core = &*undertaker.0;
        if let Some(inlet) = &core.inlet {
            core.fail(read(core, inlet));
        }
    })
}

// Returns why the connection has ended.
fn read(core: &Core, inlet: &Inlet) -> String {
    let mut ready = Vec::with_capacity(1);
    // What came with the handshake's last words, if it is there, shows at no socket.
    let mut is_first = true;
    loop {
        ready.clear();
        if !std::mem::take(&mut is_first) {
            let wait = Some(&LOOKS_UP_EVERY);
            match epoll::wait(&inlet.epoll, spare_capacity(&mut ready), wait) {
                Ok(0) if core.failure().is_none() => continue,
                // Nothing shows at a connection that was given up: its number may be another file's by now.
                Ok(0) => return CLOSED.to_owned(),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return super::socket::plain(&error.into()),
            }
        }
        let Some(mut reading) = inlet.take(Who::Thread) else {
            if inlet.turn.lock().is_over() {
                // The waiter that met it has told why.
                return CLOSED.to_owned();
            }
            // A waiter reads; it will arm this thread again.
            continue;
        };
        loop {
            match reading.pump(core) {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => {
                    reading.is_last = true;
                    return reason;
                }
            }
        }
    }
}

/// Decodes event batches into the same vectors again and again.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    batch: EventBatch,
}

impl Decoder {
    /// Decodes one batch and hands it on.
    ///
    /// # Errors
    /// Why the session is over; see [`Core::handle_batch`].
    pub(super) fn handle(&mut self, core: &Core, bytes: impl bytes::Buf) -> Result<(), String> {
        self.batch
            .merge(bytes)
            .map_err(|error| format!("the node sent nonsense: {error}"))?;
        core.handle_batch(&mut self.batch)
    }
}

/// Buries the session when the reading thread ends, by a panic of a callback too.
pub(super) struct Undertaker(pub(super) Arc<Core>);

impl Drop for Undertaker {
    fn drop(&mut self) {
        self.0.bury("the reading thread has ended".to_owned());
    }
}
