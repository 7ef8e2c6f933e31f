//! The probing worker: asks the drivers for the inventory, writes it to the supervisor and exits.
//!
//! Drivers may crash, hang or print while they are queried. A process of its own contains that. Invariant:
//! nothing runs after the answer, not even the drivers' exit handlers.
#![forbid(unsafe_code)]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use causeway_proto::control::Inventory;
use causeway_serving::logging::Logging;
use prost::Message;

use super::confine;
use crate::{runtime, sys};

/// Runs the probing worker; the entry point of its process.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let Some((channel, lacking)) = confine::begin("a probing worker") else {
        return ExitCode::FAILURE;
    };
    let probed = runtime::probe();
    let answer = Inventory {
        platforms: probed.platforms,
        problems: probed.problems,
        remarks: lacking,
        ..Inventory::default()
    };
    let written = UnixStream::from(channel).write_all(&answer.encode_to_vec());
    if let Err(error) = &written {
        tracing::debug!(%error, "the supervisor closed its socket before the inventory was ready");
    }
    // No destructor or exit handler of a driver runs, because it could block.
    sys::exit_now(i32::from(written.is_err()))
}
