//! The node's inventory. A probing worker lists the devices; the result is cached until the drivers change.
//!
//! Invariants: at most one probe runs at a time. A probe that crashes, hangs or sends too much adds a line
//! to [`Inventory::problems`] and does not harm the daemon. The generation is a digest of the platforms.
//! Across restarts too, it stays the same exactly as long as each index refers to the same device with the
//! same answers. The compute mode of a device is no part of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::control::Inventory;
use causeway_proto::version::WireVersion;
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::devices::without_mode;
use super::drivers::Fingerprint;
use super::exclusive;
use super::process::{self, Processes, Role};
use crate::config::InventorySettings;
use crate::driver_files;

/// Maximum length of a probe's answer, in bytes.
const MAX_ANSWER: u64 = 16 << 20;
/// Minimum time between a failed probe and the next one. A request triggers the retry.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The result of the latest probe.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// `platforms`, `problems`, `remarks` and `generation`; the service fills in the other fields.
    pub(super) inventory: Inventory,
}

/// The cached inventory.
pub(super) struct InventoryCache {
    settings: InventorySettings,
    processes: Processes,
    /// Locked while a probe runs, so that concurrent requests share its result.
    state: tokio::sync::Mutex<Option<Cached>>,
    latest: parking_lot::Mutex<Arc<Known>>,
}

struct Cached {
    known: Arc<Known>,
    fingerprint: Fingerprint,
    /// Earliest time of a retry, if the probe failed.
    retry_at: Option<Instant>,
}

impl Cached {
    fn holds(&self, fingerprint: Fingerprint, now: Instant) -> bool {
        self.fingerprint == fingerprint && self.retry_at.is_none_or(|at| now < at)
    }
}

impl InventoryCache {
    pub(super) fn new(settings: InventorySettings, processes: Processes) -> InventoryCache {
        InventoryCache {
            settings,
            processes,
            state: tokio::sync::Mutex::default(),
            latest: parking_lot::Mutex::default(),
        }
    }

    /// Returns the current inventory, and whether it differs from the previous one.
    pub(super) async fn current(&self) -> (Arc<Known>, bool) {
        let mut state = self.state.lock().await;
        // Taken before the probe, so that a change during the probe leads to another one.
        let fingerprint = Fingerprint::now();
        if let Some(cached) = &*state
            && cached.holds(fingerprint, Instant::now())
        {
            return (Arc::clone(&cached.known), false);
        }
        let ProbeResult {
            mut inventory,
            failed,
            fell_back,
        } = self.ask().await;
        let (remarks, problems) = exclusive::texts(&inventory);
        inventory.problems.extend(problems);
        inventory.remarks.extend(
            self.processes
                .worker_envs()
                .remarks()
                .into_iter()
                .chain(remarks),
        );
        let known = Arc::new(Known {
            inventory: with_generation(inventory),
        });
        let generation = known.inventory.generation;
        let changed = state
            .as_ref()
            .is_some_and(|cached| cached.known.inventory.generation != generation);
        *state = Some(Cached {
            known: Arc::clone(&known),
            fingerprint,
            retry_at: failed.then(|| Instant::now() + RETRY_AFTER),
        });
        let before = std::mem::replace(&mut *self.latest.lock(), Arc::clone(&known));
        log(&known.inventory, &before.inventory.remarks);
        (known, changed || fell_back)
    }

    /// Returns the last known inventory, without a probe.
    pub(super) fn latest(&self) -> Arc<Known> {
        Arc::clone(&self.latest.lock())
    }

    /// Runs a probe. If drivers may be missing, a second probe checks whether the sandbox hides them.
    async fn ask(&self) -> ProbeResult {
        let closed = self.processes.worker_envs().are_sandboxed();
        let mut asked = match self.probe(Role::Probe).await {
            Ok(inventory) => ProbeResult {
                inventory,
                failed: false,
                fell_back: false,
            },
            Err(error) => {
                tracing::error!(%error, "the node's OpenCL devices cannot be listed");
                ProbeResult {
                    inventory: Inventory {
                        problems: vec![error.to_string()],
                        ..Inventory::default()
                    },
                    failed: true,
                    fell_back: false,
                }
            }
        };
        let drivers = driver_files::count(&|name| std::env::var_os(name));
        if closed
            && may_miss_drivers(&asked.inventory, drivers)
            && let Ok(open) = self.probe(Role::Trial).await
        {
            self.compare(&mut asked, open);
        }
        asked
    }

    /// Handles devices that only the probe outside the sandbox found. Runs without a sandbox from now on if
    /// the settings allow that; otherwise reports a problem.
    fn compare(&self, asked: &mut ProbeResult, open: Inventory) {
        let mut kept_away = names(&open);
        for name in names(&asked.inventory) {
            if let Some(at) = kept_away.iter().position(|other| *other == name) {
                // Several devices may have one name, so each match removes only one.
                kept_away.swap_remove(at);
            }
        }
        if kept_away.is_empty() {
            return;
        }
        let worker_envs = self.processes.worker_envs();
        if worker_envs.may_fall_back() {
            worker_envs.fall_back();
            asked.inventory = open;
            asked.failed = false;
            asked.fell_back = true;
        } else {
            asked.inventory.problems.push(format!(
                "the sandbox hides devices: {}. Add the paths that their driver needs to daemon.toml ([sandbox] read, \
                 write), or allow running without a sandbox ([sandbox] fall_back = true)",
                kept_away.join(", ")
            ));
        }
    }

