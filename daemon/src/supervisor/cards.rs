//! The use of cards, as the vendor's management library says it, and what a process takes of a card by itself.
//!
//! The library runs in processes of its own. One reads cards; it is started when somebody asks for the first time, and
//! only on a node with such cards. One measures; it runs once, at the start. Invariants: callers wait no longer than they
//! say. A process that dies or hangs is replaced after a pause that doubles each time.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_proto::VENDOR_NVIDIA;
use causeway_proto::control::{CardReading, ComputeMode, Device, Inventory};
use causeway_proto::request::answer_of;
use causeway_proto::span::pause;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::devices::listed;
use super::managed::DeviceAt;
use super::process::{Process, Processes, Role};
use crate::handover::{CARD_BYTES, CardFigures, CardUuid, MOST_CARDS, question};

/// Age up to which an answer is not asked for again.
const FRESH: Duration = Duration::from_millis(500);
/// Age from which an answer is unknown.
const OLD: Duration = Duration::from_secs(30);
/// Time for an answer, including the start of the library. It initialises each card if no other program uses it.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// Pauses before a process that has failed is replaced.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));
/// Query of `cl_khr_device_uuid`.
const UUID: u32 = 0x106A;
/// `CL_DEVICE_VENDOR_ID`.
const VENDOR_ID: u32 = 0x1001;
/// Longest answer of the measuring process, in bytes.
const MAX_MEASURED: u64 = 1 << 16;

/// The remark of a node whose process that reads cards has failed.
const FAILED: &str = "CARDS: the process that reads NVIDIA's cards has failed, so their utilization and memory are unknown; \
                      on the node, see the daemon's log, and whether nvidia-smi answers";
/// The remark of a node with cards of NVIDIA's, none of which NVML knows.
const MISSING: &str = "CARDS: NVML does not answer, so utilization, memory and compute mode of NVIDIA's cards are unknown; on \
                       the node, install libnvidia-ml.so.1, a part of NVIDIA's driver (in a container: the capability `utility`)";

/// The cards of the node. Clones share their state.
#[derive(Clone)]
pub(super) struct Cards(Arc<Inner>);

struct Inner {
    processes: Processes,
    /// Locked while a question is under way.
    reader: tokio::sync::Mutex<Reader>,
    latest: parking_lot::Mutex<Option<Latest>>,
    /// Whether the last question was not answered.
    has_failed: AtomicBool,
    /// Bytes that a process takes of each card by itself.
    own: parking_lot::Mutex<BTreeMap<DeviceAt, u64>>,
}

#[derive(Default)]
struct Reader {
    running: Option<(Process, UnixStream)>,
    failures: u32,
    /// Earliest time of the next start.
    start_at: Option<Instant>,
}

struct Latest {
    at: Instant,
    figures: BTreeMap<CardUuid, CardFigures>,
}

impl Cards {
    pub(super) fn new(processes: Processes) -> Cards {
        Cards(Arc::new(Inner {
            processes,
            reader: tokio::sync::Mutex::default(),
            latest: parking_lot::Mutex::default(),
            has_failed: AtomicBool::new(false),
            own: parking_lot::Mutex::default(),
        }))
    }

    /// Returns what is known about the cards of the inventory. Asks anew if that is old, and waits for the answer for
    /// `patience` at most. The answer may come later, and is there for the next caller. A card that nothing is known
    /// about yet has no figures.
    pub(super) async fn read(
        &self,
        inventory: &Inventory,
        patience: Duration,
    ) -> BTreeMap<DeviceAt, CardFigures> {
        let cards = cards(inventory);
        if cards.is_empty() {
            return BTreeMap::new();
        }
        let is_asked = || self.0.reader.try_lock().is_err();
        if self.age().is_none_or(|age| age > FRESH) && !(patience.is_zero() && is_asked()) {
            let asked = self.clone();
            let uuids: Vec<_> = cards.values().copied().collect();
            // A task of its own, so that an answer that comes late is not lost.
            let asking = tokio::spawn(async move { asked.0.ask(&uuids).await });
            if !patience.is_zero() {
                let _ = tokio::time::timeout(patience, asking).await;
            }
        }
        let latest = self.0.latest.lock();
        let latest = latest.as_ref().filter(|of| of.at.elapsed() < OLD);
        let figures = |uuid| latest.and_then(|of| of.figures.get(uuid).copied());
        let known = cards.iter();
        known
            .map(|(at, uuid)| (*at, figures(uuid).unwrap_or_default()))
            .collect()
    }

    fn age(&self) -> Option<Duration> {
        self.0.latest.lock().as_ref().map(|of| of.at.elapsed())
    }

    /// Returns the remark of a node that cannot read its cards, for tools.
    pub(super) fn remark(&self, inventory: &Inventory) -> Option<String> {
        if !cards(inventory).is_empty() {
            let has_failed = self.0.has_failed.load(Ordering::Relaxed);
            return has_failed.then(|| FAILED.to_owned());
        }
        let unknown = listed(inventory).filter(|(_, of)| is_card(of)).count();
        (unknown > 0).then(|| MISSING.to_owned())
    }

