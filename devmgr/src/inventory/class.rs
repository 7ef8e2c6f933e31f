//! Classes of devices, and which of them a request's kinds accept.
//!
//! A cluster of thousands of devices has a few models. Devices whose answers (but for identities such
//! as a UUID) and shares are equal are one class: conditions are held against a class once, and the
//! answers are kept once. Invariant: a class is there exactly while a device is of it, and no other ever
//! gets its id; what a request accepts is found again whenever there are other classes than when it was found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::control::InfoAnswer;
use causeway_proto::request::property::{self, Property};
use causeway_proto::request::{Condition, DeviceRequest, Wanted};

use super::offer::OfferedDevice;
use super::supply::ClassId;

/// Requests whose classes are remembered.
const REMEMBERED: usize = 1024;
/// Classes in all patterns that are remembered.
const REMEMBERED_CLASSES: usize = 1 << 20;

/// All classes.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Classes {
    all: BTreeMap<ClassId, Class>,
    ids: BTreeMap<ClassKey, ClassId>,
    next: ClassId,
    known: BTreeMap<DeviceRequest, Arc<Pattern>>,
    /// Classes in the patterns of `known`.
    remembered: usize,
    /// Grows whenever there are other classes.
    version: u64,
}

/// What makes a class: answers in the order of their names, and shares.
type ClassKey = (Vec<(u32, Bytes)>, u16, Option<u64>);

#[derive(Clone, Debug, Hash)]
struct Class {
    key: ClassKey,
    /// Devices that are of it.
    devices: u32,
    answers: Vec<InfoAnswer>,
    memory: u64,
    limit: Option<u64>,
}

/// What a request's kinds accept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// In the request's order.
    pub(crate) kinds: Vec<KindPattern>,
    /// Of the classes by which it was found.
    version: u64,
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
    /// The class of a device that is now there.
    pub(crate) fn join(&mut self, device: &OfferedDevice) -> ClassId {
        let answers = common(device);
        let key = key(device, &answers);
        let limit = device.memory_limit();
        if let Some(id) = self.ids.get(&key)
            && let Some(class) = self.all.get_mut(id)
        {
            class.devices += 1;
            return *id;
        }
        let id = self.next;
        self.next.0 += 1;
        self.version += 1;
        let answers: Vec<_> = answers.iter().map(own).collect();
        let names = answers.iter().map(|of| (of.name, of.value.clone()));
        let key: ClassKey = (names.collect(), key.1, key.2);
        self.ids.insert(key.clone(), id);
        let class = Class {
            key,
            devices: 1,
            answers,
            memory: device.memory(),
            limit,
        };
        self.all.insert(id, class);
        id
    }

    /// A device of a class is gone.
    pub(crate) fn leave(&mut self, id: ClassId) {
        let Some(class) = self.all.get_mut(&id) else {
            return;
        };
        class.devices -= 1;
        if class.devices == 0
            && let Some(class) = self.all.remove(&id)
        {
            self.ids.remove(&class.key);
            self.version += 1;
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes of a unit's memory.
    pub(crate) fn memory(&self, class: ClassId) -> u64 {
        self.all[&class].memory
    }

    /// What allocations of a unit are limited to.
    pub(crate) fn limit(&self, class: ClassId) -> Option<u64> {
        self.all[&class].limit
    }

    /// The answers that all its devices give.
    pub(crate) fn answers(&self, class: ClassId) -> &[InfoAnswer] {
        &self.all[&class].answers
    }

    /// The class that a device would be of, if there is one.
    pub(crate) fn find(&self, device: &OfferedDevice) -> Option<ClassId> {
        self.ids.get(&key(device, &common(device))).copied()
    }

    /// What a request accepts.
    pub(crate) fn pattern(&mut self, request: &DeviceRequest) -> Arc<Pattern> {
        if let Some(pattern) = self.known.get(request)
            && pattern.version == self.version
        {
            return Arc::clone(pattern);
        }
        let kinds = request.wanted().iter().map(|of| self.kind(of)).collect();
        let pattern = Arc::new(Pattern {
            kinds,
            version: self.version,
        });
        self.remember(request, &pattern);
        pattern
    }

    fn remember(&mut self, request: &DeviceRequest, pattern: &Arc<Pattern>) {
        let classes = pattern.classes();
        if self.known.len() >= REMEMBERED || self.remembered + classes > REMEMBERED_CLASSES {
            self.known.clear();
            self.remembered = 0;
        }
        let earlier = self.known.insert(request.clone(), Arc::clone(pattern));
        self.remembered += classes;
        self.remembered -= earlier.map_or(0, |of| of.classes());
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
        let accepted = self.all.iter().filter(|(_, of)| accepts(of));
        let mut classes: Vec<_> = accepted.map(|(id, of)| (of.memory, *id)).collect();
        classes.sort_unstable();
        KindPattern {
            count: wanted.count(),
            classes,
            identity: identity.into_iter().cloned().collect(),
        }
    }
}

/// The number of different kinds among devices.
pub(crate) fn kinds(devices: &[OfferedDevice]) -> usize {
    let keys = devices.iter().map(|device| key(device, &common(device)));
    keys.collect::<BTreeSet<ClassKey>>().len()
}

/// The answers that all devices of its class give, in the order of their names; of several of a name the first.
fn common(device: &OfferedDevice) -> Vec<InfoAnswer> {
    let is_common = |of: &&InfoAnswer| of.status == 0 && row(of).is_some_and(|of| !of.identity);
    let mut answers: Vec<_> = device.answers.iter().filter(is_common).cloned().collect();
    answers.sort_by_key(|of| of.name);
    answers.dedup_by_key(|of| of.name);
    answers
}

fn key(device: &OfferedDevice, common: &[InfoAnswer]) -> ClassKey {
    let answers = common.iter().map(|of| (of.name, of.value.clone()));
    (
        answers.collect(),
        device.shares.count(),
        device.memory_limit(),
    )
}

/// The answers by which a device differs from others of its class.
pub(crate) fn identities(device: &OfferedDevice) -> Vec<InfoAnswer> {
    let identity = |of: &&InfoAnswer| of.status == 0 && row(of).is_some_and(|of| of.identity);
    device.answers.iter().filter(identity).map(own).collect()
}

/// An answer by itself: what was read from a message holds all of it in memory.
fn own(answer: &InfoAnswer) -> InfoAnswer {
    InfoAnswer {
        value: Bytes::copy_from_slice(&answer.value),
        ..*answer
    }
}

fn row(answer: &InfoAnswer) -> Option<&'static Property> {
    property::by_info(answer.name)
}

