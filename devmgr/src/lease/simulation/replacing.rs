//! Tests of leases whose lost node is replaced.

use super::scenarios::gpus;
use super::*;
use crate::policy::{Quota, Subject};

/// Longer than a node serves its leases without the manager.
const FENCED: u64 = 700;

impl World {
    /// Makes a request whose lease is replaced if its node is lost, and delivers all messages.
    fn ask_to_replace(&mut self, user: u8, shape: &str, limit: Option<Span>) -> LeaseId {
        let mut new = self.new_request(user, shape);
        (new.limit, new.replace) = (limit, true);
        new.party.groups.clear();
        let lease = new.lease;
        self.event(Event::Request(new));
        self.deliver_all();
        lease
    }

    fn granted(&self, lease: LeaseId) -> &Granted {
        match self.told.get(&lease) {
            Some(ClientView::Holds(granted)) => granted,
            _ => panic!("{lease:?} is not held"),
        }
    }

    /// The number of the only node that the lease has.
    fn node_of_lease(&self, lease: LeaseId) -> usize {
        let [(node, _)] = &self.granted(lease).units[..] else {
            panic!("{lease:?} has not one node");
        };
        let at = self.nodes.iter().position(|of| of.id == *node);
        at.expect("a node")
    }

    /// Whether the lease's client knows that equal devices are sought.
    fn is_sought(&self, lease: LeaseId) -> bool {
        self.holds(lease) && self.granted(lease).units.is_empty()
    }

    /// Starts a node's daemon anew, and delivers all messages.
    fn start_anew(&mut self, at: usize) {
        self.lose(at);
        self.nodes[at].reboot();
        self.join(at);
        self.deliver_all();
    }
}

#[test]
fn a_daemon_that_is_started_anew_serves_the_lease_again() {
    let mut world = gpus(&[1]);
    let lease = world.ask_to_replace(0, "1", Some(Span::seconds(300)));
    let before = world.granted(lease).clone();
    assert!(before.replaceable);
    let waiting = world.ask(1, "1", None);
    world.live(10);
    world.start_anew(0);
    let now = world.granted(lease);
    let [replaced] = &now.moves[..] else {
        panic!("{:?}", now.moves);
    };
    assert!(replaced.replaced && replaced.from == replaced.to);
    assert!(now.epoch > before.epoch && now.units == before.units && now.ends == before.ends);
    assert!(!world.holds(waiting), "the replacement comes first");
    // It is replaced as often as its node is lost, and ends with its time.
    world.start_anew(0);
    assert_eq!(world.granted(lease).moves.len(), 2);
    world.live(300);
    assert!(!world.holds(lease) && world.holds(waiting));
    world.check_in_the_end();
}

#[test]
fn an_equal_device_takes_the_place_once_the_lost_node_cannot_serve_any_more() {
    let mut world = gpus(&[1, 1]);
    let lease = world.ask_to_replace(0, "1", None);
    let lost = world.node_of_lease(lease);
    world.lose(lost);
    world.live(100);
    assert_eq!(world.node_of_lease(lease), lost, "the node may still serve");
    world.live(FENCED);
    let other = world.node_of_lease(lease);
    assert_ne!(other, lost);
    assert!(world.nodes[lost].serving.is_empty());
    world.restart();
    (0..2).for_each(|at| world.join(at));
    world.deliver_all();
    assert_eq!(world.node_of_lease(lease), other);
    world.check_in_the_end();
}

#[test]
fn a_lease_that_nothing_replaces_ends_in_the_end_or_with_its_holder() {
    let mut world = gpus(&[1, 1]);
    let lease = world.ask_to_replace(0, "1", None);
    let lost = world.node_of_lease(lease);
    let other = world.ask(1, "1", None);
    world.lose(lost);
    world.live(FENCED);
    assert!(world.is_sought(lease));
    let shown = lease_of(&world.manager, lease).expect("a lease").granted;
    assert_eq!((shown.units.len(), shown.lost.len()), (0, 1));
    let mut released = world.clone();
    released.give_back(lease);
    assert!(!released.holds(lease) && released.manager.sought.is_empty());
    released.check_in_the_end();

    let mut silent = world.clone();
    silent.pass(Span::seconds(100));
    let reason = |world: &World| world.manager.over.reason(lease, &"u0".into());
    assert_eq!(reason(&silent), Some(EndReason::Expired));

    let mut freed = world.clone();
    freed.give_back(other);
    assert_ne!(freed.node_of_lease(lease), lost);
    freed.check_in_the_end();

    world.live(600);
    assert!(!world.holds(lease) && world.holds(other));
    assert_eq!(reason(&world), Some(EndReason::NodeLost));
    world.check_in_the_end();
}

#[test]
fn the_next_manager_seeks_on_even_if_it_never_met_the_lost_node() {
    let mut world = gpus(&[1, 1]);
    let lease = world.ask_to_replace(0, "1", None);
    let lost = world.node_of_lease(lease);
    let other = world.ask(1, "1", None);
    let mut lost_together = world.clone();
    world.lose(lost);
    world.live(FENCED);
    assert!(world.is_sought(lease));
    // The manager's machine is lost, with the node on it, before the next manager knows of it.
    lost_together.lose(lost);
    for (world, fenced) in [(&mut world, 10), (&mut lost_together, FENCED)] {
        world.restart();
        world.join(1 - lost);
        world.deliver_all();
        world.live(fenced);
        assert!(world.is_sought(lease));
        let mut replaced = world.clone();
        replaced.give_back(other);
        assert_eq!(replaced.node_of_lease(lease), 1 - lost);
        replaced.check_in_the_end();
        world.live(600);
        assert!(!world.holds(lease), "the search is bounded");
    }
    world.check_in_the_end();
    lost_together.check_in_the_end();
}

