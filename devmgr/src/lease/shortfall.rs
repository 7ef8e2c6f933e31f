//! Explains to people what a request lacks: how many devices meet it, and why they are not available.
//!
//! The manager bases no decision on these texts. Invariant: they consist of numbers and the request's own
//! conditions. They name no node, user or lease, so that any user may read them.

use std::fmt;

use causeway_proto::request::{DeviceRequest, Placement, Wanted};

use super::action::{Refusal, Refused};
use super::holding::Demand;
use super::manager::Manager;
use crate::inventory::Level;
use crate::policy::ledger::{Exceeded, InTheWay};

/// The devices that a request lacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shortfall {
    kinds: Vec<KindLack>,
    devices: u32,
    placement: Placement,
    /// Whether there would be enough devices if all were free.
    exist: bool,
}

/// The devices that one kind of a request accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KindLack {
    /// The kind's conditions; empty: any device.
    conditions: String,
    /// A condition that no device meets.
    unmet: Option<String>,
    asked: u32,
    /// Known devices that meet the conditions, and the free ones among them.
    known: u32,
    free: u32,
    /// The known ones on nodes that are being drained, that are stopping, and that are lost.
    drained: u32,
    stopping: u32,
    lost: u32,
}

/// Details of a refusal, beyond its reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Detail {
    /// The devices that are missing.
    Devices(Shortfall),
    /// The quota that is exceeded.
    Quota(InTheWay),
}

impl Manager {
    /// A refusal with its explanation.
    pub(super) fn explained(&mut self, demand: &Demand, why: Refusal) -> Refused {
        let exceeded = match why {
            Refusal::NothingFits | Refusal::NothingFree => {
                let exist = why == Refusal::NothingFree;
                let shortfall = self.shortfall(&demand.devices, exist);
                let detail = Some(Detail::Devices(shortfall));
                return Refused { why, detail };
            }
            Refusal::QuotaOfDevices => Some(Exceeded::Devices),
            Refusal::QuotaOfMemory => Some(Exceeded::Memory),
            Refusal::QuotaOfTime => Some(Exceeded::Time),
            Refusal::Class => Some(Exceeded::Class),
            Refusal::QueueFull | Refusal::QueueFullOfOwn => None,
        };
        let quota = exceeded.and_then(|of| self.ledger.in_the_way(&demand.party, of));
        let detail = quota.map(Detail::Quota);
        Refused { why, detail }
    }

    /// The lack of a request that does not depend on other requests. `None` if open nodes have its
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
            .map(|(at, wanted)| KindLack {
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

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said: Vec<String> = match self.exist {
            true => self.kinds.iter().filter_map(KindLack::now).collect(),
            false => self.kinds.iter().filter_map(KindLack::ever).collect(),
        };
        if !said.is_empty() {
            return f.write_str(&said.join("; "));
        }
        let devices = match self.exist {
            true => "the free devices",
            false => "the suitable devices",
        };
        match self.placement {
            Placement::SameNode => write!(f, "{devices} are not together on one node"),
            Placement::Spread => write!(f, "{devices} are not on {} different nodes", self.devices),
            Placement::Any => write!(f, "{devices} would be needed for two kinds at once"),
        }
    }
}

impl KindLack {
    /// Why there are not enough devices, free or in use.
    fn ever(&self) -> Option<String> {
        let Self { known, asked, .. } = self;
        if known >= asked {
            return None;
        }
        Some(match (known, &self.unmet) {
            (0, Some(condition)) => format!("no device has {condition}"),
            (0, None) if self.conditions.is_empty() => "there is no device".to_owned(),
            (0, None) => format!("no device has all of {}", self.conditions),
            _ => format!("{} {}, {asked} asked for", known, self.meet(*known)),
        })
    }

    /// Why there are not enough devices now.
    fn now(&self) -> Option<String> {
        let Self { known, free, .. } = self;
        if *free >= self.asked {
            return None;
        }
        let is = |count: u32| if count == 1 { "is" } else { "are" };
        let mut text = format!(
            "{known} {}, {free} of them {} free",
            self.meet(*known),
            is(*free)
        );
        for (count, where_) in [
            (self.drained, "on nodes that are being drained"),
            (self.stopping, "on nodes that are stopping"),
            (self.lost, "on nodes that are lost"),
        ] {
            if count > 0 {
                text += &format!(", {count} {} {where_}", is(count));
            }
        }
        Some(format!("{text}, {} asked for", self.asked))
    }

    fn meet(&self, count: u32) -> String {
        let (devices, verb) = match count {
            1 => ("device", "has"),
            _ => ("devices", "have"),
        };
        match self.conditions.as_str() {
            "" => {
                devices.to_owned()
                    + if count == 1 {
                        " is there"
                    } else {
                        " are there"
                    }
            }
            conditions => format!("{devices} {verb} {conditions}"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        match &self.detail {
            Some(Detail::Devices(shortfall)) => write!(f, ": {shortfall}")?,
            Some(Detail::Quota(quota)) => write!(f, ": {quota}")?,
            None => {}
        }
        match self.why {
            Refusal::NothingFree => {
                f.write_str("; ask again, or wait for them (causeway run --wait)")
            }
            _ => Ok(()),
        }
    }
}
