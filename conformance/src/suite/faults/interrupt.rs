//! Ctrl-C: SIGINT to a whole process group, as from the terminal, while `causeway run` has a program and
//! a private daemon in that group.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};

use super::processes::{descendants_of, in_directory, until_gone, until_one_has};
use super::stage::{PATIENCE, Stage};
use super::{Wrong, ended};
use crate::case::Verdict;
use crate::places::tool;
use crate::process::Exit;

/// Time limit after which no process of tool, program, daemon and workers may be left.
const GONE: Duration = Duration::from_secs(5);

/// The exit of a program that SIGINT ended, as a shell reports it; and that of the tool
/// before it has started one.
const INTERRUPTED: [Exit; 2] = [Exit::Code(130), Exit::Signal(2)];

/// Interrupts while the node's driver slowly lists its devices. The program has not been started yet.
pub(super) fn in_enumeration(stage: &Stage) -> Result<Verdict, Wrong> {
    let slow = "[[call]]; name = \"clGetDeviceIDs\"; delay_us = 20000000";
    let probe = Until::Process("--internal-probe");
    interrupt(stage, "enumerate", probe, slow)
}

pub(super) fn in_build(stage: &Stage) -> Result<Verdict, Wrong> {
    let slow = "[[call]]; name = \"clBuildProgram\"; delay_us = 20000000";
    interrupt(stage, "build", Until::Line("building"), slow)
}

pub(super) fn in_transfer(stage: &Stage) -> Result<Verdict, Wrong> {
    interrupt(stage, "transfer", Until::Line("wrote 1"), "devices = 1")
}

pub(super) fn in_kernel(stage: &Stage) -> Result<Verdict, Wrong> {
    let endless = "kernel.forever.hang = true";
    interrupt(stage, "kernel", Until::Line("in kernel"), endless)
}

/// When to send SIGINT.
enum Until {
    /// When the program has printed this line.
    Line(&'static str),
    /// When a process with this argument runs.
    Process(&'static str),
}

fn interrupt(stage: &Stage, mode: &str, until: Until, fake: &str) -> Result<Verdict, Wrong> {
    if !tool().exists() {
        let reason = format!("there is no {}", tool().display());
        return Ok(Verdict::Skipped(reason));
    }
    let place = stage.place()?;
    let mut run = stage.under_the_tool(&place, mode, fake)?;
    match until {
        Until::Line(marker) => run.until(marker)?,
        Until::Process(argument) => until_one_has(run.pid(), argument, PATIENCE)?,
    };
    let family = descendants_of(run.pid());
    let begin = Instant::now();
    kill_process_group(run.pid(), Signal::INT)?;
    until_gone(&family, GONE)?;
    // Also processes that were started meanwhile.
    until_gone(&in_directory(&place), GONE)?;
    let verdict = ended(format!("{} processes gone", family.len()), begin, GONE);
    let end = run.end(PATIENCE)?;
    if !INTERRUPTED.contains(&end.exit) {
        return Err(end.wrong("the tool should have ended as the program did"));
    }
    verdict
}
