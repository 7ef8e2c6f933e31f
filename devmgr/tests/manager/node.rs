//! A fake node that speaks the real wire. Tests can suppress its answers.
//!
//! The node serves its grants. After each break it reconnects and lists the grants that it still serves.
//! Invariant: the node records a fault of the manager if a grant names a unit of another grant, or if the
//! grant's epoch is not newer than those before.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::control::{Device, DeviceUse, InfoAnswer, Inventory, Platform};
use causeway_proto::manager::nodes_client::NodesClient;
use causeway_proto::manager::{
    FromNode, Grant, GrantAcknowledged, GrantWithdrawn, Heartbeat, Hello, HostLoad,
    InventoryChanged, LeaseLoad, LeaseSessions, RunningLease, ToNode, Welcome, Withdraw, from_node,
    to_node,
};
use causeway_proto::metadata;
use causeway_proto::request::property;
use causeway_proto::version::WireVersion;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::process::{AT_MOST, Who, channel, try_channel};

/// The grants that a node serves: lease and epoch, with their units.
pub(crate) type Served = BTreeMap<(Vec<u8>, u64), Vec<(u32, u32, u32)>>;

/// The fake node. See the module.
pub(crate) struct FakeNode {
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    uuid: [u8; 16],
    devices: u32,
    is_insecure: bool,
    state: Mutex<FakeNodeState>,
    /// Counts the changes of `state`.
    changed: watch::Sender<u64>,
    speech: watch::Sender<Speech>,
}

/// Which messages the node sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speech {
    pub(crate) acknowledges: bool,
    pub(crate) withdraws: bool,
}

#[derive(Default)]
pub(crate) struct FakeNodeState {
    pub(crate) served: Served,
    pub(crate) granted: Vec<Grant>,
    pub(crate) withdrawn: Vec<Withdraw>,
    /// The welcome on the current connection.
    pub(crate) welcome: Option<Welcome>,
    /// The last `Drain` on the current connection.
    pub(crate) draining: Option<bool>,
    pub(crate) faults: Vec<String>,
    pub(crate) refused: Option<Status>,
    /// The last status with which a manager could not serve the node.
    pub(crate) unavailable: Option<Status>,
    /// Bytes and commands that heartbeats report, for the node and for each of its leases.
    used: (u64, u64),
    newest: BTreeMap<(u32, u32, u32), u64>,
    fence: u64,
    unsaid: Vec<from_node::Message>,
    to_manager: Option<mpsc::Sender<FromNode>>,
}

impl FakeNode {
    /// A node that answers everything.
    pub(crate) fn start(manager: SocketAddr, number: u8, devices: u32) -> FakeNode {
        let who = Who::Name(format!("node{number}"));
        FakeNode::start_as(manager, number, devices, who)
    }

    /// A node that reports itself as insecure.
    pub(crate) fn start_insecure(manager: SocketAddr, number: u8, devices: u32) -> FakeNode {
        let who = Who::Name(format!("node{number}"));
        FakeNode::start_with(&[manager], (number, devices, true), who)
    }

    pub(crate) fn start_as(manager: SocketAddr, number: u8, devices: u32, who: Who) -> FakeNode {
        FakeNode::start_with(&[manager], (number, devices, false), who)
    }

    fn start_with(
        managers: &[SocketAddr],
        (number, devices, is_insecure): (u8, u32, bool),
        who: Who,
    ) -> FakeNode {
        let speech = Speech {
            acknowledges: true,
            withdraws: true,
        };
        let shared = Arc::new(Shared {
            uuid: [number; 16],
            devices,
            is_insecure,
            state: Mutex::default(),
            changed: watch::channel(0).0,
            speech: watch::channel(speech).0,
        });
        let task = tokio::spawn(live(Arc::clone(&shared), managers.to_vec(), who));
        FakeNode { shared, task }
    }

