//! Compares the devices of two nodes.
//!
//! Pure. Devices are equal as for the device manager: all answers that requests can name are the same, except identities
//! such as a UUID. Invariant: only devices at the same place of both inventories are equal, because commands name devices
//! by their place.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use causeway_proto::control::{Device, InfoAnswer, Inventory, Platform};
use causeway_proto::request::property;

/// Whether `other` shows equal devices for all that `known` shows, on equal native platforms.
pub(super) fn has_equal_devices(known: &Inventory, other: &Inventory) -> bool {
    let mut shown = (known.platforms.iter().enumerate()).filter(|(_, of)| shows_any(of));
    shown.all(|(at, platform)| {
        let same_place = other.platforms.get(at);
        same_place.is_some_and(|other| is_equal_platform(platform, other))
    })
}

/// Whether an inventory shows any device to the program.
pub(super) fn shows_devices(inventory: &Inventory) -> bool {
    inventory.platforms.iter().any(shows_any)
}

fn shows_any(platform: &Platform) -> bool {
    platform.devices.iter().any(is_shown)
}

fn is_shown(device: &Device) -> bool {
    !device.info.is_empty()
}

fn is_equal_platform(known: &Platform, other: &Platform) -> bool {
    let mut shown = (known.devices.iter().enumerate()).filter(|(_, of)| is_shown(of));
    let has_equal = |(at, device): (usize, &Device)| {
        let same_place = other.devices.get(at);
        same_place.is_some_and(|other| common(&device.info) == common(&other.info))
    };
    all_of(&known.info) == all_of(&other.info) && shown.all(has_equal)
}

// The answers that a device shares with equal ones. Of several with one name, the first.
fn common(answers: &[InfoAnswer]) -> BTreeMap<u32, &[u8]> {
    let mut common = all_of(answers);
    common.retain(|name, _| property::is_common(*name));
    common
}

fn all_of(answers: &[InfoAnswer]) -> BTreeMap<u32, &[u8]> {
    let given = answers.iter().rev().filter(|of| of.status == 0);
    given.map(|of| (of.name, of.value.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use causeway_proto::request::property::{GLOBAL_MEM_SIZE, NAME};
    use proptest::prelude::*;

    use super::*;

    /// `CL_DEVICE_UUID_KHR`.
    const UUID: u32 = 0x106A;
    /// No property that requests can name.
    const OTHER: u32 = 0xFFFF;

    fn answer((name, value): (u32, u8)) -> InfoAnswer {
        InfoAnswer {
            name,
            value: vec![value].into(),
            status: 0,
        }
    }

    fn platform(name: u8, devices: &[&[(u32, u8)]]) -> Platform {
        let device = |info: &&[(u32, u8)]| Device {
            info: info.iter().copied().map(answer).collect(),
            ..Device::default()
        };
        Platform {
            info: vec![answer((0x0902, name))],
            devices: devices.iter().map(device).collect(),
        }
    }

    fn inventory(platforms: Vec<Platform>) -> Inventory {
        Inventory {
            platforms,
            ..Inventory::default()
        }
    }

    #[test]
    fn identities_and_what_nobody_requests_may_differ() {
        let known = inventory(vec![platform(1, &[&[(NAME, 1), (UUID, 1), (OTHER, 1)]])]);
        for (devices, is_equal) in [
            (&[&[(NAME, 1), (UUID, 2)][..]][..], true),
            (&[&[(UUID, 1), (NAME, 1)], &[(NAME, 5)]], true),
            (&[&[(NAME, 2), (UUID, 1)]], false),
            (&[&[(NAME, 1), (GLOBAL_MEM_SIZE, 1)]], false),
            (&[&[], &[(NAME, 1)]], false),
            (&[], false),
        ] {
            let other = inventory(vec![platform(1, devices)]);
            assert_eq!(has_equal_devices(&known, &other), is_equal, "{devices:?}");
        }
        let named_otherwise = inventory(vec![platform(2, &[&[(NAME, 1)]])]);
        assert!(!has_equal_devices(&known, &named_otherwise));
        assert!(!has_equal_devices(&known, &inventory(Vec::new())));
    }

    #[test]
    fn devices_that_the_program_does_not_have_do_not_count() {
        let hidden = platform(1, &[&[]]);
        let known = inventory(vec![hidden, platform(2, &[&[], &[(NAME, 1)]])]);
        let other = platform(2, &[&[(NAME, 7)], &[(NAME, 1)]]);
        let other = inventory(vec![platform(9, &[]), other]);
        assert!(has_equal_devices(&known, &other));
        assert!(shows_devices(&known) && !shows_devices(&inventory(vec![platform(1, &[&[]])])));
    }

    proptest! {
        #[test]
        fn an_inventory_equals_itself_and_a_changed_name_shows(
            names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..4), 1..4),
            at in any::<proptest::sample::Index>(),
        ) {
            let of = |names: &[Vec<u8>]| {
                let platforms = names.iter().map(|names| {
                    let infos: Vec<_> = names.iter().map(|name| [(NAME, *name)]).collect();
                    platform(0, &infos.iter().map(|info| &info[..]).collect::<Vec<_>>())
                });
                inventory(platforms.collect())
            };
            prop_assert!(has_equal_devices(&of(&names), &of(&names)));
            let mut changed = names.clone();
            let of_platform = at.index(changed.len());
            let names_there = &mut changed[of_platform];
            let place = at.index(names_there.len());
            names_there[place] = names_there[place].wrapping_add(1);
            prop_assert!(!has_equal_devices(&of(&names), &of(&changed)));
        }
    }
}
