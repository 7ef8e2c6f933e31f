//! Limits of the devices of a node, and of all nodes of one account.
//!
//! Every request is checked against all kinds of devices, so their number must be limited. Invariant:
//! within these limits a request costs the manager milliseconds.

use causeway_proto::request::MAX_TEXT;
use causeway_proto::request::property::{self, Kind};

use super::class::kinds;
use super::offer::OfferedDevice;

/// Maximum number of devices of one node.
pub const NODE_DEVICES: usize = 1024;
/// Maximum number of different kinds of devices of one node.
pub const NODE_KINDS: usize = 64;
/// Maximum number of units of one node (each device counts once for each of its shares), and of its
/// leases.
pub const NODE_UNITS: usize = 4096;
/// Maximum number of devices of all nodes of one account.
pub const ACCOUNT_DEVICES: usize = 1 << 16;
/// Maximum number of different kinds of devices of all nodes of one account.
pub const ACCOUNT_KINDS: usize = 4096;
/// Maximum size in bytes of one device's answers that requests can ask for.
pub const DEVICE_BYTES: usize = 16 << 10;
/// Maximum size in bytes of the answers that distinguish a device from others of its kind.
pub const IDENTITY_BYTES: usize = 512;

/// A node exceeds a limit; the value is the amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TooMuch {
    /// Number of devices.
    #[error("the node has {0} devices; a device manager takes at most {NODE_DEVICES} of one node")]
    Devices(usize),
    /// Number of different kinds.
    #[error(
        "the node has {0} different kinds of devices; a device manager takes at most {NODE_KINDS} of one node"
    )]
    Kinds(usize),
    /// Number of devices and shares.
    #[error(
        "the node has {0} devices and shares of devices; a device manager takes at most {NODE_UNITS} of one node: lower `shares` in its daemon.toml"
    )]
    Units(usize),
    /// Number of leases.
    #[error("the node lists {0} leases; a device manager takes at most {NODE_UNITS} of one node")]
    Leases(usize),
    /// Bytes of a device's answers.
    #[error(
        "the properties of a device of the node have {0} bytes; a device manager takes at most {DEVICE_BYTES} for one device, {MAX_TEXT} for one name and {IDENTITY_BYTES} for UUIDs and addresses"
    )]
    Bytes(usize),
    /// Number of devices of the account.
    #[error(
        "the nodes of this account would have {0} devices; a device manager takes at most {ACCOUNT_DEVICES} of one account: give some nodes another account (`causeway users add --node`)"
    )]
    DevicesOfAccount(usize),
    /// Number of different kinds of the account.
    #[error(
        "the nodes of this account would have {0} different kinds of devices; a device manager takes at most {ACCOUNT_KINDS} of one account: give some nodes another account (`causeway users add --node`)"
    )]
    KindsOfAccount(usize),
}

/// Checks that one node may have these devices.
///
/// # Errors
/// [`TooMuch`]: the limit that is exceeded.
pub fn check_node(devices: &[OfferedDevice]) -> Result<(), TooMuch> {
    within(devices.len(), NODE_DEVICES, TooMuch::Devices)?;
    let units = devices.iter().map(|of| usize::from(of.shares.count()));
    within(units.sum(), NODE_UNITS, TooMuch::Units)?;
    devices.iter().try_for_each(check_bytes)?;
    within(kinds(devices), NODE_KINDS, TooMuch::Kinds)
}

/// Checks that the nodes of one account may have this many devices, of this many kinds.
///
/// # Errors
/// [`TooMuch`]: the limit that is exceeded.
pub(crate) fn check_account((devices, kinds): (usize, usize)) -> Result<(), TooMuch> {
    within(devices, ACCOUNT_DEVICES, TooMuch::DevicesOfAccount)?;
    within(kinds, ACCOUNT_KINDS, TooMuch::KindsOfAccount)
}

/// Checks that one node may serve this many leases.
///
/// # Errors
/// [`TooMuch`]: the limit that is exceeded.
pub fn check_leases(count: usize) -> Result<(), TooMuch> {
    within(count, NODE_UNITS, TooMuch::Leases)
}

fn check_bytes(device: &OfferedDevice) -> Result<(), TooMuch> {
    let (mut bytes, mut identity) = (0, 0);
    for answer in &device.answers {
        let Some(property) = property::by_info(answer.name) else {
            continue;
        };
        let length = answer.value.len();
        if property.kind == Kind::Text {
            within(length, MAX_TEXT, TooMuch::Bytes)?;
        }
        bytes += length;
        if property.identity {
            identity += length;
        }
    }
    within(identity, IDENTITY_BYTES, TooMuch::Bytes)?;
    within(bytes, DEVICE_BYTES, TooMuch::Bytes)
}

fn within(count: usize, most: usize, too_much: fn(usize) -> TooMuch) -> Result<(), TooMuch> {
    if count > most {
        return Err(too_much(count));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use causeway_proto::control::InfoAnswer;

    use super::*;
    use crate::inventory::{DeviceId, Shares};

    fn device(at: u32, kind: u32, shares: Shares, bytes: usize) -> OfferedDevice {
        let answer = |name, value: Vec<u8>| InfoAnswer {
            name,
            value: value.into(),
            status: 0,
        };
        let answers = vec![
            answer(property::NAME, kind.to_string().into_bytes()),
            // CL_DEVICE_EXTENSIONS
            answer(0x1030, vec![b'x'; bytes]),
        ];
        let id = DeviceId {
            platform: 0,
            device: at,
        };
        OfferedDevice::new(id, answers, shares)
    }

    #[test]
    fn a_node_has_at_most_so_much() {
        let whole = |count: usize, kinds: usize| -> Vec<OfferedDevice> {
            let devices = 0..count as u32;
            devices
                .map(|at| device(at, at % kinds as u32, Shares::Whole, 1))
                .collect()
        };
        let shared = |count: u16| Shares::Equal {
            count,
            memory: None,
        };
        assert_eq!(check_node(&whole(NODE_DEVICES, NODE_KINDS)), Ok(()));
        assert_eq!(
            check_node(&whole(NODE_DEVICES + 1, 1)),
            Err(TooMuch::Devices(NODE_DEVICES + 1))
        );
        assert_eq!(
            check_node(&whole(NODE_DEVICES, NODE_KINDS + 1)),
            Err(TooMuch::Kinds(NODE_KINDS + 1))
        );
        let units = |last| -> Vec<OfferedDevice> {
            let devices = (0..5).zip([1000, 1000, 1000, 1000, last]);
            devices
                .map(|(at, shares)| device(at, 0, shared(shares), 1))
                .collect()
        };
        assert_eq!(check_node(&units(96)), Ok(()));
        assert_eq!(check_node(&units(97)), Err(TooMuch::Units(4097)));
        let long = device(0, 0, Shares::Whole, DEVICE_BYTES);
        assert_eq!(check_node(&[long]), Err(TooMuch::Bytes(DEVICE_BYTES + 1)));
        assert!(check_leases(NODE_UNITS).is_ok() && check_leases(NODE_UNITS + 1).is_err());
    }
}
