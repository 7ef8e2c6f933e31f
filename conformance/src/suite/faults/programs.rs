//! Programs that stress a driver: floods, forks, sudden ends, many threads.

use std::time::{Duration, Instant};

use super::processes::until_gone;
use super::running::RunningProgram;
use super::stage::{Driver, Node, PATIENCE, Stage};
use super::{Wrong, ended, in_time};
use crate::case::Verdict;

/// 100,000 launches behind a user event, from the thread that sets the event afterwards.
pub(super) fn flood(stage: &Stage) -> Result<Verdict, Wrong> {
    let node = Node::start(stage, Driver::Native)?;
    let mut program = RunningProgram::program(stage, "flood", &node.way())?;
    program.until("flooding")?;
    let begin = Instant::now();
    program.until("enqueued")?;
    let enqueued = begin.elapsed();
    let end = program.end(PATIENCE)?;
    end.assert_said("ran 100000")?;
    let enqueued = enqueued.as_secs_f64();
    ended(
        format!("all enqueued after {enqueued:.2} s, all ran"),
        begin,
        PATIENCE,
    )
}

pub(super) fn fork(stage: &Stage) -> Result<Verdict, Wrong> {
    let node = Node::start(stage, Driver::Fake("devices = 1"))?;
    let mut program = RunningProgram::program(stage, "fork", &node.way())?;
    program.until("forking")?;
    let begin = Instant::now();
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    end.assert_said("parent read 5")?;
    let child = end
        .said
        .iter()
        .filter_map(|line| line.strip_prefix("child saw "));
    let saw: Vec<&str> = child.collect();
    if saw.len() != 3 || saw.iter().any(|saw| saw.ends_with("CL_SUCCESS")) {
        return Err(end.wrong("the child should have seen three errors"));
    }
    let saw = format!("in the child {}; the parent goes on", saw.join(", "));
    in_time(saw, took, Duration::from_secs(5))
}

/// `exit` with a kernel that never ends, a transfer behind it, and a launch behind a user event.
pub(super) fn exit(stage: &Stage) -> Result<Verdict, Wrong> {
    let limit = Duration::from_secs(5);
    let node = Node::start(stage, Driver::Fake("kernel.forever.hang = true"))?;
    let mut program = RunningProgram::program(stage, "exit", &node.way())?;
    program.until("leaving")?;
    let begin = Instant::now();
    let workers = node.workers();
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    end.assert_said("leaving")?;
    until_gone(&workers, limit)?;
    in_time("exit code 0, worker gone", took, limit)
}

/// OpenCL loaded by hand, closed with a transfer in progress and loaded again, five times.
pub(super) fn dlclose(stage: &Stage) -> Result<Verdict, Wrong> {
    let node = Node::start(stage, Driver::Fake("devices = 1"))?;
    let begin = Instant::now();
    let end = RunningProgram::other(stage, &stage.loader, "", &node.way())?.end(PATIENCE)?;
    let took = begin.elapsed();
    end.assert_said("closed 5 times")?;
    until_gone(&node.workers(), Duration::from_secs(5))?;
    in_time("nothing: loaded again and right", took, PATIENCE)
}

pub(super) fn threads(stage: &Stage) -> Result<Verdict, Wrong> {
    let node = Node::start(stage, Driver::Fake("devices = 1"))?;
    let begin = Instant::now();
    let end = RunningProgram::program(stage, "threads", &node.way())?.end(PATIENCE)?;
    end.assert_said("1000 threads right")?;
    ended("a context each, all data right", begin, PATIENCE)
}
