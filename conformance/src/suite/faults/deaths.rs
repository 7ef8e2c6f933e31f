//! Kills processes: the worker, the daemon, the client. Restarts the daemon.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::processes::until_gone;
use super::running::{Bystander, RunningProgram};
use super::stage::{Driver, LOOK, Node, PATIENCE, Stage};
use super::{Wrong, ended, in_time};
use crate::case::Verdict;

/// A broken connection is detected at once. The limit allows for a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// How long a worker, and its memory, may outlive its client.
const REMAINS: Duration = Duration::from_secs(5);

/// A kernel that occupies the device forever, without using the processor.
const ENDLESS: Driver = Driver::Fake("kernel.forever.hang = true");

/// Memory that a node may use in addition after a session's end: leftovers of the allocator.
const LEFTOVERS: u64 = 32 << 20;

pub(super) fn worker_in_a_kernel(stage: &Stage) -> Result<Verdict, Wrong> {
    worker_killed(stage, Driver::Native, false)
}

pub(super) fn worker_in_a_kernel_grpc(stage: &Stage) -> Result<Verdict, Wrong> {
    worker_killed(stage, ENDLESS, true)
}

fn worker_killed(stage: &Stage, driver: Driver, grpc: bool) -> Result<Verdict, Wrong> {
    let mut node = Node::start(stage, driver)?;
    let beside = Bystander::start(stage, &node)?;
    let others = node.workers();
    let mut program = RunningProgram::program(stage, "kernel", &node.way().grpc(grpc))?;
    program.until("in kernel")?;
    let worker = node.worker_beside(&others)?;

    let begin = Instant::now();
    worker.kill();
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.lost()?;
    node.assert_alive()?;
    beside.finish_after_the_end(&node, "killed it")?;
    in_time(saw, took, SOON)
}

pub(super) fn daemon_in_a_transfer(stage: &Stage) -> Result<Verdict, Wrong> {
    daemon_killed(stage, false)
}

pub(super) fn daemon_in_a_transfer_grpc(stage: &Stage) -> Result<Verdict, Wrong> {
    daemon_killed(stage, true)
}

fn daemon_killed(stage: &Stage, grpc: bool) -> Result<Verdict, Wrong> {
    let mut node = Node::start(stage, Driver::Fake("devices = 1"))?;
    let mut program = RunningProgram::program(stage, "transfer", &node.way().grpc(grpc))?;
    program.until("wrote 1")?;
    let workers = node.workers();

    let begin = Instant::now();
    node.kill()?;
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.lost()?;
    until_gone(&workers, REMAINS)?;
    in_time(saw, took, SOON)
}

/// A program goes on within this time after its daemon was told to end. A debug build takes seconds for the digest of 64 MiB.
const RESTARTED_WITHIN: Duration = Duration::from_secs(60);

pub(super) fn daemon_restarted(stage: &Stage) -> Result<Verdict, Wrong> {
    restarted(stage, "steady", "round 0", false)
}

pub(super) fn daemon_restarted_grpc(stage: &Stage) -> Result<Verdict, Wrong> {
    restarted(stage, "steady", "round 0", true)
}

pub(super) fn daemon_restarted_in_a_transfer(stage: &Stage) -> Result<Verdict, Wrong> {
    restarted(stage, "transfer", "wrote 1", false)
}

/// Restarts a daemon that parks its sessions. The program goes on, with what its device memory had.
fn restarted(stage: &Stage, mode: &str, marker: &str, grpc: bool) -> Result<Verdict, Wrong> {
    let driver = Driver::Fake("devices = 1");
    let mut node = Node::start_with(stage, driver, "[survival]\ndirectory = \"parked\"\n")?;
    let mut program = RunningProgram::program(stage, mode, &node.way().grpc(grpc).resuming())?;
    program.until(marker)?;
    let workers = node.workers();

    let begin = Instant::now();
    node.restart()?;
    until_gone(&workers, REMAINS)?;
    program.go_on()?;
    program.until_it_goes_on(mode)?;
    let took = begin.elapsed();
    if mode == "steady" {
        program.end(PATIENCE)?.assert_said("done")?;
    }
    in_time("nothing: went on", took, RESTARTED_WITHIN)
}

/// Restarts a daemon that parks no sessions. The session ends when the time for draining is over.
pub(super) fn daemon_restarted_without_directory(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut node = Node::start_with(stage, ENDLESS, "[sessions]\ndrain_limit = 2\n")?;
    let mut program = RunningProgram::program(stage, "kernel", &node.way().resuming())?;
    program.until("in kernel")?;

    let begin = Instant::now();
    node.restart()?;
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.lost()?;
    end.assert_told("the node's daemon was stopped")?;
    in_time(saw, took, SOON + Duration::from_secs(2))
}

pub(super) fn client_in_a_transfer(stage: &Stage) -> Result<Verdict, Wrong> {
    client_killed(stage, "transfer", "wrote 1", false)
}

pub(super) fn client_in_a_transfer_grpc(stage: &Stage) -> Result<Verdict, Wrong> {
    client_killed(stage, "transfer", "wrote 1", true)
}

pub(super) fn client_in_a_kernel(stage: &Stage) -> Result<Verdict, Wrong> {
    client_killed(stage, "kernel", "in kernel", false)
}

fn client_killed(stage: &Stage, mode: &str, marker: &str, grpc: bool) -> Result<Verdict, Wrong> {
    let mut node = Node::start(stage, ENDLESS)?;
    let beside = Bystander::start(stage, &node)?;
    let others = node.workers();
    let before = node.resident();
    let mut program = RunningProgram::program(stage, mode, &node.way().grpc(grpc))?;
    program.until(marker)?;
    let worker = node.worker_beside(&others)?;
    let held = node.resident().saturating_sub(before);

    let begin = Instant::now();
    kill_process(program.pid(), Signal::KILL)?;
    // A host goes on, unless it has to be killed because of the endless kernel.
    let ends = !node.has_hosts() || mode == "kernel";
    if ends {
        until_gone(&[worker], REMAINS)?;
    }
    while node.resident() > before + LEFTOVERS {
        if begin.elapsed() > REMAINS {
            let more = (node.resident() - before) >> 20;
            return Err(Wrong::new(format!("{more} MiB are still held")));
        }
        thread::sleep(LOOK);
    }
    let gone = if ends { "worker" } else { "session" };
    let verdict = ended(
        format!("{gone} gone, its {} MiB back", held >> 20),
        begin,
        REMAINS,
    );
    program.end(PATIENCE)?;
    node.assert_alive()?;
    match ends {
        true => beside.finish_after_the_end(&node, "does not return")?,
        false => beside.finish()?,
    }
    verdict
}
