//! `causeway trace -- PROGRAM…`: runs a program as `causeway run` does, and writes a timeline of what it does with
//! OpenCL.

use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::failure::Outcome;
use crate::run::{self, Program};
use crate::trace_file::Format;

/// Arguments of `trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write the trace to this file; default: PROGRAM.pftrace, with --json PROGRAM.json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    program: Program,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let Arguments { out, program } = arguments;
    let format = match context.json() {
        true => Format::Chrome,
        false => out.as_deref().map_or(Format::Perfetto, Format::of),
    };
    let path = out.clone().unwrap_or_else(|| {
        let name = Path::new(program.name()).file_name();
        let mut path = name.unwrap_or("trace".as_ref()).to_owned();
        path.push(".");
        path.push(format.extension());
        path.into()
    });
    run::run_program(program, Some((&path, format)), context)
}
