//! A node's report of its devices.

use causeway_proto::control::{InfoAnswer, Inventory};
use causeway_proto::request::answer_of;
use causeway_proto::request::property::{GLOBAL_MEM_SIZE, MAX_MEM_ALLOC_SIZE};

use super::id::DeviceId;

/// A device as its node offers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OfferedDevice {
    /// The device's place in the node's inventory.
    pub id: DeviceId,
    /// The answers that each lease of a unit sees. Those of a share contain its part of the memory.
    pub answers: Vec<InfoAnswer>,
    /// How the device is divided into units.
    pub shares: Shares,
}

/// How a device is divided into units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shares {
    /// The device is one unit.
    #[default]
    Whole,
    /// The device is divided into equal shares.
    Equal {
        /// Number of shares; 0 counts as 1.
        count: u16,
        /// Bytes of memory of each share. `None`: an equal part of the device's memory.
        memory: Option<u64>,
    },
}

impl Shares {
    /// Number of units of the device.
    #[must_use]
    pub fn count(self) -> u16 {
        match self {
            Self::Whole => 1,
            Self::Equal { count, .. } => count.max(1),
        }
    }
}

impl OfferedDevice {
    /// A device and its division, from the answers of `clGetDeviceInfo` for the whole device.
    #[must_use]
    pub fn new(id: DeviceId, mut answers: Vec<InfoAnswer>, shares: Shares) -> Self {
        if let Shares::Equal { memory, .. } = shares
            && let Some(whole) = number(&answers, GLOBAL_MEM_SIZE)
        {
            let part = memory
                .unwrap_or(whole / u64::from(shares.count()))
                .min(whole);
            let largest = number(&answers, MAX_MEM_ALLOC_SIZE).unwrap_or(part);
            set(&mut answers, GLOBAL_MEM_SIZE, part);
            set(&mut answers, MAX_MEM_ALLOC_SIZE, largest.min(part));
        }
        Self {
            id,
            answers,
            shares,
        }
    }

    /// Limit in bytes for the memory of a unit. `None`: the unit is the whole device.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        (self.shares != Shares::Whole).then(|| self.memory())
    }

    /// Bytes of one unit's memory; 0 if the device does not report it.
    #[must_use]
    pub fn memory(&self) -> u64 {
        number(&self.answers, GLOBAL_MEM_SIZE).unwrap_or(0)
    }
}

/// All devices of a node's inventory, each divided by `shares`.
#[must_use]
pub fn offered(inventory: Inventory, shares: impl Fn(DeviceId) -> Shares) -> Vec<OfferedDevice> {
    let platforms = inventory.platforms.into_iter().zip(0..);
    platforms
        .flat_map(|(of, platform)| {
            let devices = of.devices.into_iter().zip(0..);
            devices.map(move |(of, device)| (DeviceId { platform, device }, of.info))
        })
        .map(|(id, answers)| OfferedDevice::new(id, answers, shares(id)))
        .collect()
}

fn number(answers: &[InfoAnswer], info: u32) -> Option<u64> {
    let bytes = answer_of(answers, info)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn set(answers: &mut [InfoAnswer], info: u32, value: u64) {
    for answer in answers.iter_mut().filter(|of| of.name == info) {
        answer.value = value.to_le_bytes().to_vec().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(info: u32, value: u64) -> InfoAnswer {
        InfoAnswer {
            name: info,
            value: value.to_le_bytes().to_vec().into(),
            status: 0,
        }
    }

    #[test]
    fn a_share_has_its_part_of_the_memory() {
        let answers = vec![
            answer(GLOBAL_MEM_SIZE, 800),
            answer(MAX_MEM_ALLOC_SIZE, 300),
        ];
        let id = DeviceId {
            platform: 0,
            device: 0,
        };
        let whole = OfferedDevice::new(id, answers.clone(), Shares::Whole);
        assert_eq!((whole.memory(), whole.memory_limit()), (800, None));
        let equal = Shares::Equal {
            count: 4,
            memory: None,
        };
        let share = OfferedDevice::new(id, answers, equal);
        assert_eq!((share.memory(), share.memory_limit()), (200, Some(200)));
        assert_eq!(number(&share.answers, MAX_MEM_ALLOC_SIZE), Some(200));
    }
}
