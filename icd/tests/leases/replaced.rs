//! Tests of leased programs whose node is lost, and which go on at equal devices that the manager names.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, LeaseState, Program, Signal, played, this};
use crate::frames::servers::*;

const DEVICE: &str = "[[device]]\nname = \"A\"";
/// A node that says nothing is lost after three seconds.
const SOON: &str = "[policy.timing]\nautonomy = 2000\nmargin = 1000\n";
/// No checkpoint is made.
const WHOLE_LOG: &str =
    "resume = \"2s\"\nrestart = \"60s\"\n[survival]\nreexecute = true\ninterval = \"24h\"\n";
/// Checkpoints are made soon, and the program holds them.
const HOLDS: &str = "resume = \"2s\"\nrestart = \"60s\"\n[survival]\nreexecute = true\ninterval = \"1s\"\nhold = \"client\"\n";

/// Starts a program with these settings that has used its device, and that has numbers there.
fn begun(cluster: &Cluster, settings: &str) -> Program {
    begun_by(Command::new(this()), cluster, settings)
}

/// Starts such a program by a command.
fn begun_by(mut command: Command, cluster: &Cluster, settings: &str) -> Program {
    command.env("CAUSEWAY_LOG", "debug");
    let mut program = cluster.program_by(command, "1", settings);
    eventually("a device", || {
        (program.code("use") == CL_SUCCESS).then_some(())
    });
    assert_eq!(program.ask("keep"), "kept");
    assert_eq!(program.code("add"), CL_SUCCESS);
    program
}

/// The number of the node that has the only lease.
fn place(cluster: &Cluster, nodes: &[Daemon]) -> usize {
    let place = cluster.place();
    let has = |daemon: &Daemon| {
        let port = format!(":{}", daemon.address.port());
        place.addresses.iter().any(|of| of.ends_with(&port))
    };
    nodes.iter().position(has).expect("one of the nodes")
}

/// How often the program has been told that it goes on elsewhere.
fn replaced(program: &Program) -> usize {
    let text = "the node is lost; the program goes on at equal devices";
    program.warned().matches(text).count()
}

