//! The devices that a request lacks, as a text for people: how many devices meet the request, and why they
//! are not available.
//!
//! The manager bases no decision on these texts. Invariant: they consist of numbers and the request's own
//! conditions. They name no node, user or lease, so that any user may read them.

use std::fmt;

use causeway_proto::request::Placement;

use crate::policy::ledger::InTheWay;

/// The devices that a request lacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shortfall {
    pub(super) kinds: Vec<KindShortfall>,
    pub(super) devices: u32,
    pub(super) placement: Placement,
    /// Whether there would be enough devices if all were free.
    pub(super) exist: bool,
    /// Whether any node has joined, lost ones included.
    pub(super) has_nodes: bool,
}

/// The devices that one kind of a request accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KindShortfall {
    /// The kind's conditions; empty: any device.
    pub(super) conditions: String,
    /// A condition that no device meets.
    pub(super) unmet: Option<String>,
    pub(super) asked: u32,
    /// Known devices that meet the conditions, and the free ones among them.
    pub(super) known: u32,
    pub(super) free: u32,
    /// The known ones on nodes that are being drained, that are stopping, and that are lost.
    pub(super) drained: u32,
    pub(super) stopping: u32,
    pub(super) lost: u32,
}

/// Details of a refusal, beyond its reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Detail {
    /// The devices that are missing.
    Devices(Shortfall),
    /// The quota that is exceeded.
    Quota(InTheWay),
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.has_nodes {
            return f.write_str("no node has joined yet");
        }
        let said: Vec<String> = match self.exist {
            true => self.kinds.iter().filter_map(KindShortfall::now).collect(),
            false => self.kinds.iter().filter_map(KindShortfall::ever).collect(),
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

impl KindShortfall {
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
