//! Simulated nodes. Each joins over a connection of its own, sends heartbeats at the manager's interval, and
//! acknowledges at once.
//!
//! The wire is real. Nodes of several managers join the next leader when a connection ends. Invariant: a grant of a device
//! that has another grant is a fault and ends the run. So is a connection that ends while the only manager runs.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use causeway_proto::control::{Device, InfoAnswer, Inventory, Platform};
use causeway_proto::manager::nodes_client::NodesClient;
use causeway_proto::manager::{
    FromNode, Grant, GrantAcknowledged, GrantWithdrawn, Heartbeat, Hello, LeaseSessions,
    RunningLease, ToNode, Welcome, Withdraw, from_node, to_node,
};
use causeway_proto::metadata::hexadecimal;
use causeway_proto::request::property;
use causeway_proto::version::WireVersion;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};

use super::leader::{Seeker, There};
use super::{Error, PATIENCE};
use crate::random::Random;

/// Longest pause before a node looks for the next leader, as of a daemon.
const PAUSE: Duration = Duration::from_millis(200);

/// How many nodes there are, of how many devices each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) nodes: u32,
    pub(super) devices: u32,
    /// Number of nodes that join at a time.
    pub(super) batch: u32,
}

/// All nodes.
pub(super) struct Cluster {
    shared: Arc<Shared>,
    count: usize,
    nodes: JoinSet<String>,
}

struct Shared {
    managers: Arc<[String]>,
    devices: u32,
    /// Number of starts and ends of the only manager; odd while it does not run.
    life: watch::Sender<u32>,
    /// The nodes that the leader has accepted.
    there: watch::Sender<There>,
    joining: Semaphore,
    sessions: AtomicBool,
    /// The leases that nodes serve, each with the node's number: an offer may be withdrawn from one node, and the lease be
    /// granted on another one.
    served: Mutex<BTreeSet<(Vec<u8>, u32)>>,
}

impl Shared {
    fn served(&self) -> std::sync::MutexGuard<'_, BTreeSet<(Vec<u8>, u32)>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    /// Lets the nodes join.
    pub(super) fn start(size: Size, managers: &Arc<[String]>) -> Cluster {
        let shared = Arc::new(Shared {
            managers: Arc::clone(managers),
            devices: size.devices,
            life: watch::channel(0).0,
            there: watch::channel(There::default()).0,
            joining: Semaphore::new(size.batch as usize),
            sessions: AtomicBool::new(false),
            served: Mutex::default(),
        });
        let mut nodes = JoinSet::new();
        for number in 0..size.nodes {
            let phase = f64::from(number) / f64::from(size.nodes);
            nodes.spawn(Node::new(number, phase, &shared).live());
        }
        Cluster {
            shared,
            count: size.nodes as usize,
            nodes,
        }
    }

    /// Waits until every node is accepted.
    pub(super) async fn all_are_there(&mut self) -> Result<(), Error> {
        self.see("join", |there, count| there.count == count).await
    }

    /// Waits until a node is with the leader of a later term.
    pub(super) async fn one_is_after(&self, term: u64) -> Result<(), Error> {
        self.after(term, 1).await
    }

    /// Waits until all nodes are with the leader of a later term.
    pub(super) async fn all_are_after(&self, term: u64) -> Result<(), Error> {
        self.after(term, self.count).await
    }

    async fn after(&self, term: u64, count: usize) -> Result<(), Error> {
        let is_so = |now: &There| now.term > term && now.count >= count;
        let seen = There::seen(&self.shared.there, is_so).await;
        seen.map_err(|now| format!("not all nodes have left term {term}: {now:?}").into())
    }

    /// The leases that nodes serve.
    pub(super) fn served(&self) -> BTreeSet<Vec<u8>> {
        let served = self.shared.served();
        served.iter().map(|(lease, _)| lease.clone()).collect()
    }

    /// Waits until no node is accepted.
    pub(super) async fn all_are_gone(&mut self) -> Result<(), Error> {
        self.see("notice that the manager is gone", |there, _| {
            there.count == 0
        })
        .await
    }

    async fn see(&mut self, what: &str, is_so: fn(There, usize) -> bool) -> Result<(), Error> {
        let count = self.count;
        let seen = There::seen(&self.shared.there, |now| is_so(*now, count));
        tokio::select! {
            seen = seen => seen.map_err(|now| format!("not all nodes {what}: {now:?}").into()),
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
    seeker: Seeker,
    random: Random,
    /// The grant that each device serves.
    served: Vec<Option<Served>>,
}

#[derive(Clone, PartialEq, Eq)]
struct Served {
    lease: Vec<u8>,
    epoch: u64,
}

/// How a connection to a manager ends.
enum Ended {
    /// The connection broke, or the manager is not believed.
    Parted(Error),
    /// The manager has granted something impossible.
    Fault(Error),
}

impl<E: Into<Error>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Parted(error.into())
    }
}

