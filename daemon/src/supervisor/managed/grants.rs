//! The grants of the device manager: which lease may use which units, and which sessions use it now. Pure.
//!
//! The shell reports events: messages of the manager ([`Grants::grant`], [`Grants::withdraw`],
//! [`Grants::welcomed`], [`Grants::heard`]), sessions ([`Grants::admit`], [`Grants::opened`],
//! [`Grants::left`]) and the passing of time ([`Grants::tick`]). It carries out the [`Action`]s that
//! result. When it joins a manager, it reports the current state of each lease ([`Grants::running`]).
//! Reports that were lost with an earlier connection therefore need not be kept.
//!
//! This module contains no sockets, clocks or signatures. Invariants: a unit is in at most one lease. A
//! lease leaves the table, and its units become free, only when no session has a place in it. A grant is
//! refused if it is older than the newest one seen for its lease or one of its units. It is also refused if
//! it is older than the manager's latest welcome.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{
    Action, Admitted, Claimed, Grant, GrantReport, LeaseInUse, NotAdmitted, NotGranted, Offered,
    Why,
};
use super::name::{DeviceAt, Epoch, GrantedUnit, LeaseId, PlaceNumber, Time, Unit};

/// Maximum number of remembered withdrawals whose grants may still arrive.
const VOID: usize = 4096;
/// Maximum number of devices of a lease on one node, limited by the assignment to a worker.
pub(crate) const MAX_DEVICES: usize = crate::handover::MAX_LEASED;

#[derive(Debug)]
struct Lease {
    grant: Grant,
    /// Identities of the lease's devices at the time of the grant.
    identities: BTreeMap<DeviceAt, u64>,
    until: Option<Time>,
    ending: Option<Why>,
    /// Epoch of the latest withdrawal; reported when the withdrawal is complete.
    withdrawal: Option<Epoch>,
    /// Places of sessions; `true` if the session is open.
    places: BTreeMap<PlaceNumber, bool>,
}

impl Lease {
    fn sessions(&self) -> u32 {
        let open = self.places.values().filter(|open| **open).count();
        u32::try_from(open).unwrap_or(u32::MAX)
    }

    fn deadline(&self, heard: Time) -> Time {
        let alone = heard.after(self.grant.autonomy);
        self.until.map_or(alone, |until| until.min(alone))
    }

    fn has(&self, unit: Unit) -> bool {
        self.grant.units.iter().any(|granted| granted.unit == unit)
    }
}

/// The table of leases.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    offered: BTreeMap<DeviceAt, Offered>,
    leases: BTreeMap<LeaseId, Lease>,
    /// Newest epoch seen for each unit.
    newest: BTreeMap<Unit, Epoch>,
    /// Grants up to this epoch are void unless they are in the table.
    fence: Epoch,
    /// For each lease, the epoch up to which its grants were withdrawn.
    void: BTreeMap<LeaseId, Epoch>,
    /// Latest time at which the manager was known to be present.
    heard: Time,
    draining: bool,
    /// Set when the daemon was asked to end.
    stopping: bool,
    last_place: u64,
    taken: u64,
}

impl Grants {
    /// Sets the node's devices. Ends leases of devices that are gone or have changed.
    pub(crate) fn offer(&mut self, offered: BTreeMap<DeviceAt, Offered>) -> Vec<Action> {
        self.offered = offered;
        let offered = &self.offered;
        let gone = |lease: &Lease| {
            let same = |(at, identity): (&DeviceAt, &u64)| {
                offered.get(at).is_some_and(|now| now.identity == *identity)
            };
            !lease.identities.iter().all(same)
                || !lease.grant.units.iter().all(|of| exists(offered, of.unit))
        };
        let ended: Vec<_> = self
            .leases
            .iter()
            .filter(|(_, of)| gone(of))
            .map(|(id, _)| *id)
            .collect();
        ended
            .into_iter()
            .flat_map(|id| self.end(id, Why::DevicesChanged))
            .collect()
    }

    /// Handles the welcome of a manager. Grants up to `fence` that this node does not have become void.
    /// `asked` is the time at which the node sent its hello.
    pub(crate) fn welcomed(&mut self, asked: Time, fence: Epoch) {
        self.heard(asked);
        self.fence = self.fence.max(fence);
        let fence = self.fence;
        self.void.retain(|_, epoch| *epoch > fence);
    }

