//! Whether the node opens new sessions, and the devices that it opens them on.
//!
//! Invariant: subscribers see every change of the health state after the event that caused it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::control::DeviceUse;
use tokio::sync::watch;

use super::cards::{self, Cards};
use super::devices::listed;
use super::inventory::{InventoryCache, Known};
use super::managed::{DeviceAt, Managed};
use super::warm;
use super::workers::Workers;
use crate::accounting::DeviceName;
use crate::config::Settings;

/// Longest time for which the start of the daemon waits for what a process takes of each card.
const MEASURED_WITHIN: Duration = Duration::from_secs(15);

/// The node's readiness.
pub(super) struct Readiness {
    settings: Arc<Settings>,
    inventory: InventoryCache,
    cards: Cards,
    workers: Workers,
    managed: Option<Managed>,
    /// Why the node opens no new sessions; `None` if it does.
    health: watch::Sender<Option<&'static str>>,
}

impl Readiness {
    pub(super) fn new(
        settings: &Arc<Settings>,
        inventory: InventoryCache,
        cards: Cards,
        workers: &Workers,
        managed: Option<&Managed>,
    ) -> Readiness {
        Readiness {
            settings: Arc::clone(settings),
            inventory,
            cards,
            workers: workers.clone(),
            managed: managed.cloned(),
            health: watch::Sender::new(Some("the node is still listing its devices")),
        }
    }

    /// Returns a receiver of the health state.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<&'static str>> {
        self.health.subscribe()
    }

    /// Returns the current inventory. Replaces the spare workers if the devices have changed.
    pub(super) async fn current_inventory(&self) -> Arc<Known> {
        let (known, changed) = self.inventory.current().await;
        if changed {
            self.workers.retire_spares();
            self.workers.note_devices(Arc::clone(&known));
        }
        let devices = warm::devices(&self.settings.warm, &known.inventory);
        self.workers.warm(devices);
        if changed {
            self.workers.replenish();
        }
        self.look_at_health();
        known
    }

    /// Returns the last known inventory, without a probe.
    pub(super) fn latest_inventory(&self) -> Arc<Known> {
        self.inventory.latest()
    }

    /// Returns the use of the devices that were known last. Waits for the figures of cards for `patience` at most.
    pub(super) async fn uses(&self, patience: Duration) -> Vec<DeviceUse> {
        let known = self.inventory.latest();
        let mut figures = self.cards.read(&known.inventory, patience).await;
        let (own, mut busy) = (self.cards.own(), self.workers.busy());
        let devices = listed(&known.inventory);
        devices
            .map(|(at, _)| {
                let busy = busy.remove(&DeviceName(at.platform, at.device));
                DeviceUse {
                    platform: at.platform,
                    device: at.device,
                    busy_ns: u64::try_from(busy.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX),
                    context_memory: own.get(&at).copied(),
                    card: figures.remove(&at).map(cards::reading),
                }
            })
            .collect()
    }

    /// Returns the remark of a node that cannot read its cards, for tools.
    pub(super) fn cards_remark(&self) -> Option<String> {
        self.cards.remark(&self.inventory.latest().inventory)
    }

    /// Measures what a process takes of each card by itself.
    pub(super) async fn measure(&self, known: &Known) {
        let limit = self
            .settings
            .inventory
            .probe_time_limit
            .min(MEASURED_WITHIN);
        self.cards.measure(&known.inventory, limit).await;
    }

    /// Returns the bytes that a process takes of each card by itself, as far as they were measured.
    pub(super) fn own_memory(&self) -> BTreeMap<DeviceAt, u64> {
        self.cards.own()
    }

    /// Returns the number of the node's devices.
    pub(super) fn devices(&self) -> usize {
        let known = self.inventory.latest();
        let platforms = known.inventory.platforms.iter();
        platforms.map(|of| of.devices.len()).sum()
    }

    /// Returns why the node opens no new sessions; `None` if it does. Notifies the subscribers of the
    /// health state if it has changed.
    pub(super) fn look_at_health(&self) -> Option<&'static str> {
        let is_draining = self.managed.as_ref().is_some_and(Managed::is_draining);
        let problem = if self.workers.counts().draining {
            Some("the node is shutting down")
        } else if is_draining {
            Some("the device manager is draining this node, so it gets no new leases")
        } else if self.settings.security.is_locked() {
            Some("the node cannot read its list of tokens, so it accepts no token; see its log")
        } else if self.devices() == 0 {
            Some("the node has no OpenCL device that could be served")
        } else {
            None
        };
        self.health.send_if_modified(|health| {
            let is_new = *health != problem;
            *health = problem;
            is_new
        });
        problem
    }
}
