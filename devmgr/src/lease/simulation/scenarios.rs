//! Tests of the order in which requests are served: fairness, back-filling, the bound on waiting,
//! restarts.

use proptest::collection::vec;
use proptest::prelude::*;

use super::random::device;
use super::*;
use crate::policy::{Policy, Quota, Subject};

/// A cluster of nodes with this many GPUs each.
pub(super) fn gpus(nodes: &[u32]) -> World {
    let devices = |count: &u32| (0..*count).map(|at| device(at, true, 8, 1)).collect();
    let nodes: Vec<Vec<OfferedDevice>> = nodes.iter().map(devices).collect();
    World::new(&nodes, Rows::default())
}

impl World {
    /// Makes a request that waits, and delivers all messages.
    pub(super) fn ask(&mut self, user: u8, shape: &str, limit: Option<Span>) -> LeaseId {
        let mut new = self.new_request(user, shape);
        new.limit = limit;
        new.party.groups.clear();
        let lease = new.lease;
        self.event(Event::Request(new));
        self.deliver_all();
        lease
    }

    /// Makes a request that does not wait, and delivers all messages.
    pub(super) fn ask_at_once(&mut self, user: u8, shape: &str) -> LeaseId {
        let mut new = self.new_request(user, shape);
        new.wait = false;
        new.party.groups.clear();
        let lease = new.lease;
        self.event(Event::Request(new));
        self.deliver_all();
        lease
    }

    pub(super) fn give_back(&mut self, lease: LeaseId) {
        let user = self.users[&lease].clone();
        self.event(Event::Release { lease, user });
        self.deliver_all();
    }

    pub(super) fn holds(&self, lease: LeaseId) -> bool {
        matches!(self.told.get(&lease), Some(ClientView::Holds(_)))
    }

    fn held_by(&self, user: u8) -> usize {
        let name: UserName = format!("u{user}").as_str().into();
        let his = self.users.iter().filter(|(_, of)| **of == name);
        his.filter(|(lease, _)| self.holds(**lease)).count()
    }

    /// Advances the time while clients renew their leases.
    pub(super) fn live(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(10) {
            self.pass(Span::seconds(10.min(seconds)));
            self.deliver_all();
            self.renew_all();
            self.deliver_all();
        }
    }

    /// Clients renew their leases.
    pub(super) fn renew_all(&mut self) {
        for (lease, user) in self.users.clone() {
            if self.holds(lease) {
                self.event(Event::Renew { lease, user });
            }
        }
    }
}

#[test]
fn users_share_equally_whoever_came_first() {
    let mut world = gpus(&[4]);
    let first: Vec<_> = (0..8).map(|_| world.ask(0, "1", None)).collect();
    for _ in 0..8 {
        world.ask(1, "1", None);
    }
    assert_eq!((world.held_by(0), world.held_by(1)), (4, 0));
    for lease in &first[..2] {
        world.give_back(*lease);
    }
    assert_eq!((world.held_by(0), world.held_by(1)), (2, 2));
    world.give_back(first[2]);
    assert_eq!((world.held_by(0), world.held_by(1)), (2, 2));
}

#[test]
fn one_user_is_served_in_the_order_in_which_he_asked() {
    let mut world = gpus(&[2]);
    let held = world.ask(0, "2", None);
    let (large, small) = (world.ask(1, "2", None), world.ask(1, "1", None));
    world.give_back(held);
    assert!(world.holds(large) && !world.holds(small));
}

#[test]
fn a_request_that_waited_long_gets_units_set_aside() {
    let mut world = gpus(&[2]);
    let (one, two) = (world.ask(0, "1", None), world.ask(0, "1", None));
    let large = world.ask(1, "2", None);
    world.give_back(one);
    // The patience is not over yet, so a small request passes.
    let passing = world.ask(2, "1", None);
    assert!(world.holds(passing));
    world.live(40);
    world.give_back(passing);
    let late = world.ask(2, "1", None);
    assert!(!world.holds(late), "the unit is set aside");
    world.give_back(two);
    assert!(world.holds(large) && !world.holds(late));
    world.give_back(large);
    assert!(world.holds(late));
}

