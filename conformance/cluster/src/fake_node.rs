//! A node without devices: it speaks the real wire to the device managers of a cluster, and reports what it
//! serves.
//!
//! The node obeys the rules of a daemon: it believes no lower term and no other cluster, refuses void and old
//! grants, and lists its leases to each new leader. It opens no port for clients. Invariant: a grant is reported
//! before it is acknowledged, and its end before the withdrawal is confirmed. So a report's interval contains the
//! time for which clients can use the device.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use causeway_managers::{Disbelieved, HighestTerm};
use causeway_proto::control::{Device, InfoAnswer, Inventory, Platform};
use causeway_proto::manager::nodes_client::NodesClient;
use causeway_proto::manager::{
    FromNode, Grant, GrantAcknowledged, GrantRefused, GrantWithdrawn, Heartbeat, Hello,
    RunningLease, ToNode, Welcome, Withdraw, from_node, to_node,
};
use causeway_proto::metadata::{self, ClusterId, Term};
use causeway_proto::request::property;
use causeway_proto::version::WireVersion;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

use crate::Managers;

/// Time limit for a welcome.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);
/// Pause after a lost connection.
const PAUSE: Duration = Duration::from_millis(100);
/// `CL_DEVICE_TYPE_GPU`.
const GPU: u64 = 1 << 2;

/// A change of the grants that a node serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// The node's uuid.
    pub node: [u8; 16],
    /// Indices of the devices.
    pub devices: Vec<u32>,
    /// The lease's id.
    pub lease: Vec<u8>,
    /// The grant's number.
    pub epoch: u64,
    /// The lease's user.
    pub user: String,
    /// Whether the node serves the lease from now on, or not any more.
    pub begins: bool,
}

/// The node. See the module.
pub struct FakeNode {
    number: u8,
    devices: u32,
    managers: Managers,
    highest: Mutex<HighestTerm>,
    grants: Grants,
}

/// The end of a connection to a manager.
#[derive(Debug)]
enum Parted {
    /// gRPC's status, from whomever.
    Status,
    Disbelieved,
    Silent,
    /// The manager broke the protocol or closed the stream.
    Closed,
}

impl From<Status> for Parted {
    fn from(_: Status) -> Parted {
        Parted::Status
    }
}

impl From<Disbelieved> for Parted {
    fn from(_: Disbelieved) -> Parted {
        Parted::Disbelieved
    }
}

impl FakeNode {
    /// A node with this number, which determines its uuid and its name, and this number of devices.
    #[must_use]
    pub fn new(managers: Managers, number: u8, devices: u32) -> FakeNode {
        FakeNode {
            number,
            devices,
            managers,
            highest: Mutex::default(),
            grants: Grants::default(),
        }
    }

