//! `causeway`, the command-line tool. Each verb has a file with its arguments and its `run` function. All
//! verbs share `context` (options, output), `connection` (the device manager) and `json` (the output of
//! `--json`).
#![forbid(unsafe_code)]
// These macros panic when the output is closed: see `say` and `Context::print`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod connection;
mod context;
mod failure;
mod json;
mod lease_guard;
mod new_file;
mod progress;
mod request_options;
mod say;
mod session_reports;
mod signals;
mod text;
mod trace_file;
mod validity;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use context::Context;
use failure::Outcome;

/// Use the OpenCL devices of other machines.
#[derive(Debug, Parser)]
#[command(name = "causeway", version)]
struct Arguments {
    #[command(flatten)]
    context: Context,
    #[command(subcommand)]
    verb: Verb,
}

/// The table of verbs: `Name: file`. Each file has `Arguments`, and `run(&Arguments, &Context) ->
/// Outcome`.
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
    /// Run a program with Causeway's devices
    Run: run,
    /// Run a program, and write a timeline of its OpenCL calls, queues and transfers
    Trace: trace,
    /// Show each node with its devices, round-trip time and problems
    Devices: devices,
    /// Show the nodes that announce themselves on this machine's networks
    Discover: discover,
    /// Show how fast the nodes and this machine reach each other, and measure it
    Links: links,
    /// Check whether the device manager could grant devices now, without taking them
    Request: request,
    /// Show your leases; administrators see all
    Leases: leases,
    /// Release a lease, or cancel a waiting request
    Release: release,
    /// Show the waiting requests, their positions, and why they wait
    Queue: queue,
    /// Show the device manager's nodes, drain, resume or remove one; for administrators
    Nodes: nodes,
    /// Show the device managers that share a store, and make another one lead; for administrators
    Managers: managers,
    /// Add and remove the device manager's users, and set their permissions; for administrators
    Users: users,
    /// Create and revoke users' tokens
    Tokens: tokens,
    /// Show and set the quotas of users and groups
    Quota: quota,
    /// Make a small CA, and certificates for nodes, the device manager and users
    Certs: certs,
    /// Watch nodes, devices, leases and the queue; for administrators
    Top: top,
    /// Check loader, configuration, network and nodes; show each problem with its cure
    Doctor: doctor,
    /// Run the benchmarks, with the program that is installed next to this tool
    Bench: bench,
    /// Print a shell's completion script for this tool
    Completions: completions,
    /// Write the manual pages
    Man: man,
}

fn main() -> ExitCode {
    let Arguments { context, verb } = Arguments::parse();
    let outcome = verb.run(&context);
    outcome.unwrap_or_else(|failure| context.fail(verb.name(), &failure))
}
