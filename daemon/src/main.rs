//! `causewayd`, the node daemon: reads its settings, starts logging, serves and drains.
//!
//! All processes of a daemon run this binary: the supervisor, the workers and those that ask drivers. A hidden flag
//! selects the role.

use std::process::ExitCode;

use causeway_daemon::config::{Flags, Settings};
use causeway_daemon::{supervisor, sys, worker};
use causeway_serving::{complain, raise_descriptors};
use clap::Parser;

/// Exit code for a wrong flag or configuration file, the same as for clap's own errors.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // This comes first: descriptors that are opened later must not be mistaken for inherited ones.
    let inherited = sys::take_inherited();
    let flags = Flags::parse();
    if flags.internal_worker {
        return worker::service::main();
    }
    if flags.internal_probe {
        return worker::probe::main();
    }
    if flags.internal_measure {
        return worker::measure::main();
    }
    if flags.internal_cards {
        return worker::cards::main();
    }
    if flags.internal_announce {
        return worker::announce::main();
    }
    if flags.internal_link {
        return worker::link_end::main();
    }
    if flags.internal_find {
        return worker::find::main();
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
