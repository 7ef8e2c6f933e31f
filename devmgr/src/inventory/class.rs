//! Classes of devices, and which of them a request's kinds accept.
//!
//! A cluster of thousands of devices has a few models. Devices whose answers (but for identities such
//! as a UUID) and shares are equal are one class: conditions are held against a class once, and the
//! answers are kept once. Invariant: a class that was made keeps its id; what a request accepts is
//! found again whenever there are more classes than when it was found.

use std::collections::BTreeMap;

use bytes::Bytes;
use causeway_proto::control::InfoAnswer;
use causeway_proto::request::property::{self, Property};
use causeway_proto::request::{Condition, DeviceRequest, Wanted};

use super::offer::OfferedDevice;
use super::supply::ClassId;

/// Requests whose classes are remembered.
const REMEMBERED: usize = 1024;

/// All classes.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Classes {
    all: Vec<Class>,
    ids: BTreeMap<ClassKey, ClassId>,
    known: BTreeMap<DeviceRequest, Pattern>,
}

/// What makes a class: answers in the order of their names, and shares.
type ClassKey = (Vec<(u32, Bytes)>, u16, Option<u64>);

#[derive(Clone, Debug, Hash)]
struct Class {
    answers: Vec<InfoAnswer>,
    memory: u64,
    limit: Option<u64>,
}

/// What a request's kinds accept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// In the request's order.
    pub(crate) kinds: Vec<KindPattern>,
    /// Classes there were when it was found.
    seen: usize,
}

/// What one kind accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KindPattern {
    /// Devices wanted.
    pub(crate) count: u32,
    /// Accepted classes with the memory of one unit, the least first.
    pub(crate) classes: Vec<(u64, ClassId)>,
    /// Conditions on identities, which classes do not tell.
    pub(crate) identity: Vec<Condition>,
}

impl Classes {
    /// The class of a device.
    pub(crate) fn of(&mut self, device: &OfferedDevice) -> ClassId {
        let mut answers: Vec<_> = device
            .answers
            .iter()
            .filter(|of| of.status == 0 && row(of).is_some_and(|of| !of.identity))
            .cloned()
            .collect();
        answers.sort_by_key(|of| of.name);
        let limit = device.memory_limit();
        let key = answers.iter().map(|of| (of.name, of.value.clone()));
        let key = (key.collect(), device.shares.count(), limit);
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let id = ClassId(self.all.len() as u32);
        self.all.push(Class {
            answers,
            memory: device.memory(),
            limit,
        });
        self.ids.insert(key, id);
        id
    }

    /// Bytes of a unit's memory.
    pub(crate) fn memory(&self, class: ClassId) -> u64 {
        self.all[class.0 as usize].memory
    }

    /// What allocations of a unit are limited to.
    pub(crate) fn limit(&self, class: ClassId) -> Option<u64> {
        self.all[class.0 as usize].limit
    }

    /// The answers that all its devices give.
    pub(crate) fn answers(&self, class: ClassId) -> &[InfoAnswer] {
        &self.all[class.0 as usize].answers
    }

    /// What a request accepts.
    pub(crate) fn pattern(&mut self, request: &DeviceRequest) -> Pattern {
        if let Some(pattern) = self.known.get(request)
            && pattern.seen == self.all.len()
        {
            return pattern.clone();
        }
        let kinds = request.wanted().iter().map(|of| self.kind(of)).collect();
        let pattern = Pattern {
            kinds,
            seen: self.all.len(),
        };
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(request.clone(), pattern.clone());
        pattern
    }

    fn kind(&self, wanted: &Wanted) -> KindPattern {
        let (identity, common): (Vec<_>, Vec<_>) = wanted
            .conditions()
            .iter()
            .partition(|of| of.property().identity);
        let accepts = |of: &Class| {
            common
                .iter()
                .all(|condition| condition.matches(&of.answers))
        };
        let mut classes: Vec<_> = (0..)
            .zip(&self.all)
            .filter(|(_, of)| accepts(of))
            .map(|(id, of)| (of.memory, ClassId(id)))
            .collect();
        classes.sort_unstable();
        KindPattern {
            count: wanted.count(),
            classes,
            identity: identity.into_iter().cloned().collect(),
        }
    }
}

/// The answers by which a device differs from others of its class.
pub(crate) fn identities(device: &OfferedDevice) -> Vec<InfoAnswer> {
    let identity = |of: &&InfoAnswer| of.status == 0 && row(of).is_some_and(|of| of.identity);
    device.answers.iter().filter(identity).cloned().collect()
}

fn row(answer: &InfoAnswer) -> Option<&'static Property> {
    property::by_info(answer.name)
}

impl Pattern {
    /// A pattern over other classes than the inventory's.
    pub(super) fn of(kinds: Vec<KindPattern>) -> Self {
        Self { kinds, seen: 0 }
    }

    /// Devices of all kinds.
    pub(crate) fn count(&self) -> u32 {
        self.kinds.iter().map(|of| of.count).sum()
    }
}
