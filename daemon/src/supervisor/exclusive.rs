//! Devices in exclusive compute mode, which one process at a time can use: what the node says about them, and
//! which sessions and shares it refuses. Pure.
//!
//! The driver enforces the mode. A session that may use other devices too is therefore admitted, and its
//! context fails if another session has the device. Invariant: a session that may use exclusive devices
//! only is refused while other sessions of that kind have as many of them as there are. Sessions of one
//! domain count as one, because one process hosts them.

use std::collections::{BTreeSet, HashSet};

use causeway_proto::control::{ComputeMode, Device, Inventory};

use super::devices::{listed, name_of};
use super::domains::Domain;
use super::managed::DeviceAt;

/// The claim of a session that may use exclusive devices only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    devices: BTreeSet<DeviceAt>,
    domain: Option<Domain>,
}

impl Claim {
    /// Returns the claim of a session that may use these devices; `None` if it may use others, too.
    pub(super) fn of(
        inventory: &Inventory,
        may_use: impl Fn(&DeviceAt) -> bool,
        domain: Option<&Domain>,
    ) -> Option<Claim> {
        let mut claimed = BTreeSet::new();
        for (at, device) in listed(inventory).filter(|(at, _)| may_use(at)) {
            if device.compute_mode() != ComputeMode::Exclusive {
                return None;
            }
            claimed.insert(at);
        }
        (!claimed.is_empty()).then(|| Claim {
            devices: claimed,
            domain: domain.cloned(),
        })
    }

    /// Returns whether these claims of open sessions leave no device for this one.
    pub(super) fn is_refused<'a>(&self, open: impl Iterator<Item = &'a Claim>) -> bool {
        let (mut alone, mut hosts) = (0, HashSet::new());
        for other in open.filter(|other| !self.devices.is_disjoint(&other.devices)) {
            match &other.domain {
                Some(domain) if self.domain.as_ref() == Some(domain) => return false,
                Some(domain) => drop(hosts.insert(domain)),
                None => alone += 1,
            }
        }
        alone + hosts.len() >= self.devices.len()
    }
}

/// Returns the remarks about exclusive devices, and the problems of devices that nobody may use.
pub(super) fn texts(inventory: &Inventory) -> (Vec<String>, Vec<String>) {
    let (mut remarks, mut problems) = (Vec::new(), Vec::new());
    for (_, device) in listed(inventory) {
        let name = name(device);
        match device.compute_mode() {
            ComputeMode::Exclusive => remarks.push(format!(
                "EXCLUSIVE: {name} is in exclusive compute mode, so while a session has it, other sessions get no context there; \
                 nvidia-smi -c DEFAULT (as root) lets several processes use the card"
            )),
            ComputeMode::Prohibited => problems.push(format!(
                "{name} is in the compute mode \"prohibited\", so no program can use it; change the mode with nvidia-smi -c \
                 DEFAULT, and restart causewayd"
            )),
            ComputeMode::Shared | ComputeMode::Unknown => {}
        }
    }
    (remarks, problems)
}

/// Returns the name of a device, as its driver reports it.
pub(super) fn name(device: &Device) -> String {
    let text = name_of(device).unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::control::Platform;

    fn inventory(modes: &[ComputeMode]) -> Inventory {
        let device = |mode: &ComputeMode| Device {
            compute_mode: (*mode).into(),
            ..Device::default()
        };
        Inventory {
            platforms: vec![Platform {
                info: Vec::new(),
                devices: modes.iter().map(device).collect(),
            }],
            ..Inventory::default()
        }
    }

    fn claim(modes: &[ComputeMode]) -> Option<Claim> {
        Claim::of(&inventory(modes), |_| true, None)
    }

    const EXCLUSIVE: ComputeMode = ComputeMode::Exclusive;

    #[test]
    fn as_many_sessions_as_devices_are_admitted() {
        let one = claim(&[EXCLUSIVE]).unwrap();
        assert!(!one.is_refused([].into_iter()));
        assert!(one.is_refused([&one].into_iter()));
        let two = claim(&[EXCLUSIVE, EXCLUSIVE]).unwrap();
        assert!(!two.is_refused([&two].into_iter()));
        assert!(two.is_refused([&two, &two].into_iter()));
        let second = Claim::of(
            &inventory(&[EXCLUSIVE, EXCLUSIVE]),
            |at| at.device == 1,
            None,
        );
        assert!(!one.is_refused([&second.unwrap()].into_iter()));
    }

    #[test]
    fn sessions_with_other_devices_claim_nothing() {
        assert_eq!(claim(&[EXCLUSIVE, ComputeMode::Unknown]), None);
        assert_eq!(claim(&[ComputeMode::Shared]), None);
        assert_eq!(claim(&[]), None);
    }

    #[test]
    fn sessions_of_one_domain_are_one_process() {
        use super::super::domains::tests::domain_of;
        let inventory = inventory(&[EXCLUSIVE]);
        let of = |user| Claim::of(&inventory, |_| true, Some(&domain_of(user))).unwrap();
        assert!(!of("ann").is_refused([&of("ann"), &of("ann")].into_iter()));
        assert!(of("bob").is_refused([&of("ann"), &of("ann")].into_iter()));
    }

    #[test]
    fn administrators_learn_of_modes() {
        let modes = [EXCLUSIVE, ComputeMode::Prohibited, ComputeMode::Shared];
        let (remarks, problems) = texts(&inventory(&modes));
        assert_eq!((remarks.len(), problems.len()), (1, 1));
        assert!(remarks[0].starts_with("EXCLUSIVE:"), "{remarks:?}");
        assert!(
            problems[0].contains("nvidia-smi -c DEFAULT"),
            "{problems:?}"
        );
    }
}
