//! Simulated nodes. Each joins over a connection of its own, sends heartbeats at the manager's interval, and
//! acknowledges at once.
//!
//! The wire is real. Invariant: a grant of a device that has another grant is a fault and ends the run. So is a
//! connection that ends while the manager runs.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_proto::control::{Device, InfoAnswer, Inventory, Platform};
use causeway_proto::manager::nodes_client::NodesClient;
use causeway_proto::manager::{
    FromNode, Grant, GrantAcknowledged, GrantWithdrawn, Heartbeat, Hello, LeaseSessions,
    RunningLease, ToNode, Withdraw, from_node, to_node,
};
use causeway_proto::request::property;
use causeway_proto::version::WireVersion;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use super::{Error, Options, PATIENCE};

/// All nodes.
pub(super) struct Cluster {
    shared: Arc<Shared>,
    count: usize,
    nodes: JoinSet<String>,
}

struct Shared {
    endpoint: String,
    devices: u32,
    /// Number of starts and ends of the manager; odd while it does not run.
    life: watch::Sender<u32>,
    /// Number of nodes that the manager has accepted.
    there: watch::Sender<usize>,
    joining: Semaphore,
    sessions: AtomicBool,
}

impl Cluster {
    /// Lets the nodes join.
    pub(super) fn start(options: &Options, manager: &str) -> Cluster {
        let shared = Arc::new(Shared {
            endpoint: format!("http://{manager}"),
            devices: options.devices,
            life: watch::channel(0).0,
            there: watch::channel(0).0,
            joining: Semaphore::new(options.batch as usize),
            sessions: AtomicBool::new(false),
        });
        let mut nodes = JoinSet::new();
        for number in 0..options.nodes {
            let node = Node {
                number,
                phase: f64::from(number) / f64::from(options.nodes),
                shared: Arc::clone(&shared),
                served: vec![None; options.devices as usize],
            };
            nodes.spawn(node.live());
        }
        Cluster {
            shared,
            count: options.nodes as usize,
            nodes,
        }
    }

    /// Waits until every node is accepted.
    pub(super) async fn all_are_there(&mut self) -> Result<(), Error> {
        self.see("join", |there, count| there == count).await
    }

    /// Waits until no node is accepted.
    pub(super) async fn all_are_gone(&mut self) -> Result<(), Error> {
        self.see("notice that the manager is gone", |there, _| there == 0)
            .await
    }

    async fn see(&mut self, what: &str, is_so: fn(usize, usize) -> bool) -> Result<(), Error> {
        let mut there = self.shared.there.subscribe();
        let count = self.count;
        let seen = timeout(PATIENCE, there.wait_for(|now| is_so(*now, count)));
        tokio::select! {
            seen = seen => match seen {
                Ok(_) => Ok(()),
                Err(_) => Err(format!("not all nodes {what}").into()),
            },
            Some(ended) = self.nodes.join_next() => Err(ended?.into()),
        }
    }

    /// From now on the nodes report a session for each grant, so that no lease needs renewals.
    pub(super) fn open_sessions(&self) {
        self.shared.sessions.store(true, Ordering::Relaxed);
    }

    /// From now on the end of a connection is not a fault.
    pub(super) fn manager_is_going(&self) {
        self.shared.life.send_modify(|life| *life += 1);
    }

    /// The manager listens again, and the nodes join again.
    pub(super) fn manager_is_back(&self) {
        self.shared.life.send_modify(|life| *life += 1);
    }

    /// The first fault of a node, if there is one.
    pub(super) fn assert_no_fault(&mut self) -> Result<(), Error> {
        match self.nodes.try_join_next() {
            Some(fault) => Err(fault?.into()),
            None => Ok(()),
        }
    }
}

struct Node {
    number: u32,
    /// The offset of a node's heartbeats within the interval, so that they do not come at once.
    phase: f64,
    shared: Arc<Shared>,
    /// The grant that each device serves.
    served: Vec<Option<Served>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Served {
    lease: Vec<u8>,
    epoch: u64,
}

impl Node {
    /// Runs until there is a fault, and returns it.
    async fn live(mut self) -> String {
        let name = format!("node-{}", self.number);
        loop {
            let mut lives = self.shared.life.subscribe();
            let Ok(life) = lives.wait_for(|life| life % 2 == 0).await.map(|life| *life) else {
                return format!("{name}: the run is over");
            };
            let ended = self.joined().await;
            if *lives.borrow() == life {
                let why = ended
                    .err()
                    .map_or("it was closed".to_owned(), |e| e.to_string());
                return format!("{name}: its connection ended: {why}");
            }
        }
    }

    /// Serves one connection to its end.
    async fn joined(&mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let permit = shared.joining.acquire().await?;
        let endpoint = Endpoint::from_shared(shared.endpoint.clone())?;
        let mut client = NodesClient::new(endpoint.connect().await?);
        let (send, words) = mpsc::channel(64);
        send.send(self.hello()).await?;
        let mut words = client.join(ReceiverStream::new(words)).await?.into_inner();
        let Some(to_node::Message::Welcome(welcome)) =
            words.message().await?.and_then(|word| word.message)
        else {
            return Err("it was not welcomed".into());
        };
        drop(permit);
        shared.there.send_modify(|there| *there += 1);
        let interval = Duration::from_millis(welcome.heartbeat_interval_ms.into());
        let ended = self.serve(words, send, interval).await;
        shared.there.send_modify(|there| *there -= 1);
        ended
    }

