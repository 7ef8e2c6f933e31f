//! Forgotten nodes, and the requests that only they could serve.
//!
//! A lost node without leases is forgotten after `Timing::forget`, and at any time by an administrator.
//! Absences are stored from time to time, so that they survive restarts of the manager. An absence is
//! stored only when its node can serve nothing any more, by the clock of the manager that stores it. A later
//! manager could not tell: the host's clock may have changed. The row is deleted before the node is welcome
//! again. A node that was lost for a shorter time reconnects without waiting for the disk. A node
//! that is being drained is kept, so that it does not return undrained. An account that joins under ever
//! new names has room for [`MOST_NODES`] nodes, and for as many devices as
//! [`limits`](crate::inventory::limits) says. Its longest absent node makes room for the next.
//!
//! Invariants: a forgotten node serves nothing that another lease could get. Its units go with it. If the
//! node returns, it must first withdraw everything that it serves. A node with a stored absence serves nothing.

use std::collections::BTreeSet;

use super::action::Refusal;
use super::alarm::Alarm;
use super::change::{Absence, Change};
use super::id::Epoch;
use super::manager::Manager;
use super::nodes::Node;
use crate::inventory::limits::TooMuch;
use crate::inventory::{NodeId, OfferedDevice};
use crate::policy::UserName;
use crate::policy::queue::QueuePlace;
use crate::time::Span;

/// Longest and shortest interval between two looks at lost nodes.
const LOOK_EVERY: (Span, Span) = (Span::seconds(3600), Span::seconds(1));

/// Maximum number of known nodes of one account, lost ones included.
pub const MOST_NODES: usize = 4096;

/// Why a node is not forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotForgotten {
    /// The node is not known.
    #[error("unknown node; see `causeway nodes`")]
    Unknown,
    /// The node is connected and would join again at once.
    #[error(
        "the node is connected, and would be back at once: stop its daemon first (`causeway nodes drain` keeps a node that runs from new leases)"
    )]
    Connected,
    /// The node may still serve leases, because it works on without the manager.
    #[error(
        "the node may be serving leases still ({leases}, for {seconds} s at most): wait, or end them with --force if it \
         will not come back"
    )]
    Leased {
        /// Number of leases.
        leases: usize,
        /// Seconds until the node can no longer serve them.
        seconds: u64,
    },
}

impl Manager {
    /// Checks whether a node may be forgotten now. With `force`, its leases do not prevent it.
    ///
    /// # Errors
    /// [`NotForgotten`]: the reason.
    pub fn may_forget(&self, id: NodeId, force: bool) -> Result<(), NotForgotten> {
        let node = self.nodes.get(&id).ok_or(NotForgotten::Unknown)?;
        if node.connected {
            return Err(NotForgotten::Connected);
        }
        match self.fenced_at(node) {
            // Without the manager, the node serves its leases until its autonomy ends.
            Some(at) if !force => Err(NotForgotten::Leased {
                leases: node.grants.len(),
                seconds: at.since(self.now).0.div_ceil(1000),
            }),
            _ => Ok(()),
        }
    }

    /// Forgets a node that is not connected, with its leases and devices.
    pub(super) fn forget_node(&mut self, id: NodeId) {
        // Collected before the node's devices go, to find below which requests only these devices fitted.
        let hopeful = self.hopeful_by(id);
        self.drop_aside_on(id);
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let epochs: Vec<Epoch> = node.grants.iter().copied().collect();
        // Its units count until the start phase is over, so it is awaited as long. A manager that starts meanwhile does not
        // know the node any more.
        let stays_awaited = self.settling && self.may_serve(node);
        for epoch in epochs {
            // Replaced is what a node loses. An administrator has given these leases up.
            if let Some(holding) = self.grants.get_mut(&epoch) {
                holding.replace.clear();
            }
            self.part_lost(epoch, id);
        }
        if self.nodes.remove(&id).is_some_and(|of| of.absence_stored) {
            self.store(Change::DeleteAbsence(id));
        }
        self.store(Change::DeleteNode(id));
        self.cluster.forget(id);
        self.alarms.set(Alarm::Node(id), None);
        if !stays_awaited {
            self.not_awaited(id);
        }
        self.revalidate(hopeful);
    }

    /// Whether a node of this account can join: it is known, there is room, or another node can be
    /// forgotten for it.
    #[must_use]
    pub fn has_room(&self, id: NodeId, account: Option<&UserName>) -> bool {
        self.nodes.contains_key(&id)
            || self.of_account(account).count() < MOST_NODES
            || self.most_dispensable(account, id).is_some()
    }

