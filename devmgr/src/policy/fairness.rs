//! The order in which users are served: dominant-resource fairness.
//!
//! A user's *dominant share* is the larger of their shares of the cluster's units and of its device
//! memory. It is divided by the weight of their request's class. The user with the smallest result comes
//! first; among equal ones, the user with the oldest request. Round-robin by units would not do, because
//! units differ: two GPUs of 80 GiB are more than two of 8. If only one resource counted, users would
//! take as much as they can of the other. This order needs no history and no quantum, and gives nobody a
//! reason to split or inflate requests. A user who has nothing is always served before a user who has
//! something.
//!
//! This module does not bound the waiting time; `lease::serving` does. Invariant: integers only, so that
//! every run decides alike.

use super::Class;
use super::ledger::Holdings;

/// A weighted dominant share; the smallest is served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u64);

/// Full use of a resource at weight 1.
const WHOLE: u128 = 1 << 40;

/// The share of a user who has `has` of `units` and `memory` in total, for a request of `class`.
#[must_use]
pub fn share(has: Holdings, (units, memory): (u64, u64), class: Class) -> Share {
    let part = |has: u64, all: u64| u128::from(has) * WHOLE / u128::from(all.max(1));
    let dominant = part(has.devices.into(), units).max(part(has.memory, memory));
    let weighted = dominant / u128::from(class.weight());
    Share(u64::try_from(weighted).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(devices: u32, memory: u64) -> Holdings {
        Holdings {
            devices,
            memory,
            ..Holdings::default()
        }
    }

    #[test]
    fn the_larger_share_counts_and_class_weighs_it() {
        let all = (100, 1000);
        let of = |devices, memory| share(has(devices, memory), all, Class::Normal);
        assert!(of(1, 500) > of(40, 10));
        assert!(of(0, 0) < of(1, 0));
        assert!(share(has(8, 0), all, Class::High) < share(has(3, 0), all, Class::Normal));
        assert_eq!(share(has(0, 0), (0, 0), Class::Low), Share(0));
    }
}
