//! The output of kernels: the worker's standard output, captured in a pipe. In a host, a session has a
//! [`Seat`] at the host's [`console`](super::console).
//!
//! The pipe is drained before a batch with completions leaves. So text arrives before the completion of
//! the kernel that printed it. At other times a dedicated thread drains it, so that a kernel that prints
//! much does not find it full for long. Each drain costs a system call, so drains begin only when a
//! program that may print has been made.
#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use causeway_proto::source::{contains, spliced};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};

use super::console::Seat;

/// Size of one read, in bytes.
const PIECE: usize = 64 << 10;
/// Maximum length of text in one batch, in bytes. This is more than the pipe holds. So all text printed
/// before a batch began is in it, however much is printed meanwhile.
const MOST: usize = 1 << 20;

/// The captured standard output.
pub(crate) struct Printed {
    from: Source,
    expected: AtomicBool,
}

/// Where printed text comes from.
enum Source {
    Nothing,
    /// The session's own pipe.
    Pipe(OwnedFd),
    /// The console of the host.
    Seat(Arc<Seat>),
}

impl Printed {
    /// Watches `pipe`, which must be non-blocking; with `None` nothing is captured.
    pub(crate) fn new(pipe: Option<OwnedFd>) -> Printed {
        Printed {
            from: pipe.map_or(Source::Nothing, Source::Pipe),
            expected: AtomicBool::new(false),
        }
    }

    /// Uses a place at the console of a host.
    pub(crate) fn at(seat: Arc<Seat>) -> Printed {
        Printed {
            from: Source::Seat(seat),
            expected: AtomicBool::new(false),
        }
    }

    /// The session's place at the console of its host; `None` in a worker of its own.
    pub(crate) fn seat(&self) -> Option<&Arc<Seat>> {
        match &self.from {
            Source::Seat(seat) => Some(seat),
            Source::Nothing | Source::Pipe(_) => None,
        }
    }

    /// Notes that kernels may print from now on.
    pub(crate) fn expect(&self) {
        self.expected.store(true, Ordering::Release);
    }

    /// Whether a program may make kernels print. Source code names `printf`, or may hide it behind token
    /// pasting. A line continuation hides neither. Other forms (`None`) always may.
    pub(crate) fn may_come_from(source: Option<&[u8]>) -> bool {
        let Some(source) = source else { return true };
        let source = spliced(source);
        let pastes = || {
            [&b"##"[..], b"%:%:", b"??=??=", b"#??=", b"??=#"]
                .iter()
                .any(|by| contains(&source, by))
        };
        contains(&source, b"printf") || pastes()
    }

    /// Returns the text so far, up to about [`MOST`] bytes. The rest stays in the pipe.
    pub(crate) fn drain(&self) -> Vec<Bytes> {
        if !self.expected.load(Ordering::Acquire) {
            return Vec::new();
        }
        match &self.from {
            Source::Nothing => Vec::new(),
            Source::Pipe(pipe) => read_available(pipe),
            Source::Seat(seat) => seat.drain(),
        }
    }

    /// Waits until there is text in the session's own pipe. Returns false if there will never be any.
    pub(crate) fn wait(&self) -> bool {
        let Source::Pipe(pipe) = &self.from else {
            return false;
        };
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {
                // There may be text before any program was expected to print, such as a driver's greeting.
                self.expect();
                let seen = fds[0].revents();
                // The pipe is hung up and empty: the process has closed its standard output.
                let over = seen.contains(PollFlags::HUP) && !seen.contains(PollFlags::IN);
                !over && !seen.intersects(PollFlags::ERR | PollFlags::NVAL)
            }
            Err(Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

/// Reads what a pipe has now, up to about [`MOST`] bytes. The pipe must not block.
pub(super) fn read_available(pipe: &OwnedFd) -> Vec<Bytes> {
    let mut text = Vec::new();
    let mut taken = 0;
    while taken < MOST {
        let mut piece = vec![0u8; PIECE];
        match read(pipe, &mut piece) {
            Ok(0) => break,
            Ok(n) => {
                taken += n;
                piece.truncate(n);
                text.push(Bytes::from(piece));
            }
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn text_is_drained_once_it_is_expected() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let printed = Printed::new(Some(read));
        rustix::io::write(&write, b"one").unwrap();
        assert!(printed.drain().is_empty());
        printed.expect();
        assert_eq!(printed.drain(), [Bytes::from_static(b"one")]);
        assert!(printed.drain().is_empty());
    }

    #[test]
    fn a_batch_takes_no_more_than_its_share() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let printed = Printed::new(Some(read));
        printed.expect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Prints without pause, as fast as the text is read.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = rustix::io::write(&write, &[b'x'; PIECE]);
                }
            });
            for _ in 0..4 {
                let text: usize = printed.drain().iter().map(Bytes::len).sum();
                assert!(text < MOST + PIECE, "{text}");
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !printed.drain().is_empty() {}
    }

    #[test]
    fn a_closed_output_is_not_waited_for() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let printed = Printed::new(Some(read));
        rustix::io::write(&write, b"one").unwrap();
        drop(write);
        assert!(printed.wait());
        assert_eq!(printed.drain().len(), 1);
        assert!(!printed.wait());
    }

    #[test]
    fn only_source_without_a_way_to_print_cannot_print() {
        assert!(!Printed::may_come_from(Some(b"kernel void f() {}")));
        assert!(Printed::may_come_from(Some(
            b"kernel void f() { printf(\"x\"); }"
        )));
        assert!(Printed::may_come_from(Some(b"#define P(a) pri##a")));
        assert!(Printed::may_come_from(Some(b"pri\\\nntf(\"x\")")));
        assert!(Printed::may_come_from(Some(b"pri??/\r\nntf(\"x\")")));
        assert!(Printed::may_come_from(Some(b"pri%:\\ \n%:ntf")));
        assert!(Printed::may_come_from(Some(b"#define P(a) pri#??=a")));
        assert!(Printed::may_come_from(Some(b"#define P(a) pri??=#a")));
        assert!(!Printed::may_come_from(Some(
            b"#define A \\\n kernel void f() {}"
        )));
        assert!(Printed::may_come_from(None));
    }
}