    /// Returns whether the manager knows less than this node has seen, which means that its store was
    /// restored from an older state.
    pub(crate) fn is_set_back(&self, fence: Epoch) -> bool {
        fence < self.fence || self.newest.values().any(|newest| *newest > fence)
    }

    /// Notes that the manager has answered a message that was sent at `asked`.
    pub(crate) fn heard(&mut self, asked: Time) {
        self.heard = self.heard.max(asked);
    }

    /// Sets whether the manager is draining this node, so that no new leases start here.
    pub(crate) fn drain(&mut self, draining: bool) {
        self.draining = draining;
    }

    /// Returns whether the manager is draining this node.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    /// Notes that the daemon was asked to end: it accepts no more grants.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Returns whether the daemon was asked to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Ends all leases, because the daemon ends.
    pub(crate) fn end_all(&mut self) -> Vec<Action> {
        let all: Vec<_> = self.leases.keys().copied().collect();
        all.into_iter()
            .flat_map(|id| self.end(id, Why::Stopping))
            .collect()
    }

    /// Accepts or refuses a grant. A repeated grant is acknowledged again and changes nothing.
    pub(crate) fn grant(&mut self, now: Time, grant: Grant) -> Vec<Action> {
        let (lease, epoch) = (grant.lease, grant.epoch);
        let held = self.leases.get(&lease);
        if held.is_some_and(|held| held.grant.epoch == epoch && held.ending.is_none()) {
            return vec![Action::Report(lease, epoch, GrantReport::Acknowledged)];
        }
        let mut actions = Vec::new();
        let message = match self.take(now, grant, &mut actions) {
            Ok(()) => GrantReport::Acknowledged,
            Err(refused) => GrantReport::Refused(refused),
        };
        actions.push(Action::Report(lease, epoch, message));
        actions
    }

    fn take(
        &mut self,
        now: Time,
        grant: Grant,
        actions: &mut Vec<Action>,
    ) -> Result<(), NotGranted> {
        check(&grant)?;
        let of_lease = [
            self.void.get(&grant.lease).copied(),
            self.leases.get(&grant.lease).map(|held| held.grant.epoch),
        ];
        let of_units = grant
            .units
            .iter()
            .map(|of| self.newest.get(&of.unit).copied());
        let newest = of_lease.into_iter().chain(of_units).flatten().max();
        if grant.epoch <= newest.unwrap_or_default().max(self.fence) {
            return Err(NotGranted::Stale);
        }
        if !grant.units.iter().all(|of| exists(&self.offered, of.unit)) {
            return Err(NotGranted::NoSuchUnit);
        }
        if self.draining {
            return Err(NotGranted::Draining);
        }
        if self.stopping {
            return Err(NotGranted::Stopping);
        }
        // The manager has assigned a new epoch to these units, so it considers them free. Earlier leases of
        // them are fenced off, even if this grant cannot be served yet.
        for of in &grant.units {
            self.newest.insert(of.unit, grant.epoch);
        }
        self.make_room(&grant, actions)?;
        let identities = grant.units.iter().map(|of| {
            let device = of.unit.device;
            (device, self.offered[&device].identity)
        });
        let lease = Lease {
            identities: identities.collect(),
            until: grant.limit.map(|limit| now.after(limit)),
            ending: None,
            withdrawal: None,
            places: BTreeMap::new(),
            grant,
        };
        self.leases.insert(lease.grant.lease, lease);
        self.taken += 1;
        Ok(())
    }

    /// Ends the leases that have one of the units, and an earlier grant of the same lease. Fails if one of
    /// them is still in use.
    fn make_room(&mut self, grant: &Grant, actions: &mut Vec<Action>) -> Result<(), NotGranted> {
        let in_way = |lease: &Lease| {
            lease.grant.lease == grant.lease || grant.units.iter().any(|of| lease.has(of.unit))
        };
        let holders = self.leases.iter().filter(|(_, lease)| in_way(lease));
        let holders: Vec<_> = holders.map(|(id, _)| *id).collect();
        for holder in &holders {
            actions.extend(self.end(*holder, Why::Fenced));
        }
        match holders
            .into_iter()
            .find(|holder| self.leases.contains_key(holder))
        {
            None => Ok(()),
            Some(holder) => Err(NotGranted::InUse(holder)),
        }
    }

