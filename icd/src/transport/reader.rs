//! Reads the direct carrier, and decodes event batches for both carriers.
//!
//! A thread that waits for data of the connection reads it itself ([`CommandReader::wait_until`]). So the kernel
//! wakes only the thread that needs the data, and no second wake-up follows. While no thread waits, a
//! dedicated thread sleeps at the connection and reads. [`super::reader_role`] decides who has the role. The
//! waiter that reads polls for a while before it sleeps, as long as that has paid off ([`super::wait`]),
//! and yields its core in between. The other waiters sleep.
//!
//! Invariants: one thread at a time passes frames on, in their order, and counts as a transport thread
//! while it does so. A thread that gives up the role has passed on all complete frames in memory, so
//! unread data shows at the socket. Nothing that follows a malformed frame is passed on. Only the reading
//! thread tears the session down.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_proto::command::EventBatch;
use causeway_proto::spin_budget::Look;
use causeway_security::Opener;
use parking_lot::{Condvar, Mutex, MutexGuard};
use prost::Message;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::carrier::direct::{FrameReader, Readable};
use super::core::Core;
use super::ended::Broken;
use super::reader_role::{ReaderRole, Who};
use super::wait::{Change, Notifier};
use crate::thread::Stack;

const CLOSED: &str = "the node closed the connection";

/// Marks the notifier in the epoll set. The connection's mark is 0.
const WAKE: u64 = 1;

/// Longest sleep at the connection. A program may close every descriptor it finds, also this library's,
/// and then nothing else wakes the sleeping thread.
const LOOKS_UP_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The receiving half of a direct connection. When the session is resumed, another connection takes its place.
pub(super) struct CommandReader {
    // The reading thread sleeps here.
    epoll: OwnedFd,
    // Wakes the waiter that sleeps at the socket.
    notifier: Arc<Notifier>,
    // Wakes the reading thread, because the connection was replaced or the session has failed.
    wake: Notifier,
    seat: Mutex<Seat>,
    // Signals that the role was given back.
    left: Condvar,
    // Belongs to the thread that has the role.
    source: Mutex<Source>,
}

/// Who reads, and from where.
struct Seat {
    role: ReaderRole,
    socket: Arc<TcpStream>,
    // Whether the epoll set contains the socket.
    is_watched: bool,
}

struct Source {
    frames: FrameReader<WithoutWaiting>,
    decoder: Decoder,
    generation: u64,
}

impl Source {
    fn new(Readable { socket, opener }: Readable, generation: u64) -> Source {
        Source {
            frames: FrameReader::new(WithoutWaiting { socket, opener }),
            decoder: Decoder::default(),
            generation,
        }
    }
}

/// Reads available bytes without blocking.
#[derive(Debug)]
struct WithoutWaiting {
    socket: Arc<TcpStream>,
    // With TLS.
    opener: Option<Opener>,
}

impl WithoutWaiting {
    // Whether decrypted bytes are left that do not show at the socket.
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

impl CommandReader {
    /// Creates the reader. Nothing reads yet; see [`start`].
    ///
    /// # Errors
    /// The system's error if it has no descriptors left.
    pub(super) fn new(readable: Readable) -> io::Result<CommandReader> {
        let _kept_free = super::standard::kept_free();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Notifier::new()?;
        let (data, flags) = (epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN);
        epoll::add(&epoll, wake.fd(), data, flags)?;
        let socket = Arc::clone(&readable.socket);
        watch(&epoll, &socket)?;
        Ok(CommandReader {
            epoll,
            notifier: Arc::new(Notifier::new()?),
            wake,
            seat: Mutex::new(Seat {
                role: ReaderRole::default(),
                socket,
                is_watched: true,
            }),
            left: Condvar::new(),
            source: Mutex::new(Source::new(readable, 0)),
        })
    }

    /// Reads from another connection from now on. The old one must be shut. Waits until no thread reads it.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn replace(&self, readable: Readable, generation: u64) -> io::Result<()> {
        let mut seat = self.seat.lock();
        while seat.role.is_taken() {
            self.left.wait(&mut seat);
        }
        if std::mem::take(&mut seat.is_watched) {
            let _ = epoll::delete(&self.epoll, &*seat.socket);
        }
        seat.socket = Arc::clone(&readable.socket);
        watch(&self.epoll, &seat.socket)?;
        seat.is_watched = true;
        *self.source.lock() = Source::new(readable, generation);
        seat.role.go_on();
        drop(seat);
        // Bytes that came together with the end of the handshake do not show at the socket.
        self.wake.ring();
        Ok(())
    }

    /// Wakes the reading thread, because the session has failed.
    pub(super) fn wake(&self) {
        self.wake.ring();
    }

