//! The standard output of a host, which kernels of several sessions print to.
//!
//! The C library has one standard output for the whole process. So commands that may print take turns by
//! session: while one session's commands are in progress, those of another wait. All text in the pipe then
//! belongs to the session whose turn it is. Commands that cannot print take no turn and run beside these.
//!
//! Invariants: before the turn passes to another session, the pipe is drained for the session that had it.
//! Turns pass in the order of requests, so no session waits for more than the commands that are in progress
//! when it asks.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::printed::read_available;

/// The captured standard output of a host. Clones share it.
#[derive(Clone)]
pub(crate) struct Console(Arc<Shared>);

struct Shared {
    /// The read end, which does not block.
    pipe: OwnedFd,
    state: Mutex<ConsoleState>,
    passed: Condvar,
}

#[derive(Default)]
struct ConsoleState {
    /// The session that the text in the pipe belongs to.
    owner: Option<Arc<Seat>>,
    /// Number of commands of the owner that may print and have not ended.
    running: usize,
    /// Requests that wait for a turn, by number.
    waiting: VecDeque<u64>,
    last: u64,
}

/// A session's place at the console.
pub(crate) struct Seat {
    console: Console,
    /// Text that was drained for the session and not sent yet.
    text: Mutex<Vec<Bytes>>,
    /// Has the session send its text.
    wake: OnceLock<Weak<dyn Wake>>,
    is_over: AtomicBool,
}

/// A session that can be told that its kernels have printed.
pub(crate) trait Wake: Send + Sync {
    /// Sends the printed text. Returns when some of it was taken from the pipe.
    fn text_waits(&self);
}

/// A command that may print, until dropped: the right of its session to the console.
pub(crate) struct Turn(Arc<Seat>);

/// The session has ended while its command waited for a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SessionOver;

impl Console {
    /// Makes the console over the read end of a pipe, which must not block.
    pub(crate) fn new(pipe: OwnedFd) -> Console {
        Console(Arc::new(Shared {
            pipe,
            state: Mutex::default(),
            passed: Condvar::new(),
        }))
    }

    /// Makes a place for a session.
    pub(crate) fn seat(&self) -> Arc<Seat> {
        Arc::new(Seat {
            console: self.clone(),
            text: Mutex::default(),
            wake: OnceLock::new(),
            is_over: AtomicBool::new(false),
        })
    }

    /// Has the owner of each text send it, so that a kernel that prints much does not find the pipe full.
    /// Returns when the pipe is closed.
    pub(crate) fn serve(&self) {
        loop {
            let mut fds = [PollFd::new(&self.0.pipe, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) if fds[0].revents().contains(PollFlags::IN) => self.wake_owner(),
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            }
        }
    }

    fn wake_owner(&self) {
        let wake = {
            let state = self.0.state.lock();
            let owner = state.owner.as_ref();
            owner.and_then(|owner| owner.wake.get()?.upgrade())
        };
        match wake {
            Some(wake) => wake.text_waits(),
            // A driver's greeting, or text of a session that has ended.
            None => drop(read_available(&self.0.pipe)),
        }
    }
}

impl Seat {
    /// Sets whom to tell that text waits.
    pub(crate) fn wakes(&self, wake: Weak<dyn Wake>) {
        let _ = self.wake.set(wake);
    }

    /// Waits for a turn for a command that may print. Calls `before_wait` first if it has to wait: the
    /// caller must flush all native commands, because other sessions wait for those of this one.
    ///
    /// # Errors
    /// [`SessionOver`].
    pub(crate) fn enter(self: &Arc<Seat>, before_wait: impl FnOnce()) -> Result<Turn, SessionOver> {
        let Shared { state, passed, .. } = &*self.console.0;
        let mut state = state.lock();
        if !state.waiting.is_empty() || !state.is_open_to(self) {
            state.last += 1;
            let number = state.last;
            state.waiting.push_back(number);
            drop(state);
            before_wait();
            state = self.console.0.state.lock();
            let may_go = |state: &ConsoleState| {
                let is_next = state.waiting.front() == Some(&number) && state.is_open_to(self);
                is_next || self.is_over.load(Ordering::Acquire)
            };
            while !may_go(&state) {
                passed.wait(&mut state);
            }
            state.waiting.retain(|waiting| *waiting != number);
            // The next request may be one of the same session.
            passed.notify_all();
        }
        if self.is_over.load(Ordering::Acquire) {
            return Err(SessionOver);
        }
        let before = state.pass_to(self, &self.console.0.pipe);
        state.running += 1;
        drop(state);
        // Without the lock, because the session before sends its last text now.
        if let Some(wake) = before.and_then(|before| before.wake.get()?.upgrade()) {
            wake.text_waits();
        }
        Ok(Turn(Arc::clone(self)))
    }

