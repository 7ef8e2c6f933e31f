//! `causeway man DIR`: writes manual pages, from the help texts of the tool and the device manager. Adds
//! the sections that clap does not make: request language, environment, files, exit status, examples.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use causeway_devmgr::flags::Flags;
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
    for section in sections(&name) {
        page.write_all(section.roff().as_bytes())?;
    }
    pages.push(path);
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    verbs
        .into_iter()
        .try_for_each(|verb| write(verb, folder, pages))
}

/// A section: its title, and entries of a term and its meaning. An entry without a term is a paragraph.
struct Section {
    title: &'static str,
    entries: &'static [(&'static str, &'static str)],
}

/// The names of the variables that the pages list.
pub(crate) fn variables() -> impl Iterator<Item = &'static str> {
    let names = |(names, _): &(&'static str, &str)| names.split(", ");
    ENVIRONMENT.entries.iter().flat_map(names)
}

/// The additional sections of a page, by its name.
fn sections(page: &str) -> Vec<&'static Section> {
    match page {
        "causeway" => vec![&ENVIRONMENT, &FILES, &STATUS, &SEE_ALSO],
        "causeway-trace" => vec![
            &REQUESTS,
            &ENVIRONMENT,
            &STATUS_OF_RUN,
            &EXAMPLES_OF_TRACE,
            &SEE_ALSO,
        ],
        "causeway-run" => vec![
            &REQUESTS,
            &ENVIRONMENT,
            &FILES,
            &STATUS_OF_RUN,
            &EXAMPLES_OF_RUN,
            &SEE_ALSO,
        ],
        "causeway-request" => vec![&REQUESTS, &STATUS, &SEE_ALSO],
        "causeway-devmgr" => vec![&FILES_OF_MANAGER, &SEE_ALSO],
        _ => vec![&STATUS, &SEE_ALSO],
    }
}

impl Section {
    /// The section in roff.
    fn roff(&self) -> String {
        let mut roff = format!(".SH {}\n", self.title);
        for (term, meaning) in self.entries {
            let meaning = escaped(meaning);
            roff += &match term.is_empty() {
                true => format!(".PP\n{meaning}\n"),
                false => format!(".TP\n\\fB{}\\fR\n{meaning}\n", escaped(term)),
            };
        }
        roff
    }
}

// Escapes backslashes, hyphens (so that they can be copied) and characters that begin a roff request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

const REQUESTS: Section = Section {
    title: "REQUESTS",
    entries: &[
        (
            "",
            "A request is a list of kinds of devices with semicolons between them, each a number and its conditions with commas \
             between them. Either all of it is given, or nothing.",
        ),
        ("1", "any one device"),
        (
            "2, TYPE=GPU, GLOBAL_MEM_SIZE>=8GiB",
            "two devices, each with both properties. A property is a name of clGetDeviceInfo without its CL_DEVICE_; it is compared by \
             =, !=, >=, <= or contains. Sizes may end in KiB, MiB, GiB, TiB.",
        ),
        (
            "1, TYPE=GPU; 4, TYPE=CPU",
            "one of the first kind and four of the second",
        ),
        (
            "2; same-node",
            "on one node; with spread, on as many nodes as there are devices",
        ),
    ],
};

const ENVIRONMENT: Section = Section {
    title: "ENVIRONMENT",
    entries: &[
        (
            "CAUSEWAY_SERVERS",
            "nodes whose devices are shown: host[:port], with commas between them",
        ),
        ("CAUSEWAY_MANAGER", "the device manager: host[:port]"),
        (
            "CAUSEWAY_REQUEST",
            "the devices to request of the manager when a program enumerates devices",
        ),
        (
            "CAUSEWAY_REQUEST_FILE",
            "the same as the XML file of the dOpenCL paper",
        ),
        ("CAUSEWAY_LEASE", "an existing lease; set by causeway run"),
        (
            "CAUSEWAY_PRIORITY, CAUSEWAY_TIME_LIMIT",
            "priority class (low, normal, high) and time limit (90s, 30min, 2h, …) of the request",
        ),
        (
            "CAUSEWAY_CA",
            "the CA of the nodes' and manager's certificates; turns TLS on",
        ),
        (
            "CAUSEWAY_TOKEN_FILE, CAUSEWAY_CERTIFICATE, CAUSEWAY_KEY",
            "the user's identity: a file with a token, or a certificate and its key; nobody else may be able to read \
             token and key",
        ),
        (
            "CAUSEWAY_CONFIG",
            "a servers.toml, or the directory in which it is",
        ),
        (
            "CAUSEWAY_LOG",
            "log filter of the library: debug, info, or for example causeway::lease=debug",
        ),
        (
            "CAUSEWAY_TRACE",
            "a file to which the library writes a timeline of the program; %p stands for the process's id. Set by causeway \
             trace",
        ),
        (
            "CAUSEWAY_COMPRESSION, CAUSEWAY_SHARED_MEMORY",
            "0 turns the feature off",
        ),
        (
            "CAUSEWAY_ISOLATED",
            "1 asks nodes for a process of the program's own, where sessions may share one",
        ),
        (
            "CAUSEWAY_RESUME",
            "how long a program waits for a connection that broke, 60s; 0s: not at all",
        ),
        (
            "CAUSEWAY_REEXECUTE",
            "1: a program's commands are executed again if a node's process dies; also run --survive",
        ),
        (
            "CAUSEWAY_HOLD",
            "who holds a program's checkpoints: node, client or auto; client outlives the node's daemon",
        ),
        (
            "CAUSEWAY_RESTART",
            "how long a program waits for a node whose daemon is started anew, 5min; 0s: not at all",
        ),
        (
            "CAUSEWAY_DISCOVER",
            "1 also uses nodes that announce themselves on this machine's networks; see causeway-discover(1)",
        ),
        (
            "CAUSEWAY_ANSWER_LIMIT",
            "how long a node that has accepted the connection may take to answer, such as 30s",
        ),
    ],
};