    async fn serve(
        &mut self,
        mut words: Streaming<ToNode>,
        send: mpsc::Sender<FromNode>,
        interval: Duration,
    ) -> Result<(), Error> {
        let mut beats = interval_at(Instant::now() + interval.mul_f64(self.phase), interval);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut number = 0;
        loop {
            tokio::select! {
                word = words.message() => match word?.and_then(|word| word.message) {
                    Some(to_node::Message::Grant(grant)) => {
                        for answer in self.grant(&grant)? {
                            send.send(answer).await?;
                        }
                    }
                    Some(to_node::Message::Withdraw(word)) => send.send(self.withdraw(&word)).await?,
                    Some(_) => {}
                    None => return Ok(()),
                },
                _ = beats.tick() => {
                    number += 1;
                    let beat = Heartbeat { number, ..Heartbeat::default() };
                    send.send(from_node(from_node::Message::Heartbeat(beat))).await?;
                }
            }
        }
    }

    fn grant(&mut self, grant: &Grant) -> Result<Vec<FromNode>, Error> {
        let ours = Served {
            lease: grant.lease_id.to_vec(),
            epoch: grant.epoch,
        };
        for unit in &grant.units {
            let device = unit.unit.as_ref().map_or(0, |unit| unit.device);
            let place = self.served.get_mut(device as usize);
            let place = place.ok_or("a device was granted that there is not")?;
            if place.as_ref().is_some_and(|other| *other != ours) {
                return Err(format!("device {device} was granted twice").into());
            }
            *place = Some(ours.clone());
        }
        let (lease_id, epoch) = (grant.lease_id.clone(), grant.epoch);
        let mut answers = vec![from_node(from_node::Message::Acknowledged(
            GrantAcknowledged {
                lease_id: lease_id.clone(),
                epoch,
            },
        ))];
        if self.shared.sessions.load(Ordering::Relaxed) {
            answers.push(from_node(from_node::Message::Sessions(LeaseSessions {
                lease_id,
                epoch,
                sessions: 1,
            })));
        }
        Ok(answers)
    }

    fn withdraw(&mut self, word: &Withdraw) -> FromNode {
        for place in &mut self.served {
            let is_it = |of: &Served| of.lease == *word.lease_id && of.epoch <= word.epoch;
            if place.as_ref().is_some_and(is_it) {
                *place = None;
            }
        }
        from_node(from_node::Message::Withdrawn(GrantWithdrawn {
            lease_id: word.lease_id.clone(),
            epoch: word.epoch,
        }))
    }

    fn hello(&self) -> FromNode {
        let mut running: Vec<RunningLease> = Vec::new();
        for served in self.served.iter().flatten() {
            let is_there = |of: &RunningLease| of.lease_id == served.lease;
            if !running.iter().any(is_there) {
                running.push(RunningLease {
                    lease_id: served.lease.clone().into(),
                    epoch: served.epoch,
                    sessions: u32::from(self.shared.sessions.load(Ordering::Relaxed)),
                });
            }
        }
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&self.number.to_be_bytes());
        let devices = (0..self.shared.devices).map(|device| self.device(device));
        let [_, a, b, c] = self.number.to_be_bytes();
        from_node(from_node::Message::Hello(Hello {
            wire_version: WireVersion::CURRENT.number().into(),
            node_uuid: uuid.to_vec().into(),
            name: format!("node-{}", self.number),
            addresses: vec![format!("10.{a}.{b}.{c}:7079")],
            inventory: Some(Inventory {
                platforms: vec![Platform {
                    info: Vec::new(),
                    devices: devices.collect(),
                }],
                ..Inventory::default()
            }),
            leases: running,
            ..Hello::default()
        }))
    }

    /// One of four models, with about as many answers as a driver gives, and a UUID of its own.
    fn device(&self, device: u32) -> Device {
        let model = self.number % 4;
        let answer = |name, value: Vec<u8>| InfoAnswer {
            name,
            value: value.into(),
            status: 0,
        };
        let number = |name, value: u64| answer(name, value.to_le_bytes().to_vec());
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&self.number.to_be_bytes());
        uuid[4..8].copy_from_slice(&device.to_be_bytes());
        let extensions = "cl_khr_an_extension_with_a_long_name ".repeat(30);
        let mut info = vec![
            number(property::TYPE, 1 << 2),
            number(property::GLOBAL_MEM_SIZE, (8 << 30) << model),
            number(property::MAX_MEM_ALLOC_SIZE, (2 << 30) << model),
            answer(property::NAME, format!("model {model}\0").into_bytes()),
            answer(EXTENSIONS, extensions.into_bytes()),
            answer(UUID, uuid.to_vec()),
        ];
        info.extend(NUMBERS.map(|name| number(name, u64::from(name))));
        Device {
            info,
            ..Device::default()
        }
    }
}

/// `CL_DEVICE_EXTENSIONS`.
const EXTENSIONS: u32 = 0x1030;
/// `CL_DEVICE_UUID_KHR`.
const UUID: u32 = 0x106A;
/// Names between `CL_DEVICE_PREFERRED_INTEROP_USER_SYNC` and `CL_DEVICE_SVM_CAPABILITIES`, and others whose answers are
/// numbers.
const NUMBERS: std::ops::Range<u32> = 0x1048..0x1060;

fn from_node(message: from_node::Message) -> FromNode {
    FromNode {
        message: Some(message),
    }
}
