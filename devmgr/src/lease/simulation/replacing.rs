//! Tests of leases whose node is lost, and whose holder wants equal devices in its place.

use super::scenarios::gpus;
use super::*;

impl World {
    /// Renews a lease, whose holder cannot reach the lease's node.
    fn wish(&mut self, lease: LeaseId, node: NodeId) {
        let user = self.users[&lease].clone();
        self.event(Event::Replace { lease, user, node });
        self.deliver_all();
    }

    /// Repeats the wish for so many seconds.
    fn wish_for(&mut self, lease: LeaseId, node: NodeId, seconds: u64) {
        for _ in 0..seconds {
            self.wish(lease, node);
            self.pass(Span::seconds(1));
        }
        self.wish(lease, node);
    }

    fn place(&self, lease: LeaseId) -> Option<(NodeId, Epoch)> {
        let granted = lease_of(&self.manager, lease)?.granted;
        granted.units.first().map(|of| (of.0, granted.epoch))
    }

    fn number_of(&self, node: NodeId) -> usize {
        let found = self.nodes.iter().position(|of| of.id == node);
        found.expect("a node")
    }

    /// A lease of one unit whose node has lost its connection, and that node.
    fn cut_off(nodes: &[u32]) -> (World, LeaseId, NodeId) {
        let mut world = gpus(nodes);
        let lease = world.ask(0, "1", None);
        let (node, _) = world.place(lease).expect("a lease");
        world.wish(lease, node);
        assert_eq!(world.place(lease).map(|of| of.0), Some(node), "connected");
        world.pass(Span::seconds(1));
        world.lose(world.number_of(node));
        (world, lease, node)
    }
}

#[test]
fn a_lost_node_is_replaced_for_a_holder_that_wants_it() {
    let (mut world, lease, lost) = World::cut_off(&[1, 1]);
    let (_, before) = world.place(lease).unwrap();
    let mut unwanted = world.clone();
    // It may be back soon.
    world.wish(lease, lost);
    assert_eq!(world.place(lease), Some((lost, before)));
    world.wish_for(lease, lost, 6);
    let (node, epoch) = world.place(lease).expect("equal devices");
    assert!(node != lost && epoch > before);
    let granted = lease_of(&world.manager, lease).unwrap().granted;
    assert!(!granted.replaces && granted.lost.is_empty() && granted.moves.len() == 1);
    // The lost node may serve its grant still, so its unit is not free.
    assert!(
        world.nodes[world.number_of(lost)]
            .serving
            .contains_key(&before)
    );
    let other = world.ask_at_once(1, "1");
    assert!(!world.holds(other));
    // Another leader knows of it, and the lost node gives its grant back.
    world.restart();
    for at in 0..world.nodes.len() {
        world.join(at);
    }
    world.deliver_all();
    assert_eq!(world.place(lease), Some((node, epoch)));
    assert!(world.nodes[world.number_of(lost)].serving.is_empty());
    world.check_in_the_end();
    unwanted.live(60);
    assert_eq!(unwanted.place(lease), Some((lost, before)));
    unwanted.check_in_the_end();
}

#[test]
fn a_node_that_comes_back_with_its_grant_keeps_the_lease() {
    let (mut world, lease, lost) = World::cut_off(&[1, 1]);
    let before = world.place(lease);
    let at = world.number_of(lost);
    world.wish(lease, lost);
    world.pass(Span::seconds(6));
    let user = world.users[&lease].clone();
    let node = lost;
    // The other node is asked, and has not answered yet.
    world.event(Event::Replace { lease, user, node });
    let mut answered = world.clone();
    world.join(at);
    world.deliver_all();
    assert_eq!(world.place(lease), before);
    assert!(!lease_of(&world.manager, lease).unwrap().granted.replaces);
    world.check_in_the_end();
    // It comes back later: it has nothing any more.
    answered.deliver_all();
    answered.join(at);
    answered.deliver_all();
    assert_ne!(answered.place(lease), before);
    assert!(answered.nodes[at].serving.is_empty());
    answered.check_in_the_end();
}

