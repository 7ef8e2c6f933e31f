//! Tests of programs whose node is drained, so that their sessions move to another node.

use std::time::Duration;

use causeway_proto::manager::{LeavingState, NodeInfo};

use crate::cluster::{Cluster, LeaseState, Signal, played};
use crate::frames::servers::*;

const DEVICE: &str = "[[device]]\nname = \"A\"\npipes = true";

impl Cluster {
    /// The node that has the only lease.
    pub fn place(&self) -> NodeInfo {
        let mut leases = self.manager.admin().leases().expect("a list");
        // A grant that was to take over the lease may be ending.
        leases.retain(|lease| lease.state() == LeaseState::Active);
        assert_eq!((leases.len(), leases[0].nodes.len()), (1, 1));
        let uuid = &leases[0].nodes[0].node_uuid;
        let nodes = self.manager.admin().nodes().expect("a list");
        let node = nodes.into_iter().find(|node| node.node_uuid == uuid);
        node.expect("the lease's node")
    }

    /// Has all leases of a node move.
    pub fn migrate(&self, node: &NodeInfo, within: Duration) {
        let admin = self.manager.admin();
        admin.migrate(node, within).expect("the manager drains it");
    }

    /// Waits until the only lease of a node that is drained is in this state. Returns why.
    pub fn leaves(&self, node: &NodeInfo, state: LeavingState) -> String {
        eventually(state.as_str_name(), || {
            let nodes = self.manager.admin().nodes().expect("a list");
            let now = nodes.into_iter().find(|of| of.node_uuid == node.node_uuid);
            let leaving = now.expect("the node").leaving;
            assert_eq!(leaving.len(), 1);
            (leaving[0].state() == state).then(|| leaving[0].reason.clone())
        })
    }
}

#[test]
fn a_program_goes_on_at_another_node_and_comes_back() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let (_one, _other) = (cluster.node(DEVICE), cluster.node(DEVICE));
    let mut program = cluster.using("1");
    assert_eq!(program.ask("keep"), "kept");
    let first = cluster.place();
    cluster.migrate(&first, Duration::ZERO);
    cluster.leaves(&first, LeavingState::Moved);
    let second = cluster.place();
    assert_ne!(second.node_uuid, first.node_uuid);
    // The objects are there, with the kernel's arguments, and new ones can be made.
    assert_eq!(program.code("add"), CL_SUCCESS);
    assert_eq!(program.ask("sum"), "1 added");
    assert_eq!(program.code("round"), CL_SUCCESS);
    assert_eq!(program.code("again"), CL_SUCCESS);
    program.warns("the session has moved; the program goes on there");

    // ---- and back, with commands under way
    resume(&cluster, &first);
    program.tell("many");
    cluster.migrate(&second, Duration::ZERO);
    cluster.leaves(&second, LeavingState::Moved);
    assert_eq!(cluster.place().node_uuid, first.node_uuid);
    assert_eq!(program.answer(), "200");
    assert_eq!(program.ask("sum"), "201 added");
    assert_eq!(cluster.states(), [LeaseState::Active]);
    program.end();
    cluster.see(&[]);
}

#[test]
fn a_session_that_cannot_move_stays_and_ends_with_the_time() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let (_one, _other) = (cluster.node(DEVICE), cluster.node(DEVICE));
    let mut program = cluster.using("1");
    assert_eq!(program.code("pipe"), CL_SUCCESS);
    let node = cluster.place();
    cluster.migrate(&node, Duration::ZERO);
    let why = cluster.leaves(&node, LeavingState::Stays);
    assert!(why.contains("pipe"), "{why}");
    // The lease goes on, and the other node is free again.
    assert_eq!(program.code("round"), CL_SUCCESS);
    assert_eq!(cluster.place().node_uuid, node.node_uuid);
    let free = cluster.user.lease("1").expect("the other node is free");
    cluster.user.release(&free).expect("released");
    cluster.migrate(&node, Duration::from_millis(1500));
    cluster.leaves(&node, LeavingState::Ended);
    program.hears("drained");
    assert_eq!(program.code("round"), CL_DEVICE_NOT_AVAILABLE);
    program.end();
}

#[test]
fn a_target_that_dies_leaves_the_session_where_it_is() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let mut nodes = [cluster.node(DEVICE), cluster.node(DEVICE)];
    let mut program = cluster.using("1");
    assert_eq!(program.ask("keep"), "kept");
    let node = cluster.place();
    let is_there = |daemon: &Daemon| {
        let port = format!(":{}", daemon.address.port());
        node.addresses
            .iter()
            .any(|address| address.ends_with(&port))
    };
    let target = nodes.iter().position(|daemon| !is_there(daemon));
    let target = target.expect("the other node");
    // The program answers nothing, so its session cannot be parked yet.
    program.signal(Signal::STOP);
    cluster.migrate(&node, Duration::ZERO);
    cluster.leaves(&node, LeavingState::Moves);
    nodes[target].crash();
    cluster.leaves(&node, LeavingState::Waits);
    program.signal(Signal::CONT);
    assert_eq!(program.code("add"), CL_SUCCESS);
    assert_eq!(program.ask("sum"), "1 added");
    assert_eq!(cluster.place().node_uuid, node.node_uuid);

    // ---- another target comes
    nodes[target] = cluster.node(DEVICE);
    cluster.leaves(&node, LeavingState::Moved);
    assert_eq!(program.code("add"), CL_SUCCESS);
    assert_eq!(program.ask("sum"), "2 added");
    program.end();
}

#[test]
fn a_lease_of_several_nodes_stays_and_the_listing_says_why() {
    if played() {
        return;
    }
    let cluster = Cluster::start("");
    let _nodes = [(); 3].map(|()| cluster.node(DEVICE));
    let mut program = cluster.using("2; spread");
    assert_eq!(program.ask("each"), "0 0");
    let leases = cluster.manager.admin().leases().expect("a list");
    let uuid = &leases[0].nodes[0].node_uuid;
    let nodes = cluster.manager.admin().nodes().expect("a list");
    let node = nodes.into_iter().find(|node| node.node_uuid == uuid);
    let node = node.expect("a node of the lease");
    cluster.migrate(&node, Duration::ZERO);
    let why = cluster.leaves(&node, LeavingState::Stays);
    assert!(why.contains("in one grant"), "{why}");
    // The third node is free, and the program goes on at both.
    assert_eq!(program.ask("each"), "0 0");
    assert_eq!(program.code("round"), CL_SUCCESS);

    // ---- with the time, the lease loses this node only
    cluster.migrate(&node, Duration::from_millis(500));
    program.warns("the lease has lost the devices of node ");
    let mut codes: Vec<_> = program.ask("each").split(' ').map(str::to_owned).collect();
    codes.retain(|code| code != "0");
    assert_eq!(codes.len(), 1);
    assert_eq!(cluster.states(), [LeaseState::Active]);
    program.end();
}

/// Lets a node have leases again.
fn resume(cluster: &Cluster, node: &NodeInfo) {
    let admin = cluster.manager.admin();
    admin.resume(node).expect("the manager opens it again");
}
