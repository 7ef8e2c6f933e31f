//! The table of nodes and their units.
//!
//! Three supplies are kept: the free units of open nodes, all units of open nodes, and all units of known
//! nodes. A node is *open* while it may be given leases; the inventory's owner decides that. Invariant: a
//! unit is free exactly if it is not taken. The supplies agree with the table.

use std::collections::{BTreeMap, BTreeSet};

use causeway_proto::control::InfoAnswer;
use causeway_proto::request::DeviceRequest;

use super::class::{Classes, DeviceClass, KindPattern, Pattern, identities, kinds};
use super::id::{DeviceId, NodeId, Unit};
use super::limits::{self, TooMuch};
use super::offer::OfferedDevice;
use super::select::{Manner, SelectionError, choose};
use super::supply::{ClassId, DeviceSlot, NodeSlot, Supply};

/// The inventory of a cluster. See the module.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Cluster {
    classes: Classes,
    slots: BTreeMap<NodeId, NodeSlot>,
    nodes: Vec<NodeUnits>,
    /// Slots of forgotten nodes, for reuse.
    vacant: BTreeSet<NodeSlot>,
    free: Supply,
    open: Supply,
    known: Supply,
    units: u64,
    memory: u64,
    /// Number of devices of all known nodes.
    devices: usize,
}

#[derive(Clone, Debug, Hash)]
struct NodeUnits {
    node: NodeId,
    open: bool,
    devices: Vec<Device>,
}

/// A device of a known node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Device {
    id: DeviceId,
    class: ClassId,
    shares: u16,
    identity: Vec<InfoAnswer>,
    /// Shares that are in leases, or set aside.
    pub(crate) taken: BTreeSet<u16>,
}

/// The set of units to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Free units of open nodes.
    Free,
    /// All units of open nodes.
    Open,
    /// All units of known nodes.
    Known,
}

/// A unit that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Chosen {
    pub(crate) node: NodeId,
    pub(crate) unit: Unit,
    /// Bytes of the unit's memory.
    pub(crate) memory: u64,
    /// Limit in bytes for the unit's allocations.
    pub(crate) limit: Option<u64>,
}

impl Cluster {
    /// Replaces a node's devices, with all units free, and closes the node. Returns the node's earlier
    /// units that no longer exist or are of a different device.
    pub(crate) fn replace(&mut self, node: NodeId, devices: &[OfferedDevice]) -> Vec<Unit> {
        // The old devices leave the open and free supplies before they are replaced.
        self.set_open(node, false);
        let slot = self.slot(node);
        // In the order of ids, because `place` searches the devices by bisection.
        let by_id: BTreeMap<DeviceId, &OfferedDevice> = devices
            .iter()
            .map(|offered| (offered.id, offered))
            .collect();
        let new = by_id.into_values().map(|offered| Device {
            id: offered.id,
            class: self.classes.join(offered),
            shares: offered.shares.count(),
            identity: identities(offered),
            taken: BTreeSet::new(),
        });
        let new: Vec<Device> = new.collect();
        self.list(slot, Level::Known, false);
        self.devices += new.len();
        let old = std::mem::replace(&mut self.nodes[slot.0 as usize].devices, new);
        self.devices -= old.len();
        self.list(slot, Level::Known, true);
        let kept = |of: &Device| {
            let at = self.place(node, of.id);
            at.is_some_and(|at| {
                let now = self.device(at);
                (now.class, &now.identity) == (of.class, &of.identity)
            })
        };
        let gone = old.iter().filter(|of| !kept(of));
        let gone = gone.flat_map(|of| {
            (0..of.shares).map(|share| Unit {
                device: of.id,
                share,
            })
        });
        let gone: Vec<Unit> = gone.collect();
        // Old devices leave their classes only now, so that a class with a device before and after keeps
        // its id.
        for device in old {
            self.classes.leave(device.class);
        }
        gone
    }

    /// Forgets a node with its devices, and with classes that only they were in.
    pub(crate) fn forget(&mut self, node: NodeId) {
        if self.slots.contains_key(&node) {
            self.replace(node, &[]);
            self.vacant.extend(self.slots.remove(&node));
        }
    }

    /// Sets whether a node may be given leases.
    pub(crate) fn set_open(&mut self, node: NodeId, open: bool) {
        let slot = self.slot(node);
        if self.nodes[slot.0 as usize].open == open {
            return;
        }
        self.nodes[slot.0 as usize].open = open;
        self.list(slot, Level::Open, open);
        self.list(slot, Level::Free, open);
    }

    /// Takes a unit. Returns whether the unit exists and was free.
    pub(crate) fn take(&mut self, node: NodeId, unit: Unit) -> bool {
        self.mark(node, unit, true)
    }