    /// A node that joins whichever of these managers lets it.
    pub(crate) fn start_at_any(managers: &[SocketAddr], number: u8, devices: u32) -> FakeNode {
        let who = Who::Name(format!("node{number}"));
        FakeNode::start_with(managers, (number, devices, false), who)
    }

    /// Sets which messages the node sends from now on. Messages that were suppressed are sent once they are
    /// allowed.
    pub(crate) fn say(&self, acknowledges: bool, withdraws: bool) {
        self.shared.speech.send_replace(Speech {
            acknowledges,
            withdraws,
        });
        self.shared.speak();
    }

    /// Waits until the state meets a condition.
    pub(crate) async fn see(&self, what: &str, mut is_so: impl FnMut(&FakeNodeState) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let wait = async {
            while !is_so(&self.shared.state.lock()) {
                changed.changed().await.unwrap();
            }
        };
        let seen = tokio::time::timeout(AT_MOST, wait).await;
        assert!(seen.is_ok(), "the node did not see {what}");
    }

    /// Waits until the manager refuses the node, and returns the status.
    pub(crate) async fn refused(&self) -> Status {
        self.see("a refusal", |state| state.refused.is_some()).await;
        self.look(|state| state.refused.clone()).unwrap()
    }

    pub(crate) fn look<T>(&self, at: impl FnOnce(&FakeNodeState) -> T) -> T {
        at(&self.shared.state.lock())
    }

    /// Reports the number of a lease's sessions.
    pub(crate) fn sessions(&self, lease: &[u8], epoch: u64, sessions: u32) {
        self.shared.say(from_node::Message::Sessions(LeaseSessions {
            lease_id: lease.to_vec().into(),
            epoch,
            sessions,
        }));
    }

    /// Reports another address of the node.
    pub(crate) fn moves_to(&self, address: &str) {
        let inventory = Some(self.shared.inventory());
        let changed = InventoryChanged {
            inventory,
            addresses: vec![address.to_owned()],
            ..InventoryChanged::default()
        };
        self.shared.say(from_node::Message::Inventory(changed));
    }

    /// Reports one address after another, until the manager ends the connection.
    pub(crate) async fn flood(&self) {
        let to_manager = self.look(|state| state.to_manager.clone()).unwrap();
        for number in 0_u32.. {
            let changed = InventoryChanged {
                inventory: Some(self.shared.inventory()),
                addresses: vec![format!("node{number}:7079")],
                ..InventoryChanged::default()
            };
            let message = Some(from_node::Message::Inventory(changed));
            if to_manager.send(FromNode { message }).await.is_err() {
                return;
            }
        }
    }

    /// Sets the use that heartbeats report.
    pub(crate) fn uses(&self, bytes: u64, commands: u64) {
        self.shared.state.lock().used = (bytes, commands);
    }

    /// Ends the node without a message, as a power failure does.
    pub(crate) fn die(self) {
        self.task.abort();
    }

