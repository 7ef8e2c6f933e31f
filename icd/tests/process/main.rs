//! The process that loads the library: forks, threads that cannot start, standard error that cannot be written, exit.
#![allow(unsafe_code, missing_docs)]

#[macro_use]
#[path = "../frames/mod.rs"]
mod frames;

mod late_calls;
mod no_threads;
mod session;
mod unwritable_stderr;
