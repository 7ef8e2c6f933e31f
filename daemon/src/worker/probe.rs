//! The probing worker: asks the drivers for the inventory, writes it to the supervisor and exits.
//!
//! Drivers may crash, hang or print while they are queried. A process of its own contains that.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use causeway_proto::control::Inventory;
use prost::Message;

use super::errand;
use crate::runtime;

/// Runs the probing worker; the entry point of its process.
#[must_use]
pub fn main() -> ExitCode {
    let Some((channel, lacking)) = errand::start("a probing worker") else {
        return ExitCode::FAILURE;
    };
    let probed = runtime::probe();
    let answer = Inventory {
        platforms: probed.platforms,
        problems: probed.problems,
        remarks: lacking,
        ..Inventory::default()
    };
    errand::answer(channel, &answer.encode_to_vec(), "the inventory")
}