#[test]
fn a_node_that_has_restarted_serves_the_lease_again() {
    let (mut world, lease, lost) = World::cut_off(&[1]);
    let (_, before) = world.place(lease).unwrap();
    world.wish_for(lease, lost, 8);
    assert_eq!(world.place(lease), Some((lost, before)), "nothing is free");
    assert!(lease_of(&world.manager, lease).unwrap().granted.replaces);
    let at = world.number_of(lost);
    let mut unwanted = world.clone();
    let mut other_devices = world.clone();
    for world in [&mut world, &mut unwanted, &mut other_devices] {
        world.nodes[at].reboot();
    }
    world.join(at);
    world.deliver_all();
    let (node, epoch) = world.place(lease).expect("the same node");
    assert!(node == lost && epoch > before);
    world.check_in_the_end();
    // ---- the wish is over
    unwanted.pass(Span::seconds(40));
    unwanted.join(at);
    unwanted.deliver_all();
    assert!(!unwanted.holds(lease));
    // ---- the node has other devices
    other_devices.nodes[at].devices = vec![super::random::device(0, true, 16, 1)];
    other_devices.join(at);
    other_devices.deliver_all();
    assert!(other_devices.holds(lease) && other_devices.place(lease).is_none());
    other_devices.wish_for(lease, lost, 5);
    assert!(other_devices.holds(lease));
    other_devices.live(60);
    assert!(!other_devices.holds(lease));
    other_devices.check_in_the_end();
}

#[test]
fn a_replacement_waits_for_units_and_outlives_its_own_node() {
    let (mut world, lease, lost) = World::cut_off(&[1, 1, 1]);
    let others: Vec<LeaseId> = (1..3).map(|user| world.ask(user, "1", None)).collect();
    world.wish_for(lease, lost, 8);
    assert_eq!(world.place(lease).map(|of| of.0), Some(lost));
    // ---- a unit becomes free
    world.give_back(others[0]);
    let (second, _) = world.place(lease).expect("a lease");
    assert_ne!(second, lost);
    // ---- that node is lost, too, before it has answered or after
    world.lose(world.number_of(second));
    world.wish_for(lease, second, 8);
    assert_eq!(world.place(lease).map(|of| of.0), Some(second));
    world.give_back(others[1]);
    let (third, _) = world.place(lease).expect("a lease");
    assert!(third != second && third != lost);
    let moves = lease_of(&world.manager, lease).unwrap().granted.moves;
    assert_eq!(moves.len(), 2);
    world.check_in_the_end();
}

#[test]
fn a_node_that_is_lost_while_it_is_drained_is_replaced_by_its_target() {
    let mut world = gpus(&[1, 1]);
    let lease = world.ask(0, "1", None);
    let (lost, _) = world.place(lease).unwrap();
    let at = world.number_of(lost);
    let (node, draining) = (lost, true);
    world.event(Event::Drain { node, draining });
    world.event(Event::Migrate { node, within: None });
    // The target serves its grant. The source has not heard of it.
    for other in 0..2 {
        if other != at {
            while world.deliver_to_node(other) | world.deliver_to_manager(other) {}
        }
    }
    world.lose(at);
    world.wish_for(lease, lost, 8);
    assert_ne!(world.place(lease).map(|of| of.0), Some(lost));
    world.check_in_the_end();
}

#[test]
fn leases_of_several_nodes_and_of_others_are_not_replaced() {
    let mut world = gpus(&[1, 1, 2]);
    let lease = world.ask(0, "2; spread", None);
    let (lost, epoch) = world.place(lease).unwrap();
    world.lose(world.number_of(lost));
    world.wish_for(lease, lost, 8);
    assert_eq!(world.place(lease), Some((lost, epoch)));
    let (mut world, lease, lost) = World::cut_off(&[1, 1]);
    world.pass(Span::seconds(8));
    let user = "mallory".into();
    world.event(Event::Replace {
        lease,
        user,
        node: lost,
    });
    world.deliver_all();
    assert_eq!(world.place(lease).map(|of| of.0), Some(lost));
    world.check_in_the_end();
}
