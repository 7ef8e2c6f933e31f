//! Whether the node opens new sessions, and the devices that it opens them on.
//!
//! Invariant: subscribers see every change of the health state after the event that caused it.

use std::sync::Arc;

use tokio::sync::watch;

use super::inventory::{InventoryCache, Known};
use super::managed::Managed;
use super::warm;
use super::workers::Workers;
use crate::config::Settings;

/// The node's readiness.
pub(super) struct Readiness {
    settings: Arc<Settings>,
    inventory: InventoryCache,
    workers: Workers,
    managed: Option<Managed>,
    /// Why the node opens no new sessions; `None` if it does.
    health: watch::Sender<Option<&'static str>>,
}

impl Readiness {
    pub(super) fn new(
        settings: &Arc<Settings>,
        inventory: InventoryCache,
        workers: &Workers,
        managed: Option<&Managed>,
    ) -> Readiness {
        Readiness {
            settings: Arc::clone(settings),
            inventory,
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
