//! `causewayd`, the node daemon: settings, log, serve, drain.
//!
//! The same binary is every process of a daemon: the supervisor, its workers and the probing worker,
//! told apart by a hidden flag.

use std::process::ExitCode;

use causeway_daemon::config::{Flags, Settings};
use causeway_daemon::{supervisor, sys, worker};
use causeway_serving::{complain, raise_descriptors};
use clap::Parser;

/// A wrong flag or file, as clap's own errors.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // Before anything opens a descriptor.
    let inherited = sys::take_inherited();
    let flags = Flags::parse();
    if flags.internal_worker {
        return worker::service::main();
    }
    if flags.internal_probe {
        return worker::probe::main();
    }
    if flags.internal_compile {
        return worker::compile::main();
    }
    let settings = match Settings::from_flags(&flags) {
        Ok(settings) => settings,
        Err(error) => {
            complain("causewayd", &error);
            return ExitCode::from(USAGE);
        }
    };
    settings.logging.start();
    raise_descriptors();
    match supervisor::run(settings, inherited) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain("causewayd", &error);
            ExitCode::FAILURE
        }
    }
}
