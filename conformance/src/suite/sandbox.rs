//! Attacks by a kernel that controls its session's process: `programs/sandbox.c`. Its tables define the
//! result of each system call.
//!
//! Nothing is compared, because natively there is no sandbox. Each case has its own daemon, which the
//! probes may damage if they find a hole.

use std::fs;
use std::time::Duration;

use crate::SetupError;
use crate::case::{Case, Verdict};
use crate::io_error;
use crate::process::{Exit, Finished};
use crate::programs::Programs;
use crate::sides::{Launch, Side, Sides};

/// The program's exit code if this machine cannot be tested.
const SKIPPED: Exit = Exit::Code(77);

/// A node's settings, and the tables that belong to them.
struct Variant {
    name: &'static str,
    settings: &'static str,
    argument: &'static str,
    /// Whether only root can start a daemon with these settings.
    root: bool,
}

const VARIANTS: [Variant; 4] = [
    Variant {
        name: "one-user",
        settings: "",
        argument: "all",
        root: false,
    },
    Variant {
        name: "own-users",
        settings: "[sessions]\nuid_range = \"200000-200099\"\n",
        argument: "all",
        root: true,
    },
    Variant {
        name: "connect-ports",
        settings: "[sandbox]\nconnect_ports = [9]\n",
        argument: "ports",
        root: false,
    },
    Variant {
        name: "calls-of-32-bit",
        settings: "",
        argument: "foreign",
        root: false,
    },
];

pub(super) fn cases(programs: &Programs, _: &Sides) -> Result<Vec<Case>, SetupError> {
    let program = programs.path("sandbox")?;
    let case = |variant: &'static Variant| {
        let name = format!("sandbox/{}", variant.name);
        if variant.root && !rustix::process::geteuid().is_root() {
            return Case::skipped(
                name,
                "only root's daemon can give sessions users of their own",
            );
        }
        let program = program.clone();
        Case::new(name, move |sides| {
            let file = sides.fresh_directory()?.join("daemon.toml");
            fs::write(&file, variant.settings)
                .map_err(io_error(format!("cannot write {}", file.display())))?;
            let Some(sides) = sides.configured(&file)? else {
                let reason = "a daemon that is not of our own is not attacked";
                return Ok(Verdict::Skipped(reason.to_owned()));
            };
            let launch = Launch::new(&program)
                .args([variant.argument])
                .limit(Duration::from_secs(60));
            Ok(verdict(&sides.run(Side::Causeway, &launch)?))
        })
    };
    Ok(VARIANTS.iter().map(case).collect())
}

fn verdict(run: &Finished) -> Verdict {
    let said = run.stdout.trim_end();
    let last = said.lines().last().unwrap_or_default().to_owned();
    match run.exit {
        Exit::Code(0) => Verdict::Noted(last),
        SKIPPED => Verdict::Skipped(last),
        exit => Verdict::Failed(format!("{exit}\n{said}\n{}", run.stderr.trim_end())),
    }
}