const FILES: Section = Section {
    title: "FILES",
    entries: &[
        (
            "./servers.toml, ~/.config/causeway/servers.toml, /etc/causeway/servers.toml",
            "nodes, manager, requests and files of TLS, for all programs; the first that is there counts. The environment wins over it, \
             options win over both.",
        ),
        (
            "~/.local/state/causeway/nodes.toml",
            "nodes that were found and used, which programs ask at once; may be deleted",
        ),
        (
            "~/.local/state/causeway/machine-*.links.toml",
            "how fast this machine and nodes reach each other (causeway links --measure); may be deleted",
        ),
        (
            "/etc/OpenCL/vendors/causeway.icd",
            "tells OpenCL's loaders where the library is",
        ),
    ],
};

const FILES_OF_MANAGER: Section = Section {
    title: "FILES",
    entries: &[
        (
            "/etc/causeway/manager.toml",
            "settings; the installed sample lists all of them",
        ),
        (
            "STORE.admin-token",
            "the first administrator's token, written at the first start with --authenticate",
        ),
    ],
};

const STATUS: Section = Section {
    title: "EXIT STATUS",
    entries: &[
        ("0", "success"),
        ("1", "failure; standard error has the reason and the cure"),
        ("2", "the command line is wrong"),
    ],
};

const STATUS_OF_RUN: Section = Section {
    title: "EXIT STATUS",
    entries: &[
        (
            "",
            "The program's exit status, or the signal that ended it. The tool's own:",
        ),
        ("125", "the tool failed, or the devices were refused"),
        ("126", "the program cannot be started"),
        ("127", "there is no such program"),
        ("2", "the command line is wrong"),
    ],
};

const EXAMPLES_OF_RUN: Section = Section {
    title: "EXAMPLES",
    entries: &[
        (
            "causeway run -- clinfo -l",
            "the configured nodes' devices, or without any this machine's own through Causeway",
        ),
        (
            "causeway run --servers gpu1,gpu2 -- ./program",
            "the devices of two nodes",
        ),
        (
            "causeway run --wait --request '2, TYPE=GPU' --time-limit 2h -- ./program",
            "two GPUs of the device manager, waited for in its queue, for two hours at most",
        ),
        (
            "causeway run --json --request 1 -- ./program 2>events",
            "prints the lease's events to standard error, one JSON object per line",
        ),
    ],
};

const EXAMPLES_OF_TRACE: Section = Section {
    title: "EXAMPLES",
    entries: &[
        (
            "causeway trace --out run.pftrace -- ./program",
            "writes a file that https://ui.perfetto.dev shows, without sending it anywhere",
        ),
        (
            "causeway trace --json --out run.json -- ./program",
            "writes Chrome's format, for chrome://tracing and for scripts",
        ),
    ],
};

const SEE_ALSO: Section = Section {
    title: "SEE ALSO",
    entries: &[(
        "",
        "causeway(1), causeway-run(1), causeway-doctor(1), causeway-devmgr(1), clinfo(1)",
    )],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_roff_would_take_for_its_own_is_escaped() {
        assert_eq!(escaped(".a-b\\"), "\\&.a\\-b\\e");
        let roff = SEE_ALSO.roff();
        assert!(roff.starts_with(".SH SEE ALSO\n.PP\ncauseway(1), causeway\\-run(1)"));
    }
}
