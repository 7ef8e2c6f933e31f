//! The node's inventory: asked of a probing worker, cached, asked again when drivers change.
//!
//! Invariant: at most one probe runs; its crash, silence or babble is a line in
//! [`Inventory::problems`], never the daemon's trouble. The generation is a digest of the platforms, so
//! it is the same exactly as long as every index means the same device with the same answers, over
//! restarts too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::control::Inventory;
use causeway_proto::version::WireVersion;
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::drivers::Fingerprint;
use super::process::{self, Role};
use crate::config::InventorySettings;
use causeway_serving::logging::Logging;

/// Bytes of a probe's answer.
const MAX_ANSWER: u64 = 16 << 20;
/// A failed probe is tried again when somebody asks, but not more often.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// What is known of the node's devices.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// `platforms`, `problems` and `generation`; the rest is the service's.
    pub(super) inventory: Inventory,
}

/// The cache.
pub(super) struct InventoryCache {
    settings: InventorySettings,
    logging: Logging,
    /// Held while a probe runs, so that all who ask meanwhile get its answer.
    state: tokio::sync::Mutex<Option<Cached>>,
    latest: parking_lot::Mutex<Arc<Known>>,
}

struct Cached {
    known: Arc<Known>,
    fingerprint: Fingerprint,
    /// When a failed probe may be tried again.
    retry_at: Option<Instant>,
}

impl Cached {
    fn holds(&self, fingerprint: Fingerprint, now: Instant) -> bool {
        self.fingerprint == fingerprint && self.retry_at.is_none_or(|at| now < at)
    }
}

impl InventoryCache {
    pub(super) fn new(settings: InventorySettings, logging: Logging) -> InventoryCache {
        InventoryCache {
            settings,
            logging,
            state: tokio::sync::Mutex::default(),
            latest: parking_lot::Mutex::default(),
        }
    }

    /// The inventory as it is now, and whether it is another one than before.
    pub(super) async fn current(&self) -> (Arc<Known>, bool) {
        let mut state = self.state.lock().await;
        let fingerprint = Fingerprint::now();
        if let Some(cached) = &*state
            && cached.holds(fingerprint, Instant::now())
        {
            return (Arc::clone(&cached.known), false);
        }
        let (inventory, failed) = match self.probe().await {
            Ok(inventory) => (inventory, false),
            Err(error) => {
                tracing::error!(%error, "the node's OpenCL could not be asked");
                let inventory = Inventory {
                    problems: vec![error.to_string()],
                    ..Inventory::default()
                };
                (inventory, true)
            }
        };
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
        *self.latest.lock() = Arc::clone(&known);
        log(&known.inventory);
        (known, changed)
    }

    /// What was known last, without asking anybody.
    pub(super) fn latest(&self) -> Arc<Known> {
        Arc::clone(&self.latest.lock())
    }

    async fn probe(&self) -> Result<Inventory, ProbeFailed> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut child = process::start(Role::Probe, theirs.into(), &self.logging)?;
        let limit = self.settings.probe_time_limit;
        let answer = async {
            let mut bytes = Vec::new();
            let mut ours = UnixStream::from_std(ours)?.take(MAX_ANSWER + 1);
            ours.read_to_end(&mut bytes).await?;
            if bytes.len() as u64 > MAX_ANSWER {
                return Err(ProbeFailed::TooLong);
            }
            Ok((bytes, child.wait().await?))
        };
        let answered = tokio::time::timeout(limit, answer)
            .await
            .unwrap_or(Err(ProbeFailed::TooSlow(limit)));
        if answered.is_err() {
            process::kill(&child);
            // Reaped here, so that a failed probe leaves nothing behind.
            let _ = child.wait().await;
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

/// The probing worker gave no answer.
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
    #[error("listing the OpenCL devices gave nothing that can be read: {0}")]
    Unreadable(#[from] prost::DecodeError),
    #[error("the OpenCL devices cannot be listed: {0}")]
    System(#[from] std::io::Error),
}

fn with_generation(mut inventory: Inventory) -> Inventory {
    let mut digest = Sha256::new();
    for platform in &inventory.platforms {
        digest.update(platform.encode_length_delimited_to_vec());
    }
    let digest = digest.finalize();
    inventory.generation = u64::from_le_bytes(std::array::from_fn(|i| digest[i]));
    inventory.wire_version = u32::from(WireVersion::CURRENT.number());
    inventory
}

fn log(inventory: &Inventory) {
    let devices: usize = inventory.platforms.iter().map(|p| p.devices.len()).sum();
    tracing::info!(platforms = inventory.platforms.len(), devices, "inventory");
    for problem in &inventory.problems {
        tracing::warn!(problem, "the node's OpenCL");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::control::{Device, InfoAnswer, Platform};

    fn inventory(devices: usize) -> Inventory {
        let device = Device {
            info: vec![InfoAnswer {
                name: 0x102b,
                value: b"device\0".as_slice().into(),
                status: 0,
            }],
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
    }
}
