//! Tests of command buffers: recording, replays, changes and refusals.
#![allow(unsafe_code, missing_docs, unreachable_pub)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod errors;
mod memory;
mod mutable;
mod mutable_commands;
mod mutable_errors;
mod replays;
