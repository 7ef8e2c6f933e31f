//! What the device manager has granted: which lease may have which units, and who uses it now. Pure.
//!
//! The shell tells it what the manager says ([`Grants::grant`], [`Grants::withdraw`], [`Grants::welcomed`],
//! [`Grants::heard`]), what sessions do ([`Grants::admit`], [`Grants::opened`], [`Grants::left`]) and that time
//! has passed ([`Grants::tick`]), and carries out the [`Action`]s. It reports a lease as it is
//! ([`Grants::running`]) when it joins anew, so words that were lost with a connection need not be kept.
//!
//! What it is not: no sockets, clocks or signatures are in it. Invariants: a unit is in at most one lease; a
//! lease leaves the table, and its units become free, only when no session has a place in it; no grant is taken
//! that is older than the newest seen for one of its units, or older than the manager's word at a welcome.

use std::collections::{BTreeMap, BTreeSet};

use super::name::{DeviceAt, Epoch, GrantedUnit, LeaseId, PlaceNumber, Time, Unit};
use super::word::{
    Action, Admitted, Claimed, Grant, NotAdmitted, NotGranted, Offered, Running, Why, Word,
};

/// Why a lease ends that is withdrawn without a reason.
const WITHDRAWN: &str = "the device manager has withdrawn it";
/// Withdrawals of grants that never came, to be remembered.
const VOID: usize = 4096;
/// Devices of a lease on one node: what an assignment to a worker has room for.
pub(crate) const MAX_DEVICES: usize = crate::handover::MAX_LEASED;

#[derive(Debug)]
struct Lease {
    grant: Grant,
    /// Identities of its devices when it was granted.
    identities: BTreeMap<DeviceAt, u64>,
    until: Option<Time>,
    ending: Option<Why>,
    /// Of the latest withdrawal; what is said when it is done.
    withdrawal: Option<Epoch>,
    /// Of sessions; whether they are open.
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

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    offered: BTreeMap<DeviceAt, Offered>,
    leases: BTreeMap<LeaseId, Lease>,
    /// The newest epoch seen for each unit.
    newest: BTreeMap<Unit, Epoch>,
    /// Grants up to this one that are not in the table are void.
    fence: Epoch,
    /// Up to which grants of a lease were withdrawn.
    void: BTreeMap<LeaseId, Epoch>,
    /// When the manager was last known to be there.
    heard: Time,
    draining: bool,
    /// The daemon was told to end.
    stopping: bool,
    last_place: u64,
    taken: u64,
}

impl Grants {
    /// The node's devices are these now. Leases of what is not the same any more end.
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

    /// A manager answers: what it granted up to `fence` and this node does not have is void. `asked` is when it
    /// was asked.
    pub(crate) fn welcomed(&mut self, asked: Time, fence: Epoch) {
        self.heard(asked);
        self.fence = self.fence.max(fence);
        let fence = self.fence;
        self.void.retain(|_, epoch| *epoch > fence);
    }

    /// Whether a manager that says this is older than one that was heard before: its store was set back.
    pub(crate) fn is_set_back(&self, fence: Epoch) -> bool {
        fence < self.fence || self.newest.values().any(|newest| *newest > fence)
    }

    /// The manager has answered what was said at `asked`.
    pub(crate) fn heard(&mut self, asked: Time) {
        self.heard = self.heard.max(asked);
    }

    /// The manager wants no new leases here, or wants them again.
    pub(crate) fn drain(&mut self, draining: bool) {
        self.draining = draining;
    }

    /// Whether the manager wants no new leases here.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    /// The daemon was told to end: it takes no grant any more.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether the daemon was told to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// The daemon ends: so do all leases.
    pub(crate) fn end_all(&mut self) -> Vec<Action> {
        let all: Vec<_> = self.leases.keys().copied().collect();
        all.into_iter()
            .flat_map(|id| self.end(id, Why::Stopping))
            .collect()
    }