    /// Returns the bytes that a process takes of each card by itself, as far as they were measured.
    pub(super) fn own(&self) -> BTreeMap<DeviceAt, u64> {
        self.0.own.lock().clone()
    }

    /// Measures what a process takes of each card, within `limit`.
    pub(super) async fn measure(&self, inventory: &Inventory, limit: Duration) {
        if cards(inventory).is_empty() {
            return;
        }
        match self.0.measure(limit).await {
            Ok(own) => *self.0.own.lock() = own,
            Err(error) => tracing::warn!(
                %error,
                "the memory that a process takes of each card cannot be measured; causeway devices does not show it"
            ),
        }
    }
}

impl Inner {
    /// Asks the process that reads cards, which is started if there is none. Does nothing while it is asked already.
    async fn ask(&self, cards: &[CardUuid]) {
        let Ok(mut reader) = self.reader.try_lock() else {
            // Another caller asks. Its answer is as good.
            drop(self.reader.lock().await);
            return;
        };
        if reader.start_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let answered = tokio::time::timeout(ANSWERS_WITHIN, self.answer(&mut reader, cards)).await;
        let answered = answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match answered {
            Ok(figures) => {
                reader.failures = 0;
                self.has_failed.store(false, Ordering::Relaxed);
                *self.latest.lock() = Some(Latest {
                    at: Instant::now(),
                    figures,
                });
            }
            Err(error) => {
                self.has_failed.store(true, Ordering::Relaxed);
                let pause = pause(PAUSES, reader.failures);
                reader.failures = reader.failures.saturating_add(1);
                reader.start_at = Some(Instant::now() + pause);
                tracing::warn!(%error, ?pause, "the process that reads cards has failed; it is replaced after a pause");
                if let Some((process, _)) = reader.running.take() {
                    process.end().await;
                }
            }
        }
    }

    async fn answer(
        &self,
        reader: &mut Reader,
        cards: &[CardUuid],
    ) -> io::Result<BTreeMap<CardUuid, CardFigures>> {
        if reader.running.is_none() {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            let process = self.processes.start(Role::Cards, theirs.into())?;
            reader.running = Some((process, UnixStream::from_std(ours)?));
        }
        let Some((_, channel)) = &mut reader.running else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        channel.write_all(&question(cards)).await?;
        let mut figures = BTreeMap::new();
        for card in cards.iter().take(MOST_CARDS) {
            let mut bytes = [0; CARD_BYTES];
            channel.read_exact(&mut bytes).await?;
            figures.insert(*card, CardFigures::from_bytes(&bytes));
        }
        Ok(figures)
    }

    async fn measure(&self, limit: Duration) -> io::Result<BTreeMap<DeviceAt, u64>> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut process = self.processes.start(Role::Measure, theirs.into())?;
        let mut bytes = Vec::new();
        let mut answer = UnixStream::from_std(ours)?.take(MAX_MEASURED);
        // A driver may also block the end of the process.
        let ended = async {
            answer.read_to_end(&mut bytes).await?;
            process.wait().await
        };
        let ended = tokio::time::timeout(limit, ended).await;
        let status = match ended.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(status) => status,
            Err(error) => {
                process.end().await;
                return Err(error);
            }
        };
        if !status.success() {
            return Err(io::Error::other("the measuring process has failed"));
        }
        let measured = Inventory::decode(&bytes[..]).map_err(io::Error::other)?;
        let own = measured.uses.into_iter().filter_map(|of| {
            let at = DeviceAt {
                platform: of.platform,
                device: of.device,
            };
            Some((at, of.context_memory?))
        });
        Ok(own.collect())
    }
}

/// Returns whether the library could know a device: a card of NVIDIA's has a UUID.
fn is_card(device: &Device) -> bool {
    let vendor = answer_of(&device.info, VENDOR_ID).and_then(|answer| answer.try_into().ok());
    let is_nvidia = vendor.map(u32::from_le_bytes).map(u64::from) == Some(VENDOR_NVIDIA);
    is_nvidia && answer_of(&device.info, UUID).is_some()
}

/// Returns the cards that the library knows. The probe has asked it for their modes.
fn cards(inventory: &Inventory) -> BTreeMap<DeviceAt, CardUuid> {
    let known = listed(inventory).filter(|(_, of)| of.compute_mode() != ComputeMode::Unknown);
    known
        .filter_map(|(at, device)| Some((at, answer_of(&device.info, UUID)?.try_into().ok()?)))
        .collect()
}

/// Returns the figures as they are on the wire.
pub(super) fn reading(figures: CardFigures) -> CardReading {
    let small = |figure: Option<u64>| figure.map(|of| u32::try_from(of).unwrap_or(u32::MAX));
    CardReading {
        utilization: small(figures.utilization),
        memory_used: figures.memory_used,
        memory_total: figures.memory_total,
        temperature: small(figures.temperature),
    }
}