#[test]
fn a_listing_says_in_numbers_why_each_request_waits() {
    let mut world = gpus(&[2]);
    world.ask(0, "1", Some(Span::seconds(300)));
    let short = world.ask(0, "1", None);
    let large = world.ask(1, "2", None);
    let quota = Quota {
        devices: Some(2),
        ..Quota::default()
    };
    world.event(Event::QuotaChanged {
        subject: Subject::User("u0".into()),
        quota: Some(quota),
    });
    let third = world.ask(0, "1", None);
    let reason = world.manager.reasons()[&third].to_string();
    assert!(
        reason.starts_with("a quota is used up: 2 of 2 devices; "),
        "{reason}"
    );
    let small: Vec<_> = (0..2).map(|_| world.ask(2, "1", None)).collect();
    let of = |world: &World, lease: &LeaseId| world.manager.reasons()[lease].to_string();
    assert_eq!(of(&world, &large), "the devices are in use");
    let first = "the request of 1 user comes first by the fair order";
    assert_eq!(of(&world, &small[0]), first);
    let own = "1 earlier request of the same user comes first";
    assert_eq!(of(&world, &small[1]), own);

    world.live(40);
    world.give_back(short);
    let aside = of(&world, &large);
    let (begin, end) = (
        "2 devices are set aside for the request, 1 of them free, all in ",
        " s at the latest",
    );
    assert!(aside.starts_with(begin) && aside.ends_with(end), "{aside}");
    let older = of(&world, &small[0]);
    assert!(
        older.ends_with("2 devices are set aside for an older request"),
        "{older}"
    );
    assert_eq!(world.manager.reasons().len(), 4);
}

#[test]
fn the_time_of_the_service_is_told_where_limits_bound_it() {
    let mut world = gpus(&[1]);
    let holder = world.ask(0, "1", Some(Span::seconds(300)));
    let (first, second) = (world.ask(1, "1", None), world.ask(2, "1", None));
    let of = |world: &World, lease: &LeaseId| world.manager.reasons()[lease].to_string();
    assert_eq!(of(&world, &first), "the devices are in use");
    assert_eq!(world.manager.head(), None);
    world.live(40);
    // The head's device is free with the lease, and in 7 s more. Nothing bounds the lease that the head gets.
    let told = "the devices are in use; served in 267 s at the latest";
    assert_eq!(of(&world, &first), told);
    let not_told = "the request of 1 user comes first by the fair order";
    assert_eq!(of(&world, &second), not_told);
    world.manager.policy.longest_lease = Some(Span::seconds(600));
    let told = of(&world, &second);
    assert!(told.ends_with("; served in 1214 s at the latest"), "{told}");
    world.give_back(holder);
    assert!(world.holds(first));
    let told = of(&world, &second);
    // The policy limits the lease of the head before.
    assert_eq!(
        told,
        "the devices are in use; served in 607 s at the latest"
    );
    assert_eq!(world.manager.head().map(|head| head.late), Some(Span(0)));
}

#[test]
fn the_head_gets_a_time_once_the_last_lease_without_a_limit_is_over() {
    let mut world = gpus(&[2]);
    world.ask(0, "1", Some(Span::seconds(300)));
    let unlimited = world.ask(1, "1", None);
    let large = world.ask(2, "2", None);
    let is_told = |world: &World| {
        let reason = world.manager.reasons()[&large].to_string();
        reason.contains("served in ")
    };
    world.live(40);
    assert!(!is_told(&world));
    world.give_back(unlimited);
    assert!(is_told(&world));
}

