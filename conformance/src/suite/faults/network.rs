//! The network is cut, or the client is stopped and cannot answer.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use causeway_network::Network;
use rustix::process::{Signal, kill_process};

use super::processes::{Process, until_gone};
use super::running::RunningProgram;
use super::stage::{Driver, Node, PATIENCE, Stage, Way};
use super::{Wrong, in_time};
use crate::case::Verdict;

/// The heartbeat limit is 4 s, checked every half second. The rest allows for a busy machine.
const SILENCE: Duration = Duration::from_millis(5500);

/// Time for a host to release its last session, or to be killed because of an endless kernel, on a busy machine.
const HOST_ENDS_WITHIN: Duration = Duration::from_secs(5);

pub(super) fn cut_direct(stage: &Stage) -> Result<Verdict, Wrong> {
    cut(stage, "kernel", "in kernel", false)
}

pub(super) fn cut_in_a_transfer(stage: &Stage) -> Result<Verdict, Wrong> {
    cut(stage, "transfer", "wrote 1", false)
}

pub(super) fn cut_grpc(stage: &Stage) -> Result<Verdict, Wrong> {
    cut(stage, "kernel", "in kernel", true)
}

fn cut(stage: &Stage, mode: &str, marker: &str, grpc: bool) -> Result<Verdict, Wrong> {
    let network = match Network::builder().hosts(2).build() {
        Err(error) if error.is_unavailable() => return Ok(Verdict::Skipped(error.to_string())),
        network => network?,
    };
    let endless = Driver::Fake("kernel.forever.hang = true");
    let mut node = Node::start_on(stage, endless, Some(network.host(1)))?;
    let way = Way::to(node.address()).grpc(grpc).from(network.host(0));
    let mut program = RunningProgram::program(stage, mode, &way)?;
    program.until(marker)?;
    let worker = node.worker_beside(&[])?;

    let begin = Instant::now();
    network.link(0, 1).cut()?;
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.lost()?;
    let mut gone_within = SILENCE.saturating_sub(begin.elapsed()).max(SILENCE / 2);
    if node.has_hosts() {
        gone_within += HOST_ENDS_WITHIN;
    }
    until_gone(&[worker], gone_within)?;
    node.assert_alive()?;
    in_time(saw, took, SILENCE)
}

/// How long a network is cut in cases in which the program goes on: well beyond the heartbeat limit.
const CUT_FOR: Duration = Duration::from_secs(8);

/// Time from the waking of a suspended program until its session's end reaches it.
const TOLD_AFTER_WAKING: Duration = Duration::from_secs(10);

/// Time from the mending of a network until the program goes on, on a busy machine.
const GOES_ON_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn cut_and_mended(stage: &Stage) -> Result<Verdict, Wrong> {
    mended(stage, "steady", "round 0", false)
}

pub(super) fn cut_and_mended_in_a_transfer(stage: &Stage) -> Result<Verdict, Wrong> {
    mended(stage, "transfer", "wrote 1", false)
}

pub(super) fn cut_and_mended_grpc(stage: &Stage) -> Result<Verdict, Wrong> {
    mended(stage, "steady", "round 0", true)
}

/// Cuts the network for a while. The program goes on, with the same worker.
fn mended(stage: &Stage, mode: &str, marker: &str, grpc: bool) -> Result<Verdict, Wrong> {
    let network = match Network::builder().hosts(2).build() {
        Err(error) if error.is_unavailable() => return Ok(Verdict::Skipped(error.to_string())),
        network => network?,
    };
    let node = Node::start_on(stage, Driver::Fake("devices = 1"), Some(network.host(1)))?;
    let way = Way::to(node.address()).grpc(grpc).from(network.host(0));
    let mut program = RunningProgram::program(stage, mode, &way.resuming())?;
    program.until(marker)?;
    let worker = node.worker_beside(&[])?;

    network.link(0, 1).cut()?;
    program.go_on()?;
    // This sleep waits for nothing: the silence itself is the fault.
    thread::sleep(CUT_FOR);
    network.link(0, 1).mend()?;
    let begin = Instant::now();
    program.until_it_goes_on(mode)?;
    let took = begin.elapsed();
    if node.worker_beside(&[])? != worker {
        return Err(Wrong::new("its worker is another one"));
    }
    if mode == "steady" {
        program.end(PATIENCE)?.assert_said("done")?;
    }
    let cut = CUT_FOR.as_secs();
    in_time(
        format!("nothing: cut for {cut} s, went on"),
        took,
        GOES_ON_WITHIN,
    )
}

/// How long the program and the node wait in [`cut_for_too_long`], for people and as a time.
const RESUME: (&str, Duration) = ("3s", Duration::from_secs(3));
/// Time in which the library asks the node why the session has ended, on a busy machine.
const ASKED_WITHIN: Duration = Duration::from_secs(4);

