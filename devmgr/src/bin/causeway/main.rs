//! `causeway`, the command-line tool. One file per verb.
#![forbid(unsafe_code)]

mod devices;
mod doctor;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Use the OpenCL devices of other machines.
#[derive(Debug, Parser)]
#[command(name = "causeway", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a program so that it sees Causeway's devices
    Run(run::Arguments),
    /// Show each node, its devices, the round-trip time, and what is wrong with it
    Devices(devices::Arguments),
    /// Check loader, configuration, network and nodes; name each cause and its cure
    Doctor(doctor::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Devices(arguments) => devices::run(&arguments),
        Verb::Doctor(arguments) => doctor::run(&arguments),
    }
}