#[test]
fn reasons_are_told_once_to_each_stream_and_changed_ones_now_and_then() {
    let mut world = gpus(&[1]);
    let holder = world.ask(0, "1", None);
    let first = world.ask(1, "1", None);
    let told = |world: &mut World, seconds: u64| -> Vec<(LeaseId, String)> {
        let end = world.time.after(Span::seconds(seconds));
        let mut told = Vec::new();
        while world.time < end {
            let now = world.time.after(Span::seconds(1));
            world.time = now;
            let transition = world.manager.handle(now, Event::Tick);
            for action in transition.actions {
                if let Action::Tell {
                    lease,
                    outcome:
                        Outcome::Waiting {
                            reasons: Some(why), ..
                        },
                } = action
                {
                    told.push((lease, why.to_string()));
                }
            }
        }
        told
    };
    let in_use = "the devices are in use".to_owned();
    assert_eq!(told(&mut world, 5), [(first, in_use.clone())]);
    // A new request is told why at once. It does not change why the first one waits.
    let second = world.ask(1, "1", None);
    let own = "1 earlier request of the same user comes first".to_owned();
    assert_eq!(told(&mut world, 2), [(second, own)]);
    let user = UserName::from("u1");
    world.event(Event::Release { lease: first, user });
    let changed = told(&mut world, 15);
    assert_eq!(changed, [(second, in_use.clone())]);
    // The client comes back over another stream.
    world.event(Event::RequestLost { lease: second });
    let again = NewRequest {
        lease: second,
        ..world.new_request(1, "1")
    };
    world.event(Event::Request(again));
    assert_eq!(told(&mut world, 3), [(second, in_use)]);
    world.give_back(holder);
    assert!(world.holds(second));
}

#[test]
fn what_is_set_aside_goes_to_those_who_are_gone_in_time() {
    let mut world = gpus(&[2]);
    let long = world.ask(0, "1", Some(Span::seconds(300)));
    let short = world.ask(0, "1", None);
    let large = world.ask(1, "2", None);
    world.live(40);
    world.give_back(short);
    let too_long = world.ask(2, "1", Some(Span::seconds(290)));
    let in_time = world.ask(0, "1", Some(Span::seconds(60)));
    assert!(!world.holds(too_long) && world.holds(in_time));
    world.give_back(long);
    assert!(!world.holds(large) && !world.holds(too_long));
    world.live(70);
    assert!(world.holds(large));
}

#[test]
fn who_comes_back_while_he_is_offered_something_keeps_his_place_if_nothing_comes_of_it() {
    let mut world = gpus(&[1]);
    let held = world.ask(0, "1", None);
    let waiting = world.ask(1, "1", None);
    let user = world.users[&held].clone();
    world.event(Event::Release { lease: held, user });
    // The node withdraws the lease and reports it. The next grant to this node is lost.
    assert!(world.deliver_to_node(0) && world.deliver_to_manager(0));
    world.event(Event::RequestLost { lease: waiting });
    let mut again = world.new_request(1, "1");
    (again.lease, again.party.groups) = (waiting, Vec::new());
    world.event(Event::Request(again));
    world.lose(0);
    world.live(50);
    world.join(0);
    world.deliver_all();
    assert!(world.holds(waiting), "{:?}", world.told.get(&waiting));
}

#[test]
fn few_requests_of_a_user_that_name_single_devices_may_wait() {
    let mut world = gpus(&[1]);
    world.ask(0, "1", None);
    let named = |n: u32| format!("1, UUID_KHR={n:032x}");
    let refused =
        |world: &World, lease: &LeaseId| matches!(world.told.get(lease), Some(ClientView::Over));
    let of_user = |world: &mut World, user| {
        let asked: Vec<_> = (0..20).map(|n| world.ask(user, &named(n), None)).collect();
        asked.iter().filter(|lease| refused(world, lease)).count()
    };
    assert_eq!(of_user(&mut world, 1), 4);
    // The limit does not concern other users, nor this user's requests that name no device.
    assert_eq!(of_user(&mut world, 2), 4);
    let plain = world.ask(1, "1", None);
    assert!(!refused(&world, &plain));
}

#[test]
fn the_queue_keeps_its_order_over_a_restart() {
    let mut world = gpus(&[1]);
    let held = world.ask(0, "1", None);
    let waiting: Vec<_> = (1..3).map(|user| world.ask(user, "1", None)).collect();
    world.restart();
    world.join(0);
    world.deliver_all();
    // The second client reconnects first. Its place is still behind the first's.
    for at in [1, 0] {
        let mut again = world.new_request(at as u8 + 1, "1");
        world.users.remove(&again.lease);
        again.lease = waiting[at];
        world.event(Event::Request(again));
    }
    assert!(world.holds(held), "the lease has gone on");
    world.give_back(held);
    assert!(world.holds(waiting[0]) && !world.holds(waiting[1]));
}