    /// Gives a unit back. Returns whether the unit exists and was taken.
    pub(crate) fn give(&mut self, node: NodeId, unit: Unit) -> bool {
        self.mark(node, unit, false)
    }

    fn mark(&mut self, node: NodeId, unit: Unit, taken: bool) -> bool {
        let Some(at) = self.place(node, unit.device) else {
            return false;
        };
        let of_node = &mut self.nodes[at.node.0 as usize];
        let open = of_node.open;
        let device = &mut of_node.devices[at.device as usize];
        // A lease from before the shares were changed may name a unit that no longer exists.
        if unit.share >= device.shares {
            return false;
        }
        let before = device.free();
        let changed = match taken {
            true => device.taken.insert(unit.share),
            false => device.taken.remove(&unit.share),
        };
        // The free supply contains units of open nodes only.
        if changed && open {
            self.free.set(device.class, at, before, device.free());
        }
        changed
    }

    pub(crate) fn has(&self, node: NodeId, unit: Unit) -> bool {
        let place = self.place(node, unit.device);
        place.is_some_and(|at| unit.share < self.device(at).shares)
    }

    /// Whether no unit at all is free.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.free.is_empty()
    }

    /// Number of units of open nodes, and their memory in bytes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.units, self.memory)
    }

    /// Chooses units of `level` that meet a request, without taking them. Above `Level::Free` the share
    /// of a unit has no meaning.
    pub(crate) fn choose(
        &mut self,
        level: Level,
        request: &DeviceRequest,
        manner: Manner,
    ) -> Result<Vec<Chosen>, SelectionError> {
        let pattern = self.classes.pattern(request);
        let supply = self.supply(level);
        let places = self.places(supply, &pattern, manner)?;
        let free_share = |at: &DeviceSlot| match level {
            Level::Free => self.device(*at).first_free(),
            _ => 0,
        };
        Ok(places
            .iter()
            .map(|at| self.chosen(*at, free_share(at)))
            .collect())
    }

    /// Chooses units for a request as if the first of `later` were free too, as few of those as the
    /// request needs. Returns how many it needs, and the choice. On a device with free units the choice
    /// is one of those.
    pub(crate) fn choose_with(
        &mut self,
        later: &[(NodeId, Unit)],
        request: &DeviceRequest,
        manner: Manner,
    ) -> Option<(usize, Vec<Chosen>)> {
        let pattern = self.classes.pattern(request);
        let attempt = |first: usize| {
            // On a copy: this only asks what would be possible.
            let mut supply = self.free.clone();
            let mut freed: BTreeMap<DeviceSlot, Vec<u16>> = BTreeMap::new();
            for (node, unit) in &later[..first] {
                let Some(at) = self.place(*node, unit.device) else {
                    continue;
                };
                let device = self.device(at);
                let more = freed.entry(at).or_default();
                let before = device.free() + more.len() as u16;
                more.push(unit.share);
                supply.set(device.class, at, before, before + 1);
            }
            let places = self.places(&supply, &pattern, manner).ok()?;
            let share = |at: &DeviceSlot| match self.device(*at).free() {
                0 => freed
                    .get(at)
                    .and_then(|of| of.first())
                    .copied()
                    .unwrap_or(0),
                _ => self.device(*at).first_free(),
            };
            let chosen = places.iter().map(|at| self.chosen(*at, share(at)));
            Some(chosen.collect::<Vec<_>>())
        };
        // If all of them together are not enough, the search below has no answer.
        attempt(later.len())?;
        // Binary search: a further free unit never makes a choice impossible.
        let needed = least(later.len(), |first| attempt(first).is_some());
        attempt(needed).map(|chosen| (needed, chosen))
    }

    /// The classes of a node's devices, in this order. `None`: the node has no such device.
    pub(crate) fn classes_of<'a>(
        &self,
        node: NodeId,
        units: impl IntoIterator<Item = &'a Unit>,
    ) -> Option<Vec<DeviceClass>> {
        let class = |unit: &Unit| {
            let device = self.device(self.place(node, unit.device)?);
            Some(DeviceClass {
                device: device.id,
                class: self.classes.digest(device.class),
            })
        };
        units.into_iter().map(class).collect()
    }

    /// Chooses free units of one open node, other than `but`, one for each of `wanted`: of the same class, and at the same
    /// places in the node's inventory.
    pub(crate) fn choose_equal(
        &self,
        wanted: &[DeviceClass],
        but: Option<NodeId>,
    ) -> Option<Vec<Chosen>> {
        let nodes = self.nodes.iter().map(|of| of.node);
        let mut nodes = nodes.filter(|node| Some(*node) != but);
        nodes.find_map(|node| self.equal_on(node, wanted))
    }

    /// The same choice on one node.
    pub(crate) fn equal_on(&self, node: NodeId, wanted: &[DeviceClass]) -> Option<Vec<Chosen>> {
        let slot = self.slots.get(&node)?;
        if !self.nodes[slot.0 as usize].open {
            return None;
        }
        let mut chosen: Vec<Chosen> = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            let place = self.place(node, wanted.device)?;
            let device = self.device(place);
            if self.classes.digest(device.class) != wanted.class {
                return None;
            }
            let is_free = |share: &u16| {
                let unit = Unit {
                    device: wanted.device,
                    share: *share,
                };
                !device.taken.contains(share) && chosen.iter().all(|of| of.unit != unit)
            };
            let share = (0..device.shares).find(is_free)?;
            chosen.push(self.chosen(place, share));
        }
        Some(chosen)
    }

    fn supply(&self, level: Level) -> &Supply {
        match level {
            Level::Free => &self.free,
            Level::Open => &self.open,
            Level::Known => &self.known,
        }
    }

    /// Number of devices of `level` that each kind of a request accepts.
    pub(crate) fn count(&mut self, level: Level, request: &DeviceRequest) -> Vec<u32> {
        let pattern = self.classes.pattern(request);
        let supply = self.supply(level);
        let count = |supply: &Supply, pattern: &Pattern| {
            let of = |kind: &KindPattern| {
                let classes = kind.classes.iter();
                classes.map(|(_, class)| supply.devices(*class)).sum()
            };
            pattern.kinds.iter().map(of).collect()
        };
        if pattern.kinds.iter().all(|of| of.identity.is_empty()) {
            return count(supply, &pattern);
        }
        let (supply, pattern) = self.told_apart(supply, &pattern);
        count(&supply, &pattern)
    }

    /// Number of devices of one node, open or not, that each kind of a request accepts.
    pub(crate) fn count_on(&mut self, node: NodeId, request: &DeviceRequest) -> Vec<u32> {
        let pattern = self.classes.pattern(request);
        let of = |kind: &KindPattern| {
            let suits = |device: &&Device| self.suits(kind, device);
            self.devices(node).iter().filter(suits).count() as u32
        };
        pattern.kinds.iter().map(of).collect()
    }

    fn suits(&self, kind: &KindPattern, device: &Device) -> bool {
        // The identity first, which few devices have.
        kind.identity.iter().all(|of| of.matches(&device.identity))
            && kind.accepts(self.classes.memory(device.class), device.class)
    }

    /// Checks that an account's nodes may have these devices in addition to their present ones.
    ///
    /// # Errors
    /// [`TooMuch`]: the limit that would be exceeded.
    pub(crate) fn check_account(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        more: &[OfferedDevice],
    ) -> Result<(), TooMuch> {
        // Usually the whole cluster is below the limits, so nothing needs to be counted by account.
        let all = (self.devices + more.len(), self.classes.len() + kinds(more));
        if limits::check_account(all).is_ok() {
            return Ok(());
        }
        let mut classes = BTreeSet::new();
        let mut devices = more.len();
        for slot in nodes.filter_map(|node| self.slots.get(&node)) {
            devices += self.nodes[slot.0 as usize].devices.len();
            classes.extend(self.known.classes_on(*slot).map(|(class, _)| class));
        }
        let is_new = |device: &&OfferedDevice| {
            let class = self.classes.find(device);
            class.is_none_or(|class| !classes.contains(&class))
        };
        let new: Vec<OfferedDevice> = more.iter().filter(is_new).cloned().collect();
        limits::check_account((devices, classes.len() + kinds(&new)))
    }

    fn places(
        &self,
        supply: &Supply,
        pattern: &Pattern,
        manner: Manner,
    ) -> Result<Vec<DeviceSlot>, SelectionError> {
        // The usual case; telling devices apart looks at each device of the cluster.
        if pattern.kinds.iter().all(|of| of.identity.is_empty()) {
            return choose(supply, pattern, manner);
        }
        let (supply, pattern) = self.told_apart(supply, pattern);
        choose(&supply, &pattern, manner)
    }

    /// A supply and a pattern with finer classes. Devices whose identity a kind accepts leave their class
    /// for one that only devices of the same accepting kinds share. They are few, so the supply is copied
    /// as a whole.
    fn told_apart(&self, supply: &Supply, pattern: &Pattern) -> (Supply, Pattern) {
        let mut apart = supply.clone();
        let mut classes: BTreeMap<(ClassId, Vec<bool>), ClassId> = BTreeMap::new();
        for (class, at, units) in supply.units() {
            let suits = |kind: &KindPattern| self.suits(kind, self.device(at));
            let is_named = |kind: &KindPattern| !kind.identity.is_empty() && suits(kind);
            if pattern.kinds.iter().any(is_named) {
                let suits: Vec<bool> = pattern.kinds.iter().map(suits).collect();
                let next = self.classes.unused(classes.len());
                let finer = *classes.entry((class, suits)).or_insert(next);
                apart.set(class, at, units, 0);
                apart.set(finer, at, 0, units);
            }
        }
        let kinds = pattern.kinds.iter().enumerate().map(|(at, kind)| {
            let finer = classes.iter().filter(|((_, suits), _)| suits[at]);
            let finer = finer.map(|((class, _), name)| (self.classes.memory(*class), *name));
            // The rest of a class suits the kinds that accept every identity.
            let rest = kind.classes.iter().filter(|_| kind.identity.is_empty());
            let mut accepted: Vec<_> = rest.copied().chain(finer).collect();
            accepted.sort_unstable();
            KindPattern {
                count: kind.count,
                classes: accepted,
                identity: Vec::new(),
            }
        });
        (apart, Pattern::of(kinds.collect()))
    }

    fn chosen(&self, at: DeviceSlot, share: u16) -> Chosen {
        let device = self.device(at);
        Chosen {
            node: self.nodes[at.node.0 as usize].node,
            unit: Unit {
                device: device.id,
                share,
            },
            memory: self.classes.memory(device.class),
            limit: self.classes.limit(device.class),
        }
    }

    /// A known node's devices.
    pub(crate) fn devices(&self, node: NodeId) -> &[Device] {
        let slot = self.slots.get(&node);
        slot.map_or(&[], |slot| &self.nodes[slot.0 as usize].devices)
    }

    fn slot(&mut self, node: NodeId) -> NodeSlot {
        if let Some(slot) = self.slots.get(&node) {
            return *slot;
        }
        let units = NodeUnits {
            node,
            open: false,
            devices: Vec::new(),
        };
        // Slots are reused, so that nodes that come and go do not make the list grow.
        let slot = match self.vacant.pop_first() {
            Some(slot) => {
                self.nodes[slot.0 as usize] = units;
                slot
            }
            None => {
                self.nodes.push(units);
                NodeSlot(self.nodes.len() as u32 - 1)
            }
        };
        self.slots.insert(node, slot);
        slot
    }

    fn place(&self, node: NodeId, device: DeviceId) -> Option<DeviceSlot> {
        let slot = *self.slots.get(&node)?;
        let devices = &self.nodes[slot.0 as usize].devices;
        let at = devices.binary_search_by_key(&device, |of| of.id).ok()?;
        Some(DeviceSlot {
            node: slot,
            device: at as u32,
        })
    }

    fn device(&self, at: DeviceSlot) -> &Device {
        &self.nodes[at.node.0 as usize].devices[at.device as usize]
    }

    /// Adds a node's units to a supply, or removes them.
    fn list(&mut self, slot: NodeSlot, level: Level, listed: bool) {
        for (device, of) in (0..).zip(&self.nodes[slot.0 as usize].devices) {
            let at = DeviceSlot { node: slot, device };
            let supply = match level {
                Level::Free => &mut self.free,
                Level::Open => &mut self.open,
                Level::Known => &mut self.known,
            };
            let there = if level == Level::Free {
                of.free()
            } else {
                of.shares
            };
            // Units in use are open and known, but only free ones can be chosen now.
            let (before, after) = if listed { (0, there) } else { (there, 0) };
            supply.set(of.class, at, before, after);
            if level == Level::Open {
                let units = u64::from(of.shares);
                let memory = units.saturating_mul(self.classes.memory(of.class));
                if listed {
                    self.units += units;
                    self.memory = self.memory.saturating_add(memory);
                } else {
                    self.units -= units;
                    self.memory = self.memory.saturating_sub(memory);
                }
            }
        }
    }
}

impl Device {
    fn free(&self) -> u16 {
        self.shares - self.taken.len() as u16
    }

    fn first_free(&self) -> u16 {
        (0..self.shares)
            .find(|share| !self.taken.contains(share))
            .unwrap_or(0)
    }
}

/// The least number up to `most` that is enough. `enough` must be monotonic.
fn least(most: usize, enough: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    high
}

#[cfg(test)]
impl Cluster {
    /// Number of classes, and of slots for nodes.
    pub(crate) fn kept(&self) -> (usize, usize) {
        (self.classes.count(), self.nodes.len())
    }
}
