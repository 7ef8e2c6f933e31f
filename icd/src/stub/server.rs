//! A server: a node as the application sees it (`cl_wwu_server`), with its devices.
//!
//! Servers come from the configuration, from announcements and from the application ([`Platform::connect`]). They stay known
//! for the life of the process: a lost or disconnected server may come back, with the same device handles.
//!
//! This module sends no requests to nodes; [`Platform`](crate::stub::Platform) does. Invariant: a device of the
//! node is one [`Device`], however often the node is queried. A device is in `present` exactly when the
//! node's latest inventory had it.
//!
//! [`Platform::connect`]: crate::stub::Platform::connect
#![forbid(unsafe_code)]

pub(in crate::stub) mod ask;
pub mod between;
pub(in crate::stub) mod finding;
pub(in crate::stub) mod link;
pub mod peer;
pub(in crate::stub) mod platform;
pub(in crate::stub) mod site;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use causeway_proto::control::Inventory;
use causeway_proto::id::{DeviceIndex, PlatformIndex};
use cl_headers::types::{CL_DEVICE_EXTENSIONS, CL_DEVICE_NAME};
use parking_lot::Mutex;

use crate::config::ServerSettings;
use crate::stub::Binding;
use crate::stub::device::info::{extensions, hidden_macros, overrides, pci};
use crate::stub::device::{Answers, Device, DeviceAnswers, FormatList, Identity, answers};
use crate::transport::{self, Node};

/// Shortest pause before a node that did not answer is queried again.
const PAUSE: Duration = Duration::from_millis(250);
/// Minimum ratio of the pause to the duration of the last query. An unresponsive node then costs at most
/// about a tenth of the time.
const PAUSE_PER_WAIT: u32 = 10;

/// A node as the application sees it; see the module.
#[derive(Debug)]
pub struct Server {
    pub(crate) binding: Binding,
    node: Arc<Node>,
    // References held by the configuration and by the application.
    references: AtomicU32,
    // Whether an announcement led to the node. Only such a server follows its node to other addresses.
    is_found: bool,
    roster: Arc<Mutex<Roster>>,
    retry: Mutex<Retry>,
    run: Mutex<KnownRun>,
}

/// The start of a node's daemon, as far as known.
#[derive(Debug, Default)]
struct KnownRun {
    run: Bytes,
    /// The last call that asked for it: when the call began, and whether the node answered.
    asked: Option<(Instant, bool)>,
}

/// The devices of a node.
#[derive(Debug, Default)]
struct Roster {
    uuid: Vec<u8>,
    present: Vec<Arc<Device>>,
    // All devices that the node ever had.
    known: Vec<Arc<Device>>,
}

/// When a node whose last query failed may be queried again.
#[derive(Debug, Default)]
struct Retry {
    not_before: Option<Instant>,
    warned: bool,
}

impl Server {
    /// Makes a server that has not been queried yet, with one reference.
    #[must_use]
    pub fn new(settings: ServerSettings) -> Arc<Server> {
        Server::make(settings, false)
    }

    /// As [`Server::new`], for a node that was found.
    #[must_use]
    pub(super) fn found(settings: ServerSettings) -> Arc<Server> {
        Server::make(settings, true)
    }

    fn make(settings: ServerSettings, is_found: bool) -> Arc<Server> {
        let server = Arc::new(Server {
            binding: Binding::default(),
            node: Arc::new(Node::new(settings)),
            references: AtomicU32::new(1),
            is_found,
            roster: Arc::default(),
            retry: Mutex::default(),
            run: Mutex::default(),
        });
        // Weak references: the node owns this listener, so strong ones would be a cycle.
        let (roster, node) = (Arc::downgrade(&server.roster), Arc::downgrade(&server.node));
        server.node.on_change(Box::new(move |inventory| {
            let (Some(roster), Some(node)) = (roster.upgrade(), node.upgrade()) else {
                return false;
            };
            roster.lock().take(&node, inventory)
        }));
        server
    }

