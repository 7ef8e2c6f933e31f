//! The common part of the short-lived workers: they start, do one task, answer the supervisor and exit.
//!
//! The worker's own module defines the task. Invariant: nothing runs after the answer, not even the
//! drivers' exit handlers.
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::confine;
use crate::sys;
use causeway_serving::logging::Logging;

/// Starts a short-lived worker: sets logging up, confines the process and takes the channel to the supervisor.
///
/// `worker` is a description for the log, such as "a probing worker". Returns the channel and the confinement
/// features that the kernel lacks. Returns `None` after logging an error if the worker cannot start.
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

/// Sends `answer` to the supervisor and ends the process. `what` describes the answer in the log.
pub(super) fn answer(mut channel: UnixStream, answer: &[u8], what: &str) -> ! {
    match channel.write_all(answer) {
        Ok(()) => sys::exit_now(0),
        Err(error) => {
            tracing::debug!(%error, "the supervisor closed its socket before {what} was ready");
            sys::exit_now(1)
        }
    }
}
