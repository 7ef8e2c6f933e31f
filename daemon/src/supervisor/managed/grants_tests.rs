//! Tests of [`super`]: case by case, then properties that hold after any order of events.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const AUTONOMY: Duration = Duration::from_secs(600);

fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

fn device(device: u32) -> DeviceAt {
    DeviceAt {
        platform: 0,
        device,
    }
}

fn unit(of: u32, share: u32) -> Unit {
    Unit {
        device: device(of),
        share,
    }
}

fn lease(n: u8) -> LeaseId {
    LeaseId([n; 16])
}

/// Two devices that are not shared, and one with three shares.
fn offered(identity: u64) -> BTreeMap<DeviceAt, Offered> {
    let shares = [1, 1, 3];
    (0..)
        .zip(shares)
        .map(|(of, shares)| (device(of), Offered { shares, identity }))
        .collect()
}

fn table() -> Grants {
    let mut grants = Grants::default();
    assert!(grants.offer(offered(1)).is_empty());
    grants.welcomed(at(0), Epoch(10));
    grants
}

fn grant(n: u8, epoch: u64, units: &[Unit]) -> Grant {
    let granted = |unit: &Unit| GrantedUnit {
        unit: *unit,
        memory: u64::from(unit.device.device == 2) * 100,
    };
    Grant {
        lease: lease(n),
        epoch: Epoch(epoch),
        user: "ann".to_owned(),
        units: units.iter().map(granted).collect(),
        limit: None,
        autonomy: AUTONOMY,
        resume: None,
    }
}

fn claim(n: u8, epoch: u64, units: &[Unit]) -> Claimed {
    Claimed {
        lease: lease(n),
        epoch: Epoch(epoch),
        user: "ann".to_owned(),
        units: units.to_vec(),
    }
}

fn report(n: u8, epoch: u64, message: GrantReport) -> Action {
    Action::Report(lease(n), Epoch(epoch), message)
}

fn refused(n: u8, epoch: u64, why: NotGranted) -> Vec<Action> {
    vec![report(n, epoch, GrantReport::Refused(why))]
}

/// A table with lease 1 on device 0, with one open session.
fn in_use() -> (Grants, PlaceNumber) {
    let mut grants = table();
    let taken = grants.grant(at(0), grant(1, 11, &[unit(0, 0)]));
    assert_eq!(taken, [report(1, 11, GrantReport::Acknowledged)]);
    let admitted = grants.admit(at(1), &claim(1, 11, &[unit(0, 0)])).unwrap();
    assert_eq!(admitted.devices, [(device(0), 0)].into());
    assert_eq!(
        grants.opened(admitted.place),
        [report(1, 11, GrantReport::Sessions(1))]
    );
    (grants, admitted.place)
}

#[test]
fn a_grant_said_twice_begins_once() {
    let mut grants = table();
    let mut first = grant(1, 11, &[unit(0, 0)]);
    first.limit = Some(Duration::from_secs(10));
    grants.grant(at(0), first.clone());
    let again = grants.grant(at(9), first);
    assert_eq!(again, [report(1, 11, GrantReport::Acknowledged)]);
    assert_eq!(grants.next_deadline(), Some(at(10)), "its time runs on");
}

#[test]
fn only_what_the_lease_has_is_admitted() {
    let mut grants = table();
    let units = [unit(0, 0), unit(2, 0), unit(2, 1)];
    grants.grant(at(0), grant(1, 11, &units));
    let admitted = grants.admit(at(1), &claim(1, 11, &units)).unwrap();
    assert_eq!(
        admitted.devices,
        [(device(0), 0), (device(2), 200)].into(),
        "two shares are one device with the memory of both"
    );
    let mut refuse = |claim: &Claimed| grants.admit(at(1), claim).unwrap_err();
    assert_eq!(refuse(&claim(2, 11, &units)), NotAdmitted::Unknown);
    assert_eq!(refuse(&claim(1, 10, &units)), NotAdmitted::Stale);
    assert_eq!(refuse(&claim(1, 12, &units)), NotAdmitted::Unknown);
    assert_eq!(
        refuse(&claim(1, 11, &[unit(1, 0)])),
        NotAdmitted::OtherUnits
    );
    let mut other = claim(1, 11, &units);
    other.user = "bob".to_owned();
    assert_eq!(refuse(&other), NotAdmitted::OtherUser);
}