    /// Returns the node that this server represents.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns the devices that the node's latest inventory had.
    #[must_use]
    pub fn devices(&self) -> Vec<Arc<Device>> {
        self.roster.lock().present.clone()
    }

    /// Returns the node's UUID; empty until the node has answered once.
    #[must_use]
    pub fn uuid(&self) -> Vec<u8> {
        self.roster.lock().uuid.clone()
    }

    /// Returns the start of the node's daemon, as the node has told it last; empty if it has not.
    pub(super) fn run(&self) -> Bytes {
        self.run.lock().run.clone()
    }

    /// Asks the node for the start of its daemon: once for the call that began at `asked`, and within its time. `None` if the
    /// node does not answer.
    pub(super) fn run_now(&self, asked: Instant) -> Option<Bytes> {
        let known = |of: &KnownRun| match of.asked {
            Some((at, has_answered)) if at == asked => Some(has_answered.then(|| of.run.clone())),
            _ => None,
        };
        if let Some(known) = known(&self.run.lock()) {
            return known;
        }
        let deadline = (asked + transport::ENUMERATION_LIMIT).max(Instant::now() + finding::LEAST);
        let node = (Bytes::from(self.uuid()), self.node.target());
        let answer = transport::ask_found(vec![node], deadline).pop();
        let run = answer.and_then(|(_, reply)| Some(reply.inventory.ok()?.run.clone()));
        let mut known = self.run.lock();
        known.asked = Some((asked, run.is_some()));
        if let Some(run) = &run {
            known.run = run.clone();
        }
        run
    }

    /// Returns a display name: the configured name, else the name that the node reports, else the node's
    /// address.
    #[must_use]
    pub fn name(&self) -> String {
        let own = || {
            let name = self.node.inventory()?.node_name.clone();
            (!name.is_empty()).then_some(name)
        };
        let configured = self.node.settings().name.clone();
        configured
            .or_else(own)
            .unwrap_or_else(|| self.node.address().to_owned())
    }

    /// Returns `CL_SERVER_REFERENCE_COUNT_WWU`.
    #[must_use]
    pub fn references(&self) -> u32 {
        self.references.load(Ordering::Acquire)
    }

    /// Whether an announcement led to the node.
    pub(super) fn is_found(&self) -> bool {
        self.is_found
    }

    /// Whether the server has any references.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.references() > 0
    }

    /// Adds `more` references. When there were none, connects the server again.
    pub(super) fn add_references(&self, more: u32) {
        if self.references.fetch_add(more, Ordering::AcqRel) == 0 {
            self.node.connect();
        }
    }

    /// Removes one reference; returns false when there is none. Removing the last reference disconnects the
    /// server.
    pub(super) fn remove_reference(&self) -> bool {
        let less = |references: u32| references.checked_sub(1);
        let before = self
            .references
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        if before == Ok(1) {
            self.node.disconnect();
        }
        before.is_ok()
    }

    // ---- querying -------------------------------------------------------------

    /// Whether the server should be queried now: it has references, is not available, and its retry pause
    /// is over.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_connected()
            && !self.node.is_disconnected()
            && !self.node.is_available()
            && self.retry.lock().not_before.is_none_or(|at| now >= at)
    }

    /// Records a query that took `took`. `told` is a problem to log, if there is one; consecutive problems
    /// are logged once.
    pub(super) fn asked(&self, took: Duration, told: Option<&str>) {
        let pause = (took * PAUSE_PER_WAIT).max(PAUSE);
        let mut retry = self.retry.lock();
        // A node that answers has no pause: a session on it that is lost later must not hide its devices from
        // the next query.
        retry.not_before = told.map(|_| Instant::now() + pause);
        let first = !std::mem::replace(&mut retry.warned, told.is_some());
        drop(retry);
        if let Some(told) = told.filter(|_| first) {
            tracing::warn!(
                "{told}; the devices of this node are not available (`causeway doctor` looks for the cause)"
            );
        }
    }

    /// Applies a new inventory of the node. While a session still runs, the node may keep the inventory
    /// that the session uses.
    pub(super) fn take(&self, inventory: &Arc<Inventory>) {
        self.run.lock().run = inventory.run.clone();
        self.node.renew(inventory, || {
            self.roster.lock().take(&self.node, inventory);
        });
    }
}