    /// A lease is to be served. Said twice, it is acknowledged twice and begins once.
    pub(crate) fn grant(&mut self, now: Time, grant: Grant) -> Vec<Action> {
        let (lease, epoch) = (grant.lease, grant.epoch);
        let held = self.leases.get(&lease);
        if held.is_some_and(|held| held.grant.epoch == epoch && held.ending.is_none()) {
            return vec![Action::Say(lease, epoch, Word::Acknowledged)];
        }
        let mut actions = Vec::new();
        let word = match self.take(now, grant, &mut actions) {
            Ok(()) => Word::Acknowledged,
            Err(refused) => Word::Refused(refused),
        };
        actions.push(Action::Say(lease, epoch, word));
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
        // The manager has numbered them anew, so it believes them free: whoever has them is fenced off, whether
        // or not this grant can be served already.
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

    /// Ends who has the units, or the lease by an earlier grant.
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

    /// A lease is to be served no more, by any grant up to this, for this reason; it may be empty.
    pub(crate) fn withdraw(&mut self, id: LeaseId, epoch: Epoch, reason: &str) -> Vec<Action> {
        self.remember_void(id, epoch);
        match self.leases.get_mut(&id) {
            Some(lease) if lease.grant.epoch <= epoch => {
                lease.withdrawal = lease.withdrawal.max(Some(epoch));
                let reason = Some(reason).filter(|reason| !reason.is_empty());
                self.end(id, Why::Withdrawn(reason.unwrap_or(WITHDRAWN).into()))
            }
            // Of an earlier grant, which is over.
            Some(_) | None => vec![Action::Say(id, epoch, Word::Withdrawn)],
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
            // Thousands of later withdrawals have come since: no grant is under way for that long.
            let (oldest, epoch) = (*oldest, *epoch);
            self.void.remove(&oldest);
            self.fence = self.fence.max(epoch);
        }
    }

    /// Lets nobody into a lease any more, and its sessions end.
    fn end(&mut self, id: LeaseId, why: Why) -> Vec<Action> {
        let Some(lease) = self.leases.get_mut(&id) else {
            return Vec::new();
        };
        if lease.places.is_empty() {
            return self.finish(id).into_iter().collect();
        }
        if lease.ending.replace(why.clone()).is_some() {
            // Its sessions were told.
            return Vec::new();
        }
        let places = lease.places.keys().copied().collect();
        vec![Action::End(places, Some(why))]
    }

    fn finish(&mut self, id: LeaseId) -> Option<Action> {
        let lease = self.leases.remove(&id)?;
        let epoch = lease.withdrawal.unwrap_or(lease.grant.epoch);
        Some(Action::Say(id, epoch, Word::Withdrawn))
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
        Ok(Admitted { place, devices })
    }

    /// What the client of a claim may use: each device with the lease's bytes on it; 0: no limit.
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
            // A newer one would have been acknowledged here first.
            std::cmp::Ordering::Greater => return Err(NotAdmitted::Unknown),
            std::cmp::Ordering::Equal => {}
        }
        let ending = lease.ending.clone();
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

    /// The session has its worker.
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

    /// The session is no more, or never was: its worker is gone.
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

    /// Time has passed.
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

    /// When [`Grants::tick`] has something to do next.
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

    /// Leases that were taken, ever.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether a lease is in the table.
    pub(crate) fn has(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease)
    }

    /// What the manager is told when the node joins: also what is ending, because its units are not free yet.
    pub(crate) fn running(&self) -> Vec<Running> {
        let running = |(id, lease): (&LeaseId, &Lease)| Running {
            lease: *id,
            epoch: lease.grant.epoch,
            sessions: lease.sessions(),
        };
        self.leases.iter().map(running).collect()
    }
}

fn said(lease: &Lease) -> Action {
    Action::Say(
        lease.grant.lease,
        lease.grant.epoch,
        Word::Sessions(lease.sessions()),
    )
}

/// Of two shares of a device: together, or without limit.
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
        return Err(NotGranted::Malformed("it has no unit"));
    }
    if units.windows(2).any(|two| two[0] == two[1]) {
        return Err(NotGranted::Malformed("it names a unit twice"));
    }
    units.dedup_by_key(|unit| unit.device);
    if units.len() > MAX_DEVICES {
        return Err(NotGranted::Malformed(
            "it has more devices than a session can have",
        ));
    }
    if grant.user.is_empty() {
        return Err(NotGranted::Malformed("it has no user"));
    }
    if grant.autonomy.is_zero() {
        return Err(NotGranted::Malformed(
            "it ends with the next silence (no autonomy)",
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "grants_properties.rs"]
mod properties;
#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
