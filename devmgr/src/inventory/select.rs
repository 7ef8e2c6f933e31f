//! Chooses devices for a request from a supply: all that the request asks for, or none.
//!
//! If a choice exists, one is found, also where a device could serve several kinds. Among choices,
//! devices with the least memory are taken, so that large devices remain for requests that need them, and
//! quotas of memory last longer. Among equal ones the [`Assignment`] decides. One exception: for several
//! kinds that are spread over nodes with different devices, the memory may be more than the least.
//! Invariant: no device is chosen twice.

use std::collections::{BTreeMap, BinaryHeap};

use causeway_proto::request::Placement;
use serde::{Deserialize, Serialize};

use super::class::Pattern;
use super::flow::{Group, assign};
use super::supply::{ClassId, DeviceSlot, NodeSlot, Supply};

/// Which of several suitable free units is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Assignment {
    /// Fills one node before the next, so that whole nodes remain for large requests.
    #[default]
    Pack,
    /// Takes the emptiest node first, so that users disturb each other least.
    Spread,
}

/// Parameters of a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Where the devices may be.
    pub(crate) placement: Placement,
    /// Which devices are preferred.
    pub(crate) assignment: Assignment,
    /// Limit in bytes for the memory of all devices together.
    pub(crate) memory: u64,
}

/// Why no choice exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectionError {
    /// There are not enough devices.
    Devices,
    /// There are enough devices, but they have too much memory.
    Memory,
}

/// Chooses devices for each kind, in the pattern's order.
pub(crate) fn choose(
    supply: &Supply,
    pattern: &Pattern,
    manner: Manner,
) -> Result<Vec<DeviceSlot>, SelectionError> {
    match manner.placement {
        Placement::Any => anywhere(supply, pattern, manner),
        Placement::SameNode => one_node(supply, pattern, manner),
        Placement::Spread => apart(supply, pattern, manner),
    }
}

/// The classes that any kind accepts, with their memory, and which kinds accept them.
type Accepted = BTreeMap<(u64, ClassId), Vec<bool>>;

fn accepted(pattern: &Pattern) -> Accepted {
    let mut groups = Accepted::new();
    for (at, kind) in pattern.kinds.iter().enumerate() {
        for key in &kind.classes {
            let accepts = groups
                .entry(*key)
                .or_insert_with(|| vec![false; pattern.kinds.len()]);
            accepts[at] = true;
        }
    }
    groups
}

/// The classes that any kind accepts, with their number of devices, the least memory first.
fn groups(pattern: &Pattern, has: impl Fn(ClassId) -> u32) -> Vec<Group<ClassId>> {
    let groups = accepted(pattern).into_iter();
    let groups = groups.map(|((cost, name), kinds)| Group {
        name,
        cost,
        capacity: has(name),
        kinds,
    });
    groups.filter(|of| of.capacity > 0).collect()
}

fn counts(pattern: &Pattern) -> Vec<u32> {
    pattern.kinds.iter().map(|of| of.count).collect()
}

fn anywhere(
    supply: &Supply,
    pattern: &Pattern,
    manner: Manner,
) -> Result<Vec<DeviceSlot>, SelectionError> {
    let groups = groups(pattern, |class| supply.devices(class));
    let shares = assign(&groups, &counts(pattern)).ok_or(SelectionError::Devices)?;
    // `assign` prefers classes with little memory, so no other assignment would fit either.
    within(&groups, &shares, manner.memory)?;
    let mut places = BTreeMap::new();
    for (group, used) in groups.iter().zip(&shares) {
        let taken = from_class(supply, group.name, used.iter().sum(), manner.assignment);
        places.insert(group.name, taken.into_iter());
    }
    Ok(in_order(pattern, &groups, &shares, |class| {
        places.get_mut(&class).and_then(Iterator::next)
    }))
}

/// Checks that the units used have no more memory than allowed.
fn within<N>(groups: &[Group<N>], used: &[Vec<u32>], memory: u64) -> Result<(), SelectionError> {
    let of = |(group, used): (&Group<N>, &Vec<u32>)| {
        u128::from(group.cost) * u128::from(used.iter().sum::<u32>())
    };
    let all: u128 = groups.iter().zip(used).map(of).sum();
    if all > u128::from(memory) {
        return Err(SelectionError::Memory);
    }
    Ok(())
}

/// The places, ordered by kind.
fn in_order<N: Copy>(
    pattern: &Pattern,
    groups: &[Group<N>],
    used: &[Vec<u32>],
    mut next: impl FnMut(N) -> Option<DeviceSlot>,
) -> Vec<DeviceSlot> {
    let mut chosen = Vec::with_capacity(pattern.count() as usize);
    for kind in 0..pattern.kinds.len() {
        for (group, used) in groups.iter().zip(used) {
            chosen.extend((0..used[kind]).filter_map(|_| next(group.name)));
        }
    }
    chosen
}