#[test]
fn what_is_not_there_or_makes_no_sense_is_refused() {
    let mut grants = table();
    for units in [[unit(1, 1)], [unit(2, 3)], [unit(3, 0)]] {
        let said = grants.grant(at(0), grant(1, 11, &units));
        assert_eq!(said, refused(1, 11, NotGranted::NoSuchUnit));
    }
    let twice = grants.grant(at(0), grant(1, 11, &[unit(2, 0), unit(2, 0)]));
    let none = grants.grant(at(0), grant(1, 11, &[]));
    for said in [twice, none] {
        assert!(
            matches!(
                said[..],
                [Action::Report(
                    _,
                    _,
                    GrantReport::Refused(NotGranted::Malformed(_))
                )]
            ),
            "{said:?}"
        );
    }
    grants.drain(true);
    let said = grants.grant(at(0), grant(1, 11, &[unit(1, 0)]));
    assert_eq!(said, refused(1, 11, NotGranted::Draining));
    grants.drain(false);
    let said = grants.grant(at(0), grant(1, 11, &[unit(1, 0)]));
    assert_eq!(said, [report(1, 11, GrantReport::Acknowledged)]);
    // A daemon that ends accepts no grant, whether or not the manager drains it.
    grants.stop();
    grants.drain(false);
    let said = grants.grant(at(0), grant(2, 12, &[unit(2, 0)]));
    assert_eq!(said, refused(2, 12, NotGranted::Stopping));
}

#[test]
fn late_grants_are_void() {
    let mut grants = table();
    let stale = |n, epoch| refused(n, epoch, NotGranted::Stale);
    let said = grants.grant(at(0), grant(1, 10, &[unit(0, 0)]));
    assert_eq!(said, stale(1, 10), "from before the welcome");
    grants.grant(at(0), grant(1, 15, &[unit(0, 0)]));
    assert_eq!(
        grants.withdraw(lease(1), Epoch(15), "over"),
        [report(1, 15, GrantReport::Withdrawn)]
    );
    let said = grants.grant(at(0), grant(2, 14, &[unit(0, 0)]));
    assert_eq!(said, stale(2, 14), "older than the unit's newest");
    // The withdrawal arrives before its grant.
    assert_eq!(
        grants.withdraw(lease(3), Epoch(20), "over"),
        [report(3, 20, GrantReport::Withdrawn)]
    );
    let said = grants.grant(at(0), grant(3, 20, &[unit(1, 0)]));
    assert_eq!(said, stale(3, 20));
    let said = grants.grant(at(0), grant(3, 21, &[unit(1, 0)]));
    assert_eq!(said, [report(3, 21, GrantReport::Acknowledged)]);
}

fn withdrawn() -> Why {
    Why::Withdrawn("over".into())
}

#[test]
fn a_withdrawal_without_a_reason_has_one() {
    let (mut grants, _) = in_use();
    grants.withdraw(lease(1), Epoch(12), "");
    let refused = grants.admit(at(1), &claim(1, 11, &[unit(0, 0)]));
    let said = "the lease has ended: the device manager withdrew the lease";
    assert_eq!(refused.unwrap_err().to_string(), said);
}

#[test]
fn a_withdrawn_lease_is_gone_when_its_last_session_is() {
    let (mut grants, place) = in_use();
    let said = grants.withdraw(lease(1), Epoch(12), "over");
    assert_eq!(said, [Action::End(vec![place], Some(withdrawn()))]);
    assert!(
        grants.withdraw(lease(1), Epoch(12), "over").is_empty(),
        "once"
    );
    let ended = NotAdmitted::Ended(withdrawn());
    assert_eq!(
        grants.admit(at(1), &claim(1, 11, &[unit(0, 0)])),
        Err(ended)
    );
    assert_eq!(
        grants.running().len(),
        1,
        "its units are not free while a worker lives"
    );
    let said = grants.left(place);
    let gone = [
        report(1, 11, GrantReport::Sessions(0)),
        report(1, 12, GrantReport::Withdrawn),
    ];
    assert_eq!(said, gone);
    assert!(grants.running().is_empty() && grants.left(place).is_empty());
}