impl Pattern {
    /// A pattern over other classes than the inventory's.
    pub(super) fn of(kinds: Vec<KindPattern>) -> Self {
        Self { kinds, version: 0 }
    }

    /// Devices of all kinds.
    pub(crate) fn count(&self) -> u32 {
        self.kinds.iter().map(|of| of.count).sum()
    }

    /// Accepted classes of all kinds.
    fn classes(&self) -> usize {
        self.kinds.iter().map(|of| of.classes.len()).sum()
    }
}

impl KindPattern {
    /// Whether a class, whose units have this memory, is accepted.
    pub(crate) fn accepts(&self, memory: u64, class: ClassId) -> bool {
        self.classes.binary_search(&(memory, class)).is_ok()
    }
}

#[cfg(test)]
impl Classes {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        assert_eq!(self.all.len(), self.ids.len());
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use causeway_proto::request::property::NAME;

    use super::*;
    use crate::inventory::{DeviceId, Shares};

    /// `CL_DEVICE_UUID_KHR`.
    const UUID_KHR: u32 = 0x106A;

    #[test]
    fn what_is_kept_of_a_device_does_not_hold_the_message_that_told_it() {
        let message = Bytes::from(b"a name and an identity".to_vec());
        let answer = |name, value| InfoAnswer {
            name,
            value,
            status: 0,
        };
        let id = DeviceId {
            platform: 0,
            device: 0,
        };
        let answers = vec![
            answer(NAME, message.slice(2..6)),
            answer(UUID_KHR, message.slice(14..)),
        ];
        let device = OfferedDevice::new(id, answers, Shares::Whole);
        let mut classes = Classes::default();
        classes.join(&device);
        let identity = identities(&device);
        assert_eq!(identity[0].value, b"identity"[..]);
        drop(device);
        assert!(message.is_unique());
    }
}