impl Roster {
    // Keeps the handles of known devices. Returns whether every device that was present is still at the
    // same place.
    fn take(&mut self, node: &Arc<Node>, inventory: &Inventory) -> bool {
        // A restarted daemon may report a new UUID, but its devices are the same.
        self.uuid = inventory.node_uuid.to_vec();
        let mut same = true;
        let mut places: HashMap<Identity, usize> = HashMap::new();
        let mut present = Vec::new();
        for told in told_by(inventory) {
            let identity = told.identity();
            let nth = places.entry(identity.clone()).or_default();
            // Devices with the same identity are matched by their order.
            let mut alike = self.known.iter().filter(|d| d.identity() == identity);
            let known = alike.nth(*nth).cloned();
            *nth += 1;
            let device = match known {
                Some(device) => {
                    same &= device.replace_answers(told);
                    device
                }
                None => Arc::new(Device::new(Arc::clone(node), told)),
            };
            present.push(device);
        }
        for device in std::mem::replace(&mut self.present, present) {
            if !self.present.iter().any(|now| Arc::ptr_eq(now, &device)) {
                device.set_gone();
                same = false;
            }
        }
        for device in &self.present {
            if !self.known.iter().any(|known| Arc::ptr_eq(known, device)) {
                self.known.push(Arc::clone(device));
            }
        }
        same
    }
}

