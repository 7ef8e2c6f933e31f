//! Explains refusals and waiting times: counts the devices that a request could have.
//!
//! This module decides nothing. Invariant: an explanation changes no state.

use causeway_proto::request::{DeviceRequest, Placement, Wanted};

use super::action::{Refusal, Refused};
use super::event::NewRequest;
use super::manager::Manager;
use super::shortfall::{Detail, KindShortfall, Shortfall};
use crate::inventory::Level;
use crate::policy::ledger::{Exceeded, InTheWay};

impl Manager {
    /// A refusal with its explanation.
    pub(super) fn explained(&mut self, demand: &NewRequest, why: Refusal) -> Refused {
        if let Refusal::NothingFits | Refusal::NothingFree = why {
            let exist = why == Refusal::NothingFree;
            let shortfall = self.shortfall(&demand.devices, exist);
            let detail = Some(Detail::Devices(shortfall));
            return Refused { why, detail };
        }
        let detail = self.quota_in_the_way(demand, why).map(Detail::Quota);
        Refused { why, detail }
    }

    /// The quota that a refusal is about, if it is about one.
    pub(super) fn quota_in_the_way(&self, demand: &NewRequest, why: Refusal) -> Option<InTheWay> {
        let exceeded = match why {
            Refusal::NothingFits | Refusal::NothingFree => None,
            Refusal::QuotaOfDevices => Some(Exceeded::Devices),
            Refusal::QuotaOfMemory => Some(Exceeded::Memory),
            Refusal::QuotaOfTime => Some(Exceeded::Time),
            Refusal::Class => Some(Exceeded::Class),
            Refusal::QueueFull | Refusal::QueueFullOfOwn => None,
        };
        exceeded.and_then(|of| self.ledger.in_the_way(&demand.party, of))
    }

    /// What a request lacks, whatever other requests wait. `None` if open nodes have its
    /// devices, free or in use.
    pub(super) fn shortfall_of_open(&mut self, request: &DeviceRequest) -> Option<Shortfall> {
        let manner = self.manner(request.placement(), u64::MAX);
        if self.cluster.choose(Level::Open, request, manner).is_ok() {
            return None;
        }
        let exist = self.cluster.choose(Level::Known, request, manner).is_ok();
        Some(self.shortfall(request, exist))
    }

    fn shortfall(&mut self, request: &DeviceRequest, exist: bool) -> Shortfall {
        let known = self.cluster.count(Level::Known, request);
        let free = self.cluster.count(Level::Free, request);
        let mut drained = vec![0; known.len()];
        let mut stopping = drained.clone();
        let mut lost = drained.clone();
        for (id, node) in &self.nodes {
            // Each device counts for one reason only: a lost node may also be drained.
            let away = match node {
                _ if !node.connected => &mut lost,
                _ if node.stopping => &mut stopping,
                _ if node.draining => &mut drained,
                _ => continue,
            };
            for (all, here) in away.iter_mut().zip(self.cluster.count_on(*id, request)) {
                *all += here;
            }
        }
        let kinds = request
            .wanted()
            .iter()
            .enumerate()
            .map(|(at, wanted)| KindShortfall {
                conditions: conditions(wanted),
                unmet: (known[at] == 0).then(|| self.unmet(wanted)).flatten(),
                asked: wanted.count(),
                known: known[at],
                free: free[at],
                drained: drained[at],
                stopping: stopping[at],
                lost: lost[at],
            });
        Shortfall {
            kinds: kinds.collect(),
            devices: request.count(),
            placement: request.placement(),
            exist,
            has_nodes: !self.nodes.is_empty(),
        }
    }

    /// The first condition that no device meets.
    fn unmet(&mut self, wanted: &Wanted) -> Option<String> {
        let unmet = wanted.conditions().iter().find(|condition| {
            let alone = Wanted::new(1, vec![(*condition).clone()]);
            let request = alone.and_then(|of| DeviceRequest::new(vec![of], Placement::Any));
            request.is_ok_and(|request| self.cluster.count(Level::Known, &request) == [0])
        });
        unmet.map(ToString::to_string)
    }
}

fn conditions(wanted: &Wanted) -> String {
    let conditions: Vec<String> = wanted
        .conditions()
        .iter()
        .map(ToString::to_string)
        .collect();
    conditions.join(", ")
}