#[test]
fn a_withdrawal_of_an_earlier_grant_leaves_the_later_one() {
    let (mut grants, _) = in_use();
    let said = grants.withdraw(lease(1), Epoch(10), "over");
    assert_eq!(said, [report(1, 10, GrantReport::Withdrawn)]);
    assert_eq!(grants.running()[0].sessions, 1);
}

#[test]
fn a_newer_grant_of_a_unit_ends_who_has_it_and_waits_for_that() {
    let (mut grants, place) = in_use();
    let said = grants.grant(at(1), grant(2, 12, &[unit(0, 0), unit(1, 0)]));
    let in_the_way = report(2, 12, GrantReport::Refused(NotGranted::InUse(lease(1))));
    assert_eq!(
        said,
        [Action::End(vec![place], Some(Why::Fenced)), in_the_way]
    );
    assert_eq!(
        grants.admit(at(1), &claim(1, 11, &[unit(0, 0)])),
        Err(NotAdmitted::Ended(Why::Fenced))
    );
    grants.left(place);
    let said = grants.grant(at(1), grant(2, 13, &[unit(0, 0), unit(1, 0)]));
    assert_eq!(said, [report(2, 13, GrantReport::Acknowledged)]);
    // The lease has no session, so it ends at once.
    let said = grants.grant(at(1), grant(3, 14, &[unit(1, 0)]));
    let both = [
        report(2, 13, GrantReport::Withdrawn),
        report(3, 14, GrantReport::Acknowledged),
    ];
    assert_eq!(said, both);
}

#[test]
fn several_sessions_share_a_lease_and_its_end_is_told_when_the_last_has_left() {
    let (mut grants, first) = in_use();
    let second = grants.admit(at(1), &claim(1, 11, &[unit(0, 0)])).unwrap();
    assert_eq!(
        grants.opened(second.place),
        [report(1, 11, GrantReport::Sessions(2))]
    );
    let failed = grants.admit(at(1), &claim(1, 11, &[unit(0, 0)])).unwrap();
    assert!(
        grants.left(failed.place).is_empty(),
        "one that was never open is not told"
    );
    assert_eq!(
        grants.left(first),
        [report(1, 11, GrantReport::Sessions(1))]
    );
    assert_eq!(
        grants.left(second.place),
        [report(1, 11, GrantReport::Sessions(0))]
    );
    assert_eq!(
        grants.running().len(),
        1,
        "the manager decides what becomes of it"
    );
}

#[test]
fn a_session_that_opens_while_its_lease_ends_ends_too() {
    let mut grants = table();
    grants.grant(at(0), grant(1, 11, &[unit(0, 0)]));
    let place = grants
        .admit(at(1), &claim(1, 11, &[unit(0, 0)]))
        .unwrap()
        .place;
    assert_eq!(
        grants.withdraw(lease(1), Epoch(11), "over"),
        [Action::End(vec![place], Some(withdrawn()))]
    );
    let said = grants.opened(place);
    assert_eq!(
        said,
        [
            report(1, 11, GrantReport::Sessions(1)),
            Action::End(vec![place], Some(withdrawn()))
        ]
    );
}

#[test]
fn time_ends_a_lease_and_so_does_silence() {
    let mut grants = table();
    let mut limited = grant(1, 11, &[unit(0, 0)]);
    limited.limit = Some(Duration::from_secs(60));
    grants.grant(at(10), limited);
    grants.grant(at(10), grant(2, 12, &[unit(1, 0)]));
    assert_eq!(grants.next_deadline(), Some(at(70)));
    assert!(grants.tick(at(69)).is_empty());
    let ended = NotAdmitted::Ended(Why::Limit);
    let claimed = claim(1, 11, &[unit(0, 0)]);
    assert_eq!(
        grants.admit(at(70), &claimed),
        Err(ended),
        "also when the clock is late to say so"
    );
    assert_eq!(grants.tick(at(70)), [report(1, 11, GrantReport::Withdrawn)]);
    assert_eq!(grants.next_deadline(), Some(at(600)));
    grants.heard(at(50));
    grants.heard(at(40));
    assert_eq!(grants.next_deadline(), Some(at(650)));
    assert!(grants.tick(at(649)).is_empty());
    assert_eq!(
        grants.tick(at(650)),
        [report(2, 12, GrantReport::Withdrawn)]
    );
    assert_eq!(grants.next_deadline(), None);
}

