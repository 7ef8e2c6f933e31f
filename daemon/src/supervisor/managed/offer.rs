//! The devices that the node offers to the device manager, and the view of them that a lease gets.
//!
//! Invariant: an index refers to the same device for everybody. A device that a caller may not see stays in
//! its position as an empty entry.

use std::collections::BTreeMap;

use causeway_proto::control::{ComputeMode, Device, Inventory};
use causeway_proto::manager::SharedDevice;
use causeway_proto::request::answer_of;
use causeway_proto::request::property::{GLOBAL_MEM_SIZE, MAX_MEM_ALLOC_SIZE};
use prost::Message;
use sha2::{Digest, Sha256};

use super::super::devices::{is_selected, listed, without_mode};
use super::message::Offered;
use super::name::DeviceAt;
use crate::config::{ShareSettings, Together};
use crate::supervisor::exclusive;
use crate::supervisor::time_shares::TimePart;

/// The devices of an inventory, divided into shares as the settings say.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub(super) devices: BTreeMap<DeviceAt, Offered>,
    pub(super) shared: Vec<SharedDevice>,
    /// Whose sessions may have one host process, for devices whose shares say so.
    pub(super) together: BTreeMap<DeviceAt, Together>,
    /// The shares' parts of the time, for devices whose shares have such parts.
    pub(super) times: BTreeMap<DeviceAt, ShareTimes>,
}

/// The parts of a device's time that its shares have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShareTimes {
    /// For each share, in percent.
    times: Vec<u32>,
    strict: bool,
}

impl ShareTimes {
    /// Returns the part of a lease with these shares together.
    pub(super) fn of(&self, shares: impl Iterator<Item = u32>) -> TimePart {
        let time = |share: u32| self.times.get(share as usize).copied().unwrap_or(0);
        TimePart {
            percent: shares.map(time).sum::<u32>().clamp(1, 100),
            is_strict: self.strict,
        }
    }
}

impl Offer {
    pub(super) fn of(inventory: &Inventory, shares: &[ShareSettings]) -> Offer {
        let mut offer = Offer::default();
        for (at, device) in listed(inventory) {
            let division = shares.iter().find(|of| is_selected(&of.device, at, device));
            // Whose sessions are together does not depend on the mode.
            if let Some(together) = division.and_then(|of| of.together.clone()) {
                offer.together.insert(at, together);
            }
            // A daemon does not start with such an entry, but the mode may have changed since.
            let division = division.filter(|of| !is_divided_exclusive(of, device));
            if let Some(ShareSettings { count, memory, .. }) = division {
                if let Some(times) = division.and_then(times_of) {
                    offer.times.insert(at, times);
                }
                offer.shared.push(SharedDevice {
                    platform: at.platform,
                    device: at.device,
                    shares: *count,
                    memory_per_share: *memory,
                });
            }
            let offered = Offered {
                shares: division.map_or(1, |of| of.count),
                identity: identity(device),
            };
            offer.devices.insert(at, offered);
        }
        offer
    }
}

fn times_of(share: &ShareSettings) -> Option<ShareTimes> {
    (!share.times.is_empty()).then(|| ShareTimes {
        times: share.times.clone(),
        strict: share.strict,
    })
}

/// Returns the first entry that divides a device in exclusive mode, and the name of the device.
pub(in super::super) fn exclusive_share(
    inventory: &Inventory,
    shares: &[ShareSettings],
) -> Option<(String, String)> {
    listed(inventory).find_map(|(at, device)| {
        let division = shares
            .iter()
            .find(|of| is_selected(&of.device, at, device))?;
        is_divided_exclusive(division, device)
            .then(|| (division.device.to_string(), exclusive::name(device)))
    })
}

/// The shares of a device take more memory than it has.
#[derive(Debug, thiserror::Error)]
#[error(
    "[[shares]] {entry}: {count} shares of {memory} bytes, and {processes} processes that take {own} bytes each by \
     themselves, are {sum} bytes, but {device} has {whole}; lower memory or count in daemon.toml"
)]
pub struct SharesExceed {
    /// The entry's device, as the settings name it.
    entry: String,
    device: String,
    count: u32,
    memory: u64,
    processes: u32,
    own: u64,
    sum: u64,
    whole: u64,
}