    /// Checks whether this account's node may offer these devices, next to those of the account's other
    /// nodes that cannot be forgotten.
    ///
    /// # Errors
    /// [`TooMuch`]: the limit that would be exceeded.
    pub fn may_have(
        &self,
        id: NodeId,
        account: Option<&UserName>,
        devices: &[OfferedDevice],
    ) -> Result<(), TooMuch> {
        let others = self.of_account(account);
        // Dispensable nodes do not count, because `make_room` forgets them if necessary.
        let others = others.filter(|(of, node)| **of != id && !node.is_dispensable());
        let others = others.map(|(of, _)| *of);
        self.cluster.check_account(others, devices)
    }

    /// Forgets nodes of this account until a node with these devices has room.
    pub(super) fn make_room(
        &mut self,
        id: NodeId,
        account: Option<&UserName>,
        devices: &[OfferedDevice],
    ) {
        loop {
            let others = || self.of_account(account).map(|(of, _)| *of);
            let others = || others().filter(|of| *of != id);
            let has_room = others().count() < MOST_NODES
                && self.cluster.check_account(others(), devices).is_ok();
            if has_room {
                return;
            }
            match self.most_dispensable(account, id) {
                Some(dispensable) => self.forget_node(dispensable),
                None => return,
            }
        }
    }

    fn of_account(&self, account: Option<&UserName>) -> impl Iterator<Item = (&NodeId, &Node)> {
        let nodes = self.nodes.iter();
        nodes.filter(move |(_, node)| node.account.as_ref() == account)
    }

    /// The node of this account, other than `but`, that is lost for the longest. Nodes with leases and
    /// nodes that are being drained are excluded.
    fn most_dispensable(&self, account: Option<&UserName>, but: NodeId) -> Option<NodeId> {
        let lost = self
            .of_account(account)
            .filter(|(_, node)| node.is_dispensable());
        // A node without a known absence was connected a moment ago, and is not the first to go.
        let since = lost
            .filter(|(id, _)| **id != but)
            .filter_map(|(id, node)| Some((node.absent?, *id)));
        since.min().map(|(_, id)| id)
    }

    /// Waiting requests that could be served as long as this node is known.
    fn hopeful_by(&mut self, id: NodeId) -> Vec<QueuePlace> {
        // Nodes that have not joined yet may have devices for every request, so nothing is hopeless.
        if !self.awaited.is_empty() || self.cluster.devices(id).is_empty() {
            return Vec::new();
        }
        let all: Vec<QueuePlace> = self.queue.iter().map(|(place, _)| place).collect();
        let hopeful = |place: &QueuePlace| !self.is_hopeless(*place);
        all.into_iter().filter(hopeful).collect()
    }

    /// Whether no known device, free or in use, fits a waiting request.
    fn is_hopeless(&mut self, place: QueuePlace) -> bool {
        let Some(demand) = self.queue.get(place).map(|of| of.demand.clone()) else {
            return false;
        };
        // A request that only quotas forbid is not hopeless: quotas may change.
        let memory = self.conceivable(&demand).unwrap_or(u64::MAX);
        self.never(&demand, memory) == Some(Refusal::NothingFits)
    }

    /// The hopeless ones of `places`. Equal requests are searched for once.
    fn in_vain(&mut self, mut places: BTreeSet<QueuePlace>) -> BTreeSet<QueuePlace> {
        let mut looked_for = BTreeSet::new();
        places.retain(|place| {
            let Some(demand) = self.queue.get(*place).map(|of| of.demand.clone()) else {
                return false;
            };
            // Each search goes over all known devices, and many waiting requests are equal.
            let in_vain = looked_for.contains(&demand.devices) || self.is_hopeless(*place);
            if in_vain {
                looked_for.insert(demand.devices.clone());
            }
            in_vain
        });
        places
    }

    /// Refuses those of `places` that are hopeless.
    fn revalidate(&mut self, places: impl IntoIterator<Item = QueuePlace>) {
        for place in places {
            if self.is_hopeless(place) {
                self.refuse(place, Refusal::NothingFits);
            }
        }
    }

    /// Marks a waiting request that no known device fits. The request is refused unless such a device
    /// joins in time.
    pub(super) fn hope(&mut self, place: QueuePlace) {
        let until = self.now.after(self.policy.timing.arrival);
        self.hopeless.insert(place, until);
        self.show(place);
        self.arm_waiting(place);
    }