    fn take(&self, who: Who) -> Option<Reading<'_>> {
        let mut seat = self.seat.lock();
        if !seat.role.take(who) {
            return None;
        }
        if who == Who::Waiter {
            // Bytes wake this thread now. They must not wake the reading thread too.
            self.arm(&seat, false);
        }
        drop(seat);
        Some(Reading {
            reader: self,
            // The last owner has unlocked the source before it left the role, so this does not block.
            source: Some(self.source.lock()),
            ends: Ends::No,
        })
    }

    // Sets whether arriving bytes wake the reading thread.
    fn arm(&self, seat: &Seat, armed: bool) {
        let events = if armed {
            epoll::EventFlags::IN
        } else {
            epoll::EventFlags::empty()
        };
        let data = epoll::EventData::new_u64(0);
        if let Err(error) = epoll::modify(&self.epoll, &*seat.socket, data, events) {
            // This has never been observed. A shut socket wakes the thread whatever events it is armed
            // for.
            tracing::error!(%error, "epoll_ctl failed for a session's connection; the connection is closed");
            let _ = seat.socket.shutdown(Shutdown::Both);
        }
    }

    /// Waits until `condition` holds, which `awaits` (or a [`Change::Any`]) makes true. Reads the
    /// connection meanwhile if no other thread does. The caller must hold no lock that
    /// [`SessionEvents`](super::SessionEvents) needs.
    pub(super) fn wait_until(&self, core: &Core, awaits: Change, condition: &dyn Fn() -> bool) {
        let progress = &core.progress;
        if condition() {
            return;
        }
        let mut waiting = WaitingThread {
            awaits,
            condition,
            look: progress.spin_budget().begin(),
            slept: false,
        };
        loop {
            if let Some(mut reading) = self.take(Who::Waiter) {
                if reading.read_until(core, &mut waiting) {
                    break;
                }
                drop(reading);
                // The connection is broken. The reading thread reads the next one, or the end of the session ends
                // all waits.
                waiting.slept = true;
                while !progress.sleep(awaits, condition) {}
                break;
            }
            if !waiting.slept && self.seat.lock().role.is_the_threads() && waiting.look.goes_on() {
                if condition() {
                    break;
                }
                continue;
            }
            // Another waiter reads and wakes this thread. If both polled, they would take CPU time from
            // each other and from the threads whose work they wait for.
            waiting.slept = true;
            if progress.sleep(awaits, condition) {
                break;
            }
        }
        waiting.look.end(!waiting.slept);
    }
}

/// A thread that waits.
struct WaitingThread<'a> {
    awaits: Change,
    condition: &'a dyn Fn() -> bool,
    look: Look<'a>,
    slept: bool,
}

/// The role to read, which is given back on drop.
struct Reading<'a> {
    reader: &'a CommandReader,
    source: Option<MutexGuard<'a, Source>>,
    ends: Ends,
}

/// Whether anything may be read afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    No,
    /// Not before the connection is replaced.
    ForNow,
    /// Not any more.
    ForGood,
}

impl Reading<'_> {
    // Reads until the waiting thread's condition holds. Returns false if the connection is broken.
    fn read_until(&mut self, core: &Core, waiting: &mut WaitingThread<'_>) -> bool {
        let _guard = core.guard();
        loop {
            match super::thread::as_ours(|| self.pump(core)) {
                Ok(true) => {}
                Ok(false) if !waiting.slept && waiting.look.goes_on() => {}
                Ok(false) => {
                    waiting.slept = true;
                    let (notifier, sleep) = (&self.reader.notifier, || self.wait_for_bytes());
                    core.progress
                        .sleep_with(notifier, waiting.awaits, waiting.condition, sleep);
                }
                Err(broken) => {
                    self.end(core, broken);
                    return false;
                }
            }
            if (waiting.condition)() {
                return true;
            }
        }
    }

    // Reads once without blocking and passes on all complete frames. Returns whether there was anything.
    fn pump(&mut self, core: &Core) -> Result<bool, Broken> {
        let Some(Source {
            frames,
            decoder,
            generation,
        }) = self.source.as_deref_mut()
        else {
            return Ok(false);
        };
        let generation = *generation;
        loop {
            match frames.fill() {
                Ok(true) => {}
                Ok(false) => return Err(Broken::Connection(CLOSED.to_owned())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(Broken::Nonsense(super::socket::plain(&error)));
                }
                Err(error) => return Err(Broken::Connection(super::socket::plain(&error))),
            }
            while let Some(frame) = frames
                .whole()
                .map_err(|error| Broken::Nonsense(super::socket::plain(&error)))?
            {
                decoder
                    .handle(core, generation, frame)
                    .map_err(Broken::Nonsense)?;
            }
            // Decrypted bytes that did not fit into the buffer would wake no thread later.
            if !frames.source().holds_more() {
                return Ok(true);
            }
        }
    }
}

