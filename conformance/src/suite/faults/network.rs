//! The network is cut, or nobody answers because the client is stopped.

use std::env;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::processes::until_gone;
use super::running::Running;
use super::stage::{Driver, Node, PATIENCE, Stage, Way};
use super::{Wrong, in_time};
use crate::case::Verdict;

/// The heartbeats' limit is 4 s, looked at each half second; the rest is for a busy machine.
const SILENCE: Duration = Duration::from_millis(5500);

/// Two network namespaces with a cable between.
struct Cable {
    client: String,
    node: String,
    plug: String,
}

/// The node's address on the cable; nobody else can see it.
const NODE: &str = "10.79.0.1";
const CLIENT: &str = "10.79.0.2";

impl Cable {
    /// `Err` holds why there can be none.
    fn lay() -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("cw{}-{number}", std::process::id());
        let cable = Self {
            client: format!("{name}c"),
            node: format!("{name}n"),
            plug: format!("{name}p"),
        };
        let (client, node, plug) = (&*cable.client, &*cable.node, &*cable.plug);
        let socket = &format!("{name}s");
        let (node_net, client_net) = (&format!("{NODE}/24"), &format!("{CLIENT}/24"));
        ip(&["netns", "add", node])?;
        ip(&["netns", "add", client])?;
        ip(&[
            "-n", node, "link", "add", plug, "type", "veth", "peer", "name", socket, "netns",
            client,
        ])?;
        ip(&["-n", node, "address", "add", node_net, "dev", plug])?;
        ip(&["-n", client, "address", "add", client_net, "dev", socket])?;
        for (namespace, device) in [(node, "lo"), (client, "lo"), (node, plug), (client, socket)] {
            ip(&["-n", namespace, "link", "set", device, "up"])?;
        }
        Ok(cable)
    }

    fn cut(&self) -> Result<(), Wrong> {
        ip(&["-n", &self.node, "link", "set", &self.plug, "down"]).map_err(Wrong::new)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // With a namespace go its devices.
        let _ = ip(&["netns", "delete", &self.client]);
        let _ = ip(&["netns", "delete", &self.node]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("ip (iproute2): {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", arguments.join(" "), said.trim()))
}

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
    let cable = match Cable::lay() {
        Ok(cable) => cable,
        Err(why) => {
            let reason = format!("no network namespaces (they need root and iproute2): {why}");
            return Ok(Verdict::Skipped(reason));
        }
    };
    let endless = Driver::Fake("kernel.forever.hang = true");
    let mut node = Node::start_at(stage, endless, &format!("{NODE}:0"), Some(&cable.node))?;
    let way = Way::to(node.address()).grpc(grpc);
    let mut program = Running::program(stage, mode, &way.within(&cable.client))?;
    program.until(marker)?;
    let worker = node.worker_beside(&[])?;

    let begin = Instant::now();
    cable.cut()?;
    let end = program.end(PATIENCE)?;
    let took = begin.elapsed();
    let saw = end.lost()?;
    until_gone(
        &[worker],
        SILENCE.saturating_sub(begin.elapsed()).max(SILENCE / 2),
    )?;
    node.assert_alive()?;
    in_time(saw, took, SILENCE)
}

/// How long a stopped client is stopped: well beyond the heartbeats' limit.
fn stop_time() -> Duration {
    let long = env::var_os("CONFORMANCE_FAULTS_LONG").is_some_and(|value| value == "1");
    Duration::from_secs(if long { 30 } else { 12 })
}

pub(super) fn client_stopped(stage: &Stage) -> Result<Verdict, Wrong> {
    let node = Node::start(stage, Driver::Fake("devices = 1"))?;
    let mut program = Running::program(stage, "steady", &node.way())?;
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
    let mut program = Running::program(stage, "transfer", &node.way())?;
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

fn stop(program: &Running) -> Result<(), Wrong> {
    kill_process(program.pid(), Signal::STOP)?;
    // Not a wait for something: the time without a sign of life is the fault.
    thread::sleep(stop_time());
    kill_process(program.pid(), Signal::CONT)?;
    Ok(())
}

fn went_on(took: Duration) -> Result<Verdict, Wrong> {
    let stopped = stop_time().as_secs();
    let saw = format!("nothing: stopped for {stopped} s, went on");
    in_time(saw, took, Duration::from_secs(5))
}