    /// Withdraws a lease: grants of it up to `epoch` are no longer served. `reason` may be empty.
    pub(crate) fn withdraw(&mut self, id: LeaseId, epoch: Epoch, reason: &str) -> Vec<Action> {
        self.remember_void(id, epoch);
        match self.leases.get_mut(&id) {
            Some(lease) if lease.grant.epoch <= epoch => {
                lease.withdrawal = lease.withdrawal.max(Some(epoch));
                let why = match reason {
                    "" => Why::Unused,
                    reason => Why::Withdrawn(reason.into()),
                };
                self.end(id, why)
            }
            // The withdrawal is about an earlier grant, which has already ended.
            Some(_) | None => vec![Action::Report(id, epoch, GrantReport::Withdrawn)],
        }
    }

    fn remember_void(&mut self, id: LeaseId, epoch: Epoch) {
        if epoch <= self.fence {
            return;
        }
        let void = self.void.entry(id).or_default();
        *void = epoch.max(*void);
        if self.void.len() > VOID
            && let Some((oldest, epoch)) = self.void.iter().min_by_key(|(_, epoch)| **epoch)
        {
            // Thousands of withdrawals have arrived since, and no grant is in flight for that long. The
            // fence may therefore cover it.
            let (oldest, epoch) = (*oldest, *epoch);
            self.void.remove(&oldest);
            self.fence = self.fence.max(epoch);
        }
    }

    /// Closes a lease to new sessions and ends its sessions.
    fn end(&mut self, id: LeaseId, why: Why) -> Vec<Action> {
        let Some(lease) = self.leases.get_mut(&id) else {
            return Vec::new();
        };
        if lease.places.is_empty() {
            return self.finish(id).into_iter().collect();
        }
        if lease.ending.replace(why.clone()).is_some() {
            // The sessions were asked to end before.
            return Vec::new();
        }
        let places = lease.places.keys().copied().collect();
        vec![Action::End(places, Some(why))]
    }

    fn finish(&mut self, id: LeaseId) -> Option<Action> {
        let lease = self.leases.remove(&id)?;
        let epoch = lease.withdrawal.unwrap_or(lease.grant.epoch);
        Some(Action::Report(id, epoch, GrantReport::Withdrawn))
    }

    /// Gives a session a place in the lease that its client claims.
    ///
    /// # Errors
    /// [`NotAdmitted`].
    pub(crate) fn admit(&mut self, now: Time, claimed: &Claimed) -> Result<Admitted, NotAdmitted> {
        let devices = self.devices(now, claimed)?;
        let lease = self
            .leases
            .get_mut(&claimed.lease)
            .ok_or(NotAdmitted::Unknown)?;
        self.last_place += 1;
        let place = PlaceNumber(self.last_place);
        lease.places.insert(place, false);
        let resume = lease.grant.resume;
        Ok(Admitted {
            place,
            devices,
            resume,
        })
    }

    /// Returns the devices that a claim may use, each with the lease's memory on it in bytes; 0: no limit.
    ///
    /// # Errors
    /// [`NotAdmitted`].
    pub(crate) fn devices(
        &self,
        now: Time,
        claimed: &Claimed,
    ) -> Result<BTreeMap<DeviceAt, u64>, NotAdmitted> {
        let lease = self
            .leases
            .get(&claimed.lease)
            .ok_or(NotAdmitted::Unknown)?;
        match claimed.epoch.cmp(&lease.grant.epoch) {
            std::cmp::Ordering::Less => return Err(NotAdmitted::Stale),
            // If a newer grant was valid, this node would have acknowledged it before the client got its
            // credential.
            std::cmp::Ordering::Greater => return Err(NotAdmitted::Unknown),
            std::cmp::Ordering::Equal => {}
        }
        let ending = lease.ending.clone();
        // `tick` may run late, so the deadline is checked here as well.
        if let Some(why) = ending.or_else(|| self.overdue(lease, now)) {
            return Err(NotAdmitted::Ended(why));
        }
        if claimed.user != lease.grant.user {
            return Err(NotAdmitted::OtherUser);
        }
        let granted: BTreeSet<_> = lease.grant.units.iter().map(|of| of.unit).collect();
        if granted != claimed.units.iter().copied().collect() {
            return Err(NotAdmitted::OtherUnits);
        }
        let mut devices = BTreeMap::new();
        for GrantedUnit { unit, memory } in &lease.grant.units {
            devices
                .entry(unit.device)
                .and_modify(|all: &mut u64| *all = all_of(*all, *memory))
                .or_insert(*memory);
        }
        Ok(devices)
    }

