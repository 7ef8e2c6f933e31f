//! `causeway completions SHELL`: prints the script with which a shell completes the tool's verbs and
//! options.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::context::Context;
use crate::failure::Outcome;
use crate::json::Script;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let mut tool = crate::Arguments::command();
    let name = tool.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut tool, name, &mut script);
    let script = Script {
        shell: arguments.shell.to_string(),
        script: String::from_utf8_lossy(&script).into_owned(),
    };
    context.print(&script, |of| of.script.clone())
}