#[test]
fn a_manager_that_was_stopped_ends_no_lease_for_it() {
    let mut world = gpus(&[1]);
    let held = world.ask(0, "1", None);
    world.move_to(world.time.after(Span::seconds(5000)));
    world.event(Event::Tick);
    assert!(world.holds(held));
    world.pass(Span::seconds(61));
    assert!(
        !world.holds(held),
        "nobody renewed it while the manager ran"
    );
}

#[test]
fn who_waits_is_refused_only_what_can_never_be() {
    let mut world = gpus(&[2]);
    let impossible = world.ask(0, "3", None);
    // Suitable devices could still join, but none does.
    assert!(world.waiting.contains(&impossible));
    world.live(60);
    assert_eq!(world.told.get(&impossible), Some(&ClientView::Over));
    assert!(!world.waiting.contains(&impossible));
    let held = world.ask(0, "2", None);
    let possible = world.ask(1, "2", None);
    assert!(world.holds(held) && world.waiting.contains(&possible));
}

/// Makes a request that does not wait, and delivers no message.
fn at_once(world: &mut World, user: u8) -> LeaseId {
    let mut new = world.new_request(user, "1");
    (new.wait, new.party.groups) = (false, Vec::new());
    let lease = new.lease;
    world.event(Event::Request(new));
    lease
}

#[test]
fn what_is_just_being_given_back_is_worth_a_moment() {
    let mut world = gpus(&[1]);
    let quota = Quota {
        devices: Some(1),
        ..Quota::default()
    };
    world.event(Event::QuotaChanged {
        subject: Subject::EveryUser,
        quota: Some(quota),
    });
    let mut held = world.ask(0, "1", None);
    // Another user's request, and one whose own quota is still in use: the nodes have not withdrawn the
    // lease yet.
    for user in [1, 1] {
        let holder = world.users[&held].clone();
        world.event(Event::Release {
            lease: held,
            user: holder,
        });
        let next = at_once(&mut world, user);
        assert_eq!(world.told.get(&next), None, "neither granted nor refused");
        world.deliver_all();
        assert!(world.holds(next));
        held = next;
    }
    let refused = at_once(&mut world, 0);
    assert_eq!(
        world.told.get(&refused),
        Some(&ClientView::Over),
        "it is in use"
    );
}

#[test]
fn what_does_not_come_back_in_a_moment_is_refused() {
    let mut world = gpus(&[1]);
    let held = world.ask(0, "1", None);
    let holder = world.users[&held].clone();
    world.event(Event::Release {
        lease: held,
        user: holder,
    });
    let next = at_once(&mut world, 1);
    let moment = Policy::default().timing.hand_over;
    world.pass(Span(moment.0 - 1));
    assert_eq!(world.told.get(&next), None);
    world.pass(Span(1));
    assert_eq!(world.told.get(&next), Some(&ClientView::Over));
    // The refused request leaves nothing behind.
    world.deliver_all();
    let later = world.ask(0, "1", None);
    assert!(world.holds(later));
}

#[test]
fn who_held_a_lease_is_told_why_it_ended_and_nobody_else() {
    let mut world = gpus(&[1]);
    let lease = world.ask(0, "1", None);
    let (holder, stranger) = (world.users[&lease].clone(), "u1".into());
    world.event(Event::Revoke { lease });
    for (user, outcome) in [
        (holder, Outcome::Ended(EndReason::Revoked)),
        (stranger, Outcome::Unknown),
    ] {
        let transition = world
            .manager
            .handle(world.time, Event::Renew { lease, user });
        assert_eq!(transition.actions, [Action::Tell { lease, outcome }]);
    }
}