    async fn probe(&self, role: Role) -> Result<Inventory, ProbeFailed> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut process = self.processes.start(role, theirs.into())?;
        let limit = self.settings.probe_time_limit;
        let answer = async {
            let mut bytes = Vec::new();
            let mut ours = UnixStream::from_std(ours)?.take(MAX_ANSWER + 1);
            ours.read_to_end(&mut bytes).await?;
            if bytes.len() as u64 > MAX_ANSWER {
                return Err(ProbeFailed::TooLong);
            }
            Ok((bytes, process.wait().await?))
        };
        let answered = tokio::time::timeout(limit, answer)
            .await
            .unwrap_or(Err(ProbeFailed::TooSlow(limit)));
        if answered.is_err() {
            // The process is reaped here, so that a failed probe leaves nothing behind.
            process.end().await;
        }
        let (bytes, status) = answered?;
        if !status.success() {
            let end = process::describe(status);
            return Err(if process::is_crash(status) {
                ProbeFailed::Crashed(end)
            } else {
                ProbeFailed::Failed(end)
            });
        }
        Ok(Inventory::decode(&bytes[..])?)
    }
}

/// The result of one probe.
struct ProbeResult {
    inventory: Inventory,
    /// The probe gave no answer and is to be retried.
    failed: bool,
    /// The inventory comes from outside the sandbox, which is disabled from now on.
    fell_back: bool,
}

/// Returns whether an installed driver may have failed to load. Most drivers have one platform each.
fn may_miss_drivers(inventory: &Inventory, drivers: usize) -> bool {
    let platforms = &inventory.platforms;
    drivers > 0
        && (platforms.len() < drivers
            || platforms.iter().any(|platform| platform.devices.is_empty())
            || !inventory.problems.is_empty())
}

/// Returns the names of the devices that report one.
fn names(inventory: &Inventory) -> Vec<String> {
    const CL_DEVICE_NAME: u32 = 0x102B;
    let devices = inventory.platforms.iter().flat_map(|p| &p.devices);
    devices
        .map(|device| {
            let answer = device
                .info
                .iter()
                .find(|answer| answer.name == CL_DEVICE_NAME);
            let text = answer.map_or(&[][..], |answer| &answer.value[..]);
            String::from_utf8_lossy(text)
                .trim_end_matches('\0')
                .to_owned()
        })
        .collect()
}

/// The probing worker gave no usable answer.
#[derive(Debug, thiserror::Error)]
enum ProbeFailed {
    #[error("listing the OpenCL devices took more than {} s; a driver hangs", .0.as_secs())]
    TooSlow(Duration),
    #[error("listing the OpenCL devices ended in {0}")]
    Failed(String),
    #[error("listing the OpenCL devices ended in {0}; a driver crashed")]
    Crashed(String),
    #[error("listing the OpenCL devices gave more than {MAX_ANSWER} bytes")]
    TooLong,
    #[error("listing the OpenCL devices gave invalid data: {0}")]
    Unreadable(#[from] prost::DecodeError),
    #[error("the OpenCL devices cannot be listed: {0}")]
    System(#[from] std::io::Error),
}

fn with_generation(mut inventory: Inventory) -> Inventory {
    let mut digest = Sha256::new();
    for platform in &inventory.platforms {
        let mut platform = platform.clone();
        platform.devices = platform.devices.iter().map(without_mode).collect();
        digest.update(platform.encode_length_delimited_to_vec());
    }
    let digest = digest.finalize();
    inventory.generation = u64::from_le_bytes(std::array::from_fn(|i| digest[i]));
    inventory.wire_version = u32::from(WireVersion::CURRENT.number());
    inventory
}

/// Logs the inventory. Skips remarks that are in `before`, because they were logged earlier.
fn log(inventory: &Inventory, before: &[String]) {
    let devices: usize = inventory.platforms.iter().map(|p| p.devices.len()).sum();
    tracing::info!(platforms = inventory.platforms.len(), devices, "inventory");
    for problem in &inventory.problems {
        tracing::warn!(problem, "a problem with the node's OpenCL");
    }
    for remark in inventory.remarks.iter().filter(|r| !before.contains(r)) {
        tracing::warn!("{remark}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::control::{ComputeMode, Device, InfoAnswer, Platform};

    fn inventory(devices: usize) -> Inventory {
        let device = Device {
            info: vec![InfoAnswer {
                name: 0x102b,
                value: b"device\0".as_slice().into(),
                status: 0,
            }],
            ..Device::default()
        };
        Inventory {
            platforms: vec![Platform {
                info: Vec::new(),
                devices: vec![device; devices],
            }],
            ..Inventory::default()
        }
    }

    #[test]
    fn the_generation_is_what_the_platforms_are() {
        let generation = |n| with_generation(inventory(n)).generation;
        assert_eq!(generation(1), generation(1));
        assert_ne!(generation(1), generation(2));
        let mut troubled = inventory(1);
        troubled.problems.push("x".to_owned());
        assert_eq!(with_generation(troubled).generation, generation(1));
        let mut exclusive = inventory(1);
        exclusive.platforms[0].devices[0].compute_mode = ComputeMode::Exclusive.into();
        assert_eq!(with_generation(exclusive).generation, generation(1));
    }
}
