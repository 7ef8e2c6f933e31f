//! `network`: several hosts on this machine, as long as one process holds them.
//!
//! `up` builds a network and holds it. The other commands talk to that process over a socket in `/run`.
//! The operations are implemented in `causeway_network`. This program has only the command line, the
//! socket and the output.

#![forbid(unsafe_code)]

mod arguments;
mod holder;
mod protocol;
mod report;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Verb};
use protocol::Change;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Network(#[from] causeway_network::Error),
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error("{0}")]
    Said(String),
}

impl Failure {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match act(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("network: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn act(arguments: &Arguments) -> Result<(), Failure> {
    let name = &arguments.name;
    let change = |change| verbs::change(name, change);
    match &arguments.verb {
        Verb::Up(up) if up.detach => verbs::detach(name),
        Verb::Up(up) => holder::hold(name, &up.builder()),
        Verb::Run { host, command } => Err(verbs::run(name, *host, command)),
        Verb::Status { json } => verbs::status(name, *json),
        Verb::Shape { ends, shape } => {
            let shape = shape.shape();
            change(Change::Shape(ends.into(), shape))
        }
        Verb::Cut(ends) => change(Change::Cut(ends.into(), true)),
        Verb::Mend(ends) => change(Change::Cut(ends.into(), false)),
        Verb::RefuseDialling(ends) => change(Change::Dialling(ends.into(), false)),
        Verb::AllowDialling(ends) => change(Change::Dialling(ends.into(), true)),
        Verb::Block { host, port, reset } => change(Change::Port {
            host: *host,
            port: *port,
            door: if *reset {
                protocol::Door::Reset
            } else {
                protocol::Door::Silent
            },
        }),
        Verb::Open { host, port } => change(Change::Port {
            host: *host,
            port: *port,
            door: protocol::Door::Open,
        }),
        Verb::Unplug { host } => change(Change::Plugged(*host, false)),
        Verb::Plug { host } => change(Change::Plugged(*host, true)),
        Verb::Down => verbs::down(name),
        Verb::Clean => verbs::clean(),
    }
}
