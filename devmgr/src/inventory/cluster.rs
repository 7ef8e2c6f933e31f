//! The table of nodes and their units.
//!
//! Three supplies are kept: what is free on open nodes, what open nodes have at all, and what all known
//! nodes have. A node is *open* while it may be given leases: whoever owns the inventory says so.
//! Invariant: a unit is free exactly if nobody took it; the supplies agree with the table.

use std::collections::{BTreeMap, BTreeSet};

use causeway_proto::control::InfoAnswer;
use causeway_proto::request::DeviceRequest;

use super::class::{Classes, KindPattern, Pattern, identities, kinds};
use super::id::{DeviceId, NodeId, Unit};
use super::limits::{self, TooMuch};
use super::offer::OfferedDevice;
use super::select::{Manner, Unfit, choose};
use super::supply::{ClassId, NodeSlot, Place, Supply};

/// See the module.
#[derive(Clone, Debug, Default, Hash)]
pub struct Cluster {
    classes: Classes,
    slots: BTreeMap<NodeId, NodeSlot>,
    nodes: Vec<NodeUnits>,
    /// Slots of forgotten nodes, for others.
    vacant: BTreeSet<NodeSlot>,
    free: Supply,
    open: Supply,
    known: Supply,
    units: u64,
    memory: u64,
    /// Of all known nodes.
    devices: usize,
}

#[derive(Clone, Debug, Hash)]
struct NodeUnits {
    node: NodeId,
    open: bool,
    devices: Vec<Device>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Device {
    id: DeviceId,
    class: ClassId,
    shares: u16,
    identity: Vec<InfoAnswer>,
    taken: BTreeSet<u16>,
}

/// Which units are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Free ones of open nodes.
    Free,
    /// All of open nodes.
    Open,
    /// All of known nodes.
    Known,
}

/// A unit of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Chosen {
    pub(crate) node: NodeId,
    pub(crate) unit: Unit,
    /// Bytes of its memory.
    pub(crate) memory: u64,
    /// What its allocations are limited to.
    pub(crate) limit: Option<u64>,
}

impl Cluster {
    /// Sets a node's devices, all free, and closes it. The units that it had before and that are not
    /// there any more, or are of another device.
    pub(crate) fn replace(&mut self, node: NodeId, devices: &[OfferedDevice]) -> Vec<Unit> {
        self.set_open(node, false);
        let slot = self.slot(node);
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
        for device in old {
            self.classes.leave(device.class);
        }
        gone
    }

    /// Forgets a node, its devices and what only they were.
    pub(crate) fn forget(&mut self, node: NodeId) {
        if self.slots.contains_key(&node) {
            self.replace(node, &[]);
            self.vacant.extend(self.slots.remove(&node));
        }
    }

    /// Whether a node may be given leases.
    pub(crate) fn set_open(&mut self, node: NodeId, open: bool) {
        let slot = self.slot(node);
        if self.nodes[slot.0 as usize].open == open {
            return;
        }
        self.nodes[slot.0 as usize].open = open;
        self.list(slot, Level::Open, open);
        self.list(slot, Level::Free, open);
    }

    /// Takes a unit if it is there and free; whether it was.
    pub(crate) fn take(&mut self, node: NodeId, unit: Unit) -> bool {
        self.mark(node, unit, true)
    }

