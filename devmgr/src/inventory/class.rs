//! Classes of devices, and which of them a request's kinds accept.
//!
//! A cluster of thousands of devices has a few models. Devices with equal answers (except identities such
//! as a UUID) and equal shares form one class. Conditions are checked once per class, and the answers are
//! stored once. Invariant: a class exists exactly while it has a device, and its id is never reused. A
//! request's cached classes are recomputed whenever the classes have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::control::InfoAnswer;
use causeway_proto::request::property::{self, Property};
use causeway_proto::request::{Condition, DeviceRequest, Wanted};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::id::DeviceId;
use super::offer::OfferedDevice;
use super::supply::ClassId;

/// Maximum number of requests whose classes are cached.
const REMEMBERED: usize = 1024;
/// Maximum number of classes in all cached patterns.
const REMEMBERED_CLASSES: usize = 1 << 20;

/// What makes a device of any node equal: its place among the devices of its node, and its class. The digest of the class
/// means the same in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceClass {
    /// The place.
    pub device: DeviceId,
    /// The digest of the class.
    pub class: [u8; 16],
}

/// All classes.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Classes {
    all: BTreeMap<ClassId, Class>,
    ids: BTreeMap<ClassKey, ClassId>,
    next: ClassId,
    known: BTreeMap<DeviceRequest, Arc<Pattern>>,
    /// Number of classes in the patterns of `known`.
    remembered: usize,
    /// Incremented whenever a class is added or removed.
    version: u64,
}

/// The key of a class: answers in the order of their names, number of shares, memory limit.
type ClassKey = (Vec<(u32, Bytes)>, u16, Option<u64>);

#[derive(Clone, Debug, Hash)]
struct Class {
    key: ClassKey,
    digest: [u8; 16],
    /// Number of devices of the class.
    devices: u32,
    answers: Vec<InfoAnswer>,
    memory: u64,
    limit: Option<u64>,
}

/// The classes that a request's kinds accept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// The kinds, in the request's order.
    pub(crate) kinds: Vec<KindPattern>,
    /// The version of the classes when the pattern was computed.
    version: u64,
}

/// The classes that one kind accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KindPattern {
    /// Number of devices wanted.
    pub(crate) count: u32,
    /// Accepted classes with the memory of one unit, the least memory first.
    pub(crate) classes: Vec<(u64, ClassId)>,
    /// Conditions on identities, which differ within a class.
    pub(crate) identity: Vec<Condition>,
}

impl Classes {
    /// Adds a device, and returns its class.
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
        // Cached patterns do not know the new class.
        self.version += 1;
        // Copied only for a new class; most devices join an existing one.
        let answers: Vec<_> = answers.iter().map(own).collect();
        let names = answers.iter().map(|of| (of.name, of.value.clone()));
        let key: ClassKey = (names.collect(), key.1, key.2);
        self.ids.insert(key.clone(), id);
        let class = Class {
            digest: digest(&key),
            key,
            devices: 1,
            answers,
            memory: device.memory(),
            limit,
        };
        self.all.insert(id, class);
        id
    }

    /// Removes a device of a class.
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

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// An id that no class has. Ids of different `offset` differ.
    pub(super) fn unused(&self, offset: usize) -> ClassId {
        ClassId(self.next.0 + offset as u32)
    }

    /// Bytes of a unit's memory.
    pub(crate) fn memory(&self, class: ClassId) -> u64 {
        self.all[&class].memory
    }

    /// The digest of a class's key.
    pub(crate) fn digest(&self, class: ClassId) -> [u8; 16] {
        self.all[&class].digest
    }

    /// Limit in bytes for a unit's allocations.
    pub(crate) fn limit(&self, class: ClassId) -> Option<u64> {
        self.all[&class].limit
    }

    /// The class that a device would join, if it exists.
    pub(crate) fn find(&self, device: &OfferedDevice) -> Option<ClassId> {
        self.ids.get(&key(device, &common(device))).copied()
    }

    /// The pattern of a request, from the cache or computed.
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
            // Cleared as a whole: the cache holds the requests of the moment, and refills quickly.
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
            // Identities differ within a class, so they are checked for each device.
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

/// The number of different classes among devices.
pub(crate) fn kinds(devices: &[OfferedDevice]) -> usize {
    let keys = devices.iter().map(|device| key(device, &common(device)));
    keys.collect::<BTreeSet<ClassKey>>().len()
}

/// The answers that a device shares with its class, in the order of their names. Of several with one
/// name, the first.
fn common(device: &OfferedDevice) -> Vec<InfoAnswer> {
    let is_common = |of: &&InfoAnswer| of.status == 0 && property::is_common(of.name);
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

fn digest((answers, shares, limit): &ClassKey) -> [u8; 16] {
    let mut digest = Sha256::new();
    for (name, value) in answers {
        digest.update(name.to_le_bytes());
        // The length keeps different answers from having the same bytes together.
        digest.update((value.len() as u64).to_le_bytes());
        digest.update(value);
    }
    digest.update(shares.to_le_bytes());
    digest.update([u8::from(limit.is_some())]);
    digest.update(limit.unwrap_or(0).to_le_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&digest.finalize()[..16]);
    short
}

/// The answers by which a device differs from others of its class.
pub(crate) fn identities(device: &OfferedDevice) -> Vec<InfoAnswer> {
    let identity = |of: &&InfoAnswer| of.status == 0 && row(of).is_some_and(|of| of.identity);
    device.answers.iter().filter(identity).map(own).collect()
}

/// A copy of an answer. A value that was read from a message would keep the whole message in memory.
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
    /// A pattern over classes other than the inventory's.
    pub(super) fn of(kinds: Vec<KindPattern>) -> Self {
        Self { kinds, version: 0 }
    }

    /// Number of devices of all kinds.
    pub(crate) fn count(&self) -> u32 {
        self.kinds.iter().map(|of| of.count).sum()
    }

    /// Number of accepted classes of all kinds.
    fn classes(&self) -> usize {
        self.kinds.iter().map(|of| of.classes.len()).sum()
    }
}

impl KindPattern {
    /// Whether the kind accepts a class whose units have this memory.
    pub(crate) fn accepts(&self, memory: u64, class: ClassId) -> bool {
        self.classes.binary_search(&(memory, class)).is_ok()
    }
}

#[cfg(test)]
impl Classes {
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
