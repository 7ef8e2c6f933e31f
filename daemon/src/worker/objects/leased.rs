//! The share of its node that a session may use: which devices, and how much of their memory.
//!
//! This module knows no leases: the supervisor has turned the lease into an assignment. Invariant: a
//! device that is not allowed does not exist for the session. Each charge is given back exactly once.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_proto::id::{DeviceIndex, PlatformIndex};

use crate::accounting::{DEVICES, DeviceName, DeviceTurn, LedgerSlot};
use crate::handover::Leased;

/// The session's share of the node.
#[derive(Debug)]
pub(crate) struct NodeShare {
    /// The account of the session for all devices together.
    whole: Arc<Account>,
    /// The session's devices, each with its memory account; `None` means all devices.
    devices: Option<HashMap<(PlatformIndex, DeviceIndex), Arc<Account>>>,
    /// The session's turns on devices whose shares have a `time`.
    timed: Vec<(PlatformIndex, DeviceIndex)>,
    slot: LedgerSlot,
}

/// An account of device memory: a limit, and the bytes in use.
#[derive(Debug)]
enum Account {
    /// Memory of this session alone.
    Own {
        /// Limit in bytes; 0 means the device's own limit.
        limit: u64,
        used: AtomicU64,
    },
    /// Memory of all sessions of the lease on this node together.
    Lease {
        limit: u64,
        slot: LedgerSlot,
        /// The device's index in the slot.
        place: usize,
    },
}

impl Account {
    fn take(&self, size: u64) -> bool {
        match self {
            Account::Own { limit, used } => {
                let fits = |used: u64| {
                    let used = used.checked_add(size)?;
                    (*limit == 0 || used <= *limit).then_some(used)
                };
                let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
                used.fetch_update(set, fetch, fits).is_ok()
            }
            Account::Lease { limit, slot, place } => slot.hold(*place, size, *limit),
        }
    }

    fn give_back(&self, size: u64) {
        match self {
            Account::Own { used, .. } => {
                used.fetch_sub(size, Ordering::Relaxed);
            }
            Account::Lease { slot, place, .. } => slot.give_back(*place, size),
        }
    }
}

impl NodeShare {
    /// Makes the share of a session: `memory` bytes in all (0: no limit) on the `leased` devices (`None`:
    /// all). The limits of leased devices apply to all sessions with a slot in the same page.
    pub(crate) fn new(memory: u64, leased: Option<&[Leased]>, slot: &LedgerSlot) -> NodeShare {
        let own = |limit| Account::Own {
            limit,
            used: AtomicU64::new(0),
        };
        let account = |(place, of): (usize, &Leased)| {
            let device = (PlatformIndex(of.platform), DeviceIndex(of.device));
            let account = match of.memory {
                0 => own(0),
                limit => Account::Lease {
                    limit,
                    slot: slot.clone(),
                    place,
                },
            };
            (device, Arc::new(account))
        };
        // An assignment has at most `DEVICES` devices, and a slot has as many places.
        let timed = leased.into_iter().flatten().filter(|of| of.is_timed);
        let timed = timed.map(|of| (PlatformIndex(of.platform), DeviceIndex(of.device)));
        let timed = timed.collect();
        let leased = leased.map(|leased| leased.iter().take(DEVICES).enumerate());
        NodeShare {
            timed,
            slot: slot.clone(),
            whole: Arc::new(own(memory)),
            devices: leased.map(|leased| leased.map(account).collect()),
        }
    }

    /// Whether the session may use the device.
    pub(crate) fn allows(&self, platform: PlatformIndex, device: DeviceIndex) -> bool {
        let devices = self.devices.as_ref();
        devices.is_none_or(|devices| devices.contains_key(&(platform, device)))
    }

    /// Returns the session's turns on a device; `None` if its share has no `time`.
    pub(crate) fn turn(&self, platform: PlatformIndex, device: DeviceIndex) -> Option<DeviceTurn> {
        let is_timed = self.timed.contains(&(platform, device));
        let name = DeviceName(platform.0, device.0);
        is_timed.then(|| DeviceTurn::of(&self.slot, name)).flatten()
    }

    /// Whether the session may use any device of the platform.
    pub(crate) fn allows_platform(&self, platform: PlatformIndex) -> bool {
        let devices = self.devices.as_ref();
        devices.is_none_or(|devices| devices.keys().any(|(of, _)| *of == platform))
    }

