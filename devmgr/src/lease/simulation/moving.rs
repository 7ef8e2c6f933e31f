//! Tests of leases that move to another node.

use super::scenarios::gpus;
use super::*;

impl World {
    fn migrate(&mut self, at: usize, within: Option<Span>) {
        let node = self.nodes[at].id;
        self.event(Event::Drain {
            node,
            draining: true,
        });
        self.event(Event::Migrate { node, within });
    }

    fn node_of(&self, lease: LeaseId) -> NodeId {
        let Some(ClientView::Holds(granted)) = self.told.get(&lease) else {
            panic!("{lease:?} is not held");
        };
        granted.units[0].0
    }

    fn at(&self, node: NodeId) -> usize {
        let found = self.nodes.iter().position(|of| of.id == node);
        found.expect("a node")
    }

    // A lease whose node, by the epoch, does what `refuses` says.
    fn lease(&mut self, refuses: bool) -> LeaseId {
        loop {
            let lease = self.ask(0, "1", None);
            let epoch = lease_of(&self.manager, lease)
                .expect("a lease")
                .granted
                .epoch;
            if epoch.0.is_multiple_of(3) == refuses {
                return lease;
            }
            self.give_back(lease);
        }
    }
}

#[test]
fn a_lease_moves_and_keeps_its_time_and_quota() {
    let mut world = gpus(&[1, 1]);
    let lease = world.lease(false);
    let (from, before) = (
        world.node_of(lease),
        lease_of(&world.manager, lease).unwrap().granted,
    );
    world.migrate(world.at(from), None);
    assert_eq!(world.manager.leaving(from).len(), 1);
    world.deliver_all();
    let to = world.node_of(lease);
    assert_ne!(from, to);
    assert_eq!(world.manager.leaving(from), [(lease, Departure::Moved(to))]);
    let now = lease_of(&world.manager, lease).unwrap();
    assert!(now.state == LeaseState::Active && now.granted.epoch > before.epoch);
    // Only the new node serves it, and it is the store's too.
    assert!(world.nodes[world.at(from)].serving.is_empty());
    world.restart();
    for at in 0..world.nodes.len() {
        world.join(at);
    }
    world.deliver_all();
    assert_eq!(world.node_of(lease), to);
    world.check_in_the_end();
}

#[test]
fn a_lease_without_a_target_waits_for_one_and_ends_with_the_time() {
    let mut world = gpus(&[1, 1]);
    let leases = [world.lease(false), world.lease(false)];
    let (first, second) = (world.node_of(leases[0]), world.node_of(leases[1]));
    assert_ne!(first, second);
    world.migrate(world.at(first), Some(Span::seconds(50)));
    world.live(20);
    let waits = world.manager.leaving(first);
    assert!(
        matches!(&waits[..], [(_, Departure::Waits(_))]),
        "{waits:?}"
    );
    let mut other = world.clone();
    // A unit becomes free.
    other.give_back(leases[1]);
    other.deliver_all();
    assert_eq!(other.node_of(leases[0]), second);
    // None does.
    world.live(40);
    assert!(!world.holds(leases[0]) && world.holds(leases[1]));
    assert_eq!(
        world.manager.leaving(first),
        [(leases[0], Departure::Ended)]
    );
    world.check_in_the_end();
}

#[test]
fn a_target_that_is_lost_or_takes_nothing_is_replaced_by_another() {
    let mut world = gpus(&[1, 1, 1]);
    let lease = world.lease(true);
    let from = world.node_of(lease);
    world.migrate(world.at(from), None);
    let [(_, Departure::Moves(target))] = world.manager.leaving(from)[..] else {
        panic!("the lease moves");
    };
    let mut other = world.clone();
    other.lose(other.at(target));
    let [(_, Departure::Moves(next))] = other.manager.leaving(from)[..] else {
        panic!("another node is asked");
    };
    assert!(next != target && next != from && other.node_of(lease) == from);
    // Nobody can be reached from this node, so every node is asked once, and the lease goes on.
    world.deliver_all();
    assert_eq!(world.node_of(lease), from);
    assert!(matches!(
        world.manager.leaving(from)[..],
        [(_, Departure::Waits(_))]
    ));
    world.check_in_the_end();
    other.check_in_the_end();
}

#[test]
fn sessions_that_a_lost_target_has_taken_go_on_at_their_node() {
    let mut world = gpus(&[1, 1]);
    let lease = world.lease(false);
    let from = world.node_of(lease);
    world.migrate(world.at(from), None);
    let [(_, Departure::Moves(target))] = world.manager.leaving(from)[..] else {
        panic!("the lease moves");
    };
    let (source, target) = (world.at(from), world.at(target));
    let has_sent = |world: &World| {
        world.nodes[source]
            .serving
            .values()
            .any(|of| of.sent.is_some())
    };
    // The target serves its grant and has taken the sessions. The manager has not heard of it.
    while !has_sent(&world) {
        world.deliver_to_node(target);
        world.deliver_to_manager(target);
        world.deliver_to_node(source);
    }
    let mut restarted = world.clone();
    world.lose(target);
    restarted.restart();
    for at in [source, target] {
        restarted.join(at);
    }
    for world in [&mut world, &mut restarted] {
        world.deliver_all();
        assert!(world.holds(lease) && world.node_of(lease) == from);
        assert!(!has_sent(world));
    }
    restarted.check_in_the_end();
    // ---- another attempt
    world.join(target);
    world.deliver_all();
    assert_eq!(world.node_of(lease), world.nodes[target].id);
    world.check_in_the_end();
}

#[test]
fn leases_of_several_nodes_stay_and_released_ones_do_not_move() {
    let mut world = gpus(&[1, 1, 2]);
    let lease = world.ask(0, "2; spread", None);
    let from = world.node_of(lease);
    world.migrate(world.at(from), None);
    world.deliver_all();
    assert!(matches!(
        world.manager.leaving(from)[..],
        [(_, Departure::Stays(_))]
    ));
    let mut world = gpus(&[1, 1]);
    let lease = world.lease(false);
    let from = world.node_of(lease);
    world.migrate(world.at(from), None);
    // Released while it moves: neither node keeps it.
    world.give_back(lease);
    assert!(world.nodes.iter().all(|node| node.serving.is_empty()));
    world.check_in_the_end();
}

#[test]
fn a_lease_of_a_device_that_has_changed_without_a_manager_does_not_move() {
    let mut world = gpus(&[1, 1]);
    let lease = world.lease(false);
    let from = world.node_of(lease);
    world.restart();
    for at in 0..2 {
        world.nodes[at].devices = vec![super::random::device(0, true, 16, 1)];
        world.join(at);
    }
    world.deliver_all();
    world.migrate(world.at(from), None);
    world.deliver_all();
    assert_eq!(world.node_of(lease), from);
    let waits = |(of, departure): &(LeaseId, Departure)| {
        *of == lease && matches!(departure, Departure::Waits(_))
    };
    assert!(world.manager.leaving(from).iter().all(waits));
    world.check_in_the_end();
}
