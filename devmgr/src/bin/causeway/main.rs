//! `causeway`, the command-line tool. One file per verb, each with its arguments and how they are run; what they
//! share is `context` (options, output), `connection` (the device manager), `json` (what `--json` prints).
#![forbid(unsafe_code)]
// They panic where nobody reads: see `say` and `Context::print`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod connection;
mod context;
mod failure;
mod held;
mod json;
mod new_file;
mod progress;
mod say;
mod signals;
mod text;
mod validity;
mod wish;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use context::{Context, Options};
use failure::Outcome;

/// Use the OpenCL devices of other machines.
#[derive(Debug, Parser)]
#[command(name = "causeway", version)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    verb: Verb,
}

/// The table of verbs: `Name: file`. Each file has `Arguments`, and `run(&Arguments, &Context) -> Outcome`.
macro_rules! verbs {
    ($($(#[$help:meta])* $verb:ident: $file:ident,)*) => {
        $(mod $file;)*

        #[derive(Debug, Subcommand)]
        enum Verb {
            $($(#[$help])* $verb($file::Arguments),)*
        }

        impl Verb {
            fn name(&self) -> &'static str {
                match self {
                    $(Verb::$verb(_) => stringify!($file),)*
                }
            }

            fn run(&self, context: &Context) -> Outcome {
                match self {
                    $(Verb::$verb(arguments) => $file::run(arguments, context),)*
                }
            }
        }
    };
}

verbs! {
    /// Run a program so that it sees Causeway's devices
    Run: run,
    /// Show each node, its devices, the round-trip time, and what is wrong with it
    Devices: devices,
    /// Tell whether devices could be had of the device manager now, without taking them
    Request: request,
    /// Show your leases; administrators see all
    Leases: leases,
    /// Give a lease back, or take a request out of the queue
    Release: release,
    /// Show who waits for devices, and where in the queue
    Queue: queue,
    /// Show the device manager's nodes, or take one out of use and back; for administrators
    Nodes: nodes,
    /// Add and remove the device manager's users, and say what they may do; for administrators
    Users: users,
    /// Make and revoke the tokens that users show
    Tokens: tokens,
    /// Show and set what users and groups may have
    Quota: quota,
    /// Make a small CA, and certificates for nodes, the device manager and users
    Certs: certs,
    /// Watch nodes, devices, leases and the queue; for administrators
    Top: top,
    /// Check loader, configuration, network and nodes; name each cause and its cure
    Doctor: doctor,
    /// Measure, by the program that comes with it
    Bench: bench,
    /// Print what makes a shell complete the tool's verbs
    Completions: completions,
    /// Write the manual pages
    Man: man,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let context = Context::new(arguments.options);
    let verb = &arguments.verb;
    let outcome = verb.run(&context);
    outcome.unwrap_or_else(|failure| context.fail(verb.name(), &failure))
}
