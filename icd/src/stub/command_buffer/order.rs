//! Computes which earlier commands of a command buffer the next command must follow.
//!
//! Three things count: the command's sync points, a barrier before it, and an in-order queue. Pure.
//! Specification: `cl_khr_command_buffer`, "Command Synchronization". Invariant: the returned commands
//! suffice, because each of them follows its own predecessors.

use std::collections::BTreeSet;

/// The order of one command buffer's commands; see the module.
#[derive(Debug)]
pub(super) struct Order {
    in_order: bool,
    count: u32,
    // The last barrier (out-of-order queues).
    barrier: Option<u32>,
    // Commands that no later command follows (out-of-order queues).
    ends: BTreeSet<u32>,
}

impl Order {
    /// Makes the order for commands of a queue that is in order, or not.
    pub(super) fn new(in_order: bool) -> Order {
        Order {
            in_order,
            count: 0,
            barrier: None,
            ends: BTreeSet::new(),
        }
    }

    /// Returns the number of commands.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the commands that the next command must follow. `list` are the commands of its sync points.
    pub(super) fn after(&self, list: &[u32], is_barrier: bool) -> Vec<u32> {
        if self.in_order {
            return self.count.checked_sub(1).into_iter().collect();
        }
        if is_barrier && list.is_empty() {
            return self.ends.iter().copied().collect();
        }
        let mut after = list.to_vec();
        after.sort_unstable();
        after.dedup();
        // A command recorded behind the barrier follows it already.
        let past = after.last().is_some_and(|&last| Some(last) >= self.barrier);
        if !past {
            after.extend(self.barrier);
        }
        after
    }

    /// Adds a command that follows those in `after`.
    pub(super) fn push(&mut self, after: &[u32], is_barrier: bool) {
        let place = self.count;
        self.count += 1;
        if self.in_order {
            return;
        }
        for earlier in after {
            self.ends.remove(earlier);
        }
        self.ends.insert(place);
        if is_barrier {
            self.barrier = Some(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn next(order: &mut Order, list: &[u32], is_barrier: bool) -> Vec<u32> {
        let after = order.after(list, is_barrier);
        order.push(&after, is_barrier);
        after
    }

    #[test]
    fn a_queue_in_order_is_a_chain() {
        let mut order = Order::new(true);
        assert!(next(&mut order, &[], false).is_empty());
        assert_eq!(next(&mut order, &[], false), [0]);
        assert_eq!(next(&mut order, &[0], true), [1]);
        assert_eq!(order.count(), 3);
    }

    #[test]
    fn a_barrier_without_a_list_comes_after_all_and_before_all() {
        let mut order = Order::new(false);
        assert!(next(&mut order, &[], false).is_empty());
        assert!(next(&mut order, &[], false).is_empty());
        assert_eq!(next(&mut order, &[0, 0], false), [0]);
        assert_eq!(next(&mut order, &[], true), [1, 2]);
        assert_eq!(next(&mut order, &[], false), [3]);
        assert_eq!(next(&mut order, &[1], false), [1, 3]);
        assert_eq!(next(&mut order, &[4], false), [4]);
    }

    fn reaches(edges: &[Vec<u32>], from: u32, to: u32) -> bool {
        from == to
            || edges[from as usize]
                .iter()
                .any(|&at| reaches(edges, at, to))
    }

    proptest! {
        // Checks against the sentences of the specification, one by one.
        #[test]
        fn what_must_come_before_does(
            commands in prop::collection::vec((prop::collection::vec(any::<prop::sample::Index>(), 0..3), any::<bool>()), 1..12),
        ) {
            let mut order = Order::new(false);
            let mut edges: Vec<Vec<u32>> = Vec::new();
            let mut kinds: Vec<(Vec<u32>, bool)> = Vec::new();
            for (place, (list, is_barrier)) in commands.into_iter().enumerate() {
                let list: Vec<u32> = if place == 0 {
                    Vec::new()
                } else {
                    list.iter().map(|index| index.index(place) as u32).collect()
                };
                let after = next(&mut order, &list, is_barrier);
                prop_assert!(after.iter().all(|&at| (at as usize) < place));
                edges.push(after);
                kinds.push((list, is_barrier));
            }
            for (place, (list, is_barrier)) in kinds.iter().enumerate() {
                let is_after = |earlier: u32| reaches(&edges, place as u32, earlier);
                prop_assert!(list.iter().all(|&earlier| is_after(earlier)));
                for (earlier, (_, was_barrier)) in kinds.iter().enumerate().take(place) {
                    if *was_barrier || (*is_barrier && list.is_empty()) {
                        prop_assert!(is_after(earlier as u32));
                    }
                }
            }
        }
    }
}