#[test]
fn what_is_lost_counts_for_the_quota_until_it_is_replaced() {
    let mut world = gpus(&[1, 1]);
    let quota = Quota {
        devices: Some(1),
        device_time: Some(Span::seconds(7200)),
        ..Quota::default()
    };
    let subject = Subject::User("u0".into());
    world.event(Event::QuotaChanged {
        subject: subject.clone(),
        quota: Some(quota),
    });
    let lease = world.ask_to_replace(0, "1", Some(Span::seconds(3600)));
    let lost = world.node_of_lease(lease);
    let other = world.ask(1, "1", None);
    let second = world.ask(0, "1", Some(Span::seconds(60)));
    world.lose(lost);
    world.live(FENCED);
    let has = |world: &World| world.manager.ledger.holdings(&subject);
    let expected = (1, Span::seconds(3600));
    assert!(world.is_sought(lease));
    assert_eq!((has(&world).devices, has(&world).promised), expected);
    world.give_back(other);
    assert!(world.node_of_lease(lease) != lost && !world.holds(second));
    assert_eq!((has(&world).devices, has(&world).promised), expected);
    world.give_back(lease);
    assert!(world.holds(second));
    world.check_in_the_end();
}

#[test]
fn a_target_that_fails_is_followed_by_the_next() {
    let mut world = gpus(&[1, 1, 1]);
    let lease = world.ask_to_replace(0, "1", None);
    let lost = world.node_of_lease(lease);
    world.lose(lost);
    world.nodes[lost].reboot();
    world.join(lost);
    // The offer is on its way to the first node.
    let asked = |world: &World| {
        let moving = world.manager.moves.values().next().expect("an offer");
        world.manager.grants[moving].parts[0].node
    };
    let first = asked(&world);
    let at = world.nodes.iter().position(|of| of.id == first).unwrap();
    let mut silent = world.clone();
    world.lose(at);
    assert_ne!(asked(&world), first);
    world.deliver_all();
    assert!(world.holds(lease) && world.node_of_lease(lease) != at);
    world.check_in_the_end();

    while !matches!(
        silent.nodes[at]
            .link
            .as_ref()
            .and_then(|of| of.to_node.front()),
        None | Some(ToNode::Grant(_))
    ) {
        silent.deliver_to_node(at);
    }
    silent.drop_message(at, false);
    silent.pass(Span::seconds(5));
    assert_ne!(asked(&silent), first);
    silent.deliver_all();
    assert_ne!(silent.node_of_lease(lease), at);
    silent.check_in_the_end();
}

#[test]
fn what_is_set_aside_stays_the_heads() {
    let mut world = gpus(&[2, 2]);
    let lease = world.ask_to_replace(0, "2; same-node", None);
    let lost = world.node_of_lease(lease);
    let (one, two) = (world.ask(1, "1", None), world.ask(1, "1", None));
    let head = world.ask(2, "2; same-node", None);
    world.live(40);
    world.give_back(one);
    world.lose(lost);
    world.live(FENCED);
    world.give_back(two);
    assert!(world.holds(head) && world.is_sought(lease));
    world.give_back(head);
    assert_ne!(world.node_of_lease(lease), lost);
    world.check_in_the_end();
}

#[test]
fn only_lost_nodes_of_used_leases_are_replaced() {
    // ---- without the wish, and with a reservation that was not confirmed
    let mut world = gpus(&[1, 1]);
    let plain = world.ask(0, "1", None);
    let mut new = world.new_request(1, "1");
    (new.reserve, new.replace) = (true, true);
    let reserved = new.lease;
    world.event(Event::Request(new));
    world.deliver_all();
    (0..2).for_each(|at| world.start_anew(at));
    assert!(!world.holds(plain) && !world.holds(reserved));
    world.check_in_the_end();
    // ---- several nodes in one grant
    let mut world = gpus(&[1, 1]);
    let several = world.ask_to_replace(0, "2; spread", None);
    assert!(!world.granted(several).replaceable);
    world.start_anew(0);
    assert_eq!(world.node_of_lease(several), 1);
    world.start_anew(1);
    assert!(!world.holds(several));
    world.check_in_the_end();
    // ---- a node that an administrator forgets, and one whose devices have changed
    let mut world = gpus(&[1, 1]);
    let lease = world.ask_to_replace(0, "1", None);
    let at = world.node_of_lease(lease);
    let mut changed = world.clone();
    let node = world.nodes[at].id;
    world.lose(at);
    world.event(Event::ForgetNode { node, force: true });
    assert!(!world.holds(lease));
    changed.nodes[at].devices = vec![super::random::device(0, false, 8, 1)];
    let event = changed.nodes[at].changed();
    changed.event(event);
    assert!(!changed.holds(lease));
}

#[test]
fn a_lease_that_loses_its_node_while_it_moves_is_replaced_without_its_sessions() {
    let mut world = gpus(&[1, 1]);
    let lease = world.ask_to_replace(0, "1", None);
    let from = world.node_of_lease(lease);
    let node = world.nodes[from].id;
    world.event(Event::Drain {
        node,
        draining: true,
    });
    world.event(Event::Migrate { node, within: None });
    assert_eq!(world.manager.moves.len(), 1);
    world.start_anew(from);
    let to = world.node_of_lease(lease);
    assert_ne!(from, to);
    assert!(matches!(&world.granted(lease).moves[..], [only] if only.replaced));
    let moved = Departure::Moved(world.nodes[to].id);
    assert_eq!(world.manager.leaving(node), [(lease, moved)]);
    world.check_in_the_end();
}
