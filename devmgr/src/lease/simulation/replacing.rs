//! Tests of leases whose lost node is replaced.

use super::super::moving::NO_REPLACEMENT;
use super::super::replacing::MOST;
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
    assert_eq!(reason(&world), Some(EndReason::NotReplaced));
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
fn what_is_not_set_aside_any_more_replaces_what_is_lost() {
    let mut world = gpus(&[1, 1, 1]);
    let lease = world.ask_to_replace(0, "1", None);
    let lost = world.node_of_lease(lease);
    let (one, _two) = (world.ask(1, "1", None), world.ask(1, "1", None));
    let _head = world.ask(2, "2", None);
    let other = world.ask(3, "1", None);
    world.live(40);
    world.lose(lost);
    world.live(FENCED);
    world.give_back(one);
    assert!(world.is_sought(lease) && !world.holds(other));
    // The head may not have two devices any more.
    let quota = Quota {
        devices: Some(1),
        ..Quota::default()
    };
    world.event(Event::QuotaChanged {
        subject: Subject::User("u2".into()),
        quota: Some(quota),
    });
    world.deliver_all();
    assert!(!world.is_sought(lease) && !world.holds(other));
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
}

#[test]
fn an_administrator_ends_leases_that_are_to_be_replaced_with_their_node() {
    let mut world = gpus(&[1, 1]);
    let lease = world.ask_to_replace(0, "1", None);
    let lost = world.node_of_lease(lease);
    let node = world.nodes[lost].id;
    let _other = world.ask(1, "1", None);
    let mut forced = world.clone();
    forced.lose(lost);
    forced.event(Event::ForgetNode { node, force: true });
    assert!(!forced.holds(lease));
    let reason = |world: &World| world.manager.over.reason(lease, &"u0".into());
    let drain = |world: &mut World| {
        let draining = true;
        world.event(Event::Drain { node, draining });
        let within = Some(Span::seconds(1000));
        world.event(Event::Migrate { node, within });
    };
    let mut drained_before = world.clone();
    drain(&mut drained_before);
    for world in [&mut world, &mut drained_before] {
        world.lose(lost);
        world.live(FENCED);
        assert!(world.is_sought(lease));
    }
    let mut drained = world.clone();
    drain(&mut drained);
    let waits = Departure::Waits(NO_REPLACEMENT.to_owned());
    for world in [&drained, &drained_before] {
        assert_eq!(world.manager.leaving(node), [(lease, waits.clone())]);
    }
    drained_before.live(310);
    assert_eq!(reason(&drained_before), Some(EndReason::Drained));
    world.event(Event::ForgetNode { node, force: false });
    assert_eq!(reason(&world), Some(EndReason::NodeLost));
    assert!(!world.holds(lease) && world.manager.sought.is_empty());
}

#[test]
fn devices_that_vanish_are_replaced_once_their_node_has_withdrawn_the_lease() {
    let mut world = gpus(&[1, 1, 1]);
    let plain = world.ask(1, "1", None);
    let lease = world.ask_to_replace(0, "1", None);
    let (at, of_plain) = (world.node_of_lease(lease), world.node_of_lease(plain));
    for at in [at, of_plain] {
        world.nodes[at].devices.clear();
    }
    let event = world.nodes[of_plain].changed();
    world.event(event);
    assert!(!world.holds(plain));
    // The node reports either the devices first, or the end of the grant.
    let changed = world.nodes[at].changed();
    let mut withdrawn = world.clone();
    world.event(changed.clone());
    assert_eq!(world.node_of_lease(lease), at);
    assert!(world.manager.moves.is_empty(), "the node serves it still");
    let mut lost = world.clone();

    let node = withdrawn.nodes[at].id;
    let epoch = withdrawn.granted(lease).epoch;
    withdrawn.nodes[at].serving.clear();
    withdrawn.event(Event::Withdrawn(GrantReport { node, lease, epoch }));
    withdrawn.event(changed);

    // The connection breaks before the node has got the withdrawal.
    lost.lose(at);
    lost.join(at);
    for world in [&mut world, &mut withdrawn, &mut lost] {
        world.deliver_all();
        let to = world.node_of_lease(lease);
        assert!(to != at && to != of_plain);
        world.renew_all();
        assert!(matches!(&world.granted(lease).moves[..], [only] if only.replaced));
    }
    world.check_in_the_end();
}

#[test]
fn a_lease_is_replaced_so_often_and_then_ends() {
    let mut world = gpus(&[1]);
    let lease = world.ask_to_replace(0, "1", None);
    for replaced in 1..=MOST {
        assert!(world.granted(lease).replaceable);
        world.start_anew(0);
        assert_eq!(world.granted(lease).moves.len(), replaced);
    }
    assert!(!world.granted(lease).replaceable);
    world.start_anew(0);
    assert!(!world.holds(lease));
    world.check_in_the_end();
}

#[test]
fn a_lease_without_devices_that_an_earlier_manager_stored_ends() {
    let mut world = gpus(&[1]);
    let lease = world.ask_to_replace(0, "1", None);
    world.lose(0);
    world.live(FENCED);
    assert!(world.is_sought(lease));
    let row = world.store.leases.get_mut(&lease).expect("a row");
    row.replace.clear();
    let calendar = Calendar {
        time: world.time,
        wall: world.wall,
    };
    let mut manager = Manager::load(world.store.rows(), calendar);
    let transition = manager.handle(world.time, Event::Tick);
    assert!(transition.changes.contains(&Change::DeleteLease(lease)));
    let reason = manager.over.reason(lease, &"u0".into());
    assert_eq!(reason, Some(EndReason::NodeLost));
    let has = manager.ledger.holdings(&Subject::User("u0".into()));
    assert!(manager.sought.is_empty() && has == Default::default());
}

#[test]
fn what_may_be_replaced_counts_for_the_time_by_which_the_head_is_served() {
    let mut world = gpus(&[1, 1]);
    let _limited = world.ask(1, "1", Some(Span::seconds(2000)));
    let mut plain = world.clone();
    let leases = [world.ask_to_replace(0, "1", None), plain.ask(0, "1", None)];
    for (world, lease) in [&mut world, &mut plain].into_iter().zip(leases) {
        assert_eq!(world.manager.last_end(), None);
        let at = world.node_of_lease(lease);
        world.lose(at);
    }
    assert_eq!(world.manager.last_end(), None);
    assert!(plain.manager.last_end().is_some());
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