fn told_by(inventory: &Inventory) -> Vec<DeviceAnswers> {
    let mut all = Vec::new();
    for (number, platform) in (0..).zip(&inventory.platforms) {
        let platform_info: Arc<Answers> = Arc::new(answers(&platform.info));
        for (index, device) in (0..).zip(&platform.devices) {
            // The node hides this device from the caller, but the device still counts for the index.
            if device.info.is_empty() {
                continue;
            }
            let lists = device.image_formats.iter().map(FormatList::new);
            let image_formats: Vec<FormatList> = lists.collect();
            let native = answers(&device.info);
            let text = |name| native.get(&name).and_then(|answer| answer.as_deref().ok());
            if let (Some(name), Some(list)) = (text(CL_DEVICE_NAME), text(CL_DEVICE_EXTENSIONS)) {
                let [name, list] = [name, list].map(String::from_utf8_lossy);
                extensions::note_withheld(name.trim_end_matches('\0'), &list);
            }
            let mut info = overrides::present(native.clone(), !image_formats.is_empty());
            let hidden_macros = hidden_macros::hidden(&native, &info);
            pci::present(&mut info, &inventory.node_uuid);
            all.push(DeviceAnswers {
                platform: PlatformIndex(number),
                index: DeviceIndex(index),
                info,
                hidden_macros,
                image_formats,
                platform_info: Arc::clone(&platform_info),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::control::{Device as WireDevice, InfoAnswer, Platform as WirePlatform};
    use cl_headers::types::{CL_DEVICE_UUID_KHR, CL_PLATFORM_NAME};

    fn answer(name: u32, value: &[u8]) -> InfoAnswer {
        InfoAnswer {
            name,
            value: value.to_vec().into(),
            status: 0,
        }
    }

    // An inventory of platforms by name; each device has a name and a UUID (0: no UUID).
    fn inventory(uuid: u8, platforms: &[(&str, &[(&str, u8)])]) -> Arc<Inventory> {
        let device = |(name, uuid): &(&str, u8)| {
            let mut info = vec![answer(CL_DEVICE_NAME, name.as_bytes())];
            if *uuid != 0 {
                info.push(answer(CL_DEVICE_UUID_KHR, &[*uuid; 16]));
            }
            WireDevice {
                info,
                ..WireDevice::default()
            }
        };
        let platform = |(name, devices): &(&str, &[(&str, u8)])| WirePlatform {
            info: vec![answer(CL_PLATFORM_NAME, name.as_bytes())],
            devices: devices.iter().map(device).collect(),
        };
        Arc::new(Inventory {
            node_uuid: vec![uuid; 16].into(),
            platforms: platforms.iter().map(platform).collect(),
            ..Inventory::default()
        })
    }

    fn server() -> Arc<Server> {
        Server::new(ServerSettings::at("localhost".parse().unwrap()))
    }

    fn same(one: &Arc<Device>, other: &Arc<Device>) -> bool {
        Arc::ptr_eq(one, other)
    }

    #[test]
    fn a_device_is_known_again_by_its_uuid_wherever_it_stands() {
        let server = server();
        server.take(&inventory(1, &[("P", &[("a", 7), ("b", 8)])]));
        let before = server.devices();
        server.take(&inventory(
            1,
            &[("Q", &[("x", 0)]), ("P", &[("B", 8), ("a", 7)])],
        ));
        let after = server.devices();
        assert_eq!(after.len(), 3);
        assert!(same(&after[1], &before[1]) && same(&after[2], &before[0]));
        assert_eq!((after[1].platform().0, after[1].index().0), (1, 0));
        assert_eq!(after[1].text(CL_DEVICE_NAME), "B");
    }

    #[test]
    fn without_uuid_name_and_order_tell() {
        let server = server();
        server.take(&inventory(1, &[("P", &[("a", 0), ("a", 0), ("b", 0)])]));
        let before = server.devices();
        server.take(&inventory(1, &[("P", &[("b", 0), ("a", 0)])]));
        let after = server.devices();
        assert!(same(&after[0], &before[2]) && same(&after[1], &before[0]));
        assert!(before[1].is_gone() && !before[0].is_gone());
        // The device comes back and is recognised.
        server.take(&inventory(1, &[("P", &[("a", 0), ("a", 0)])]));
        assert!(same(&server.devices()[1], &before[1]) && !before[1].is_gone());
        assert!(before[2].is_gone());
    }

    #[test]
    fn a_daemon_started_anew_has_the_same_devices_another_machine_has_not() {
        let server = server();
        server.take(&inventory(1, &[("P", &[("a", 7)])]));
        let before = server.devices();
        server.take(&inventory(2, &[("P", &[("a", 7)])]));
        assert!(same(&before[0], &server.devices()[0]) && !before[0].is_gone());
        assert_eq!(server.uuid(), [2; 16]);
        server.take(&inventory(3, &[("P", &[("a", 9)])]));
        assert!(before[0].is_gone() && !same(&before[0], &server.devices()[0]));
    }

    #[test]
    fn the_last_reference_disconnects_and_the_next_connects() {
        let server = server();
        server.take(&inventory(1, &[("P", &[("a", 7)])]));
        assert!(server.devices()[0].is_available());
        server.add_references(1);
        assert!(server.remove_reference() && server.is_connected());
        assert!(server.remove_reference() && !server.is_connected());
        assert!(!server.remove_reference());
        assert!(!server.devices()[0].is_available() && !server.is_due(Instant::now()));
        server.add_references(1);
        assert!(server.is_connected() && !server.node().is_disconnected());
    }

    #[test]
    fn who_does_not_answer_is_asked_again_but_not_at_once() {
        let server = server();
        let now = Instant::now();
        assert!(server.is_due(now));
        server.asked(Duration::from_secs(1), Some("it is away"));
        assert!(!server.is_due(now + Duration::from_secs(5)));
        assert!(server.is_due(now + Duration::from_secs(20)));
        server.take(&inventory(1, &[]));
        assert!(!server.is_due(now + Duration::from_secs(20)), "it is there");
    }

    #[test]
    fn who_answered_and_is_lost_is_asked_again_at_once() {
        let server = server();
        server.asked(Duration::from_secs(1), None);
        server.take(&inventory(1, &[("P", &[("a", 7)])]));
        assert!(!server.is_due(Instant::now()));
        server.node().set_unreachable();
        assert!(server.is_due(Instant::now()));
    }
}