#[test]
fn leases_of_devices_that_are_others_now_end() {
    let (mut grants, place) = in_use();
    grants.grant(at(0), grant(2, 12, &[unit(2, 2)]));
    assert!(grants.offer(offered(1)).is_empty());
    let mut now = offered(1);
    now.insert(
        device(0),
        Offered {
            shares: 1,
            identity: 2,
        },
    );
    now.insert(
        device(2),
        Offered {
            shares: 2,
            identity: 1,
        },
    );
    let said = grants.offer(now);
    assert_eq!(
        said,
        [
            Action::End(vec![place], Some(Why::DevicesChanged)),
            report(2, 12, GrantReport::Withdrawn)
        ]
    );
}

#[test]
fn a_manager_that_was_set_back_is_noticed() {
    let (grants, _) = in_use();
    assert!(grants.is_set_back(Epoch(10)) && !grants.is_set_back(Epoch(11)));
}

#[test]
fn what_was_withdrawn_is_remembered_in_a_bounded_space() {
    let mut grants = table();
    for n in 0..2 * VOID as u64 {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&n.to_le_bytes());
        grants.withdraw(LeaseId(id), Epoch(100 + n), "over");
    }
    assert!(grants.void.len() <= VOID);
    let said = grants.grant(at(0), grant(1, 100, &[unit(0, 0)]));
    assert_eq!(said, refused(1, 100, NotGranted::Stale));
}

/// An event of the manager, of a session or of time.
#[derive(Clone, Debug)]
enum Event {
    Grant(u8, u64, Vec<Unit>, Option<u64>),
    Withdraw(u8, u64),
    Admit(u8, u64, Vec<Unit>),
    Open(usize),
    Leave(usize),
    Welcome(u64),
    Offer(u64),
    Drain(bool),
    Wait(u64),
    Heard,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let a_unit = (0..4_u32, 0..4_u32).prop_map(|(of, share)| unit(of, share));
    let units = || prop::collection::vec(a_unit.clone(), 0..3);
    let limit = prop::option::of(1..100_u64);
    let event = prop_oneof![
        6 => (0..4_u8, 0..40_u64, units(), limit).prop_map(|(n, e, u, l)| Event::Grant(n, e, u, l)),
        2 => (0..4_u8, 0..40_u64).prop_map(|(n, e)| Event::Withdraw(n, e)),
        6 => (0..4_u8, 0..40_u64, units()).prop_map(|(n, e, u)| Event::Admit(n, e, u)),
        4 => (0..8_usize).prop_map(Event::Open),
        4 => (0..8_usize).prop_map(Event::Leave),
        1 => (0..20_u64).prop_map(Event::Welcome),
        1 => (1..3_u64).prop_map(Event::Offer),
        1 => any::<bool>().prop_map(Event::Drain),
        3 => (0..300_u64).prop_map(Event::Wait),
        1 => Just(Event::Heard),
    ];
    prop::collection::vec(event, 0..80)
}

/// The table, and a model of what its environment has seen.
#[derive(Default)]
struct World {
    grants: Grants,
    now: Time,
    /// Places of sessions in the order of their admission; `true` if the session is open.
    places: Vec<(PlaceNumber, LeaseId, bool)>,
    told_to_end: BTreeSet<PlaceNumber>,
    /// The newest epoch that was acknowledged for each unit.
    acknowledged: BTreeMap<Unit, Epoch>,
}

