//! `causeway bench`: runs the benchmark program, which is installed next to the tool or named by
//! `CAUSEWAY_BENCH`.
//!
//! The program replaces this process, so that signals and exit code are its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use causeway_devmgr::installation;

use crate::context::Context;
use crate::failure::{Failure, Outcome};

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The program's arguments; `causeway bench -- --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Exit code of a shell for a program that cannot be started.
const NOT_STARTED: u8 = 127;

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let program = installation::bench().map_err(|error| {
        Failure::new(error.to_string())
            .cure("in the sources: cargo build --release -p bench; then CAUSEWAY_BENCH=target/release/bench")
            .code(NOT_STARTED)
    })?;
    let mut command = Command::new(&program);
    command.args(&arguments.arguments).envs(context.variables());
    // With `--json`, the program writes its results to a file, in addition to the table.
    if context.json() {
        command.arg("--json");
    }
    let error = command.exec();
    Err(Failure::new(format!("{} cannot be started: {error}", program.display())).code(NOT_STARTED))
}