    /// Returns the session's text so far.
    pub(crate) fn drain(&self) -> Vec<Bytes> {
        let state = self.console.0.state.lock();
        let mut text = std::mem::take(&mut *self.text.lock());
        if state.is_owned_by(self) {
            text.extend(read_available(&self.console.0.pipe));
        }
        text
    }

    /// Ends the session's use of the console. Its waiting commands fail.
    pub(crate) fn leave(&self) {
        self.is_over.store(true, Ordering::Release);
        let mut state = self.console.0.state.lock();
        if state.is_owned_by(self) && state.running == 0 {
            drop(read_available(&self.console.0.pipe));
            state.owner = None;
        }
        drop(state);
        self.console.0.passed.notify_all();
    }
}

impl ConsoleState {
    fn is_owned_by(&self, seat: &Seat) -> bool {
        let owner = self.owner.as_ref();
        owner.is_some_and(|owner| std::ptr::eq(Arc::as_ptr(owner), seat))
    }

    fn is_open_to(&self, seat: &Seat) -> bool {
        self.running == 0 || self.is_owned_by(seat)
    }

    /// Makes `seat` the owner, after draining the pipe for the owner before. Returns the latter if it has text
    /// to send.
    fn pass_to(&mut self, seat: &Arc<Seat>, pipe: &OwnedFd) -> Option<Arc<Seat>> {
        if self.is_owned_by(seat) {
            return None;
        }
        let left = read_available(pipe);
        let before = self.owner.replace(Arc::clone(seat))?;
        let mut text = before.text.lock();
        text.extend(left);
        let has_text = !text.is_empty();
        drop(text);
        has_text.then_some(before)
    }
}

impl Drop for Turn {
    /// Keeps the session's text apart before another session may print. Makes no driver call.
    fn drop(&mut self) {
        let seat = &self.0;
        let shared = &seat.console.0;
        let mut state = shared.state.lock();
        state.running -= 1;
        if state.running > 0 {
            return;
        }
        seat.text.lock().extend(read_available(&shared.pipe));
        if seat.is_over.load(Ordering::Acquire) {
            state.owner = None;
        }
        drop(state);
        shared.passed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::sync::mpsc;

    fn console() -> (Console, OwnedFd) {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        (Console::new(read), write)
    }

    fn print(pipe: &OwnedFd, text: &str) {
        rustix::io::write(pipe, text.as_bytes()).unwrap();
    }

    fn text(seat: &Seat) -> String {
        String::from_utf8(seat.drain().concat()).unwrap()
    }

    #[test]
    fn text_reaches_the_session_whose_turn_it_was() {
        let (console, pipe) = console();
        let (one, other) = (console.seat(), console.seat());
        let turn = one.enter(|| ()).unwrap();
        let again = one.enter(|| panic!("its own turn")).unwrap();
        print(&pipe, "one");
        let (flushed, flushes) = mpsc::channel();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let turn = other.enter(|| flushed.send(()).unwrap()).unwrap();
                print(&pipe, "other");
                drop(turn);
            });
            flushes.recv().unwrap();
            drop(turn);
            assert!(!waits.is_finished());
            print(&pipe, " more");
            drop(again);
            waits.join().unwrap();
        });
        assert_eq!(
            (text(&one), text(&other)),
            ("one more".into(), "other".into())
        );
        // Late text belongs to the session that had the last turn.
        print(&pipe, "late");
        assert_eq!((text(&one), text(&other)), (String::new(), "late".into()));
    }

    #[derive(Default)]
    struct Bell(AtomicBool);

    impl Wake for Bell {
        fn text_waits(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn late_text_is_sent_when_the_turn_passes() {
        let (console, pipe) = console();
        let (one, other) = (console.seat(), console.seat());
        let bell = Arc::new(Bell::default());
        let weak: Weak<Bell> = Arc::downgrade(&bell);
        one.wakes(weak);
        drop(one.enter(|| ()).unwrap());
        assert!(!bell.0.load(Ordering::Relaxed));
        print(&pipe, "late");
        drop(other.enter(|| ()).unwrap());
        assert!(bell.0.load(Ordering::Relaxed));
        assert_eq!((text(&one), text(&other)), ("late".into(), String::new()));
    }

    #[test]
    fn the_end_of_a_session_frees_its_wait_and_its_turn() {
        let (console, pipe) = console();
        let (one, other) = (console.seat(), console.seat());
        let turn = one.enter(|| ()).unwrap();
        let (flushed, flushes) = mpsc::channel();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| other.enter(|| flushed.send(()).unwrap()).map(drop));
            flushes.recv().unwrap();
            other.leave();
            assert_eq!(waits.join().unwrap(), Err(SessionOver));
        });
        one.leave();
        print(&pipe, "unread");
        drop(turn);
        let third = console.seat();
        drop(third.enter(|| panic!("nobody else")).unwrap());
        assert_eq!(text(&third), "");
    }
}
