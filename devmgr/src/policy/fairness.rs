//! The order in which users are served: dominant-resource fairness.
//!
//! A user's *dominant share* is the larger of his shares of the cluster's units and of its device
//! memory; whose share, divided by the weight of his request's class, is the smallest comes first,
//! and among equal ones whose request is the oldest. We take it and not round-robin by units because
//! units differ: who holds two GPUs of 80 GiB has more than who holds two of 8, and counting one resource
//! only would invite to grab the other. It needs no memory of the past and no quantum, gives nobody a
//! reason to split or inflate requests, and who has nothing is always served before who has something.
//!
//! What it is not: a bound on waiting; that is `lease::head`. Invariant: whole numbers only, so that
//! every run decides alike.

use super::Class;
use super::ledger::Holdings;

/// A weighted dominant share; the smallest is served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u64);

/// Full use of a resource by weight 1.
const WHOLE: u128 = 1 << 40;

/// The share of who holds this, of `units` and `memory` in all, while he asks for something of `class`.
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
