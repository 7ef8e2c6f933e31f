//! The process that announces the node by mDNS: confined as a worker is, without OpenCL and with little memory.
//!
//! What it does is in `causeway_announcer`. Invariant: the process is confined before it reads its first packet.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use causeway_serving::logging::Logging;

use super::confine;
use crate::sys;

/// Runs the process; its entry point.
#[must_use]
pub fn main() -> ExitCode {
    Logging::inherited().start();
    let Some((channel, _)) = confine::begin("the process that announces the node") else {
        return ExitCode::FAILURE;
    };
    if let Err(error) = causeway_announcer::announce(channel) {
        tracing::warn!(%error, "the node cannot be announced");
        return ExitCode::FAILURE;
    }
    // The responder's thread may still read packets.
    sys::exit_now(0)
}