#[test]
fn a_program_goes_on_at_equal_devices_whenever_its_daemon_is_killed() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let mut nodes = [cluster.node(DEVICE), cluster.node(DEVICE)];
    let mut program = begun(&cluster, WHOLE_LOG);
    let first = place(&cluster, &nodes);
    nodes[first].crash();
    assert_eq!(program.code("add"), CL_SUCCESS);
    assert_eq!(program.ask("sum"), "2 added");
    assert_eq!(replaced(&program), 1);
    let second = place(&cluster, &nodes);
    assert_ne!(first, second);
    // ---- and back, with commands under way
    nodes[first].start_again(&cluster.manager.node_arguments());
    program.tell("many");
    nodes[second].crash();
    assert_eq!(program.answer(), "200");
    assert_eq!(program.ask("sum"), "202 added");
    assert_eq!(place(&cluster, &nodes), first);
    // New objects can be made.
    assert_eq!(program.code("round"), CL_SUCCESS);
    assert_eq!(program.code("again"), CL_SUCCESS);
    assert_eq!(cluster.states(), [LeaseState::Active]);
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_program_under_the_tool_goes_on_at_equal_devices() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let mut nodes = [cluster.node(DEVICE), cluster.node(DEVICE)];
    let tool = programs_of(&["causeway-devmgr"]).join("causeway");
    let mut command = Command::new(tool);
    command.args(["run", "--survive", "--"]).arg(this());
    // The tool has the lease, and says that it may be replaced.
    let mut program = begun_by(command, &cluster, "resume = \"2s\"\n");
    let first = place(&cluster, &nodes);
    nodes[first].crash();
    // `SOON`, ten minutes in which equal devices are sought, and half a minute more.
    program.warns("limit=633s");
    assert_eq!(program.code("add"), CL_SUCCESS);
    assert_eq!(program.ask("sum"), "2 added");
    assert_ne!(place(&cluster, &nodes), first);
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_program_goes_on_from_the_checkpoint_that_it_holds() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let mut nodes = [cluster.node(DEVICE), cluster.node(DEVICE)];
    let mut program = begun(&cluster, HOLDS);
    program.warns("the program holds a checkpoint");
    assert_eq!(program.code("add"), CL_SUCCESS);
    let first = place(&cluster, &nodes);
    nodes[first].crash();
    assert_eq!(program.ask("sum"), "2 added");
    assert_ne!(place(&cluster, &nodes), first);
    assert_eq!(program.code("add"), CL_SUCCESS);
    assert_eq!(program.ask("sum"), "3 added");
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_program_goes_on_at_the_next_daemon_of_its_node() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let mut node = cluster.node(DEVICE);
    let mut program = begun(&cluster, WHOLE_LOG);
    for sum in 2..5 {
        node.crash();
        cluster.start_again(&mut node);
        assert_eq!(program.code("add"), CL_SUCCESS);
        assert_eq!(program.ask("sum"), format!("{sum} added"));
    }
    assert_eq!(cluster.states(), [LeaseState::Active]);
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_program_goes_on_if_its_node_has_had_no_manager_for_too_long() {
    if played() {
        return;
    }
    let mut cluster = Cluster::start(SOON);
    let nodes = [cluster.node(DEVICE), cluster.node(DEVICE)];
    let mut program = begun(&cluster, WHOLE_LOG);
    let first = place(&cluster, &nodes);
    cluster.manager.kill().expect("killed");
    eventually("the end of the lease on its node", || {
        let log = nodes[first].log();
        log.contains("no contact with the device manager for too long")
            .then_some(())
    });
    program.tell("add");
    cluster.manager.start_again().expect("started");
    assert_eq!(program.answer(), "0");
    assert_eq!(program.ask("sum"), "2 added");
    assert_eq!(cluster.states(), [LeaseState::Active]);
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_program_goes_on_elsewhere_if_its_daemon_is_told_to_end() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let nodes = [(); 2].map(|()| cluster.node_with(DEVICE, &["--drain-limit", "1"]));
    let mut program = begun(&cluster, WHOLE_LOG);
    let first = place(&cluster, &nodes);
    nodes[first].signal(Signal::TERM);
    eventually("equal devices", || (replaced(&program) > 0).then_some(()));
    assert_eq!(program.code("add"), CL_SUCCESS);
    assert_eq!(program.ask("sum"), "2 added");
    assert_ne!(place(&cluster, &nodes), first);
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_node_that_was_only_stopped_does_not_disturb_the_program_elsewhere() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let nodes = [cluster.node(DEVICE), cluster.node(DEVICE)];
    for shared_memory in ["0", "1"] {
        let mut command = Command::new(this());
        command.env("CAUSEWAY_SHARED_MEMORY", shared_memory);
        let mut program = begun_by(command, &cluster, WHOLE_LOG);
        let first = place(&cluster, &nodes);
        signal_workers_of(nodes[first].pid(), libc::SIGSTOP);
        nodes[first].signal(Signal::STOP);
        // The node gets the command, and sends bytes when it goes on.
        program.tell("sum");
        eventually("equal devices", || (replaced(&program) > 0).then_some(()));
        nodes[first].signal(Signal::CONT);
        signal_workers_of(nodes[first].pid(), libc::SIGCONT);
        assert_eq!(program.answer(), "1 added");
        assert_eq!(program.code("add"), CL_SUCCESS);
        assert_eq!(program.ask("sum"), "2 added");
        assert_ne!(place(&cluster, &nodes), first);
        program.end();
        cluster.see(&[]);
    }
}

#[test]
fn a_program_whose_checkpoint_was_on_the_lost_node_is_told_what_would_have_helped() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let mut nodes = [(); 2].map(|()| cluster.node_with(DEVICE, &["--log", "debug"]));
    let mut program = begun(&cluster, &HOLDS.replace("client", "node"));
    let first = place(&cluster, &nodes);
    eventually("a checkpoint", || {
        let log = nodes[first].log();
        log.contains("a checkpoint is made").then_some(())
    });
    nodes[first].crash();
    assert_ne!(program.code("add"), CL_SUCCESS);
    program.hears("hold = \"client\"");
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    program.end();
}

#[test]
fn a_lease_that_has_ended_everywhere_is_not_waited_for() {
    if played() {
        return;
    }
    let mut cluster = Cluster::start("");
    let _nodes = [cluster.node(DEVICE), cluster.node(DEVICE)];
    let more = [("CAUSEWAY_TIME_LIMIT", "5s"), ("CAUSEWAY_REEXECUTE", "1")];
    let mut program = cluster.using_with("1", &more);
    assert_eq!(program.ask("wait"), "waits");
    // Only the node can tell the program.
    cluster.manager.kill().expect("killed");
    assert!(program.answer().parse::<cl_int>().expect("a code") < 0);
    program.hears("the lease has ended: the lease's time limit is reached");
    program.end();
}

#[test]
fn a_program_waits_for_equal_devices_for_restart_if_that_is_set() {
    if played() {
        return;
    }
    let cluster = Cluster::start(SOON);
    let mut node = cluster.node(DEVICE);
    let _other = cluster.node("[[device]]\nname = \"B\"");
    let mut program = begun(&cluster, &WHOLE_LOG.replace("60s", "6s"));
    node.crash();
    let begun = Instant::now();
    assert_ne!(program.code("add"), CL_SUCCESS);
    let took = begun.elapsed();
    let bounds = Duration::from_secs(5)..Duration::from_secs(30);
    assert!(bounds.contains(&took), "{took:?}");
    program.hears("no equal devices were found in time");
    program.end();
}
