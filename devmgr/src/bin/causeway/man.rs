//! `causeway man DIR`: writes manual pages, from the help texts of the tool and the device manager, with
//! additions from [`sections`].

mod sections;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use causeway_devmgr::settings::Flags;
use clap::{Command, CommandFactory};

use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::json::Pages;

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder for the pages; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(arguments: &Arguments, context: &Context) -> Outcome {
    let folder = &arguments.directory;
    let mut pages = Vec::new();
    fs::create_dir_all(folder)
        .and_then(|()| write_all(crate::Arguments::command(), folder, &mut pages))
        .and_then(|()| write_all(Flags::command(), folder, &mut pages))
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    context.print(&Pages { pages }, |made| {
        let lines = made.pages.iter();
        lines.map(|page| format!("{}\n", page.display())).collect()
    })
}

/// Writes a program's page, and one for each of its verbs.
fn write_all(program: Command, folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    // Before `build`, which would add a verb "help" that lists all verbs, below each of them.
    let mut program = program.disable_help_subcommand(true);
    program.build();
    write(&program, folder, pages)
}

fn write(command: &Command, folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    let path = clap_mangen::Man::new(command.clone()).generate_to(folder)?;
    let mut page = fs::OpenOptions::new().append(true).open(&path)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    for section in sections::of(&name) {
        page.write_all(section.roff().as_bytes())?;
    }
    pages.push(path);
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs
        .into_iter()
        .try_for_each(|verb| write(verb, folder, pages))
}
