//! Tests of the process that loads the library: forks, threads that cannot start, unwritable standard error, exit.
#![allow(unsafe_code, missing_docs)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod farewell;
mod late_calls;
mod no_threads;
mod session;
mod traced;
mod unwritable_stderr;
