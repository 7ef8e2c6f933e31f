//! Tests of leased programs whose node dies, and whose commands are executed again on equal devices.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, LeaseState, Program, Signal, played, this};
use crate::frames::servers::*;

const DEVICE: &str = "[[device]]\nname = \"A\"";
/// A checkpoint would be lost with its node, so none is made.
const SURVIVES: &str = "[survival]\nreexecute = true\ninterval = \"24h\"\n";

impl Cluster {
    /// The number of the daemon that has the only lease.
    fn daemon_of_lease(&self, nodes: &[Daemon]) -> usize {
        let node = self.place();
        let is_it = |daemon: &Daemon| {
            let port = format!(":{}", daemon.address.port());
            node.addresses.iter().any(|of| of.ends_with(&port))
        };
        let found = nodes.iter().position(is_it);
        found.expect("the lease's node")
    }

    /// Starts a program that has used its device, and whose commands are executed again.
    fn surviving(&self, request: &str, settings: &str) -> Program {
        let settings = format!("{settings}{SURVIVES}");
        let mut program = self.program_by(Command::new(this()), request, &settings);
        eventually("a device", || {
            (program.code("use") == CL_SUCCESS).then_some(())
        });
        program
    }

    fn run_again(&self, daemon: &mut Daemon) {
        daemon.start_again(&self.manager.node_arguments());
    }
}

fn goes_on(program: &mut Program, sum: usize) {
    assert_eq!(program.code("add"), CL_SUCCESS);
    assert_eq!(program.ask("sum"), format!("{sum} added"));
}

#[test]
fn a_program_goes_on_at_equal_devices_when_its_nodes_die() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let mut nodes = [DEVICE; 3].map(|settings| cluster.node(settings));
    let mut program = cluster.surviving("1", "");
    assert_eq!(program.ask("keep"), "kept");
    goes_on(&mut program, 1);
    // ---- with commands under way
    program.tell("many");
    let first = cluster.daemon_of_lease(&nodes);
    nodes[first].crash();
    assert_eq!(program.answer(), "200");
    assert_eq!(program.ask("sum"), "201 added");
    assert_eq!(
        cluster
            .states()
            .iter()
            .filter(|of| **of == LeaseState::Active)
            .count(),
        1
    );
    let second = cluster.daemon_of_lease(&nodes);
    assert_ne!(first, second);
    // ---- the other one, too
    nodes[second].crash();
    goes_on(&mut program, 202);
    let third = cluster.daemon_of_lease(&nodes);
    assert!(third != second && third != first);
    program.warns("another one executes the program's commands again");
    program.end();
    // The dead nodes' grants end when they are back.
    for dead in [first, second] {
        cluster.run_again(&mut nodes[dead]);
    }
    cluster.see(&[]);
}

#[test]
fn a_program_waits_for_its_node_if_no_equal_device_is_free() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let mut node = cluster.node(DEVICE);
    let _other_kind = cluster.node("[[device]]\nname = \"B\"");
    let mut program = cluster.surviving("1, NAME=A", "");
    assert_eq!(program.ask("keep"), "kept");
    goes_on(&mut program, 1);
    program.tell("many");
    node.crash();
    // The manager has nothing for it, and the program waits.
    program.warns("the session has no connection");
    cluster.run_again(&mut node);
    assert_eq!(program.answer(), "200");
    goes_on(&mut program, 202);
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_program_whose_node_is_not_replaced_in_time_is_told_why() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let mut node = cluster.node(DEVICE);
    let mut program = cluster.surviving("1", "resume = \"3s\"\nrestart = \"6s\"\n");
    assert_eq!(program.ask("keep"), "kept");
    let begun = Instant::now();
    node.crash();
    program.hears("no equal device was free in its place");
    assert!(begun.elapsed() > Duration::from_secs(6));
    assert_eq!(program.code("add"), CL_DEVICE_NOT_AVAILABLE);
    program.end();
}

#[test]
fn a_replacement_waits_for_the_manager() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let mut nodes = [DEVICE; 2].map(|settings| cluster.node(settings));
    let mut program = cluster.surviving("1", "");
    assert_eq!(program.ask("keep"), "kept");
    let first = cluster.daemon_of_lease(&nodes);
    cluster.manager.signal(Signal::STOP).expect("it is there");
    program.tell("many");
    nodes[first].crash();
    program.warns("the session has no connection");
    cluster.manager.signal(Signal::CONT).expect("it is there");
    assert_eq!(program.answer(), "200");
    assert_ne!(cluster.daemon_of_lease(&nodes), first);
    goes_on(&mut program, 201);
    program.end();
    cluster.run_again(&mut nodes[first]);
    cluster.see(&[]);
}

#[test]
fn a_node_that_does_not_answer_is_replaced_and_its_late_grant_ends() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let nodes = [DEVICE; 2].map(|settings| cluster.node(settings));
    let mut program = cluster.surviving("1", "");
    assert_eq!(program.ask("keep"), "kept");
    let first = cluster.daemon_of_lease(&nodes);
    // The daemon and its workers stand still, as if the host was off the network.
    let signal_all = |signal: Signal| {
        nodes[first].signal(signal);
        signal_workers_of(nodes[first].pid(), signal.as_raw());
    };
    signal_all(Signal::STOP);
    goes_on(&mut program, 1);
    assert_ne!(cluster.daemon_of_lease(&nodes), first);
    signal_all(Signal::CONT);
    goes_on(&mut program, 2);
    program.end();
    cluster.see(&[]);
}