    /// Gives a unit back if it is there and taken; whether it was.
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
        if unit.share >= device.shares {
            return false;
        }
        let before = device.free();
        let changed = match taken {
            true => device.taken.insert(unit.share),
            false => device.taken.remove(&unit.share),
        };
        if changed && open {
            self.free.set(device.class, at, before, device.free());
        }
        changed
    }

    /// Whether a unit exists.
    pub(crate) fn has(&self, node: NodeId, unit: Unit) -> bool {
        let place = self.place(node, unit.device);
        place.is_some_and(|at| unit.share < self.device(at).shares)
    }

    /// Whether nothing at all is free.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.free.is_empty()
    }

    /// Units of open nodes, and their memory in bytes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (self.units, self.memory)
    }

    /// Units that meet a request, of `level`; none is taken. Of devices that are not looked at as free, the
    /// share is only a name for one of them.
    pub(crate) fn choose(
        &mut self,
        level: Level,
        request: &DeviceRequest,
        manner: Manner,
    ) -> Result<Vec<Chosen>, Unfit> {
        let pattern = self.classes.pattern(request);
        let supply = self.supply(level);
        let places = self.places(supply, &pattern, manner)?;
        let free_share = |at: &Place| match level {
            Level::Free => self.device(*at).first_free(),
            _ => 0,
        };
        Ok(places
            .iter()
            .map(|at| self.chosen(*at, free_share(at)))
            .collect())
    }

    /// The units for a request when the first of `later` become free, as few of them as it needs. How
    /// many it needs, and the choice; where a device is free now it is one of its free units.
    pub(crate) fn choose_with(
        &mut self,
        later: &[(NodeId, Unit)],
        request: &DeviceRequest,
        manner: Manner,
    ) -> Option<(usize, Vec<Chosen>)> {
        let pattern = self.classes.pattern(request);
        let attempt = |first: usize| {
            let mut supply = self.free.clone();
            let mut freed: BTreeMap<Place, Vec<u16>> = BTreeMap::new();
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
            let share = |at: &Place| match self.device(*at).free() {
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
        attempt(later.len())?;
        let needed = least(later.len(), |first| attempt(first).is_some());
        attempt(needed).map(|chosen| (needed, chosen))
    }

    fn supply(&self, level: Level) -> &Supply {
        match level {
            Level::Free => &self.free,
            Level::Open => &self.open,
            Level::Known => &self.known,
        }
    }

    /// How many devices each kind of a request accepts, of `level`.
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

    /// The same of one node, open or not.
    pub(crate) fn count_on(&mut self, node: NodeId, request: &DeviceRequest) -> Vec<u32> {
        let pattern = self.classes.pattern(request);
        let slot = self.slots.get(&node);
        let devices = slot.map_or(&[][..], |slot| &self.nodes[slot.0 as usize].devices);
        let of = |kind: &KindPattern| {
            let suits = |device: &&Device| self.suits(kind, device);
            devices.iter().filter(suits).count() as u32
        };
        pattern.kinds.iter().map(of).collect()
    }

    fn suits(&self, kind: &KindPattern, device: &Device) -> bool {
        kind.accepts(self.classes.memory(device.class), device.class)
            && kind.identity.iter().all(|of| of.matches(&device.identity))
    }

    /// Whether an account's nodes may have all that they have and these devices of one more node.
    ///
    /// # Errors
    /// [`TooMuch`].
    pub(crate) fn check_account(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        more: &[OfferedDevice],
    ) -> Result<(), TooMuch> {
        // Mostly the whole cluster has no more than that.
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
    ) -> Result<Vec<Place>, Unfit> {
        if pattern.kinds.iter().all(|of| of.identity.is_empty()) {
            return choose(supply, pattern, manner);
        }
        let (supply, pattern) = self.told_apart(supply, pattern);
        choose(&supply, &pattern, manner)
    }

    /// The same with classes that tell which kinds a device's identity suits.
    fn told_apart(&self, supply: &Supply, pattern: &Pattern) -> (Supply, Pattern) {
        let mut apart = Supply::default();
        let mut classes: BTreeMap<(ClassId, Vec<bool>), ClassId> = BTreeMap::new();
        for node in supply.all_nodes() {
            for (class, _) in supply.classes_on(node) {
                for device in supply.devices_on(node, class) {
                    let at = Place { node, device };
                    let suits = |kind: &KindPattern| self.suits(kind, self.device(at));
                    let suits: Vec<bool> = pattern.kinds.iter().map(suits).collect();
                    let next = ClassId(classes.len() as u32);
                    let class = *classes.entry((class, suits)).or_insert(next);
                    apart.set(class, at, 0, 1);
                }
            }
        }
        let kinds = pattern.kinds.iter().enumerate().map(|(at, kind)| {
            let mut accepted: Vec<_> = classes
                .iter()
                .filter(|((_, suits), _)| suits[at])
                .map(|((class, _), name)| (self.classes.memory(*class), *name))
                .collect();
            accepted.sort_unstable();
            KindPattern {
                count: kind.count,
                classes: accepted,
                identity: Vec::new(),
            }
        });
        (apart, Pattern::of(kinds.collect()))
    }

    fn chosen(&self, at: Place, share: u16) -> Chosen {
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

    /// What is known of a node's devices: id, answers (without identities), units, and how many are taken.
    pub fn devices(&self, node: NodeId) -> impl Iterator<Item = KnownDevice<'_>> + '_ {
        let slot = self.slots.get(&node);
        let devices = slot.map(|slot| &self.nodes[slot.0 as usize].devices);
        devices.into_iter().flatten().map(|of| KnownDevice {
            id: of.id,
            answers: self.classes.answers(of.class),
            memory: self.classes.memory(of.class),
            shares: of.shares,
            taken: of.taken.len() as u16,
        })
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

    fn place(&self, node: NodeId, device: DeviceId) -> Option<Place> {
        let slot = *self.slots.get(&node)?;
        let devices = &self.nodes[slot.0 as usize].devices;
        let at = devices.binary_search_by_key(&device, |of| of.id).ok()?;
        Some(Place {
            node: slot,
            device: at as u32,
        })
    }

    fn device(&self, at: Place) -> &Device {
        &self.nodes[at.node.0 as usize].devices[at.device as usize]
    }

    /// Lists a node's units in a supply, or takes them out.
    fn list(&mut self, slot: NodeSlot, level: Level, listed: bool) {
        for (device, of) in (0..).zip(&self.nodes[slot.0 as usize].devices) {
            let at = Place { node: slot, device };
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

/// A device as the inventory knows it.
#[derive(Clone, Copy, Debug)]
pub struct KnownDevice<'a> {
    /// Its place in the node's inventory.
    pub id: DeviceId,
    /// What it answers, but for what tells it from others of its model.
    pub answers: &'a [InfoAnswer],
    /// Bytes of one unit's memory.
    pub memory: u64,
    /// Its units.
    pub shares: u16,
    /// Those in leases, or set aside.
    pub taken: u16,
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

/// The least number up to `most` that is enough, where more is enough as well.
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
    /// Classes, and places for nodes.
    pub(crate) fn kept(&self) -> (usize, usize) {
        (self.classes.count(), self.nodes.len())
    }
}
