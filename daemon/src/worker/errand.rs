//! What the short-lived workers have in common: they start, do one thing, answer their supervisor, exit.
//!
//! What the thing is, the worker's own module says. Invariant: after the answer nothing runs, not even the
//! drivers' exit handlers.
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::confine;
use crate::sys;
use causeway_serving::logging::Logging;

/// Starts `worker` ("a probing worker"): confined, with its channel to the supervisor and what the kernel lacks
/// of the confinement. None, with a line in the log, when that is impossible.
pub(super) fn start(worker: &str) -> Option<(UnixStream, Vec<String>)> {
    Logging::inherited().start();
    let begin = || -> Result<_, confine::NotConfined> {
        let lacking = confine::confine()?;
        Ok((UnixStream::from(confine::take_channel()?), lacking))
    };
    match begin() {
        Ok(begun) => Some(begun),
        Err(error) => {
            tracing::error!(%error, "{worker} cannot start");
            None
        }
    }
}

/// Answers, and ends the process: all is said. `what` the answer is, for the log.
pub(super) fn answer(mut channel: UnixStream, answer: &[u8], what: &str) -> ! {
    match channel.write_all(answer) {
        Ok(()) => sys::exit_now(0),
        Err(error) => {
            tracing::debug!(%error, "the supervisor did not wait for {what}");
            sys::exit_now(1)
        }
    }
}