/// Chooses `count` devices of a class that has at least as many.
fn from_class(
    supply: &Supply,
    class: ClassId,
    count: u32,
    assignment: Assignment,
) -> Vec<DeviceSlot> {
    match assignment {
        Assignment::Pack => packed(supply, class, count),
        Assignment::Spread => evened(supply, class, count),
    }
}

/// Takes the smallest node that has enough devices. If none has, takes the largest, and the rest in the
/// same way.
fn packed(supply: &Supply, class: ClassId, count: u32) -> Vec<DeviceSlot> {
    let mut chosen = Vec::with_capacity(count as usize);
    // From the largest node on, so that the devices are spread over as few nodes as possible.
    let mut largest = supply.nodes_of(class).rev();
    let mut left = count;
    while left > 0 {
        let Some((has, node)) = largest.next() else {
            break;
        };
        if has <= left {
            chosen.extend(on_node(supply, node, class, has, Assignment::Pack));
            left -= has;
            continue;
        }
        // Nodes that were taken as a whole have at least `has` devices, so this node is a different one.
        let (_, node) = supply.smallest_with(class, left).unwrap_or((has, node));
        chosen.extend(on_node(supply, node, class, left, Assignment::Pack));
        break;
    }
    chosen
}

/// Takes devices one by one, each from the node that has the most left.
fn evened(supply: &Supply, class: ClassId, count: u32) -> Vec<DeviceSlot> {
    // No more than `count` nodes can be used, so the heap stays small.
    let fullest = supply.nodes_of(class).rev().take(count as usize);
    let mut heap: BinaryHeap<(u32, NodeSlot)> = fullest.collect();
    let mut taken: BTreeMap<NodeSlot, u32> = BTreeMap::new();
    for _ in 0..count {
        let Some((has, node)) = heap.pop() else {
            break;
        };
        *taken.entry(node).or_default() += 1;
        if has > 1 {
            heap.push((has - 1, node));
        }
    }
    taken
        .into_iter()
        .flat_map(|(node, count)| on_node(supply, node, class, count, Assignment::Spread))
        .collect()
}

/// Takes `count` devices of a class on one node: for packing, those with the fewest free shares.
fn on_node(
    supply: &Supply,
    node: NodeSlot,
    class: ClassId,
    count: u32,
    assignment: Assignment,
) -> Vec<DeviceSlot> {
    let devices = supply.devices_on(node, class);
    let place = |device| DeviceSlot { node, device };
    match assignment {
        Assignment::Pack => devices.take(count as usize).map(place).collect(),
        Assignment::Spread => devices.rev().take(count as usize).map(place).collect(),
    }
}

fn one_node(
    supply: &Supply,
    pattern: &Pattern,
    manner: Manner,
) -> Result<Vec<DeviceSlot>, SelectionError> {
    let mut why = SelectionError::Devices;
    // Looked up by class, so that the cost of a node depends only on its own devices.
    let accepted: BTreeMap<ClassId, (u64, Vec<bool>)> = accepted(pattern)
        .into_iter()
        .map(|((cost, class), kinds)| (class, (cost, kinds)))
        .collect();
    for node in candidates(supply, pattern, manner.assignment) {
        let mut groups: Vec<Group<ClassId>> = supply
            .classes_on(node)
            .filter_map(|(name, capacity)| {
                let (cost, kinds) = accepted.get(&name)?;
                Some(Group {
                    name,
                    cost: *cost,
                    capacity,
                    kinds: kinds.clone(),
                })
            })
            .collect();
        // `assign` expects the least memory first.
        groups.sort_by_key(|of| (of.cost, of.name));
        let Some(used) = assign(&groups, &counts(pattern)) else {
            continue;
        };
        if within(&groups, &used, manner.memory).is_err() {
            // Another node may have devices with less memory.
            why = SelectionError::Memory;
            continue;
        }
        let mut places = BTreeMap::new();
        for (group, used) in groups.iter().zip(&used) {
            let count = used.iter().sum();
            let taken = on_node(supply, node, group.name, count, manner.assignment);
            places.insert(group.name, taken.into_iter());
        }
        return Ok(in_order(pattern, &groups, &used, |class| {
            places.get_mut(&class).and_then(Iterator::next)
        }));
    }
    Err(why)
}