    pub(crate) fn assert_no_fault(&self) {
        let faults = self.look(|state| state.faults.clone());
        assert!(faults.is_empty(), "{faults:?}");
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Pause between two attempts at different managers, so that they are not flooded.
const PAUSE: Duration = Duration::from_millis(20);

async fn live(shared: Arc<Shared>, managers: Vec<SocketAddr>, who: Who) {
    // As a daemon, which names itself to standbys only while it does not reach the leader.
    let mut misses_leader = false;
    for manager in managers.iter().cycle() {
        let channel = if managers.len() == 1 {
            channel(*manager).await
        } else {
            tokio::time::sleep(PAUSE).await;
            match try_channel(*manager).await {
                Some(channel) => channel,
                None => {
                    misses_leader = true;
                    continue;
                }
            }
        };
        let mut client = NodesClient::new(channel);
        let (send, words) = mpsc::channel(1024);
        shared.hello(&send);
        let mut join = who.request(ReceiverStream::new(words));
        if misses_leader {
            let node = metadata::hexadecimal(shared.uuid).parse().unwrap();
            join.metadata_mut().insert(metadata::NODE, node);
        }
        let joined = client.join(join).await;
        misses_leader |= joined
            .as_ref()
            .is_err_and(|status| std::error::Error::source(status).is_some());
        misses_leader &= joined.is_err();
        match joined {
            Ok(stream) => drop(listen(&shared, stream.into_inner(), send).await),
            // A status with a source comes from gRPC itself: the connection broke.
            Err(status)
                if status.code() == tonic::Code::Unavailable
                    || std::error::Error::source(&status).is_some() =>
            {
                shared.change(|state| state.unavailable = Some(status));
            }
            Err(status) => {
                shared.change(|state| state.refused = Some(status));
                return;
            }
        }
        shared.change(|state| state.to_manager = None);
    }
}

async fn listen(
    shared: &Arc<Shared>,
    mut words: Streaming<ToNode>,
    send: mpsc::Sender<FromNode>,
) -> Result<(), Status> {
    let mut beats = tokio::time::interval(Duration::from_millis(200));
    let mut number = 0;
    loop {
        tokio::select! {
            word = words.message() => match word? {
                Some(word) => shared.hear(word),
                None => return Ok(()),
            },
            _ = beats.tick() => {
                number += 1;
                let beat = shared.heartbeat(number);
                let word = FromNode { message: Some(from_node::Message::Heartbeat(beat)) };
                if send.try_send(word).is_err() {
                    return Ok(());
                }
            }
        }
    }
}

impl Shared {
    fn heartbeat(&self, number: u64) -> Heartbeat {
        let state = self.state.lock();
        let (bytes, commands) = state.used;
        let leases = state.served.keys().map(|(lease, _)| LeaseLoad {
            lease_id: lease.clone().into(),
            bytes,
            commands,
            sessions: 1,
            busy_ns: bytes,
            ..Default::default()
        });
        let leases: Vec<_> = leases.collect();
        Heartbeat {
            bytes,
            commands,
            sessions: leases.len() as u32,
            number,
            leases,
            devices: vec![DeviceUse {
                busy_ns: bytes,
                ..DeviceUse::default()
            }],
            hosts: vec![HostLoad {
                worker: 7,
                domain: "user".to_owned(),
                sessions: 2,
            }],
            ..Default::default()
        }
    }

    fn change<T>(&self, by: impl FnOnce(&mut FakeNodeState) -> T) -> T {
        let result = by(&mut self.state.lock());
        self.changed.send_modify(|n| *n += 1);
        result
    }

    fn inventory(&self) -> Inventory {
        let number = |info: u32, value: u64| InfoAnswer {
            name: info,
            value: value.to_le_bytes().to_vec().into(),
            status: 0,
        };
        let device = Device {
            info: vec![
                number(property::TYPE, 1 << 2),
                number(property::GLOBAL_MEM_SIZE, 8 << 30),
                number(property::MAX_MEM_ALLOC_SIZE, 2 << 30),
                InfoAnswer {
                    name: property::NAME,
                    value: b"fake device\0".to_vec().into(),
                    status: 0,
                },
            ],
            ..Device::default()
        };
        Inventory {
            platforms: vec![Platform {
                info: Vec::new(),
                devices: vec![device; self.devices as usize],
            }],
            ..Inventory::default()
        }
    }

    fn hello(&self, send: &mpsc::Sender<FromNode>) {
        let hello = self.change(|state| {
            state.to_manager = Some(send.clone());
            (state.welcome, state.draining) = (None, None);
            state.unsaid.clear();
            let leases = state.served.keys().map(|(lease, epoch)| RunningLease {
                lease_id: lease.clone().into(),
                epoch: *epoch,
                sessions: 0,
            });
            Hello {
                wire_version: WireVersion::CURRENT.number().into(),
                node_uuid: self.uuid.to_vec().into(),
                name: format!("node{}", self.uuid[0]),
                addresses: vec![format!("192.0.2.{}:7079", self.uuid[0])],
                inventory: Some(self.inventory()),
                leases: leases.collect(),
                insecure: self.is_insecure,
                ..Hello::default()
            }
        });
        let message = Some(from_node::Message::Hello(hello));
        send.try_send(FromNode { message }).unwrap();
    }

    fn hear(&self, word: ToNode) {
        if self.state.lock().welcome.is_none() {
            self.expect_welcome(&word);
        }
        match word.message {
            Some(to_node::Message::Welcome(welcome)) => self.change(|state| {
                state.fence = state.fence.max(welcome.epoch);
                state.welcome = Some(welcome);
            }),
            Some(to_node::Message::Grant(grant)) => self.change(|state| state.grant(grant)),
            Some(to_node::Message::Withdraw(word)) => self.change(|state| state.withdraw(word)),
            Some(to_node::Message::Drain(word)) => {
                self.change(|state| state.draining = Some(word.draining));
            }
            _ => {}
        }
        self.speak();
    }

    fn expect_welcome(&self, word: &ToNode) {
        use to_node::Message::{Alive, Welcome};
        // Unlike a daemon, this node sends heartbeats before the welcome, and the manager answers them.
        if !matches!(word.message, Some(Welcome(_) | Alive(_))) {
            let fault = format!("{word:?} before the welcome");
            self.change(|state| state.faults.push(fault));
        }
    }

    fn say(&self, message: from_node::Message) {
        self.change(|state| state.unsaid.push(message));
        self.speak();
    }

    /// Sends the messages that are allowed.
    fn speak(&self) {
        let speech = *self.speech.borrow();
        // Sending changes `served`, so waiting tests have to check again.
        self.change(|state| state.speak(speech));
    }
}

impl FakeNodeState {
    fn speak(&mut self, speech: Speech) {
        let Some(to_manager) = self.to_manager.clone() else {
            return;
        };
        for message in std::mem::take(&mut self.unsaid) {
            let may = match &message {
                from_node::Message::Acknowledged(_) => speech.acknowledges,
                from_node::Message::Withdrawn(_) => speech.withdraws,
                _ => true,
            };
            if !may {
                self.unsaid.push(message);
                continue;
            }
            if let from_node::Message::Withdrawn(of) = &message {
                self.served.remove(&(of.lease_id.to_vec(), of.epoch));
            }
            let message = Some(message);
            let _ = to_manager.try_send(FromNode { message });
        }
    }

    fn grant(&mut self, grant: Grant) {
        let key = (grant.lease_id.to_vec(), grant.epoch);
        let units = grant.units.iter().map(|of| {
            let unit = of.unit.unwrap();
            (unit.platform, unit.device, unit.share)
        });
        let units: Vec<_> = units.collect();
        for unit in &units {
            let other = self
                .served
                .iter()
                .find(|(k, u)| **k != key && u.contains(unit));
            if let Some((other, _)) = other {
                self.faults
                    .push(format!("{unit:?} is granted to {key:?} and {other:?}"));
            }
            let newest = self.newest.entry(*unit).or_default();
            let is_new = !self.served.contains_key(&key);
            if *newest > grant.epoch || (is_new && grant.epoch <= self.fence) {
                let fence = self.fence;
                let fault = format!("epoch {} after {newest} and {fence}", grant.epoch);
                self.faults.push(fault);
            }
            *newest = grant.epoch;
        }
        self.unsaid
            .push(from_node::Message::Acknowledged(GrantAcknowledged {
                lease_id: grant.lease_id.clone(),
                epoch: grant.epoch,
            }));
        self.served.insert(key, units);
        self.granted.push(grant);
    }

    fn withdraw(&mut self, word: Withdraw) {
        self.unsaid
            .push(from_node::Message::Withdrawn(GrantWithdrawn {
                lease_id: word.lease_id.clone(),
                epoch: word.epoch,
            }));
        self.withdrawn.push(word);
    }
}