/// Checks that the memory of all shares of a device fits in it, together with what their processes take by themselves:
/// one for each share, or one for all if `together` allows that. `own` says how much that is, as far as it was measured.
///
/// # Errors
/// [`SharesExceed`] for the first entry whose shares do not fit.
pub(in super::super) fn check_memory(
    inventory: &Inventory,
    shares: &[ShareSettings],
    own: &BTreeMap<DeviceAt, u64>,
    together: &Together,
) -> Result<(), SharesExceed> {
    for (at, device) in listed(inventory) {
        let division = shares.iter().find(|of| is_selected(&of.device, at, device));
        let whole = answer_of(&device.info, GLOBAL_MEM_SIZE);
        let whole = whole.and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let (Some(division), Some(whole), Some(own)) = (division, whole, own.get(&at)) else {
            continue;
        };
        if division.memory == 0 {
            // The device's memory is divided equally.
            continue;
        }
        let processes = match division.together.as_ref().unwrap_or(together) {
            Together::All => 1,
            Together::None | Together::User | Together::Group(_) => division.count,
        };
        let of_shares = division.memory.saturating_mul(division.count.into());
        let sum = of_shares.saturating_add(own.saturating_mul(processes.into()));
        if sum > whole {
            return Err(SharesExceed {
                entry: division.device.to_string(),
                device: exclusive::name(device),
                count: division.count,
                memory: division.memory,
                processes,
                own: *own,
                sum,
                whole,
            });
        }
    }
    Ok(())
}

fn is_divided_exclusive(share: &ShareSettings, device: &Device) -> bool {
    share.count > 1 && device.compute_mode() == ComputeMode::Exclusive
}

/// Returns the entries of the settings that match no device of the inventory.
pub(super) fn idle<'a>(
    inventory: &Inventory,
    shares: &'a [ShareSettings],
) -> Vec<&'a ShareSettings> {
    let is_idle = |of: &&ShareSettings| {
        !listed(inventory).any(|(at, device)| is_selected(&of.device, at, device))
    };
    shares.iter().filter(is_idle).collect()
}

/// Returns the inventory as a lease sees it. Its devices report no more memory than the lease may use; 0:
/// all of it.
pub(super) fn shown(mut inventory: Inventory, leased: &BTreeMap<DeviceAt, u64>) -> Inventory {
    for (platform, of) in (0..).zip(&mut inventory.platforms) {
        for (device, of) in (0..).zip(&mut of.devices) {
            match leased.get(&DeviceAt { platform, device }) {
                None => *of = Device::default(),
                Some(0) => {}
                Some(memory) => limit(of, *memory),
            }
        }
    }
    inventory.uses.retain(|of| {
        let (platform, device) = (of.platform, of.device);
        leased.contains_key(&DeviceAt { platform, device })
    });
    inventory
}

fn identity(device: &Device) -> u64 {
    let digest = Sha256::digest(without_mode(device).encode_to_vec());
    u64::from_le_bytes(std::array::from_fn(|i| digest[i]))
}

