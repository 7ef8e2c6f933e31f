//! The probing worker: asks the drivers, writes the answers to its supervisor, exits.
//!
//! Drivers may crash, hang or print while they are asked; a process of its own takes that.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use causeway_proto::control::Inventory;
use prost::Message;

use super::errand;
use crate::runtime;

/// The process's `main`.
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