    /// Notes that the session has a worker. Ends the session at once if its lease has ended meanwhile.
    pub(crate) fn opened(&mut self, place: PlaceNumber) -> Vec<Action> {
        let Some(lease) = self.of(place) else {
            return vec![Action::End(vec![place], None)];
        };
        lease.places.insert(place, true);
        let mut actions = vec![said(lease)];
        if lease.ending.is_some() {
            actions.push(Action::End(vec![place], lease.ending.clone()));
        }
        actions
    }

    /// Notes that the session has ended or was never opened, and that it has no worker any more.
    pub(crate) fn left(&mut self, place: PlaceNumber) -> Vec<Action> {
        let Some(lease) = self.of(place) else {
            return Vec::new();
        };
        let was_open = lease.places.remove(&place) == Some(true);
        let mut actions = Vec::new();
        if was_open {
            actions.push(said(lease));
        }
        if lease.ending.is_some() && lease.places.is_empty() {
            let id = lease.grant.lease;
            actions.extend(self.finish(id));
        }
        actions
    }

    fn of(&mut self, place: PlaceNumber) -> Option<&mut Lease> {
        let mut leases = self.leases.values_mut();
        leases.find(|lease| lease.places.contains_key(&place))
    }

    /// Ends the leases whose deadlines have passed.
    pub(crate) fn tick(&mut self, now: Time) -> Vec<Action> {
        let serving = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.ending.is_none());
        let over: Vec<_> = serving
            .filter_map(|(id, lease)| Some((*id, self.overdue(lease, now)?)))
            .collect();
        over.into_iter()
            .flat_map(|(id, why)| self.end(id, why))
            .collect()
    }

    /// Returns the next time at which [`Grants::tick`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let serving = self.leases.values().filter(|lease| lease.ending.is_none());
        serving.map(|lease| lease.deadline(self.heard)).min()
    }

    fn overdue(&self, lease: &Lease, now: Time) -> Option<Why> {
        if lease.until.is_some_and(|until| until <= now) {
            Some(Why::Limit)
        } else if lease.deadline(self.heard) <= now {
            Some(Why::Alone)
        } else {
            None
        }
    }

    /// Returns the number of grants accepted since the daemon started.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns whether a lease is in the table.
    pub(crate) fn has(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease)
    }

    /// Returns whether a lease is served by this grant.
    pub(crate) fn serves(&self, lease: LeaseId, epoch: Epoch) -> bool {
        let lease = self.leases.get(&lease);
        lease.is_some_and(|of| of.grant.epoch == epoch && of.ending.is_none())
    }

    /// Returns the leases to report when the node joins. They include leases that are ending, because their
    /// units are not free yet.
    pub(crate) fn running(&self) -> Vec<LeaseInUse> {
        let running = |(id, lease): (&LeaseId, &Lease)| LeaseInUse {
            lease: *id,
            epoch: lease.grant.epoch,
            sessions: lease.sessions(),
        };
        self.leases.iter().map(running).collect()
    }
}

fn said(lease: &Lease) -> Action {
    Action::Report(
        lease.grant.lease,
        lease.grant.epoch,
        GrantReport::Sessions(lease.sessions()),
    )
}

/// Adds the memory of two shares of a device; 0 means no limit.
fn all_of(one: u64, other: u64) -> u64 {
    if one == 0 || other == 0 {
        0
    } else {
        one.saturating_add(other)
    }
}

fn exists(offered: &BTreeMap<DeviceAt, Offered>, unit: Unit) -> bool {
    offered
        .get(&unit.device)
        .is_some_and(|of| unit.share < of.shares)
}

fn check(grant: &Grant) -> Result<(), NotGranted> {
    let mut units: Vec<_> = grant.units.iter().map(|of| of.unit).collect();
    units.sort_unstable();
    if units.is_empty() {
        return Err(NotGranted::Malformed("the grant names no unit"));
    }
    if units.windows(2).any(|two| two[0] == two[1]) {
        return Err(NotGranted::Malformed("the grant names a unit twice"));
    }
    units.dedup_by_key(|unit| unit.device);
    if units.len() > MAX_DEVICES {
        return Err(NotGranted::Malformed(
            "the grant has more devices than a session can have",
        ));
    }
    if grant.user.is_empty() {
        return Err(NotGranted::Malformed("the grant names no user"));
    }
    if grant.autonomy.is_zero() {
        return Err(NotGranted::Malformed("the grant has no autonomy time"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