    /// Returns the accounts for buffers of a context over these devices. All are charged, because a
    /// driver may put a buffer on any device.
    pub(crate) fn accounts(
        &self,
        platform: PlatformIndex,
        devices: impl Iterator<Item = DeviceIndex>,
    ) -> Accounts {
        let of_device = |device| Some(Arc::clone(self.devices.as_ref()?.get(&(platform, device))?));
        let limited = devices.filter_map(of_device);
        Accounts(
            std::iter::once(Arc::clone(&self.whole))
                .chain(limited)
                .collect(),
        )
    }
}

/// The accounts that a context's buffers are charged to.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Vec<Arc<Account>>);

/// Charged bytes, which are given back on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    accounts: Vec<Arc<Account>>,
    size: u64,
}

impl Accounts {
    /// Charges all accounts; `None` if one of them has too little left.
    pub(crate) fn charge(&self, size: u64) -> Option<Charge> {
        let mut charge = Charge {
            accounts: Vec::with_capacity(self.0.len()),
            size,
        };
        for account in &self.0 {
            if !account.take(size) {
                // The drop of `charge` gives back what the accounts before have taken.
                return None;
            }
            charge.accounts.push(Arc::clone(account));
        }
        Some(charge)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for account in &self.accounts {
            account.give_back(self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::{Ledger, LedgerEntry};

    const P: PlatformIndex = PlatformIndex(0);

    fn leased(device: u32, memory: u64) -> Leased {
        Leased {
            platform: 0,
            device,
            memory,
            is_timed: false,
        }
    }

    /// The slots of a lease's sessions, in one page.
    fn slots<const N: usize>() -> ([LedgerSlot; N], [LedgerEntry; N]) {
        let ledger = Ledger::new(N as u32).unwrap();
        let entries = [(); N].map(|()| ledger.enter().unwrap());
        let slot = |entry: &LedgerEntry| {
            let page = entry.page().try_clone_to_owned().unwrap();
            LedgerSlot::adopt(&page, entry.number()).unwrap()
        };
        (std::array::from_fn(|n| slot(&entries[n])), entries)
    }

    fn device(n: u32) -> DeviceIndex {
        DeviceIndex(n)
    }

    #[test]
    fn without_a_lease_everything_is_allowed_up_to_the_sessions_limit() {
        let ([slot], _entry) = slots();
        let share = NodeShare::new(10, None, &slot);
        assert!(share.allows(PlatformIndex(7), device(7)) && share.allows_platform(P));
        let accounts = share.accounts(P, [device(0)].into_iter());
        let charge = accounts.charge(7).unwrap();
        assert!(accounts.charge(4).is_none());
        drop(charge);
        assert!(accounts.charge(10).is_some());
        assert!(
            NodeShare::new(0, None, &slot)
                .accounts(P, [].into_iter())
                .charge(u64::MAX)
                .is_some()
        );
    }

    #[test]
    fn a_lease_has_its_devices_only_and_each_its_memory() {
        let ([slot], _entry) = slots();
        let share = NodeShare::new(0, Some(&[leased(0, 10), leased(2, 0)]), &slot);
        assert!(share.allows(P, device(0)) && !share.allows(P, device(1)));
        assert!(!share.allows(PlatformIndex(1), device(0)));
        assert!(share.allows_platform(P) && !share.allows_platform(PlatformIndex(1)));
        let both = share.accounts(P, [device(0), device(2)].into_iter());
        let limited = share.accounts(P, [device(0)].into_iter());
        let free = share.accounts(P, [device(2)].into_iter());
        let held = both.charge(6).unwrap();
        assert!(
            limited.charge(5).is_none(),
            "contexts share their device's memory"
        );
        assert!(free.charge(1 << 40).is_some());
        drop(held);
        // The refused charge has left no trace.
        assert!(limited.charge(10).is_some());
    }

    #[test]
    fn sessions_of_a_lease_share_its_memory() {
        let ([one, other], _entries) = slots();
        let devices = [leased(2, 0), leased(0, 10)];
        let [one, other] = [one, other].map(|slot| NodeShare::new(0, Some(&devices), &slot));
        let of = |share: &NodeShare, n| share.accounts(P, [device(n)].into_iter());
        let held = of(&one, 0).charge(6).unwrap();
        assert!(of(&other, 0).charge(5).is_none());
        assert!(of(&other, 2).charge(1 << 40).is_some(), "it has no limit");
        let rest = of(&other, 0).charge(4).unwrap();
        assert!(of(&one, 0).charge(1).is_none());
        drop((held, rest));
        assert!(of(&other, 0).charge(10).is_some());
    }
}
