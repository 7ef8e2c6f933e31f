//! Tests of nodes that join, leave, and are forgotten.

use super::scenarios::gpus;
use super::*;

const DAY: u64 = 24 * 3600;

impl World {
    fn id(&self, at: usize) -> NodeId {
        self.nodes[at].id
    }

    fn knows(&self, at: usize) -> bool {
        self.manager.nodes.contains_key(&self.id(at))
    }

    /// Lets an administrator forget a node, and checks that this succeeds exactly if it is allowed.
    pub(super) fn forget(&mut self, node: NodeId, force: bool) {
        self.event(Event::Tick);
        let allowed = self.manager.may_forget(node, force);
        let known = |world: &Self| world.manager.nodes.contains_key(&node);
        let before = known(self);
        if allowed.is_ok() && !self.manager.settling {
            self.given_up.extend(&self.manager.nodes[&node].grants);
        }
        self.event(Event::ForgetNode { node, force });
        assert_eq!(known(self), before && allowed.is_err(), "{allowed:?}");
    }

    /// Makes a waiting request again, as a client does after a restart of the manager.
    fn come_back(&mut self, lease: LeaseId, user: u8, shape: &str) {
        let mut again = self.new_request(user, shape);
        self.users.remove(&again.lease);
        again.lease = lease;
        again.party.groups.clear();
        self.event(Event::Request(again));
        self.deliver_all();
    }
}

#[test]
fn a_node_is_told_after_each_welcome_whether_it_is_drained() {
    let mut world = gpus(&[1]);
    let node = world.id(0);
    for draining in [true, false] {
        world.lose(0);
        world.event(Event::Drain { node, draining });
        world.join(0);
        world.deliver_all();
        assert_eq!(world.nodes[0].draining, draining);
    }
    let lease = world.ask(0, "1", None);
    assert!(world.holds(lease));
    world.event(Event::Drain {
        node,
        draining: true,
    });
    world.deliver_all();
    assert!(world.nodes[0].draining);
}

