//! Ctrl-C: SIGINT to a whole process group, the terminal's foreground, while `causeway run` has a
//! program and a private daemon at work in it.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};

use super::processes::{descendants_of, in_directory, until_gone, until_one_has};
use super::stage::{PATIENCE, Stage};
use super::{Wrong, ended};
use crate::case::Verdict;
use crate::process::Exit;
use crate::sides::tool;

/// After this nothing may be left of tool, program, daemon and workers.
const GONE: Duration = Duration::from_secs(5);

/// What a shell says of a program that SIGINT ended.
const INTERRUPTED: Exit = Exit::Code(130);

/// The node's driver takes its time to tell its devices.
pub(super) fn in_enumeration(stage: &Stage) -> Result<Verdict, Wrong> {
    let slow = "[[call]]; name = \"clGetDeviceIDs\"; delay_us = 20000000";
    interrupt(stage, "enumerate", "asking", slow, Some("--internal-probe"))
}

pub(super) fn in_build(stage: &Stage) -> Result<Verdict, Wrong> {
    let slow = "[[call]]; name = \"clBuildProgram\"; delay_us = 20000000";
    interrupt(stage, "build", "building", slow, None)
}

pub(super) fn in_transfer(stage: &Stage) -> Result<Verdict, Wrong> {
    interrupt(stage, "transfer", "wrote 1", "devices = 1", None)
}

pub(super) fn in_kernel(stage: &Stage) -> Result<Verdict, Wrong> {
    let endless = "kernel.forever.hang = true";
    interrupt(stage, "kernel", "in kernel", endless, None)
}

/// `at_work`: an argument of a process that must be there before.
fn interrupt(
    stage: &Stage,
    mode: &str,
    marker: &str,
    fake: &str,
    at_work: Option<&str>,
) -> Result<Verdict, Wrong> {
    if !tool().exists() {
        let reason = format!("there is no {}", tool().display());
        return Ok(Verdict::Skipped(reason));
    }
    let place = stage.place()?;
    let mut run = stage.under_the_tool(&place, mode, fake)?;
    run.until(marker)?;
    if let Some(argument) = at_work {
        until_one_has(run.pid(), argument, PATIENCE)?;
    }
    let family = descendants_of(run.pid());
    let begin = Instant::now();
    kill_process_group(run.pid(), Signal::INT)?;
    until_gone(&family, GONE)?;
    // Also who was born meanwhile.
    until_gone(&in_directory(&place), GONE)?;
    let verdict = ended(format!("{} processes gone", family.len()), begin, GONE);
    let end = run.end(PATIENCE)?;
    if end.exit != INTERRUPTED {
        return Err(end.wrong("the tool should have ended as the program did"));
    }
    verdict
}
