//! Kernels that crash their driver. Only their own session may be affected, and the others of its host.
//! Each of these is told whether it was the cause.

use std::time::{Duration, Instant};

use super::running::{Bystander, Ended, RunningProgram};
use super::stage::{Driver, Node, PATIENCE, Stage};
use super::{Wrong, ended, in_time};
use crate::case::Verdict;
use crate::process::Exit;

/// The death of a worker by a signal is detected at once.
const SOON: Duration = Duration::from_secs(5);

/// Time for another process to begin, and to die as the one before.
const EXECUTED_AGAIN: Duration = Duration::from_secs(15);

/// PoCL and other drivers catch the signal of a division by zero and continue; some drivers die of it.
pub(super) fn divide(stage: &Stage) -> Result<Verdict, Wrong> {
    faulty(stage, Driver::Native, "divide", |ended| {
        if ended.exit == Exit::Code(0) {
            return Ok("clFinish -> CL_SUCCESS: the driver bears it".to_owned());
        }
        ended.lost()
    })
}

pub(super) fn divide_kills_the_driver(stage: &Stage) -> Result<Verdict, Wrong> {
    let driver = Driver::Fake("kernel.divide.crash = \"divide\"");
    faulty(stage, driver, "divide", Ended::lost)
}

pub(super) fn outside(stage: &Stage) -> Result<Verdict, Wrong> {
    faulty(stage, Driver::Native, "outside", Ended::lost)
}

/// A kernel that kills its process twice costs its own program the session, which is told the kernel's name. Programs beside
/// it go on whose commands are executed again, also in the same host.
pub(super) fn divide_executed_again(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut node = Node::start(stage, Driver::Fake("kernel.divide.crash = \"divide\""))?;
    let beside = two_reexecuting(stage, &node)?;
    let mut program = RunningProgram::program(stage, "divide", &node.way().reexecuting())?;
    program.until("ready")?;
    let begin = Instant::now();
    program.go_on()?;
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.lost()?;
    end.assert_told("the kernel `divide`")?;
    node.assert_alive()?;
    for program in beside {
        program.finish()?;
    }
    in_time(saw, took, EXECUTED_AGAIN)
}

/// A kernel that writes outside of its buffer costs programs beside it nothing whose commands are executed again. In a common
/// host, the driver dies of it, or executes nothing more in the context that they share.
pub(super) fn outside_executed_again(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut node = Node::start(stage, Driver::Native)?;
    let beside = two_reexecuting(stage, &node)?;
    let mut program = RunningProgram::program(stage, "outside", &node.way())?;
    program.until("ready")?;
    program.go_on()?;
    let end = program.end(PATIENCE)?;
    let saw = end.saw()?.to_owned();
    let begin = Instant::now();
    for program in beside {
        program.finish()?;
    }
    node.assert_alive()?;
    ended(saw, begin, EXECUTED_AGAIN)
}

/// Two programs whose commands are executed again.
fn two_reexecuting(stage: &Stage, node: &Node) -> Result<[Bystander; 2], Wrong> {
    let start = || Bystander::reexecuting(stage, node);
    Ok([start()?, start()?])
}

fn faulty(
    stage: &Stage,
    driver: Driver,
    mode: &str,
    saw: impl Fn(&Ended) -> Result<String, Wrong>,
) -> Result<Verdict, Wrong> {
    let mut node = Node::start(stage, driver)?;
    let beside = Bystander::start(stage, &node)?;
    let mut program = RunningProgram::program(stage, mode, &node.way())?;
    program.until("ready")?;
    let begin = Instant::now();
    program.go_on()?;
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = saw(&end)?;
    node.assert_alive()?;
    if end.exit == Exit::Code(0) {
        beside.finish()?;
    } else {
        if node.has_hosts() {
            end.assert_told("only this session had commands or builds in progress")?;
        }
        beside.finish_after_the_end(&node, "another one is the likely cause")?;
    }
    // The node still accepts new programs.
    Bystander::start(stage, &node)?.finish()?;
    in_time(saw, took, SOON)
}
