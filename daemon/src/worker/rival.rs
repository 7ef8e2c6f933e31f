//! The rival process: tries to make a context on each device whose compute mode is unknown, reports the
//! results, and keeps the contexts until the supervisor closes the socket.
//!
//! The supervisor runs two at the same time. Where only the first one gets a context, the device is in
//! exclusive mode. Invariant: no exit handler of a driver runs.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use causeway_serving::logging::Logging;
use prost::Message;

use super::confine;
use crate::handover::{Trials, TriedDevice};
use crate::{runtime, sys};

/// Runs the rival process; the entry point of its process.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let begin = || -> Result<_, confine::NotConfined> {
        confine::confine()?;
        Ok(UnixStream::from(confine::take_channel()?))
    };
    let mut channel = match begin() {
        Ok(channel) => channel,
        Err(error) => {
            tracing::error!(%error, "a process that tries contexts cannot start");
            return ExitCode::FAILURE;
        }
    };
    let tried = runtime::try_contexts();
    let report = Trials {
        tried: tried
            .iter()
            .map(|of| TriedDevice {
                platform: of.platform,
                device: of.device,
                made: of.context.is_some(),
            })
            .collect(),
    };
    let written = channel
        .write_all(&report.encode_to_vec())
        .and_then(|()| channel.shutdown(Shutdown::Write));
    if written.is_ok() {
        // The contexts live until the supervisor has heard the other process, too.
        let _ = channel.read(&mut [0]);
    }
    sys::exit_now(i32::from(written.is_err()))
}
