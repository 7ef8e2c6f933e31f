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
use parking_lot::{Mutex, MutexGuard};
use prost::Message;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::carrier::direct::FrameReader;
use super::core::Core;
use super::reader_role::{ReaderRole, Who};
use super::wait::{Change, Notifier};
use crate::thread::Stack;

const CLOSED: &str = "the node closed the connection";

/// Longest sleep at the connection. A program may close every descriptor it finds, also this library's,
/// and then nothing else wakes the sleeping thread.
const LOOKS_UP_EVERY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The receiving half of a direct connection.
pub(super) struct CommandReader {
    socket: Arc<TcpStream>,
    // The reading thread sleeps here.
    epoll: OwnedFd,
    // Wakes the waiter that sleeps at the socket.
    notifier: Arc<Notifier>,
    role: Mutex<ReaderRole>,
    // Belongs to the thread that has the role.
    source: Mutex<Source>,
}

struct Source {
    frames: FrameReader<WithoutWaiting>,
    decoder: Decoder,
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
    pub(super) fn new(socket: Arc<TcpStream>, opener: Option<Opener>) -> io::Result<CommandReader> {
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
        Ok(CommandReader {
            socket,
            epoll,
            notifier: Arc::new(Notifier::new()?),
            role: Mutex::default(),
            source: Mutex::new(source),
        })
    }

    fn take(&self, who: Who) -> Option<Reading<'_>> {
        let mut role = self.role.lock();
        if !role.take(who) {
            return None;
        }
        if who == Who::Waiter {
            // Bytes wake this thread now. They must not wake the reading thread too.
            self.arm(false);
        }
        drop(role);
        Some(Reading {
            reader: self,
            // The last owner has unlocked the source before it left the role, so this does not block.
            source: Some(self.source.lock()),
            is_last: false,
        })
    }

    // Sets whether arriving bytes wake the reading thread. The caller holds the role's lock.
    fn arm(&self, armed: bool) {
        let events = if armed {
            epoll::EventFlags::IN
        } else {
            epoll::EventFlags::empty()
        };
        let data = epoll::EventData::new_u64(0);
        if let Err(error) = epoll::modify(&self.epoll, &*self.socket, data, events) {
            // This has never been observed. A shut socket wakes the thread whatever events it is armed
            // for.
            tracing::error!(%error, "epoll_ctl failed for a session's connection; the session is closed");
            let _ = self.socket.shutdown(Shutdown::Both);
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
                // The connection is broken. The end of the session ends all waits.
                waiting.slept = true;
                while !progress.sleep(awaits, condition) {}
                break;
            }
            if !waiting.slept && self.role.lock().is_the_threads() && waiting.look.goes_on() {
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
    // Set if nothing may be read afterwards: the stream has ended, or is no longer at the start of a
    // frame.
    is_last: bool,
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
                    let (notifier, sleep) =
                        (&self.reader.notifier, || self.reader.wait_for_bytes());
                    core.progress
                        .sleep_with(notifier, waiting.awaits, waiting.condition, sleep);
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

    // Reads once without blocking and passes on all complete frames. Returns whether there was anything.
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
            // Decrypted bytes that did not fit into the buffer would wake no thread later.
            if !frames.source().holds_more() {
                return Ok(true);
            }
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        // The source's lock must be free before another thread takes the role.
        self.source = None;
        let mut role = self.reader.role.lock();
        if self.is_last || std::thread::panicking() {
            role.close();
        }
        if role.leave() {
            self.reader.arm(true);
        }
    }
}

impl CommandReader {
    // Sleeps until there are bytes, the connection ends, the notifier rings or the time limit passes.
    fn wait_for_bytes(&self) {
        let mut fds = [
            PollFd::new(&*self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.notifier.fd(), PollFlags::IN),
        ];
        // An interruption ends the sleep too: the caller checks its condition and comes back.
        let _ = rustix::event::poll(&mut fds, Some(&LOOKS_UP_EVERY));
    }
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

// Runs the reading thread. Returns why the connection has ended.
fn read(core: &Core, reader: &CommandReader) -> String {
    let mut ready = Vec::with_capacity(1);
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
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return super::socket::plain(&error.into()),
            }
        }
        let Some(mut reading) = reader.take(Who::Thread) else {
            if reader.role.lock().is_over() {
                // The waiter that found the end has already given the reason.
                return CLOSED.to_owned();
            }
            // A waiter is reading and will arm this thread again.
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

/// Decodes event batches, reusing the same vectors.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    batch: EventBatch,
}

impl Decoder {
    /// Decodes one batch and passes it on.
    ///
    /// # Errors
    /// The reason why the session is over; see [`Core::handle_batch`].
    pub(super) fn handle(&mut self, core: &Core, bytes: impl bytes::Buf) -> Result<(), String> {
        self.batch
            .merge(bytes)
            .map_err(|error| format!("the node sent invalid data: {error}"))?;
        core.handle_batch(&mut self.batch)
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