/// Nodes that have enough devices of accepted classes, in the order of preference.
fn candidates(supply: &Supply, pattern: &Pattern, assignment: Assignment) -> Vec<NodeSlot> {
    let count = pattern.count();
    if let [kind] = &pattern.kinds[..]
        && let [(_, class)] = kind.classes[..]
    {
        // With one class, the order of nodes by their number of devices gives the best one.
        let best = match assignment {
            Assignment::Pack => supply.smallest_with(class, count),
            Assignment::Spread => supply.nodes_of(class).next_back(),
        };
        return best.map(|(_, node)| node).into_iter().collect();
    }
    let mut has: BTreeMap<NodeSlot, u32> = BTreeMap::new();
    for group in groups(pattern, |class| supply.devices(class)) {
        for (devices, node) in supply.nodes_of(group.name) {
            *has.entry(node).or_default() += devices;
        }
    }
    let mut nodes: Vec<_> = has.into_iter().filter(|(_, has)| *has >= count).collect();
    nodes.sort_by_key(|(node, has)| match assignment {
        Assignment::Pack => (*has, *node),
        Assignment::Spread => (u32::MAX - has, *node),
    });
    nodes.into_iter().map(|(node, _)| node).collect()
}

fn apart(
    supply: &Supply,
    pattern: &Pattern,
    manner: Manner,
) -> Result<Vec<DeviceSlot>, SelectionError> {
    let groups = kinds_of_nodes(supply, pattern, manner.assignment);
    // Nodes with the same classes are interchangeable, so few groups are assigned instead of many nodes.
    let alike: Vec<_> = groups.iter().map(|of| of.group.clone()).collect();
    let used = assign(&alike, &counts(pattern)).ok_or(SelectionError::Devices)?;
    let mut nodes: Vec<_> = groups.iter().map(|of| of.nodes.iter()).collect();
    let mut memory = 0_u128;
    let mut chosen = Vec::with_capacity(pattern.count() as usize);
    for (at, kind) in pattern.kinds.iter().enumerate() {
        for (group, used) in used.iter().enumerate() {
            let mut classes = groups[group].classes.iter();
            let Some((cost, class)) = classes.find(|(cost, class)| kind.accepts(*cost, *class))
            else {
                continue;
            };
            // Each node is used once: the iterators are shared by all kinds.
            for node in nodes[group].by_ref().take(used[at] as usize) {
                let place = on_node(supply, *node, *class, 1, manner.assignment);
                memory += u128::from(*cost);
                chosen.extend(place);
            }
        }
    }
    if memory > u128::from(manner.memory) {
        return Err(SelectionError::Memory);
    }
    Ok(chosen)
}

/// Nodes that have the same accepted classes.
struct AlikeNodes {
    /// The group for `assign`; each node serves one unit.
    group: Group<usize>,
    /// The accepted classes with their memory, the least first.
    classes: Vec<(u64, ClassId)>,
    /// The nodes, in the order of preference.
    nodes: Vec<NodeSlot>,
}

/// Groups nodes by their accepted classes.
fn kinds_of_nodes(supply: &Supply, pattern: &Pattern, assignment: Assignment) -> Vec<AlikeNodes> {
    let mut order: BTreeMap<NodeSlot, (u32, Vec<(u64, ClassId)>)> = BTreeMap::new();
    for group in groups(pattern, |class| supply.devices(class)) {
        for (devices, node) in supply.nodes_of(group.name) {
            let entry = order.entry(node).or_default();
            entry.0 += devices;
            entry.1.push((group.cost, group.name));
        }
    }
    let mut nodes: Vec<_> = order.into_iter().collect();
    // Packing takes the node with the fewest suitable devices first, so that nodes with many stay whole.
    nodes.sort_by_key(|(node, (has, _))| match assignment {
        Assignment::Pack => (*has, *node),
        Assignment::Spread => (u32::MAX - has, *node),
    });
    let mut groups: BTreeMap<Vec<(u64, ClassId)>, Vec<NodeSlot>> = BTreeMap::new();
    for (node, (_, classes)) in nodes {
        groups.entry(classes).or_default().push(node);
    }
    let groups = groups.into_iter().enumerate();
    groups
        .map(|(name, (classes, nodes))| {
            let accepts = |kind: &super::class::KindPattern| {
                classes
                    .iter()
                    .any(|(memory, class)| kind.accepts(*memory, *class))
            };
            let group = Group {
                name,
                cost: classes.first().map_or(0, |(cost, _)| *cost),
                capacity: nodes.len() as u32,
                kinds: pattern.kinds.iter().map(accepts).collect(),
            };
            AlikeNodes {
                group,
                classes,
                nodes,
            }
        })
        .collect()
}
