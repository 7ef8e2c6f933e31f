//! Managers that lead one after the other, with times between in which nobody leads. A holder that lives renews as the
//! library does, and a program that has ended never renews.
//!
//! Invariants: no lease ends whose holder renews in time, however often the leader changes. A lease without a holder ends
//! after some managers that each last a while, though none lasts as long as a lease.

use proptest::collection::vec;
use proptest::prelude::*;

use super::scenarios::gpus;
use super::*;
use crate::policy::{Quota, Subject};

/// Steps of the simulated time.
const STEP: Span = Span(500);
/// As the library: how long an attempt to renew goes on, and the longest pause after it.
const ATTEMPT: Span = Span::seconds(5);
const PAUSE: Span = Span::seconds(5);

/// One time of leading.
#[derive(Clone, Copy, Debug)]
struct Reign {
    /// How long nobody leads before.
    vacant: Span,
    lasts: Span,
    /// How long a holder needs to find this manager.
    found_within: Span,
    /// Where the manager dies while it handles a renewal, if it does.
    crash: Option<Crash>,
    /// Whether nodes reach this manager.
    has_nodes: bool,
}

impl Reign {
    fn lasting(seconds: u64) -> Reign {
        Reign {
            vacant: Span::seconds(3),
            lasts: Span::seconds(seconds),
            found_within: Span(0),
            crash: None,
            has_nodes: true,
        }
    }
}

/// A holder that lives.
struct Holder {
    lease: LeaseId,
    user: UserName,
    /// When the next attempt begins, or has begun.
    at: Time,
}

impl Holder {
    fn new(world: &World, lease: LeaseId) -> Holder {
        Holder {
            lease,
            user: world.users[&lease].clone(),
            at: world.time.after(Span::seconds(20)),
        }
    }

    /// Lets the holder act. `serves` is since when a manager serves. Returns whether the manager died.
    fn act(&mut self, world: &mut World, serves: Option<Time>, reign: &mut Reign) -> bool {
        let now = world.time;
        if now < self.at {
            return false;
        }
        let begun = serves.map(|since| since.max(self.at));
        if begun.is_none_or(|begun| now < begun.after(reign.found_within)) {
            if now.since(self.at) >= ATTEMPT {
                self.at = now.after(PAUSE);
            }
            return false;
        }
        world.crash = reign.crash.take();
        let dies = world.crash.is_some();
        let (lease, user) = (self.lease, self.user.clone());
        world.event(Event::Renew { lease, user });
        if dies {
            self.at = now.after(PAUSE);
            return true;
        }
        let Some(ClientView::Holds(granted)) = world.told.get(&lease) else {
            panic!("{lease:?} has ended, although its holder renews in time");
        };
        self.at = now.after(Span(granted.until.since(now).0 / 3));
        false
    }
}

/// Lets managers lead one after the other.
fn reign(world: &mut World, holder: &mut Holder, mut reign: Reign) {
    let takes_over = world.time.after(reign.vacant);
    while world.time < takes_over {
        world.move_to(world.time.after(STEP));
        holder.act(world, None, &mut reign);
    }
    world.restart();
    let since = world.time;
    while world.time.since(since) < reign.lasts {
        if reign.has_nodes {
            (0..world.nodes.len()).for_each(|at| world.join(at));
        }
        world.deliver_all();
        if holder.act(world, Some(since), &mut reign) {
            return;
        }
        world.pass(STEP);
    }
}

/// A lease whose holder lives, and one whose program has ended.
fn two_leases() -> (World, Holder, LeaseId) {
    let mut world = gpus(&[2]);
    let (lives, ended) = (world.ask(0, "1", None), world.ask(1, "1", None));
    assert!(world.holds(lives) && world.holds(ended));
    // The node learns when it was connected.
    world.pass(STEP);
    let holder = Holder::new(&world, lives);
    (world, holder, ended)
}

#[test]
fn a_lease_without_a_holder_ends_though_no_manager_lasts_as_long_as_a_lease() {
    let (mut world, mut holder, ended) = two_leases();
    // The first manager stores 25 to 30 s. Each further one adds what it has served, and the last one gives 15 to 20 s.
    reign(&mut world, &mut holder, Reign::lasting(31));
    for _ in 0..2 {
        assert!(world.holds(ended));
        reign(&mut world, &mut holder, Reign::lasting(14));
    }
    assert!(world.holds(ended));
    reign(&mut world, &mut holder, Reign::lasting(21));
    assert!(!world.holds(ended) && world.holds(holder.lease));
    let next = world.ask(2, "1", None);
    assert!(world.holds(next));
}

#[test]
fn a_holder_that_a_manager_could_not_hear_is_heard_by_the_next() {
    let (mut world, mut holder, _) = two_leases();
    let cut_off = Reign {
        found_within: Span::seconds(100),
        ..Reign::lasting(56)
    };
    reign(&mut world, &mut holder, cut_off);
    assert!(world.store.leases[&holder.lease].silence >= Span::seconds(50));
    let found = Reign {
        found_within: Span::seconds(4),
        ..Reign::lasting(60)
    };
    reign(&mut world, &mut holder, found);
    assert!(world.holds(holder.lease));
    assert_eq!(world.store.leases[&holder.lease].silence, Span(0));
}

