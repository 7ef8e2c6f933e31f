//! `causeway bench`: the measurements, by the program that makes them, which is installed beside the tool or named by
//! `CAUSEWAY_BENCH`.
//!
//! The tool becomes that program, so signals and exit code are its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use causeway_devmgr::installation;

use crate::context::Context;
use crate::failure::{Failure, Outcome};

/// What `bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What the program takes: `causeway bench -- --help` tells
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// What a shell answers when a program cannot be started.
const NOT_STARTED: u8 = 127;

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let program = installation::bench().map_err(|error| {
        Failure::new(error.to_string())
            .cure("in the sources: cargo build --release -p bench; then CAUSEWAY_BENCH=target/release/bench")
            .code(NOT_STARTED)
    })?;
    let mut command = Command::new(&program);
    command.args(&arguments.arguments).envs(context.variables());
    // Its figures go to a file, beside the table.
    if context.json() {
        command.arg("--json");
    }
    let error = command.exec();
    Err(Failure::new(format!("{} cannot be started: {error}", program.display())).code(NOT_STARTED))
}
