//! Finds out whether devices are in exclusive mode where the probe could not: two processes try to make a
//! context on each of them at the same time.
//!
//! The first process keeps its contexts while the second one tries. This module starts the processes and
//! compares their reports. What follows from a mode is decided in [`exclusive`](super::exclusive).

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use causeway_proto::VENDOR_NVIDIA;
use causeway_proto::control::{ComputeMode, Device, Inventory};
use causeway_proto::request::answer_of;
use prost::Message;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::devices::listed;
use super::exclusive;
use super::managed::DeviceAt;
use super::process::{Process, Processes, Role};
use crate::handover::Trials;

/// `CL_DEVICE_TYPE`, its value for GPUs, and `CL_DEVICE_VENDOR_ID` (OpenCL specification, table of device
/// queries).
const TYPE: u32 = 0x1000;
const GPU: u64 = 4;
const VENDOR_ID: u32 = 0x1001;
/// Maximum length of a report, in bytes.
const MAX_REPORT: u64 = 1 << 20;

/// A process that keeps its contexts, with its report.
struct Rival {
    process: Process,
    /// The process keeps its contexts until this is closed.
    _channel: UnixStream,
    made: BTreeMap<DeviceAt, bool>,
}

/// Sets the compute modes that the probe could not find. Reports devices on which no context can be made.
pub(super) async fn find(processes: &Processes, limit: Duration, inventory: &mut Inventory) {
    if !listed(inventory).any(|(_, device)| is_unknown(device)) {
        return;
    }
    tracing::info!(
        "NVML does not report the compute mode of all devices, so two processes try to make contexts"
    );
    let reports = async {
        let first = Rival::start(processes, limit).await?;
        let second = Rival::start(processes, limit).await;
        let made = first.made.clone();
        first.process.end().await;
        let second = second?;
        let pair = (made, second.made.clone());
        second.process.end().await;
        Ok::<_, io::Error>(pair)
    };
    match reports.await {
        Ok((first, second)) => compare(inventory, &first, &second),
        Err(error) => tracing::warn!(%error, "the compute mode of devices cannot be found out"),
    }
}

impl Rival {
    async fn start(processes: &Processes, limit: Duration) -> io::Result<Rival> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let process = processes.start(Role::Rival, theirs.into())?;
        let mut channel = UnixStream::from_std(ours)?;
        let mut bytes = Vec::new();
        let heard = {
            let mut limited = (&mut channel).take(MAX_REPORT);
            tokio::time::timeout(limit, limited.read_to_end(&mut bytes)).await
        };
        let report = match heard {
            // A process that has crashed reports nothing, like one that has found no device to try.
            Ok(Ok(_)) => Trials::decode(&bytes[..]).map_err(io::Error::other),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other(format!(
                "a driver took more than {} s for a context",
                limit.as_secs()
            ))),
        };
        let report = match report {
            Ok(report) => report,
            Err(error) => {
                process.end().await;
                return Err(error);
            }
        };
        let made = report.tried.into_iter().map(|of| {
            let (platform, device) = (of.platform, of.device);
            (DeviceAt { platform, device }, of.made)
        });
        Ok(Rival {
            process,
            _channel: channel,
            made: made.collect(),
        })
    }
}

/// Compares the reports of two processes that tried at the same time, the second one while the first one
/// kept its contexts.
fn compare(
    inventory: &mut Inventory,
    first: &BTreeMap<DeviceAt, bool>,
    second: &BTreeMap<DeviceAt, bool>,
) {
    let mut problems = Vec::new();
    for (platform, of) in (0..).zip(&mut inventory.platforms) {
        for (device, of) in (0..).zip(&mut of.devices) {
            let at = DeviceAt { platform, device };
            let mode = match (first.get(&at), second.get(&at)) {
                (Some(true), Some(true)) => ComputeMode::Shared,
                (Some(true), Some(false)) => ComputeMode::Exclusive,
                (Some(false), _) => {
                    problems.push(format!(
                        "no context can be created on {}; another program may have it in exclusive compute mode \
                         (nvidia-smi -q -d COMPUTE shows the mode)",
                        exclusive::name(of)
                    ));
                    continue;
                }
                _ => continue,
            };
            if is_unknown(of) {
                of.compute_mode = mode.into();
            }
        }
    }
    inventory.problems.extend(problems);
}

/// Returns whether the device's driver has compute modes, and the probe has not found this one's.
fn is_unknown(device: &Device) -> bool {
    let number = |name| {
        let bytes = answer_of(&device.info, name)?;
        let digits = bytes.iter().rev();
        Some(digits.fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    device.compute_mode() == ComputeMode::Unknown
        && number(VENDOR_ID) == Some(VENDOR_NVIDIA)
        && number(TYPE).is_some_and(|kind| kind & GPU != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::control::{InfoAnswer, Platform};

    fn device(vendor: u32, kind: u64) -> Device {
        let answer = |name, value: Vec<u8>| InfoAnswer {
            name,
            value: value.into(),
            status: 0,
        };
        Device {
            info: vec![
                answer(TYPE, kind.to_le_bytes().to_vec()),
                answer(VENDOR_ID, vendor.to_le_bytes().to_vec()),
            ],
            ..Device::default()
        }
    }

    #[test]
    fn modes_follow_from_what_two_processes_could_do() {
        let nvidia = || device(VENDOR_NVIDIA as u32, GPU);
        assert!(is_unknown(&nvidia()));
        assert!(!is_unknown(&device(0xFA6E, GPU)) && !is_unknown(&device(VENDOR_NVIDIA as u32, 2)));
        let mut inventory = Inventory {
            platforms: vec![Platform {
                info: Vec::new(),
                devices: (0..4).map(|_| nvidia()).collect(),
            }],
            ..Inventory::default()
        };
        let report = |made: [bool; 3]| {
            let devices = (0..).zip(made);
            let at = |device| DeviceAt {
                platform: 0,
                device,
            };
            devices.map(|(device, made)| (at(device), made)).collect()
        };
        let (first, second) = (report([true, true, false]), report([true, false, false]));
        compare(&mut inventory, &first, &second);
        let modes: Vec<_> = listed(&inventory)
            .map(|(_, of)| of.compute_mode())
            .collect();
        let (shared, exclusive) = (ComputeMode::Shared, ComputeMode::Exclusive);
        let unknown = ComputeMode::Unknown;
        assert_eq!(modes, [shared, exclusive, unknown, unknown]);
        assert_eq!(inventory.problems.len(), 1, "{:?}", inventory.problems);
    }
}