#[test]
fn a_node_that_is_reached_elsewhere_is_written_down_once() {
    let mut world = gpus(&[1]);
    world.nodes[0].addresses = vec!["elsewhere:1".to_owned()];
    for is_new in [true, false] {
        let changed = world.nodes[0].changed();
        let transition = world.manager.handle(world.time, changed);
        let rows = transition.changes.iter().filter_map(|of| match of {
            Change::PutNode(row) => Some(row.addresses[0].as_str()),
            _ => None,
        });
        let expected = if is_new { vec!["elsewhere:1"] } else { vec![] };
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_lost_node_is_forgotten_after_a_week_over_restarts() {
    let mut world = gpus(&[1, 1]);
    world.lose(1);
    for days in [3, 3] {
        world.pass(Span::seconds(days * DAY));
        assert!(world.knows(1));
        world.restart();
        world.join(0);
    }
    world.pass(Span::seconds(2 * DAY));
    assert!(world.knows(0) && !world.knows(1));
    assert!(world.store.nodes.len() == 1 && world.store.absences.is_empty());
    // The node returns as a new one, and its absence is counted from the beginning.
    world.join(1);
    world.deliver_all();
    let both = world.ask(0, "2", None);
    assert!(world.holds(both));
    world.event(Event::Revoke { lease: both });
    world.deliver_all();
    world.lose(1);
    world.pass(Span::seconds(6 * DAY));
    assert!(world.knows(1));
}

#[test]
fn who_is_drained_or_came_back_is_not_forgotten() {
    let mut world = gpus(&[1, 1]);
    let node = world.id(1);
    world.event(Event::Drain {
        node,
        draining: true,
    });
    for at in 0..2 {
        world.lose(at);
    }
    world.pass(Span::seconds(6 * DAY));
    world.join(0);
    world.restart();
    world.join(0);
    world.pass(Span::seconds(6 * DAY));
    assert!(world.knows(0) && world.knows(1));
    world.join(1);
    world.deliver_all();
    assert!(world.nodes[1].draining);
}

#[test]
fn without_a_time_nobody_is_forgotten() {
    let mut world = gpus(&[1]);
    let mut policy = world.manager.policy.clone();
    policy.timing.forget = Span(0);
    world.event(Event::PolicyChanged(policy));
    world.lose(0);
    world.pass(Span::seconds(30 * DAY));
    assert!(world.knows(0));
}

#[test]
fn who_is_connected_or_may_serve_leases_is_not_forgotten_but_by_force() {
    let mut world = gpus(&[1]);
    let node = world.id(0);
    let lease = world.ask(0, "1", None);
    for force in [false, true] {
        let refused = world.manager.may_forget(node, force);
        assert_eq!(refused, Err(NotForgotten::Connected));
        world.forget(node, force);
    }
    world.lose(0);
    let refused = world.manager.may_forget(node, false);
    let (leases, seconds) = (1, 660);
    assert_eq!(refused, Err(NotForgotten::Leased { leases, seconds }));
    world.forget(node, false);
    assert!(world.holds(lease));
    world.forget(node, true);
    assert_eq!(world.told.get(&lease), Some(&ClientView::Over));
    assert!(world.store.nodes.is_empty() && world.store.leases.is_empty());
    assert_eq!(
        world.manager.may_forget(node, true),
        Err(NotForgotten::Unknown)
    );
    // The node has served its lease meanwhile. It gets a new grant only after it has withdrawn the old
    // one.
    assert_eq!(world.nodes[0].serving.len(), 1);
    world.join(0);
    let next = world.ask(1, "1", None);
    assert!(world.holds(next));
    assert_eq!(world.nodes[0].serving.len(), 1);
}

#[test]
fn when_the_nodes_had_time_to_come_what_does_not_fit_is_refused() {
    let mut world = gpus(&[1, 1]);
    let both = world.ask(0, "2", None);
    let before = world.ask(1, "2", None);
    world.restart();
    world.join(0);
    world.deliver_all();
    world.come_back(before, 1, "2");
    let meanwhile = world.ask(2, "2", None);
    assert!(world.waiting.contains(&meanwhile));
    let settle = world.manager.policy.timing.settle;
    world.pass(settle);
    assert!(
        world.waiting.contains(&meanwhile),
        "such devices may come yet"
    );
    world.live(60);
    assert_eq!(world.told.get(&meanwhile), Some(&ClientView::Over));
    let after = world.ask_at_once(2, "2");
    assert_eq!(world.told.get(&after), Some(&ClientView::Over));
    // A request from before the restart goes on waiting: its nodes may join late.
    assert!(world.waiting.contains(&before) && world.holds(both));
}

#[test]
fn what_waited_in_vain_before_a_restart_waits_no_longer_than_what_is_asked_for_now() {
    let mut world = one_is_to_come();
    let arrival = world.manager.policy.timing.arrival;
    let held = world.ask(0, "1", None);
    let (in_vain, possible) = (world.ask(1, "2", None), world.ask(2, "1", None));
    world.live(10);
    world.restart();
    world.come_back(in_vain, 1, "2");
    world.come_back(possible, 2, "1");
    // The devices of the node that has not joined are unknown.
    world.live(2 * arrival.0 / 1000);
    assert!(world.waiting.contains(&in_vain));
    world.join(0);
    world.deliver_all();
    world.live(arrival.0 / 1000 - 10);
    assert!(world.waiting.contains(&in_vain));
    world.live(10);
    assert_eq!(world.told.get(&in_vain), Some(&ClientView::Over));
    assert!(world.waiting.contains(&possible) && world.holds(held));
}

#[test]
fn where_no_node_is_known_what_waited_before_is_judged_at_the_start() {
    let mut world = gpus(&[]);
    let arrival = world.manager.policy.timing.arrival;
    let early = world.ask(0, "1", None);
    world.restart();
    world.come_back(early, 0, "1");
    world.pass(Span(arrival.0 - 1));
    assert!(world.waiting.contains(&early));
    world.pass(Span(1));
    assert_eq!(world.told.get(&early), Some(&ClientView::Over));
    assert!(world.store.waiting.is_empty());
}

#[test]
fn a_node_that_is_told_to_end_gets_no_new_lease_and_serves_what_it_has_until_it_lets_go() {
    let mut world = gpus(&[1, 1]);
    let leases = [world.ask(0, "1", None), world.ask(0, "1", None)];
    let on_second = |world: &World, lease: &LeaseId| match world.told.get(lease) {
        Some(ClientView::Holds(granted)) => granted.units[0].0 == world.id(1),
        other => panic!("{other:?}"),
    };
    let [on_it, other] = match on_second(&world, &leases[0]) {
        true => leases,
        false => [leases[1], leases[0]],
    };
    world.nodes[1].stop();
    world.deliver_all();
    let waiting = world.ask(1, "2", None);
    world.give_back(other);
    world.live(40);
    assert!(world.holds(on_it) && world.waiting.contains(&waiting));
    // A manager that was down meanwhile learns from the hello that the node is stopping.
    world.restart();
    for node in [0, 1] {
        world.join(node);
    }
    world.deliver_all();
    world.come_back(waiting, 1, "2");
    world.give_back(on_it);
    assert!(!world.holds(waiting) && world.nodes[1].serving.is_empty());
    world.lose(1);
    world.nodes[1].reboot();
    world.join(1);
    world.deliver_all();
    assert!(world.holds(waiting));
}

#[test]
fn what_a_node_lets_go_of_before_it_ends_is_over_at_once() {
    let mut world = gpus(&[1]);
    let lease = world.ask(0, "1", None);
    world.nodes[0].stop();
    world.nodes[0].let_go();
    world.deliver_all();
    world.lose(0);
    assert_eq!(world.told.get(&lease), Some(&ClientView::Over));
    assert!(world.store.leases.is_empty());
    assert_eq!(world.manager.may_forget(world.id(0), false), Ok(()));
}

/// A cluster of two nodes with one GPU each, the second of which is unknown to the manager.
fn one_is_to_come() -> World {
    let mut world = gpus(&[1, 1]);
    world.lose(1);
    world.forget(world.id(1), true);
    world
}

#[test]
fn who_waits_for_what_is_not_there_yet_gets_it_when_it_comes_and_stands_in_nobodys_way() {
    let mut world = one_is_to_come();
    let early = world.ask(1, "2", None);
    assert!(world.waiting.contains(&early));
    let at_once = world.ask_at_once(1, "2");
    assert_eq!(world.told.get(&at_once), Some(&ClientView::Over));
    let possible = world.ask(1, "1", None);
    assert!(world.holds(possible) && world.waiting.contains(&early));
    world.give_back(possible);
    world.live(50);
    world.join(1);
    world.deliver_all();
    assert!(world.holds(early));
}

#[test]
fn who_waits_for_what_does_not_come_is_refused_when_the_time_is_over() {
    let mut world = one_is_to_come();
    let arrival = world.manager.policy.timing.arrival;
    let early = world.ask(1, "2", None);
    world.pass(Span(arrival.0 - 1));
    assert!(world.waiting.contains(&early));
    world.pass(Span(1));
    assert_eq!(world.told.get(&early), Some(&ClientView::Over));
    assert!(world.manager.queue.is_empty() && world.store.waiting.is_empty());
    // A request that known devices once fitted waits without limit.
    let known = world.ask(1, "2", None);
    let held = world.ask(2, "1", None);
    world.join(1);
    world.deliver_all();
    assert!(world.holds(held) && world.waiting.contains(&known));
    world.lose(1);
    world.live(2 * arrival.0 / 1000);
    assert!(world.waiting.contains(&known));
}

#[test]
fn who_waits_is_told_what_is_missing() {
    let mut world = gpus(&[1, 1]);
    let said = |world: &mut World, line: &str, waits: bool| {
        let mut new = world.new_request(0, line);
        new.wait = waits;
        let transition = world
            .manager
            .clone()
            .handle(world.time, Event::Request(new));
        let told = transition.actions.iter().find_map(|of| match of {
            Action::Tell { outcome, .. } => Some(outcome.clone()),
            _ => None,
        });
        match told {
            Some(Outcome::Refused(refused)) => refused.to_string(),
            Some(Outcome::Waiting { shortfall, .. }) => {
                shortfall.map_or(String::new(), |of| of.to_string())
            }
            other => panic!("{other:?}"),
        }
    };
    let never = "the cluster does not have these devices, free or not: ";
    for (line, why) in [
        ("9", "2 devices are there, 9 asked for"),
        ("1, TYPE=CPU", "no device has TYPE=CPU"),
        ("3, TYPE=GPU", "2 devices have TYPE=GPU, 3 asked for"),
        ("2, TYPE=CPU; 1, TYPE=GPU", "no device has TYPE=CPU"),
        (
            "2; same-node",
            "the suitable devices are not together on one node",
        ),
        (
            "2, TYPE=GPU; 2, TYPE=GPU",
            "the suitable devices would be needed for two kinds at once",
        ),
    ] {
        assert_eq!(said(&mut world, line, false), format!("{never}{why}"));
        assert_eq!(said(&mut world, line, true), why);
    }
    assert_eq!(
        said(&mut gpus(&[]), "1, TYPE=GPU", true),
        "no node has joined yet"
    );
    let held = world.ask(1, "1", None);
    let Some(ClientView::Holds(granted)) = world.told.get(&held) else {
        panic!("the unit is free");
    };
    let other = usize::from(granted.units[0].0 == world.id(0));
    let node = world.id(other);
    world.event(Event::Drain {
        node,
        draining: true,
    });
    let drained = "2 devices are there, 0 of them are free, 1 is on nodes that are being drained, 2 asked for";
    assert_eq!(said(&mut world, "2", true), drained);
    // Requests ahead in the queue are no lack, so nothing is reported.
    assert_eq!(said(&mut world, "1", true), "");
    world.nodes[other].stop();
    world.deliver_all();
    let stopping = drained.replace("being drained", "stopping");
    assert_eq!(said(&mut world, "2", true), stopping);
    world.lose(other);
    let lost = drained.replace("being drained", "lost");
    let refused = format!(
        "the requested devices are in use: {lost}; ask again, or wait for them (causeway run --wait)"
    );
    assert_eq!(said(&mut world, "2", false), refused);
}

#[test]
fn who_waits_for_a_node_that_is_forgotten_waits_no_longer() {
    let mut world = gpus(&[1, 2]);
    let held = world.ask(0, "1", None);
    world.lose(1);
    let in_vain = world.ask(1, "2; same-node", None);
    let possible = world.ask(2, "1", None);
    assert!(world.holds(held) && world.waiting.contains(&in_vain));
    world.forget(world.id(1), false);
    assert_eq!(world.told.get(&in_vain), Some(&ClientView::Over));
    assert!(world.waiting.contains(&possible));
}

#[test]
fn what_a_lost_node_has_is_set_aside_for_nobody() {
    let mut world = gpus(&[2, 2]);
    let late = world.ask(0, "1; same-node", Some(Span::seconds(400)));
    let early = world.ask(0, "1; same-node", Some(Span::seconds(300)));
    // The third lease ends first, but its node is lost.
    let lost = world.ask(1, "2; same-node", Some(Span::seconds(200)));
    assert!(world.holds(late) && world.holds(early) && world.holds(lost));
    world.lose(1);
    let large = world.ask(2, "2; same-node", None);
    world.live(40);
    world.give_back(early);
    let passing = world.ask(3, "1", None);
    assert!(!world.holds(passing), "the unit is set aside");
    world.give_back(late);
    assert!(world.holds(large));
}

/// Joins a node without devices if the manager has room for it, and returns whether it had.
fn arrive(manager: &mut Manager, number: u32, account: &str) -> bool {
    let node = numbered(number);
    let account = UserName::from(account);
    let has_room = manager.has_room(node, Some(&account));
    if has_room {
        let joined = Joined {
            node,
            name: format!("node{number}"),
            addresses: Vec::new(),
            account: Some(account),
            running: Vec::new(),
            devices: Vec::new(),
            stopping: false,
        };
        manager.handle(Time(u64::from(number)), Event::NodeJoined(joined));
    }
    has_room
}

fn numbered(number: u32) -> NodeId {
    NodeId(u128::from(number).to_be_bytes())
}

#[test]
fn an_account_that_joins_under_ever_new_names_makes_room_by_its_own() {
    let calendar = Calendar {
        time: Time(0),
        wall: Wall(1_700_000_000_000),
    };
    let mut manager = Manager::load(Rows::default(), calendar);
    let (most, lost) = (MOST_NODES as u32, Event::NodeLost { node: numbered(0) });
    assert!(arrive(&mut manager, 1_000_000, "other") && arrive(&mut manager, 0, "one"));
    manager.handle(
        Time(1),
        Event::NodeLost {
            node: numbered(1_000_000),
        },
    );
    // The first node stays connected until the end, the second is drained, all others are lost one after
    // another.
    for number in 1..most {
        assert!(arrive(&mut manager, number, "one"));
        if number == 1 {
            let node = numbered(number);
            manager.handle(
                Time(1),
                Event::Drain {
                    node,
                    draining: true,
                },
            );
        }
        let node = numbered(number);
        manager.handle(Time(u64::from(number)), Event::NodeLost { node });
    }
    for number in most..most + 100 {
        assert!(arrive(&mut manager, number, "one"));
        assert_eq!(manager.nodes.len(), MOST_NODES + 1);
        let node = numbered(number);
        manager.handle(Time(u64::from(number)), Event::NodeLost { node });
    }
    let known: BTreeSet<NodeId> = manager.nodes.keys().copied().collect();
    let knows = |number| known.contains(&numbered(number));
    assert!(knows(0) && knows(1) && knows(1_000_000));
    assert!((2..102).all(|number| !knows(number)) && (102..most + 100).all(knows));
    // If none of the account's nodes can be forgotten, a new one is rejected. Known nodes can still
    // return, and nodes of another account do not count.
    for number in 102..most + 100 {
        assert!(arrive(&mut manager, number, "one"));
    }
    assert!(!arrive(&mut manager, 2_000_000, "one"));
    assert!(arrive(&mut manager, 1_000_000, "other") && arrive(&mut manager, 2_000_001, "other"));
    manager.handle(Time(2_000_002), lost);
    assert!(arrive(&mut manager, 2_000_003, "one"));
    assert!(!manager.nodes.contains_key(&numbered(0)));
}
