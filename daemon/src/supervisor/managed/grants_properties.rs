//! Properties of [`super`] that hold after any order of events.

use std::time::Duration;

use proptest::prelude::*;

use super::tests::*;
use super::*;

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
