//! The library's output on the application's standard error.
//!
//! Threads of the application write too. So a standard error that is full, closed or a pipe without a
//! reader neither ends the program nor fails a call: the text is lost. A write waits up to [`PATIENCE`] for
//! a reader that accepts nothing. After that, text is lost without waiting until the reader accepts some
//! again. This module takes no lock, because a `fork` could leave it locked. Invariant: nothing here
//! panics.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Longest time that a slow reader may delay the program. A reader that pauses for longer misses lines.
const PATIENCE: Duration = Duration::from_secs(1);
/// Largest piece of a write, in bytes. A pipe that accepts anything accepts this much without blocking
/// (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Whether the last wait ran into the timeout.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Standard error as a writer for whole lines. Writes never fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        write(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a line of the library, for use where no log exists yet.
pub(crate) fn say(what: impl std::fmt::Display) {
    write(format!("causeway: {what}\n").as_bytes());
}

fn write(text: &[u8]) {
    crate::sigpipe::without(|| {
        for piece in text.chunks(PIECE) {
            if !write_piece(piece) {
                return;
            }
        }
    });
}

fn write_piece(mut piece: &[u8]) -> bool {
    while !piece.is_empty() {
        if !takes_some() {
            return false;
        }
        match rustix::io::write(rustix::stdio::stderr(), piece) {
            Ok(0) => return false,
            Ok(taken) => piece = &piece[taken..],
            // Another writer was faster: the descriptor may be non-blocking, because another process set
            // that for all of its users.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Waits until a write would not block. Returns false after the timeout.
fn takes_some() -> bool {
    let patience = match IS_STUCK.load(Ordering::Relaxed) {
        true => Duration::ZERO,
        false => PATIENCE,
    };
    let until = Instant::now() + patience;
    let stderr = rustix::stdio::stderr();
    let mut asked = [PollFd::new(&stderr, PollFlags::OUT)];
    let takes = loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut asked, Some(&left)) {
            // A signal handler of the application ran.
            Err(Errno::INTR) => {}
            answer => break answer != Ok(0),
        }
    };
    IS_STUCK.store(!takes, Ordering::Relaxed);
    takes
}