#[test]
fn what_a_lease_has_lost_stays_known_and_is_nobodys() {
    let mut world = gpus(&[1, 1]);
    let lease = world.ask(0, "2; spread", None);
    let of = |world: &World, at: usize| world.nodes[at].id;
    let stands = |world: &World| {
        let granted = lease_of(&world.manager, lease).expect("it goes on").granted;
        let nodes = |of: Vec<(NodeId, _)>| of.into_iter().map(|(node, _)| node).collect::<Vec<_>>();
        (nodes(granted.units), nodes(granted.lost))
    };
    assert_eq!(stands(&world).1, []);
    // The lease has lost nothing as long as the node may still serve it.
    world.lose(1);
    assert_eq!(stands(&world).1, []);
    world.nodes[1].reboot();
    world.join(1);
    world.deliver_all();
    let reduced = (vec![of(&world, 0)], vec![of(&world, 1)]);
    assert_eq!(stands(&world), reduced);
    world.restart();
    assert_eq!(stands(&world), reduced);
    for at in 0..2 {
        world.join(at);
    }
    world.deliver_all();
    assert_eq!(stands(&world), reduced);
    let next = world.ask(1, "1", None);
    assert!(world.holds(lease) && world.holds(next));
    assert_eq!(stands(&world), reduced);
    // Parts that a node withdraws from an ending lease do not count as lost.
    let user = world.users[&lease].clone();
    world.event(Event::Release { lease, user });
    let ending = world.manager.leases().find(|of| of.lease == lease);
    assert_eq!(
        ending.expect("the node still has the grant").granted.lost,
        []
    );
    world.check_in_the_end();
}

#[test]
fn a_user_s_queue_has_an_end_and_others_have_theirs() {
    let mut world = gpus(&[1]);
    world.event(Event::PolicyChanged(Policy {
        longest_queue_per_user: 2,
        ..Policy::default()
    }));
    let held = world.ask(0, "1", None);
    let own: Vec<_> = (0..3).map(|_| world.ask(1, "1", None)).collect();
    assert!(world.waiting.contains(&own[0]) && world.waiting.contains(&own[1]));
    assert_eq!(world.told.get(&own[2]), Some(&ClientView::Over));
    let others = world.ask(2, "1", None);
    assert!(world.waiting.contains(&others));
    world.give_back(held);
    assert!(world.holds(own[0]));
    let next = world.ask(1, "1", None);
    assert!(world.waiting.contains(&next), "there is room again");
}

/// The longest time limit of a lease in the test of the bound.
const LONGEST: u64 = 60;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn no_request_waits_longer_than_the_bound(
        before in vec((0_u8..3, 0_usize..4, 1_u64..=LONGEST), 0..12),
        after in vec((0_u8..3, 0_usize..4, 1_u64..=LONGEST, any::<bool>(), 0_u64..4000), 20..60),
        large in 0_usize..3,
    ) {
        const SHAPES: [&str; 4] = ["1", "2", "2; same-node", "1; spread"];
        let mut world = gpus(&[3, 2]);
        world.manager.policy.longest_lease = Some(Span::seconds(LONGEST));
        for (user, shape, limit) in before {
            world.ask(user, SHAPES[shape], Some(Span::seconds(limit)));
        }
        let older = world.manager.waiting().count() as u64;
        let start = world.time;
        let shape = ["5", "3; same-node", "2; spread"][large];
        let large = world.ask(9, shape, Some(Span::seconds(LONGEST)));
        let timing = &world.manager.policy.timing;
        let bound = timing.patience.0 + (older + 1) * (LONGEST * 1000 + timing.acknowledge.0);
        let mut at = 0;
        let mut served = world.holds(large);
        let mut latest = Time(u64::MAX);
        while !served && world.time.since(start).0 <= bound {
            // Each time that was ever told has to hold.
            let told = world.manager.reasons().get(&large).and_then(|of| of.latest);
            let told = told.ok_or_else(|| TestCaseError::fail("no time is told"))?;
            latest = latest.min(world.time.after(told));
            prop_assert!(world.time <= latest, "{:?} after {latest:?}", world.time);
            prop_assert!(world.manager.head().is_none_or(|head| head.late == Span(0)));
            let (user, shape, limit, wait, span) = after[at % after.len()];
            at += 1;
            let mut new = world.new_request(user, SHAPES[shape]);
            (new.wait, new.limit) = (wait, Some(Span::seconds(limit)));
            world.event(Event::Request(new));
            world.deliver_all();
            served |= world.holds(large);
            world.pass(Span(span + 1));
            world.deliver_all();
            served |= world.holds(large);
        }
        prop_assert!(served, "{} ms, {older} older ones", world.time.since(start).0);
    }
}