/// All holders are gone when a manager takes over, so the silences of all leases begin in one moment.
#[test]
fn the_rows_of_many_silent_holders_are_not_written_at_once() {
    const LEASES: u32 = 200;
    const LOOK: Span = Span(100);
    let mut world = gpus(&[LEASES]);
    let leases: Vec<_> = (0..LEASES)
        .map(|user| world.ask(user as u8, "1", None))
        .collect();
    assert!(leases.iter().all(|lease| world.holds(*lease)));
    world.restart();
    world.join(0);
    world.deliver_all();
    let silence = |world: &World, lease| Some(world.store.leases.get(lease)?.silence);
    let (mut most, mut last) = (0, vec![Some(Span(0)); leases.len()]);
    let mut written = 0;
    // Each ends after 60 to 65 s.
    for _ in 0..70_000 / LOOK.0 {
        world.pass(LOOK);
        world.deliver_all();
        let now: Vec<_> = leases.iter().map(|lease| silence(&world, lease)).collect();
        let changed = now
            .iter()
            .zip(&last)
            .filter(|(now, last)| now != last)
            .count();
        most = most.max(changed);
        written += changed;
        last = now;
    }
    assert!(last.iter().all(Option::is_none));
    // At 25, 30, … 55 s, and the end.
    assert_eq!(written, 8 * leases.len());
    // A fiftieth of five seconds has four of them, on average.
    assert!(most <= 8, "{most} of {LEASES} in {LOOK:?}");
}

/// Two nodes with one unit each, and a user with a quota of one unit.
fn a_quota_of_one_unit() -> World {
    let mut world = gpus(&[1, 1]);
    world.event(Event::QuotaChanged {
        subject: Subject::User("u0".into()),
        quota: Some(Quota {
            devices: Some(1),
            ..Quota::default()
        }),
    });
    world
}

/// The node of the user's only lease, and the other one.
fn serving_and_other(world: &World) -> (usize, usize) {
    let serves = usize::from(world.nodes[0].serving.is_empty());
    assert_eq!(world.nodes[serves].serving.len(), 1);
    (serves, 1 - serves)
}

/// The user releases a lease, but the manager dies before the node hears of it. Returns that node and the other one.
fn release_without_the_node(world: &mut World) -> (usize, usize) {
    let lease = world.ask(0, "1", None);
    assert!(world.holds(lease));
    world.crash = Some(Crash::BeforeActions);
    world.give_back(lease);
    serving_and_other(world)
}

/// A new manager gives the user no other unit before it knows what the node serves for their ended lease.
fn holds_back_until_it_joins(world: &mut World, serves: usize, other: usize) {
    world.join(other);
    let lease = world.ask(0, "1", None);
    assert!(!world.holds(lease), "the node serves the ended lease still");
    world.join(serves);
    world.deliver_all();
    assert!(world.holds(lease));
}

/// A user with a quota of one unit has released a lease, but the manager died before the node heard of it. Returns that
/// node and the other one, too.
fn a_release_that_the_node_has_not_heard_of() -> (World, usize, usize) {
    let mut world = a_quota_of_one_unit();
    let (serves, other) = release_without_the_node(&mut world);
    (world, serves, other)
}

#[test]
fn units_that_a_node_serves_for_an_ended_lease_count_for_quotas() {
    let (mut world, serves, other) = a_release_that_the_node_has_not_heard_of();
    world.join(other);
    let (waits, free) = (world.ask(0, "1", None), world.ask(1, "1", None));
    let at_once = world.ask_at_once(0, "1");
    assert!(world.holds(free), "the user has no quota");
    assert!(!world.holds(waits) && !world.told.contains_key(&at_once));
    let reasons = world.manager.reasons()[&waits].to_string();
    assert!(reasons.contains("has just started"), "{reasons}");
    world.give_back(free);
    world.join(serves);
    assert!(!world.holds(waits), "the node serves the ended lease still");
    world.deliver_all();
    let served = world.nodes.iter().map(|of| of.serving.len());
    assert_eq!(served.sum::<usize>(), 1);
    assert!(world.holds(waits));
    let ClientView::Over = world.told[&at_once] else {
        panic!("the quota is used up");
    };
}

#[test]
fn a_node_that_is_lost_before_it_withdraws_keeps_quotas_back() {
    let (mut world, serves, other) = a_release_that_the_node_has_not_heard_of();
    world.join(other);
    world.join(serves);
    // The withdrawal is lost with the link.
    world.lose(serves);
    let lease = world.ask(0, "1", None);
    assert!(!world.holds(lease));
    world.join(serves);
    world.deliver_all();
    assert!(world.holds(lease));
}

