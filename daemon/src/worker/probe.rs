//! The probing worker: asks the drivers, writes the answers to its supervisor, exits.
//!
//! Drivers may crash, hang or print while they are asked; a process of its own takes that.
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use causeway_proto::control::Inventory;
use prost::Message;

use super::confine;
use crate::logging::Logging;
use crate::{runtime, sys};

/// The process's `main`.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let channel = confine::confine().and_then(|()| confine::take_channel());
    let mut channel = match channel {
        Ok(channel) => UnixStream::from(channel),
        Err(error) => {
            tracing::error!(%error, "a probing worker cannot start");
            return ExitCode::FAILURE;
        }
    };
    let probed = runtime::probe();
    let answer = Inventory {
        platforms: probed.platforms,
        problems: probed.problems,
        ..Inventory::default()
    };
    match channel.write_all(&answer.encode_to_vec()) {
        // Not through the drivers' exit handlers: all is said.
        Ok(()) => sys::exit_now(0),
        Err(error) => {
            tracing::debug!(%error, "the supervisor did not wait for the inventory");
            sys::exit_now(1)
        }
    }
}
