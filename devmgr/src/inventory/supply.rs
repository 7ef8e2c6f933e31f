//! Units that can be taken, counted so that a choice need not look at all devices.
//!
//! Devices of one class are alike to every request. A supply stores, by class, the nodes ordered by their
//! number of devices, and by node and class, the devices ordered by their free shares. Invariant: a node
//! and a class are listed exactly while they have a unit to take.

use std::collections::{BTreeMap, BTreeSet};

/// A node's index in the inventory's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeSlot(pub(crate) u32);

/// A class of devices, which differ in identities only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClassId(pub(crate) u32);

/// A device: its node, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeviceSlot {
    pub(crate) node: NodeSlot,
    pub(crate) device: u32,
}

/// Units that can be taken. See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Supply {
    classes: BTreeMap<ClassId, ClassSupply>,
    nodes: BTreeMap<NodeSlot, BTreeMap<ClassId, BTreeSet<(u16, u32)>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct ClassSupply {
    /// The nodes, with the number of their devices that have free units.
    nodes: BTreeSet<(u32, NodeSlot)>,
    devices: u32,
}

impl Supply {
    /// Changes a device's number of available units from `before` to `after`.
    pub(crate) fn set(&mut self, class: ClassId, at: DeviceSlot, before: u16, after: u16) {
        if before == after {
            return;
        }
        let on_node = self.nodes.entry(at.node).or_default();
        let devices = on_node.entry(class).or_default();
        let had = devices.len() as u32;
        if before > 0 {
            devices.remove(&(before, at.device));
        }
        if after > 0 {
            devices.insert((after, at.device));
        }
        let has = devices.len() as u32;
        if has == 0 {
            on_node.remove(&class);
            if on_node.is_empty() {
                self.nodes.remove(&at.node);
            }
        }
        if had == has {
            return;
        }
        let of_class = self.classes.entry(class).or_default();
        // The set is ordered by the number of devices, so a node moves when its number changes.
        of_class.nodes.remove(&(had, at.node));
        if has > 0 {
            of_class.nodes.insert((has, at.node));
        }
        of_class.devices = of_class.devices + has - had;
        if of_class.devices == 0 {
            self.classes.remove(&class);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Number of devices of a class.
    pub(crate) fn devices(&self, class: ClassId) -> u32 {
        self.classes.get(&class).map_or(0, |of| of.devices)
    }

    /// Nodes with devices of a class, and how many, those with the fewest first.
    pub(crate) fn nodes_of(
        &self,
        class: ClassId,
    ) -> impl DoubleEndedIterator<Item = (u32, NodeSlot)> + '_ {
        self.classes
            .get(&class)
            .into_iter()
            .flat_map(|of| of.nodes.iter().copied())
    }

    /// The node with the fewest devices of a class among those that have at least `least`.
    pub(crate) fn smallest_with(&self, class: ClassId, least: u32) -> Option<(u32, NodeSlot)> {
        let of_class = self.classes.get(&class)?;
        of_class.nodes.range((least, NodeSlot(0))..).next().copied()
    }

    /// All devices with a unit to take: class, place, and number of such units.
    pub(crate) fn units(&self) -> impl Iterator<Item = (ClassId, DeviceSlot, u16)> + '_ {
        self.nodes.iter().flat_map(|(&node, classes)| {
            classes.iter().flat_map(move |(&class, devices)| {
                let devices = devices.iter();
                devices.map(move |&(units, device)| (class, DeviceSlot { node, device }, units))
            })
        })
    }

    /// A node's classes, and its number of devices of each.
    pub(crate) fn classes_on(&self, node: NodeSlot) -> impl Iterator<Item = (ClassId, u32)> + '_ {
        let classes = self.nodes.get(&node).into_iter().flatten();
        classes.map(|(class, devices)| (*class, devices.len() as u32))
    }

    /// A node's devices of a class, those with the fewest free shares first.
    pub(crate) fn devices_on(
        &self,
        node: NodeSlot,
        class: ClassId,
    ) -> impl DoubleEndedIterator<Item = u32> + '_ {
        let devices = self.nodes.get(&node).and_then(|of| of.get(&class));
        devices.into_iter().flatten().map(|(_, device)| *device)
    }
}