/// A network is cut for longer than the program waits. The context's callback hears of the break, and when it was.
pub(super) fn cut_for_too_long(stage: &Stage) -> Result<Verdict, Wrong> {
    let network = match Network::builder().hosts(2).build() {
        Err(error) if error.is_unavailable() => return Ok(Verdict::Skipped(error.to_string())),
        network => network?,
    };
    let (text, resume) = RESUME;
    let endless = Driver::Fake("kernel.forever.hang = true");
    let node = Node::start_on(stage, endless, Some(network.host(1)))?;
    let way = Way::to(node.address()).from(network.host(0));
    let way = way.resuming_for(text).keeping(text);
    let mut program = RunningProgram::program(stage, "kernel", &way)?;
    program.until("in kernel")?;
    let worker = node.worker_beside(&[])?;
    let begin = Instant::now();
    network.link(0, 1).cut()?;
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.lost()?;
    end.assert_told("no heartbeat for 4000 ms; the session was not resumed within ")?;
    end.assert_warned("the session has no connection")?;
    until_gone(&[worker], HOST_ENDS_WITHIN)?;
    in_time(saw, took, SILENCE + resume + ASKED_WITHIN)
}

/// A client is suspended: it is stopped, and its network is cut. It wakes while the node keeps its session.
pub(super) fn suspended(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut woken = match suspend(stage, "5m")? {
        Ok(woken) => woken,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let begin = Instant::now();
    woken.program.go_on()?;
    woken.program.until("round 1")?;
    let took = begin.elapsed();
    if woken.node.worker_beside(&[])? != woken.worker {
        return Err(Wrong::new("its worker is another one"));
    }
    woken.program.end(PATIENCE)?.assert_said("done")?;
    let slept = stop_time().as_secs();
    let saw = format!("nothing: suspended for {slept} s, went on");
    in_time(saw, took, GOES_ON_WITHIN)
}

/// As [`suspended`], but the node has not kept the session for so long.
pub(super) fn suspended_for_too_long(stage: &Stage) -> Result<Verdict, Wrong> {
    let mut woken = match suspend(stage, "3s")? {
        Ok(woken) => woken,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let begin = Instant::now();
    woken.program.go_on()?;
    let end = woken.program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.lost()?;
    end.assert_told("did not come back within")?;
    end.assert_warned("did not come back within")?;
    end.assert_warned("the program was stopped (suspended) for ")?;
    end.assert_warned("; the node keeps a session for at most ")?;
    until_gone(&[woken.worker], HOST_ENDS_WITHIN)?;
    in_time(saw, took, TOLD_AFTER_WAKING)
}

/// A program that was suspended and has woken. The network is last, because it must end last.
struct Woken {
    program: RunningProgram,
    worker: Process,
    node: Node,
    _network: Network,
}

fn suspend(stage: &Stage, keep: &'static str) -> Result<Result<Woken, String>, Wrong> {
    let network = match Network::builder().hosts(2).build() {
        Err(error) if error.is_unavailable() => return Ok(Err(error.to_string())),
        network => network?,
    };
    let node = Node::start_on(stage, Driver::Fake("devices = 1"), Some(network.host(1)))?;
    let way = Way::to(node.address()).from(network.host(0));
    let mut program = RunningProgram::program(stage, "steady", &way.resuming().keeping(keep))?;
    program.until("round 0")?;
    let worker = node.worker_beside(&[])?;
    network.link(0, 1).cut()?;
    stop_for(&program, || Ok(network.link(0, 1).mend()?))?;
    Ok(Ok(Woken {
        program,
        worker,
        node,
        _network: network,
    }))
}

/// How long a client is stopped: well beyond the heartbeat limit.
fn stop_time() -> Duration {
    let long = env::var_os("CONFORMANCE_FAULTS_LONG").is_some_and(|value| value == "1");
    Duration::from_secs(if long { 30 } else { 12 })
}

pub(super) fn client_stopped(stage: &Stage) -> Result<Verdict, Wrong> {
    let node = Node::start(stage, Driver::Fake("devices = 1"))?;
    let mut program = RunningProgram::program(stage, "steady", &node.way())?;
    program.until("round 0")?;
    let worker = node.worker_beside(&[])?;
    stop(&program)?;
    let begin = Instant::now();
    program.go_on()?;
    program.until("round 1")?;
    let took = begin.elapsed();
    if node.worker_beside(&[])? != worker {
        return Err(Wrong::new("its worker is another one"));
    }
    program.end(PATIENCE)?.assert_said("done")?;
    went_on(took)
}

pub(super) fn transfer_stopped(stage: &Stage) -> Result<Verdict, Wrong> {
    let node = Node::start(stage, Driver::Fake("devices = 1"))?;
    let mut program = RunningProgram::program(stage, "transfer", &node.way())?;
    program.until("wrote 1")?;
    let worker = node.worker_beside(&[])?;
    stop(&program)?;
    let begin = Instant::now();
    program.until_next("wrote ")?;
    let took = begin.elapsed();
    if node.worker_beside(&[])? != worker {
        return Err(Wrong::new("its worker is another one"));
    }
    went_on(took)
}

fn stop(program: &RunningProgram) -> Result<(), Wrong> {
    stop_for(program, || Ok(()))
}

/// Stops the program for a while. `before_it_wakes` comes at the end of that.
fn stop_for(
    program: &RunningProgram,
    before_it_wakes: impl FnOnce() -> Result<(), Wrong>,
) -> Result<(), Wrong> {
    kill_process(program.pid(), Signal::STOP)?;
    // This sleep waits for nothing: the silence itself is the fault.
    thread::sleep(stop_time());
    before_it_wakes()?;
    kill_process(program.pid(), Signal::CONT)?;
    Ok(())
}

fn went_on(took: Duration) -> Result<Verdict, Wrong> {
    let stopped = stop_time().as_secs();
    let saw = format!("nothing: stopped for {stopped} s, went on");
    in_time(saw, took, Duration::from_secs(5))
}