impl Node {
    fn new(number: u32, phase: f64, shared: &Arc<Shared>) -> Node {
        Node {
            number,
            phase,
            shared: Arc::clone(shared),
            seeker: Seeker::of_node(&shared.managers, hexadecimal(uuid(number))).at(1, number),
            random: Random::new(number.into()),
            served: vec![None; shared.devices as usize],
        }
    }

    /// Runs until there is a fault, and returns it.
    async fn live(mut self) -> String {
        let name = format!("node-{}", self.number);
        loop {
            let mut lives = self.shared.life.subscribe();
            let Ok(life) = lives.wait_for(|life| life % 2 == 0).await.map(|life| *life) else {
                return format!("{name}: the run is over");
            };
            match self.joined().await {
                Err(Ended::Fault(fault)) => return format!("{name}: {fault}"),
                Err(Ended::Parted(_)) if self.seeker.has_several() => {
                    let spread = 0.5 + self.random.unit() / 2.0;
                    sleep(PAUSE.mul_f64(spread)).await;
                }
                Err(Ended::Parted(why)) if *lives.borrow() == life => {
                    return format!("{name}: its connection ended: {why}");
                }
                Err(Ended::Parted(_)) => {}
            }
        }
    }

    /// Serves one connection to its end.
    async fn joined(&mut self) -> Result<Infallible, Ended> {
        let shared = Arc::clone(&self.shared);
        let permit = shared.joining.acquire().await?;
        let mut client = NodesClient::new(self.seeker.find().await?);
        let (send, words) = mpsc::channel(64);
        send.send(self.hello()).await?;
        let mut request = Request::new(ReceiverStream::new(words));
        self.seeker.tell(request.metadata_mut());
        let joined = async {
            let mut words = client.join(request).await?.into_inner();
            match words.message().await?.and_then(|word| word.message) {
                Some(to_node::Message::Welcome(welcome)) => Ok::<_, Error>((words, welcome)),
                _ => Err("it was not welcomed".into()),
            }
        };
        let (words, welcome) = timeout(PATIENCE, joined).await??;
        self.seeker.welcomed(welcome.term, &welcome.cluster_id)?;
        drop(permit);
        shared.there.send_modify(|there| there.came(welcome.term));
        let ended = self.serve(words, send, &welcome).await;
        shared.there.send_modify(|there| there.left(welcome.term));
        ended
    }

    async fn serve(
        &mut self,
        mut words: Streaming<ToNode>,
        send: mpsc::Sender<FromNode>,
        welcome: &Welcome,
    ) -> Result<Infallible, Ended> {
        let interval = Duration::from_millis(welcome.heartbeat_interval_ms.into());
        let limit = Duration::from_millis(welcome.heartbeat_limit_ms.into());
        let mut beats = interval_at(Instant::now() + interval.mul_f64(self.phase), interval);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut number = 0;
        let mut silent_at = Instant::now() + limit;
        loop {
            tokio::select! {
                word = words.message() => match word?.and_then(|word| word.message) {
                    Some(to_node::Message::Grant(grant)) => {
                        for answer in self.grant(&grant).map_err(Ended::Fault)? {
                            send.send(answer).await?;
                        }
                    }
                    Some(to_node::Message::Withdraw(word)) => send.send(self.withdraw(&word)).await?,
                    Some(to_node::Message::Alive(_)) => silent_at = Instant::now() + limit,
                    Some(_) => {}
                    None => return Err("it was closed".into()),
                },
                _ = beats.tick() => {
                    number += 1;
                    let beat = Heartbeat { number, ..Heartbeat::default() };
                    send.send(from_node(from_node::Message::Heartbeat(beat))).await?;
                }
                // The only manager may be slow under the load that is to be measured.
                () = sleep_until(silent_at), if self.seeker.has_several() => return Err("the manager is silent".into()),
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
        self.shared.served().insert((ours.lease, self.number));
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
            if place.take_if(|of| is_it(of)).is_some() {
                let served = (word.lease_id.to_vec(), self.number);
                self.shared.served().remove(&served);
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
        let highest = self.seeker.highest();
        let cluster = highest.cluster().map(|cluster| cluster.0.to_vec());
        let devices = (0..self.shared.devices).map(|device| self.device(device));
        let [_, a, b, c] = self.number.to_be_bytes();
        from_node(from_node::Message::Hello(Hello {
            wire_version: WireVersion::CURRENT.number().into(),
            node_uuid: uuid(self.number).to_vec().into(),
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
            term: highest.term().0,
            cluster_id: cluster.unwrap_or_default().into(),
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
        let mut uuid = uuid(self.number);
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

/// The uuid of a node.
fn uuid(number: u32) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&number.to_be_bytes());
    uuid
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