fn limit(device: &mut Device, memory: u64) {
    for answer in &mut device.info {
        let is_size = [GLOBAL_MEM_SIZE, MAX_MEM_ALLOC_SIZE].contains(&answer.name);
        let whole = <[u8; 8]>::try_from(&answer.value[..]).map(u64::from_le_bytes);
        if let (true, 0, Ok(whole)) = (is_size, answer.status, whole) {
            answer.value = whole.min(memory).to_le_bytes().to_vec().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::devices::NAME;
    use super::*;
    use crate::config::WhichDevice;
    use causeway_proto::control::{InfoAnswer, Platform};
    use causeway_proto::request::answer_of;

    fn device(name: &str, memory: u64) -> Device {
        let answer = |name, value: Vec<u8>| InfoAnswer {
            name,
            value: value.into(),
            status: 0,
        };
        Device {
            info: vec![
                answer(NAME, [name.as_bytes(), b"\0"].concat()),
                answer(GLOBAL_MEM_SIZE, memory.to_le_bytes().to_vec()),
                answer(MAX_MEM_ALLOC_SIZE, (memory / 4).to_le_bytes().to_vec()),
            ],
            ..Device::default()
        }
    }

    fn inventory() -> Inventory {
        let platform = |devices| Platform {
            info: Vec::new(),
            devices,
        };
        Inventory {
            platforms: vec![
                platform(vec![device("a", 800), device("b", 400)]),
                platform(vec![device("a", 800)]),
            ],
            ..Inventory::default()
        }
    }

    fn at(platform: u32, device: u32) -> DeviceAt {
        DeviceAt { platform, device }
    }

    fn sizes(device: &Device) -> Vec<u64> {
        let number = |name| answer_of(&device.info, name).unwrap().try_into().unwrap();
        let sizes = [GLOBAL_MEM_SIZE, MAX_MEM_ALLOC_SIZE];
        sizes.map(|name| u64::from_le_bytes(number(name))).to_vec()
    }

    #[test]
    fn devices_are_divided_by_name_or_place() {
        let by_name = ShareSettings {
            device: WhichDevice::Name("a".to_owned()),
            count: 4,
            memory: 100,
            times: vec![40, 20, 20, 20],
            strict: true,
            together: Some(Together::All),
        };
        let by_place = ShareSettings {
            device: WhichDevice::Index {
                platform: 0,
                device: 1,
            },
            count: 2,
            memory: 0,
            times: Vec::new(),
            strict: false,
            together: None,
        };
        let nowhere = ShareSettings {
            device: WhichDevice::Name("c".to_owned()),
            ..by_name.clone()
        };
        let settings = [by_name, by_place, nowhere];
        let offer = Offer::of(&inventory(), &settings);
        let shares = |platform, device| offer.devices[&at(platform, device)].shares;
        assert_eq!((shares(0, 0), shares(0, 1), shares(1, 0)), (4, 2, 4));
        assert_eq!(offer.shared.len(), 3);
        assert_eq!(offer.shared[0].memory_per_share, 100);
        let together: Vec<_> = offer.together.keys().copied().collect();
        assert_eq!(together, [at(0, 0), at(1, 0)]);
        let timed: Vec<_> = offer.times.keys().copied().collect();
        assert_eq!(timed, [at(0, 0), at(1, 0)]);
        let part = |shares: &[u32]| offer.times[&at(0, 0)].of(shares.iter().copied());
        assert!(part(&[1]).percent == 20 && part(&[0, 3]).percent == 60 && part(&[2]).is_strict);
        assert_eq!(idle(&inventory(), &settings), [&settings[2]]);
        let whole = Offer::of(&inventory(), &[]);
        assert!(whole.shared.is_empty() && whole.devices.values().all(|of| of.shares == 1));
        let identity = |platform, device| whole.devices[&at(platform, device)].identity;
        assert_eq!(identity(0, 0), identity(1, 0));
        assert_ne!(identity(0, 0), identity(0, 1));
    }

    #[test]
    fn a_device_in_exclusive_mode_has_no_shares() {
        let mut inventory = inventory();
        inventory.platforms[0].devices[1].compute_mode = ComputeMode::Exclusive.into();
        let share = |count| ShareSettings {
            device: WhichDevice::Name("b".to_owned()),
            count,
            memory: 0,
            times: Vec::new(),
            strict: false,
            together: Some(Together::None),
        };
        let refused = exclusive_share(&inventory, &[share(2)]);
        assert_eq!(refused, Some(("b".to_owned(), "b".to_owned())));
        let offer = Offer::of(&inventory, &[share(2)]);
        assert!(offer.shared.is_empty() && offer.devices[&at(0, 1)].shares == 1);
        assert_eq!(offer.together.get(&at(0, 1)), Some(&Together::None));
        assert_eq!(exclusive_share(&inventory, &[share(1)]), None);
    }

    #[test]
    fn a_change_of_the_mode_makes_no_other_device() {
        let (mut shared, mut exclusive) = (device("a", 800), device("a", 800));
        shared.compute_mode = ComputeMode::Shared.into();
        exclusive.compute_mode = ComputeMode::Exclusive.into();
        assert_eq!(identity(&shared), identity(&exclusive));
    }

    #[test]
    fn a_lease_sees_its_devices_at_their_places_and_its_part_of_the_memory() {
        let shown = shown(inventory(), &[(at(0, 1), 90), (at(1, 0), 0)].into());
        let device = |platform: usize, device: usize| &shown.platforms[platform].devices[device];
        assert!(device(0, 0).info.is_empty());
        assert_eq!(sizes(device(0, 1)), [90, 90]);
        assert_eq!(sizes(device(1, 0)), [800, 200]);
    }
}