impl Reading<'_> {
    // Handles that the connection is not read any more.
    fn end(&mut self, core: &Core, broken: Broken) {
        let generation = self.source.as_deref().map_or(0, |source| source.generation);
        self.ends = match broken {
            Broken::Connection(reason) => match core.break_off(generation, reason) {
                true => Ends::ForNow,
                false => Ends::ForGood,
            },
            Broken::Nonsense(reason) => {
                core.fail(reason);
                Ends::ForGood
            }
        };
    }

    // Sleeps until there are bytes, the connection ends, the notifier rings or the time limit passes.
    fn wait_for_bytes(&self) {
        let Some(source) = self.source.as_deref() else {
            return;
        };
        let mut fds = [
            PollFd::new(&*source.frames.source().socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.reader.notifier.fd(), PollFlags::IN),
        ];
        // An interruption ends the sleep too: the caller checks its condition and comes back.
        let _ = rustix::event::poll(&mut fds, Some(&LOOKS_UP_EVERY));
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // The source's lock must be free before another thread takes the role.
        self.source = None;
        let mut seat = self.reader.seat.lock();
        if self.ends == Ends::ForGood || std::thread::panicking() {
            seat.role.close();
        }
        let arms = seat.role.leave();
        if self.ends == Ends::ForNow {
            seat.role.pause();
            // The shut socket would wake the reading thread all the time.
            if std::mem::take(&mut seat.is_watched) {
                let _ = epoll::delete(&self.reader.epoll, &*seat.socket);
            }
        } else if arms {
            self.reader.arm(&seat, true);
        }
        drop(seat);
        self.reader.left.notify_all();
    }
}

fn watch(epoll: &OwnedFd, socket: &TcpStream) -> io::Result<()> {
    let (data, flags) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
    Ok(epoll::add(epoll, socket, data, flags)?)
}

/// Starts the reading thread, which tears the session down when the connection ends.
pub(super) fn start(core: &Arc<Core>) -> io::Result<()> {
    let core = Arc::clone(core);
    super::thread::spawn("cw-events", Stack::Small, move || {
        let undertaker = Undertaker(core);
        let core = &*undertaker.0;
        if let Some(reader) = &core.reader {
            core.fail(read(core, reader));
        }
    })
}

// Runs the reading thread. Returns why the session has ended.
fn read(core: &Core, reader: &CommandReader) -> String {
    let mut ready = Vec::with_capacity(2);
    // Bytes that arrived together with the end of the handshake do not show at the socket, so the first
    // round reads without sleeping.
    let mut is_first = true;
    loop {
        ready.clear();
        if !std::mem::take(&mut is_first) {
            let wait = Some(&LOOKS_UP_EVERY);
            match epoll::wait(&reader.epoll, spare_capacity(&mut ready), wait) {
                Ok(0) if core.failure().is_none() => continue,
                // A descriptor that the program has closed shows no events. Its number may belong to
                // another file by now.
                Ok(0) => return CLOSED.to_owned(),
                Ok(_)
                    if ready
                        .iter()
                        .any(|event: &epoll::Event| event.data.u64() == WAKE) =>
                {
                    reader.wake.silence();
                }
                Ok(_) => {}
                Err(Errno::INTR) => {}
                Err(error) => return super::socket::plain(&error.into()),
            }
        }
        let Some(mut reading) = reader.take(Who::Thread) else {
            if reader.seat.lock().role.is_over() || core.is_failed() {
                // Whoever found the end has already given the reason.
                return CLOSED.to_owned();
            }
            // A waiter is reading and will arm this thread again, or the connection is being replaced.
            continue;
        };
        loop {
            match reading.pump(core) {
                Ok(true) => {}
                Ok(false) => break,
                Err(broken) => {
                    reading.end(core, broken);
                    break;
                }
            }
        }
        let ends = reading.ends;
        drop(reading);
        if ends == Ends::ForGood || core.is_failed() {
            return CLOSED.to_owned();
        }
    }
}

/// Decodes event batches, reusing the same vectors.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    batch: EventBatch,
}

impl Decoder {
    /// Decodes one batch of the connection of this generation, and passes it on.
    ///
    /// # Errors
    /// The reason why the session is over; see [`Core::handle_batch`].
    pub(super) fn handle(
        &mut self,
        core: &Core,
        generation: u64,
        bytes: impl bytes::Buf,
    ) -> Result<(), String> {
        let length = bytes.remaining();
        self.batch
            .merge(bytes)
            .map_err(|error| format!("the node sent invalid data: {error}"))?;
        core.handle_batch(generation, &mut self.batch)?;
        core.note_received(length);
        Ok(())
    }
}

/// Tears the session down when the reading thread ends, also after a panic in a callback.
pub(super) struct Undertaker(pub(super) Arc<Core>);

impl Drop for Undertaker {
    fn drop(&mut self) {
        self.0
            .tear_down("the client's reading thread has ended unexpectedly".to_owned());
    }
}
