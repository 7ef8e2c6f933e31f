//! Assigns groups of alike devices to the kinds of a request, where a group may serve several kinds.
//!
//! The problem is a bipartite matching: kinds on one side, groups with capacities on the other. Groups
//! are taken in the order of cost, and each gives as much as augmenting paths allow. This greedy order
//! costs the least, because the sets of devices that can be used together are a matroid. If a search
//! finds no path from some kinds to one that needs more, those kinds stay full, and later searches skip
//! them. Invariant: a result meets every count exactly and exceeds no capacity.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Devices that are alike to the request.
#[derive(Clone, Debug)]
pub(super) struct Group<N> {
    /// The caller's name for the group.
    pub(super) name: N,
    /// Cost of one device.
    pub(super) cost: u64,
    /// Number of devices.
    pub(super) capacity: u32,
    /// Which kinds the devices can serve.
    pub(super) kinds: Vec<bool>,
}

/// For each group, the number of its devices that each kind gets. `None`: there are not enough devices.
pub(super) fn assign<N>(groups: &[Group<N>], counts: &[u32]) -> Option<Vec<Vec<u32>>> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|at| groups[*at].cost);
    let mut used = vec![vec![0; counts.len()]; groups.len()];
    let mut search = Search {
        serving: vec![BTreeSet::new(); counts.len()],
        full: vec![false; counts.len()],
    };
    let mut missing = counts.to_vec();
    for group in order {
        let mut left = groups[group].capacity;
        while left > 0 && missing.iter().any(|of| *of > 0) {
            let Some(path) = search.path(groups, &missing, group) else {
                break;
            };
            left -= augment(&mut used, &mut missing, &path, left);
            search.note(&used, &path);
        }
    }
    missing.iter().all(|of| *of == 0).then_some(used)
}

/// State that successive searches for a path share.
struct Search {
    /// The groups that each kind has devices of.
    serving: Vec<BTreeSet<usize>>,
    /// Kinds from which no path leads to one that needs more.
    full: Vec<bool>,
}

impl Search {
    /// Finds a path from a group with devices left to a kind that needs more, as steps of a group and a
    /// kind. In each step the kind takes devices from the group. The group that it gives up in turn
    /// serves the next kind.
    fn path<N>(
        &mut self,
        groups: &[Group<N>],
        missing: &[u32],
        start: usize,
    ) -> Option<Vec<(usize, usize)>> {
        let mut reached: Vec<Option<(usize, usize)>> = vec![None; missing.len()];
        let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(group) = queue.pop_front() {
            let next: Vec<usize> = (0..missing.len())
                .filter(|&kind| {
                    groups[group].kinds[kind] && reached[kind].is_none() && !self.full[kind]
                })
                .collect();
            for &kind in &next {
                reached[kind] = Some((group, kind));
                if missing[kind] > 0 {
                    return Some(trace(&reached, &came_from, start, kind));
                }
            }
            for kind in next {
                for &other in &self.serving[kind] {
                    if other != start && !came_from.contains_key(&other) {
                        came_from.insert(other, kind);
                        queue.push_back(other);
                    }
                }
            }
        }
        // No kind reached here has a path to one that needs more. Later assignments cannot change that.
        for (full, reached) in self.full.iter_mut().zip(&reached) {
            *full |= reached.is_some();
        }
        None
    }

    /// Updates `serving` after an assignment along a path.
    fn note(&mut self, used: &[Vec<u32>], path: &[(usize, usize)]) {
        let groups: BTreeSet<usize> = path.iter().map(|(group, _)| *group).collect();
        for group in groups {
            for (serving, used) in self.serving.iter_mut().zip(&used[group]) {
                match used {
                    0 => serving.remove(&group),
                    _ => serving.insert(group),
                };
            }
        }
    }
}

/// The steps of the path to `kind`, the last first.
fn trace(
    reached: &[Option<(usize, usize)>],
    came_from: &BTreeMap<usize, usize>,
    start: usize,
    kind: usize,
) -> Vec<(usize, usize)> {
    let mut steps = Vec::new();
    let mut at = Some(kind);
    while let Some(kind) = at {
        let Some((group, _)) = reached[kind] else {
            break;
        };
        steps.push((group, kind));
        at = if group == start {
            None
        } else {
            came_from.get(&group).copied()
        };
    }
    steps
}

/// Moves as many devices along the path as all its steps allow, and returns how many.
fn augment(used: &mut [Vec<u32>], missing: &mut [u32], path: &[(usize, usize)], left: u32) -> u32 {
    let last = path[0].1;
    // For two neighbouring steps, the earlier one's kind gives up devices of the later one's group.
    let given_up = || path.windows(2).map(|of| (of[0].0, of[1].1));
    let room = given_up().map(|(group, kind)| used[group][kind]);
    let amount = room.min().unwrap_or(u32::MAX).min(left).min(missing[last]);
    for (group, kind) in given_up() {
        used[group][kind] -= amount;
    }
    for (group, kind) in path {
        used[*group][*kind] += amount;
    }
    missing[last] -= amount;
    amount
}