    /// Re-checks the requests that no known device fitted, after devices have joined.
    pub(super) fn look_for_hope(&mut self) {
        let places: BTreeSet<QueuePlace> = self.hopeless.keys().copied().collect();
        let in_vain = self.in_vain(places.clone());
        for place in places.difference(&in_vain).copied() {
            self.hopeless.remove(&place);
            self.show(place);
            self.arm_waiting(place);
            self.chance = true;
        }
    }

    /// Stops awaiting a node, which has joined, or is forgotten and does not count any more.
    pub(super) fn not_awaited(&mut self, id: NodeId) {
        if self.awaited.remove(&id) {
            self.settle_if_known();
        }
    }

    /// Ends the start phase if it has nothing to wait for: no node is awaited, and none serves what this manager does not
    /// know. If the phase is over already, checks requests from before the start once no node is awaited.
    pub(super) fn settle_if_known(&mut self) {
        let knows_devices = self.awaited.is_empty();
        match self.settling {
            true if knows_devices && !self.has_strays() => self.settled(),
            false if knows_devices => self.check_from_before(),
            _ => {}
        }
    }

    /// Checks requests from before the start like new ones. The devices of every known node are known.
    fn check_from_before(&mut self) {
        let from_before = std::mem::take(&mut self.from_before);
        for place in self.in_vain(from_before) {
            self.hope(place);
        }
    }

    /// Ends the start phase. Requests that do not fit now are refused, whether or not all known nodes
    /// have joined. Requests from before the start wait until all known nodes have joined or are
    /// forgotten.
    pub(super) fn settled(&mut self) {
        self.settling = false;
        self.awaited.retain(|id| self.nodes.contains_key(id));
        self.alarms.set(Alarm::Settle, None);
        self.chance = true;
        for place in std::mem::take(&mut self.unchecked) {
            if !self.is_hopeless(place) {
                continue;
            }
            // Like new requests at this moment: those that wait may hope for a node that joins, the others
            // may not.
            match self.queue.get(place).is_some_and(|of| of.demand.wait) {
                true => self.hope(place),
                false => self.refuse(place, Refusal::NothingFits),
            }
        }
        if self.awaited.is_empty() {
            self.check_from_before();
        }
    }

    /// Restores since when nodes are lost, from the stored rows.
    pub(super) fn load_absences(&mut self, absences: &[Absence]) {
        for Absence { node, since } in absences {
            if let Some(node) = self.nodes.get_mut(node) {
                (node.absent, node.absence_stored) = (Some(*since), true);
            }
        }
    }

    /// Forgets nodes that are lost for long enough, and stores the absences of those that can serve nothing any more.
    pub(super) fn look_at_absences(&mut self) {
        let (wall, forget) = (self.wall(), self.policy.timing.forget);
        let (now, fenced_after) = (self.now, self.policy.timing.fenced_after());
        let mut forgotten = Vec::new();
        let mut changes = Vec::new();
        for (id, node) in &mut self.nodes {
            // Draining is an administrator's decision about this node, which must not be forgotten with it.
            let idle = !node.draining && node.grants.is_empty();
            // Until then the node may serve leases that have ended, and the next manager has to reckon with them.
            let is_fenced = node
                .lost
                .is_some_and(|lost| now.since(lost) >= fenced_after);
            match node.absent {
                Some(since) if idle && forget.0 > 0 && wall.since(since) >= forget => {
                    forgotten.push(*id);
                }
                Some(since) if is_fenced && !node.absence_stored => {
                    node.absence_stored = true;
                    changes.push(Change::PutAbsence(Absence { node: *id, since }));
                }
                _ => {}
            }
        }
        // After the loop, because the nodes are borrowed in it.
        changes.into_iter().for_each(|change| self.store(change));
        forgotten.into_iter().for_each(|id| self.forget_node(id));
        self.arm_absences();
    }

    /// Schedules the next look at lost nodes. The first one comes an interval after the start, so that
    /// known nodes have time to join.
    pub(super) fn arm_absences(&mut self) {
        let (most, least) = LOOK_EVERY;
        let often = match self.policy.timing.forget {
            Span(0) => most,
            forget => Span(forget.0 / 8).clamp(least, most),
        };
        self.alarms
            .set(Alarm::Absences, Some(self.now.after(often)));
    }
}