    /// Joins the manager that leads, and rejoins forever. Calls `report` at each change.
    pub async fn live(mut self, mut report: impl FnMut(Serving)) -> Infallible {
        loop {
            // Whatever ended the connection, the node asks all managers again.
            let Err(Parted::Status | Parted::Disbelieved | Parted::Silent | Parted::Closed) =
                self.joined(&mut report).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Serves one connection to its end.
    async fn joined(&mut self, report: &mut impl FnMut(Serving)) -> Result<Infallible, Parted> {
        let highest = &self.highest;
        let hear = |metadata: &_, stands_by| {
            causeway_managers::probe::hear(&mut highest.lock(), metadata, stands_by)
        };
        let node = self.uuid();
        let tell = |call: &mut MetadataMap| {
            highest.lock().tell(call);
            if let Ok(node) = metadata::hexadecimal(node).parse() {
                call.insert(metadata::NODE, node);
            }
        };
        let channel = self.managers.leader(hear, tell).await;
        let (send, words) = mpsc::unbounded_channel();
        say(&send, from_node::Message::Hello(self.hello()));
        let mut request = self.managers.request(UnboundedReceiverStream::new(words));
        tell(request.metadata_mut());
        let welcomed = tokio::time::timeout(WELCOME_WITHIN, async {
            let mut client = NodesClient::new(channel);
            let mut words = client.join(request).await?.into_inner();
            let word = words.message().await?.and_then(|word| word.message);
            match word {
                Some(to_node::Message::Welcome(welcome)) => Ok((welcome, words)),
                _ => Err(Parted::Closed),
            }
        });
        let (welcome, words) = welcomed.await.map_err(|_| Parted::Silent)??;
        let cluster = ClusterId::from_bytes(&welcome.cluster_id);
        highest.lock().hear(Some(Term(welcome.term)), cluster)?;
        self.grants.fence = self.grants.fence.max(welcome.epoch);
        self.serve(&welcome, words, &send, report).await
    }

    async fn serve(
        &mut self,
        welcome: &Welcome,
        mut words: Streaming<ToNode>,
        send: &mpsc::UnboundedSender<FromNode>,
        report: &mut impl FnMut(Serving),
    ) -> Result<Infallible, Parted> {
        let millis = |of: u32| Duration::from_millis(u64::from(of.max(1)));
        let mut beats = tokio::time::interval(millis(welcome.heartbeat_interval_ms));
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let limit = millis(welcome.heartbeat_limit_ms);
        let (mut number, mut heard) = (0, Instant::now());
        loop {
            tokio::select! {
                word = words.message() => {
                    heard = Instant::now();
                    let word = word?.and_then(|word| word.message).ok_or(Parted::Closed)?;
                    self.hear(word, send, report);
                }
                _ = beats.tick() => {
                    number += 1;
                    say(send, from_node::Message::Heartbeat(Heartbeat { number, ..Heartbeat::default() }));
                }
                () = tokio::time::sleep_until(heard + limit) => return Err(Parted::Silent),
            }
        }
    }

    fn hear(
        &mut self,
        word: to_node::Message,
        send: &mpsc::UnboundedSender<FromNode>,
        report: &mut impl FnMut(Serving),
    ) {
        let node = self.uuid();
        let answer = match word {
            to_node::Message::Grant(grant) => self.grants.granted(node, &grant, report),
            to_node::Message::Withdraw(word) => self.grants.withdrawn(node, &word, report),
            _ => return,
        };
        say(send, answer);
    }

    fn uuid(&self) -> [u8; 16] {
        [self.number; 16]
    }

    fn hello(&self) -> Hello {
        let leases = self.grants.served.iter().map(|(lease, of)| RunningLease {
            lease_id: lease.clone().into(),
            epoch: of.epoch,
            sessions: 0,
        });
        let highest = *self.highest.lock();
        let cluster = highest.cluster().map(|cluster| cluster.0.to_vec());
        Hello {
            wire_version: WireVersion::CURRENT.number().into(),
            node_uuid: self.uuid().to_vec().into(),
            name: format!("fake-{}", self.number),
            addresses: vec![format!("192.0.2.{}:7079", self.number)],
            inventory: Some(Inventory {
                platforms: vec![Platform {
                    info: Vec::new(),
                    devices: vec![device(); self.devices as usize],
                }],
                ..Inventory::default()
            }),
            leases: leases.collect(),
            term: highest.term().0,
            cluster_id: cluster.unwrap_or_default().into(),
            ..Hello::default()
        }
    }
}

/// The grants of a node, by lease.
#[derive(Default)]
struct Grants {
    served: BTreeMap<Vec<u8>, Served>,
    /// The newest grant of each device.
    newest: BTreeMap<u32, u64>,
    /// The newest withdrawal of each lease.
    ended: BTreeMap<Vec<u8>, u64>,
    /// Grants up to this one are void, unless they are served.
    fence: u64,
}

#[derive(Clone)]
struct Served {
    epoch: u64,
    user: String,
    devices: Vec<u32>,
}

impl Grants {
    /// Begins to serve a lease, or refuses. Returns the answer.
    fn granted(
        &mut self,
        node: [u8; 16],
        grant: &Grant,
        report: &mut impl FnMut(Serving),
    ) -> from_node::Message {
        let (lease_id, epoch) = (grant.lease_id.clone(), grant.epoch);
        let of = Served {
            epoch,
            user: grant.user.clone(),
            devices: devices(grant),
        };
        let served = self.served.get(&*lease_id).map(|of| of.epoch);
        if served != Some(epoch) {
            if let Some(reason) = self.refusal(grant, &of.devices) {
                let reason = reason.to_owned();
                return from_node::Message::Refused(GrantRefused {
                    lease_id,
                    epoch,
                    reason,
                });
            }
            if let Some(old) = self.served.remove(&*lease_id) {
                report(serving(node, &lease_id, old, false));
            }
            report(serving(node, &lease_id, of.clone(), true));
            for device in &of.devices {
                self.newest.insert(*device, epoch);
            }
            self.served.insert(lease_id.to_vec(), of);
        }
        from_node::Message::Acknowledged(GrantAcknowledged { lease_id, epoch })
    }

    fn refusal(&self, grant: &Grant, devices: &[u32]) -> Option<&'static str> {
        let newest = devices.iter().filter_map(|of| self.newest.get(of)).max();
        let ended = self.ended.get(&*grant.lease_id);
        if grant.epoch <= self.fence {
            return Some("the grant is void since the welcome");
        }
        if newest.is_some_and(|newest| *newest > grant.epoch) {
            return Some("the device has a newer grant");
        }
        ended
            .is_some_and(|ended| *ended >= grant.epoch)
            .then_some("the grant was withdrawn")
    }

    /// Ends a lease. Returns the answer.
    fn withdrawn(
        &mut self,
        node: [u8; 16],
        word: &Withdraw,
        report: &mut impl FnMut(Serving),
    ) -> from_node::Message {
        let lease = word.lease_id.to_vec();
        if let Some(of) = self.served.get(&lease).cloned()
            && of.epoch <= word.epoch
        {
            report(serving(node, &lease, of, false));
            self.served.remove(&lease);
        }
        let ended = self.ended.entry(lease).or_default();
        *ended = word.epoch.max(*ended);
        from_node::Message::Withdrawn(GrantWithdrawn {
            lease_id: word.lease_id.clone(),
            epoch: word.epoch,
        })
    }
}

fn devices(grant: &Grant) -> Vec<u32> {
    let units = grant.units.iter().filter_map(|of| of.unit.as_ref());
    units.map(|unit| unit.device).collect()
}

fn serving(node: [u8; 16], lease: &[u8], of: Served, begins: bool) -> Serving {
    Serving {
        node,
        devices: of.devices,
        lease: lease.to_vec(),
        epoch: of.epoch,
        user: of.user,
        begins,
    }
}

fn say(send: &mpsc::UnboundedSender<FromNode>, message: from_node::Message) {
    // Fails only if the connection has ended. The next hello has the whole state.
    let _ = send.send(FromNode {
        message: Some(message),
    });
}

fn device() -> Device {
    let answer = |name, value: Vec<u8>| InfoAnswer {
        name,
        value: value.into(),
        status: 0,
    };
    let number = |name, value: u64| answer(name, value.to_le_bytes().to_vec());
    Device {
        info: vec![
            number(property::TYPE, GPU),
            number(property::GLOBAL_MEM_SIZE, 8 << 30),
            number(property::MAX_MEM_ALLOC_SIZE, 2 << 30),
            answer(property::NAME, b"fake device\0".to_vec()),
        ],
        ..Device::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_proto::manager::{LeasedUnit, Unit};

    const NODE: [u8; 16] = [7; 16];

    fn grant(lease: u8, epoch: u64) -> Grant {
        Grant {
            lease_id: vec![lease; 16].into(),
            epoch,
            units: vec![LeasedUnit {
                unit: Some(Unit::default()),
                memory: 0,
            }],
            ..Grant::default()
        }
    }

    fn withdraw(lease: u8, epoch: u64) -> Withdraw {
        Withdraw {
            lease_id: vec![lease; 16].into(),
            epoch,
            ..Withdraw::default()
        }
    }

    fn is_refused(answer: &from_node::Message) -> bool {
        matches!(answer, from_node::Message::Refused(_))
    }

    #[test]
    fn a_grant_is_reported_from_its_begin_to_its_end() {
        let (mut grants, mut reports) = (Grants::default(), Vec::new());
        let mut report = |of: Serving| reports.push((of.lease[0], of.epoch, of.begins));
        grants.granted(NODE, &grant(1, 5), &mut report);
        // A repetition is the same grant.
        grants.granted(NODE, &grant(1, 5), &mut report);
        // A withdrawal of an older grant ends nothing.
        grants.withdrawn(NODE, &withdraw(1, 4), &mut report);
        grants.withdrawn(NODE, &withdraw(1, 5), &mut report);
        assert_eq!(reports, [(1, 5, true), (1, 5, false)]);
    }

    #[test]
    fn void_old_and_withdrawn_grants_are_refused() {
        let mut grants = Grants {
            fence: 4,
            ..Grants::default()
        };
        let mut ignored = |_| {};
        assert!(is_refused(&grants.granted(
            NODE,
            &grant(1, 4),
            &mut ignored
        )));
        assert!(!is_refused(&grants.granted(
            NODE,
            &grant(1, 6),
            &mut ignored
        )));
        assert!(is_refused(&grants.granted(
            NODE,
            &grant(2, 5),
            &mut ignored
        )));
        grants.withdrawn(NODE, &withdraw(3, 9), &mut ignored);
        assert!(is_refused(&grants.granted(
            NODE,
            &grant(3, 9),
            &mut ignored
        )));
    }
}
