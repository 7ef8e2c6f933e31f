//! What the library says on the application's standard error.
//!
//! It is said on threads of the application, too. So a standard error that is full, closed or a pipe without a reader
//! neither ends the program nor fails a call: the text is lost. One that takes nothing is waited for [`PATIENCE`],
//! once; then text is lost until it takes some again. What it is not: a place for locks, which a `fork` could leave
//! locked. Invariant: nothing here panics.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How long a reader may keep the program waiting. Who pages through the text reads on with gaps.
const PATIENCE: Duration = Duration::from_secs(1);
/// As much goes into a pipe that takes anything, without waiting (`PIPE_BUF`).
const PIECE: usize = 4096;

/// Whether the last text was waited for in vain.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// Standard error for who writes whole lines. Never fails.
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

/// Says a line of the library's, where there is no log yet.
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
            // Another was faster; it may have been made not to block, by whoever else has it.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Whether a write does not have to wait, or fails at once.
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
            // A handler of the application ran.
            Err(Errno::INTR) => {}
            answer => break answer != Ok(0),
        }
    };
    IS_STUCK.store(!takes, Ordering::Relaxed);
    takes
}