#[test]
fn a_request_from_before_the_start_that_nothing_fits_is_refused_though_a_node_serves_what_is_unknown()
 {
    let (mut world, serves, other) = a_release_that_the_node_has_not_heard_of();
    world.join(other);
    let waits = world.ask(1, "9", None);
    assert!(world.manager.from_before.is_empty());
    world.restart();
    world.join(other);
    let again = NewRequest {
        lease: waits,
        ..world.new_request(1, "9")
    };
    world.event(Event::Request(again));
    world.join(serves);
    world.deliver_all();
    assert!(world.manager.from_before.is_empty());
    assert_eq!(world.manager.hopeless.len(), 1);
}

#[test]
fn a_node_that_does_not_come_back_keeps_quotas_back_for_the_start_phase_only() {
    let (mut world, _, other) = a_release_that_the_node_has_not_heard_of();
    world.join(other);
    let lease = world.ask(0, "1", None);
    let settle = world.manager.policy.timing.settle;
    world.pass(Span(settle.0 - 1));
    assert!(!world.holds(lease));
    world.pass(Span(1));
    world.deliver_all();
    assert!(world.holds(lease));
}

#[test]
fn a_node_that_is_removed_keeps_quotas_back_until_the_start_phase_is_over() {
    let (mut world, serves, other) = a_release_that_the_node_has_not_heard_of();
    world.join(other);
    world.forget(world.nodes[serves].id, true);
    let lease = world.ask(0, "1", None);
    assert!(!world.holds(lease));
    world.pass(world.manager.policy.timing.settle);
    world.deliver_all();
    assert!(world.holds(lease));
    assert!(world.manager.awaited.is_empty());
}

#[test]
fn a_node_that_was_lost_long_ago_keeps_no_quota_back() {
    let (mut world, _, other) = a_release_that_the_node_has_not_heard_of();
    world.join(other);
    // The store learns of absences once an hour.
    world.pass(Span::seconds(2 * 3600));
    world.restart();
    world.join(other);
    let lease = world.ask(0, "1", None);
    assert!(world.holds(lease));
}

#[test]
fn a_node_that_was_just_lost_keeps_quotas_back_though_the_hosts_clock_was_put_forward() {
    let mut world = a_quota_of_one_unit();
    let mut policy = world.manager.policy.clone();
    // The manager looks at absences every 12.5 s.
    policy.timing.forget = Span::seconds(100);
    let fenced_after = policy.timing.fenced_after();
    world.event(Event::PolicyChanged(policy));
    let lease = world.ask(0, "1", None);
    assert!(world.holds(lease));
    let (serves, other) = serving_and_other(&world);
    // The node learns when it was connected.
    world.pass(STEP);
    world.lose(serves);
    world.give_back(lease);
    world.pass(Span::seconds(20));
    assert_eq!(world.nodes[serves].serving.len(), 1);
    world.wall.0 += fenced_after.0;
    world.restart();
    holds_back_until_it_joins(&mut world, serves, other);
}

#[test]
fn a_node_that_has_just_returned_from_a_long_absence_keeps_quotas_back() {
    let mut world = a_quota_of_one_unit();
    (0..2).for_each(|at| world.lose(at));
    // The store learns of absences once an hour.
    world.pass(Span::seconds(2 * 3600));
    assert_eq!(world.store.absences.len(), 2);
    (0..2).for_each(|at| world.join(at));
    world.deliver_all();
    let (serves, other) = release_without_the_node(&mut world);
    holds_back_until_it_joins(&mut world, serves, other);
}

#[test]
fn renewals_in_time_write_nothing() {
    let (mut world, mut holder, ended) = two_leases();
    world.give_back(ended);
    for _ in 0..3 {
        reign(&mut world, &mut holder, Reign::lasting(1));
        let before = world.store.clone();
        // Far longer than a lease, without another change of leader.
        for _ in 0..400 {
            holder.act(&mut world, Some(Time(0)), &mut Reign::lasting(1));
            world.pass(STEP);
            world.deliver_all();
        }
        assert_eq!(world.store.leases, before.leases);
    }
}

fn any_reign() -> impl Strategy<Value = Reign> {
    let crash = prop_oneof![
        4 => Just(None),
        1 => Just(Some(Crash::BeforeStore)),
        1 => Just(Some(Crash::BeforeActions)),
    ];
    let lasts = prop_oneof![0..8_000u64, 10_000..40_000u64, 30_000..90_000u64];
    (0..40_000u64, lasts, 0..4_000u64, crash, any::<bool>()).prop_map(
        |(vacant, lasts, found_within, crash, has_nodes)| Reign {
            vacant: Span(vacant),
            lasts: Span(lasts),
            found_within: Span(found_within),
            crash,
            has_nodes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_lease_ends_whose_holder_renews_in_time(reigns in vec(any_reign(), 10..30)) {
        let (mut world, mut holder, _) = two_leases();
        for (number, mut of) in reigns.into_iter().enumerate() {
            // Without a manager for ten minutes, a node would end its leases.
            of.has_nodes |= number.is_multiple_of(2);
            reign(&mut world, &mut holder, of);
            // The row is there whoever leads.
            prop_assert!(world.store.leases.contains_key(&holder.lease));
        }
        reign(&mut world, &mut holder, Reign::lasting(120));
        prop_assert!(world.holds(holder.lease));
    }
}