impl World {
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::End(places, _) => self.told_to_end.extend(places),
                Action::Report(id, epoch, GrantReport::Withdrawn) => {
                    let held = self.grants.leases.get(&id);
                    assert!(held.is_none_or(|held| held.grant.epoch > epoch));
                    let mut places = self.places.iter();
                    assert!(
                        held.is_some() || !places.any(|(_, of, _)| *of == id),
                        "withdrawn, and a session has it"
                    );
                }
                Action::Report(..) => {}
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Grant(n, epoch, units, limit) => {
                let mut grant = grant(n, epoch, &units);
                grant.limit = limit.map(Duration::from_secs);
                let held = self.grants.leases.get(&grant.lease);
                let is_new = held.is_none_or(|held| held.grant.epoch != grant.epoch);
                let actions = self.grants.grant(self.now, grant);
                let acknowledged = report(n, epoch, GrantReport::Acknowledged);
                if is_new && actions.contains(&acknowledged) {
                    for unit in units {
                        let before = self.acknowledged.insert(unit, Epoch(epoch));
                        assert!(before < Some(Epoch(epoch)), "a stale grant was taken");
                    }
                }
                self.carry_out(actions);
            }
            Event::Withdraw(n, epoch) => {
                let actions = self.grants.withdraw(lease(n), Epoch(epoch), "over");
                self.carry_out(actions);
                let held = self.grants.leases.get(&lease(n));
                assert!(held.is_none_or(|of| of.grant.epoch > Epoch(epoch) || of.ending.is_some()));
            }
            Event::Admit(n, epoch, units) => {
                let claimed = claim(n, epoch, &units);
                if let Ok(admitted) = self.grants.admit(self.now, &claimed) {
                    let newest = |unit: &Unit| self.acknowledged.get(unit).copied();
                    assert!(units.iter().all(|unit| newest(unit) == Some(Epoch(epoch))));
                    self.places.push((admitted.place, lease(n), false));
                }
            }
            Event::Open(n) => {
                let unopened = self.places.get_mut(n).filter(|(_, _, open)| !*open);
                if let Some((place, _, open)) = unopened {
                    *open = true;
                    let place = *place;
                    let actions = self.grants.opened(place);
                    self.carry_out(actions);
                }
            }
            Event::Leave(n) if n < self.places.len() => {
                let (place, ..) = self.places.remove(n);
                let actions = self.grants.left(place);
                self.carry_out(actions);
            }
            Event::Leave(_) => {}
            Event::Welcome(fence) => self.grants.welcomed(self.now, Epoch(fence)),
            Event::Offer(identity) => {
                let actions = self.grants.offer(offered(identity));
                self.carry_out(actions);
            }
            Event::Drain(draining) => self.grants.drain(draining),
            Event::Wait(seconds) => {
                self.now = self.now.after(Duration::from_secs(seconds));
                let actions = self.grants.tick(self.now);
                self.carry_out(actions);
                let next = self.grants.next_deadline();
                assert!(next.is_none_or(|next| next > self.now));
            }
            Event::Heard => self.grants.heard(self.now),
        }
    }

    fn check(&self) {
        let mut units = BTreeSet::new();
        for lease in self.grants.leases.values() {
            for of in &lease.grant.units {
                assert!(units.insert(of.unit), "a unit is in two leases");
            }
            if lease.ending.is_some() {
                assert!(!lease.places.is_empty(), "an unused lease lingers");
                let told = |place| self.told_to_end.contains(place);
                assert!(lease.places.keys().all(told), "a session was forgotten");
            }
        }
        let known = self.grants.leases.values().flat_map(|of| of.places.keys());
        let known: BTreeSet<_> = known.copied().collect();
        let there = self.places.iter().map(|(place, ..)| *place);
        assert_eq!(known, there.collect::<BTreeSet<_>>());
        let told: u32 = self.grants.running().iter().map(|of| of.sessions).sum();
        let open = self.places.iter().filter(|(_, _, open)| *open).count();
        assert_eq!(open, told as usize);
    }
}

proptest! {
    #[test]
    fn no_order_of_events_gives_a_unit_twice_or_forgets_a_session(events in events()) {
        let mut world = World::default();
        world.happen(Event::Offer(1));
        for event in events {
            world.happen(event);
            world.check();
        }
    }
}
