//! The connection to the device manager: hello, messages in both directions, heartbeats, and reconnection
//! forever.
//!
//! This module makes no decisions; messages go into the table of grants and come out of it. Invariants:
//! reports that the table makes after the state for a hello was taken are sent after that hello, in order.
//! The manager counts as present since the time at which the last answered heartbeat was sent. This node
//! therefore never believes in the connection for longer than the manager does. A manager in a lower term than
//! the highest known one, or of another cluster, gets no connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causeway_managers::Disbelieved;
use causeway_managers::probe::{self, Probed};
use causeway_proto::control::{Inventory, LinkSpeed};
use causeway_proto::manager::nodes_client::NodesClient;
use causeway_proto::manager::{
    FromNode, GrantAcknowledged, GrantRefused, GrantWithdrawn, Heartbeat, Hello, HostLoad,
    InventoryChanged, LeaseLoad, LeaseSessions, RunningLease, Stopping, ToNode, Welcome, from_node,
    to_node,
};
use causeway_proto::metadata::{ClusterId, Term};
use causeway_proto::version::{self, WireVersion};
use causeway_security::LeaseVerifier;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::dial::{self, NotDialled};
use super::message::{Grant, GrantReport};
use super::name::{DeviceAt, Epoch, GrantedUnit, LeaseId, Time, Unit};
use super::{Managed, leader, offer, reach};
use crate::config::ManagerAddress;
use crate::supervisor::description::Description;
use crate::supervisor::inventory::Known;
use crate::supervisor::process::Processes;
use crate::supervisor::readiness::Readiness;

/// Time limit for the manager's answer to a hello. The manager may wait for its disk.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);
/// Longest pause after a lost connection.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval at which this node checks its devices and addresses for changes.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Range of heartbeat intervals that the node accepts.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(60));

/// Sender of messages to the manager; `None` ends the stream. Messages that are lost with a connection need
/// no repetition, because the next hello contains the whole state.
#[derive(Clone)]
pub(super) struct Outgoing(mpsc::UnboundedSender<Option<FromNode>>);

impl Outgoing {
    pub(super) fn report(&self, lease: LeaseId, epoch: Epoch, report: GrantReport) {
        let (lease_id, epoch) = (lease.0.to_vec().into(), epoch.0);
        self.push(match report {
            GrantReport::Acknowledged => {
                from_node::Message::Acknowledged(GrantAcknowledged { lease_id, epoch })
            }
            GrantReport::Refused(why) => from_node::Message::Refused(GrantRefused {
                lease_id,
                epoch,
                reason: why.to_string(),
            }),
            GrantReport::Withdrawn => {
                from_node::Message::Withdrawn(GrantWithdrawn { lease_id, epoch })
            }
            GrantReport::Sessions(sessions) => from_node::Message::Sessions(LeaseSessions {
                lease_id,
                epoch,
                sessions,
            }),
        });
    }

    pub(super) fn push(&self, message: from_node::Message) {
        let message = Some(message);
        // This fails when the connection has ended.
        let _ = self.0.send(Some(FromNode { message }));
    }

    pub(super) fn say_stopping(&self) {
        self.push(from_node::Message::Stopping(Stopping {}));
    }

    /// Ends the stream after the messages that are already queued. The manager answers by closing the
    /// connection.
    pub(super) fn say_no_more(&self) {
        let _ = self.0.send(None);
    }
}

/// Reasons for the end or the failure of a connection to the manager.
#[derive(Debug, thiserror::Error)]
pub(super) enum Parted {
    #[error(transparent)]
    NotDialled(#[from] NotDialled),
    #[error("{}", .0.message())]
    Refused(#[from] Status),
    /// The manager stands by, or cannot serve now.
    #[error("{}", .0.message())]
    NotLeading(Status),
    #[error(transparent)]
    Disbelieved(#[from] Disbelieved),
    #[error("the device manager does not answer")]
    Silent,
    #[error("the device manager closed the connection")]
    HungUp,
    #[error(transparent)]
    Version(#[from] version::VersionMismatch),
    #[error("the device manager sent an invalid message: {0}")]
    Nonsense(&'static str),
}

impl From<Probed> for Parted {
    fn from(probed: Probed) -> Parted {
        match probed {
            Probed::NotLeading(status) => Parted::NotLeading(status),
            Probed::Disbelieved(disbelieved) => Parted::Disbelieved(disbelieved),
            Probed::Broken(status) => Parted::Refused(status),
        }
    }
}

impl Parted {
    /// Returns advice on how to fix the error, if there is any.
    pub(super) fn cure(&self) -> Option<&'static str> {
        match self {
            Parted::NotDialled(not) => not.cure(),
            Parted::Refused(status) if status.code() == Code::Unimplemented => Some(
                "this port does not belong to a device manager; its default port is 7078 (7079 is a node's)",
            ),
            _ => None,
        }
    }
}

/// Joins the manager that leads, and rejoins forever.
pub(in crate::supervisor) async fn join(
    description: Arc<Description>,
    readiness: Arc<Readiness>,
    managed: Managed,
    processes: Processes,
) {
    let mut addresses = managed.0.settings.addresses.clone();
    tell_reach(&description, &addresses);
    let mut lost = None;
    loop {
        // A search ends with a welcome, so its pauses begin anew when a connection that was welcomed breaks.
        let mut search = leader::Search::new(&managed, &processes, addresses, lost);
        let mut welcomed = false;
        while !welcomed {
            let (number, channel) = search.find().await;
            let address = &search.addresses()[number].clone();
            let link = Link {
                description: &description,
                readiness: &readiness,
                managed: &managed,
                address,
            };
            let Err(parted) = link.stay(channel, &mut welcomed).await;
            managed.0.state.lock().manager = None;
            managed.0.parted.notify_waiters();
            if welcomed {
                lost = Some(number);
                tracing::warn!(
                    manager = %address,
                    error = %parted,
                    "the connection to the device manager is lost; granted leases are still served"
                );
            } else {
                search.refused(number, parted);
            }
        }
        addresses = search.addresses().to_vec();
        // All daemons of a cluster lose their manager at the same moment. The random factor keeps them from
        // returning all at once.
        tokio::time::sleep(PAUSE.mul_f64(rand::random_range(0.5..1.0))).await;
    }
}

fn node(description: &Description) -> reach::Node<'_> {
    reach::Node {
        listening: &description.addresses,
        advertised: &description.settings.advertise,
        certificate: description.settings.security.certificate.as_ref(),
    }
}

/// Returns the addresses at which the manager's users are currently told to reach this node.
fn reached_at(description: &Description) -> Vec<String> {
    reach::addresses(&node(description), description.peer_addresses())
}

/// Logs the addresses at which users are told to reach the node, and warns of problems with them. The
/// manager leases a node even if nobody can reach it.
fn tell_reach(description: &Description, managers: &[ManagerAddress]) {
    let told = reached_at(description);
    tracing::info!(
        addresses = told.join(", "),
        "addresses of this node for the device manager's users"
    );
    let is_near = !managers.is_empty() && managers.iter().all(ManagerAddress::is_loopback);
    for hindrance in reach::hindrances(&node(description), &told, is_near) {
        tracing::warn!(cure = hindrance.cure, "UNREACHABLE: {}", hindrance.problem);
    }
}

/// One connection to the manager.
struct Link<'a> {
    description: &'a Arc<Description>,
    readiness: &'a Readiness,
    managed: &'a Managed,
    address: &'a ManagerAddress,
}

/// Result type of functions that only return errors.
enum Never {}

impl Link<'_> {
    async fn stay(&self, channel: Channel, welcomed: &mut bool) -> Result<Never, Parted> {
        let settings = &self.managed.0.settings;
        // Later changes are found by comparison with this inventory, which the hello contains.
        let known = self.readiness.current_inventory().await;
        let (outgoing, messages) = mpsc::unbounded_channel();
        let outgoing = Outgoing(outgoing);
        let inventory = self.inventory(&known).await;
        let told = Told::of(&inventory, reached_at(self.description));
        let asked = self.hello(&outgoing, inventory, told.reached.clone());
        let messages = UnboundedReceiverStream::new(messages).map_while(|message| message);
        let mut request = tonic::Request::new(messages);
        dial::authorize(&mut request, settings.token.as_ref());
        self.managed.highest().tell(request.metadata_mut());
        let mut client = NodesClient::new(channel);
        let (mut incoming, welcome) = tokio::time::timeout(WELCOME_WITHIN, async {
            let joined = client.join(request).await;
            let mut incoming = joined.map_err(|status| self.refused(status))?.into_inner();
            let welcome = next(&mut incoming).await;
            let welcome = welcome.map_err(|parted| match parted {
                Parted::Refused(status) => self.refused(status),
                parted => parted,
            })?;
            Ok::<_, Parted>((incoming, welcome))
        })
        .await
        .map_err(|_| Parted::Silent)??;
        let to_node::Message::Welcome(welcome) = welcome else {
            return Err(Parted::Nonsense("the first message is not a welcome"));
        };
        let pace = self.welcome(asked, &welcome)?;
        *welcomed = true;
        tokio::select! {
            parted = self.listen(&mut incoming, &outgoing, pace) => parted,
            never = self.tell_changes(&outgoing, told) => match never {},
        }
    }

    /// Explains a status with which the manager has refused to let the node join.
    fn refused(&self, status: Status) -> Parted {
        let hear = |metadata: &_, stands_by| self.managed.hear(metadata, stands_by);
        probe::judge(status, hear).map_or_else(Parted::from, Parted::Refused)
    }

    /// The inventory, with the speeds of interfaces for nodes that measure links to this one.
    async fn inventory(&self, known: &Known) -> Inventory {
        let is_stopping = self.managed.0.workers.counts().draining;
        let mut inventory = self.description.inventory(known, is_stopping);
        let speeds = self.description.link_speeds(&inventory.peer_addresses);
        inventory.link_speeds = speeds.await;
        inventory
    }

    /// Queues the hello, and directs all later reports to this connection. Returns the time of the hello. `reached`: where users
    /// reach the node.
    fn hello(&self, outgoing: &Outgoing, inventory: Inventory, reached: Vec<String>) -> Time {
        for share in offer::idle(&inventory, &self.managed.0.shares) {
            tracing::warn!(device = %share.device, "[[shares]] names a device that this node does not have");
        }
        let offer = self.managed.offer(&inventory);
        let asked = self.managed.now();
        // The lock covers both the snapshot of the leases and the switch to this connection, so that no
        // report falls between them.
        let mut state = self.managed.0.state.lock();
        let cluster = state.highest.cluster();
        outgoing.push(from_node::Message::Hello(Hello {
            term: state.highest.term().0,
            cluster_id: cluster.map_or_else(Bytes::new, |id| id.0.to_vec().into()),
            wire_version: WireVersion::CURRENT.number().into(),
            node_uuid: self.managed.0.node.to_vec().into(),
            name: self.description.name().to_owned(),
            addresses: reached,
            inventory: Some(inventory),
            shared: offer.shared,
            stopping: state.grants.is_stopping(),
            insecure: self.description.is_exposed(),
            link_key: self.managed.0.end_key.public_key().to_vec().into(),
            leases: state
                .grants
                .running()
                .into_iter()
                .map(|of| RunningLease {
                    lease_id: of.lease.0.to_vec().into(),
                    epoch: of.epoch.0,
                    sessions: of.sessions,
                })
                .collect(),
        }));
        for ended in state.moved.values() {
            outgoing.push(from_node::Message::MoveEnded(ended.clone()));
        }
        state.manager = Some(outgoing.clone());
        asked
    }

    fn welcome(&self, asked: Time, welcome: &Welcome) -> Result<Pace, Parted> {
        version::check(welcome.wire_version)?;
        let verifier = LeaseVerifier::from_public_key(&welcome.public_key)
            .ok_or(Parted::Nonsense("the welcome has no valid public key"))?;
        let fence = Epoch(welcome.epoch);
        {
            let mut state = self.managed.0.state.lock();
            let cluster = ClusterId::from_bytes(&welcome.cluster_id);
            state.highest.hear(Some(Term(welcome.term)), cluster)?;
            if state.grants.is_set_back(fence) {
                tracing::error!(
                    manager = %self.address,
                    "the device manager's state is older than before: its store was restored, or it is another \
                     manager. Its leases are refused until its epochs have caught up; restarting this daemon also \
                     resolves this"
                );
            }
            state.grants.welcomed(asked, fence);
            state.verifier = Some(verifier);
        }
        self.managed.keep_term();
        self.managed.0.changed.notify_one();
        tracing::info!(manager = %self.address, key = ?verifier, "joined the device manager");
        Ok(Pace::of(welcome))
    }

    async fn listen(
        &self,
        incoming: &mut Streaming<ToNode>,
        outgoing: &Outgoing,
        pace: Pace,
    ) -> Result<Never, Parted> {
        let mut beats = tokio::time::interval(pace.interval);
        let mut unanswered = VecDeque::new();
        let mut number = 0;
        let mut reported = 0;
        let mut silent_at = Instant::now() + pace.limit;
        loop {
            tokio::select! {
                message = next(incoming) => match message? {
                    to_node::Message::Alive(alive) => {
                        let mut heard = None;
                        while unanswered.front().is_some_and(|(number, _)| *number <= alive.number) {
                            heard = unanswered.pop_front();
                        }
                        // Only an answer to a heartbeat proves that the manager receives this node's
                        // messages.
                        if let Some((_, asked)) = heard {
                            silent_at = Instant::now() + pace.limit;
                            self.managed.0.state.lock().grants.heard(asked);
                        }
                    }
                    message => self.hear(message)?,
                },
                _ = beats.tick() => {
                    number += 1;
                    unanswered.push_back((number, self.managed.now()));
                    let (links, up_to) = self.managed.0.links.news(reported);
                    reported = up_to;
                    let heartbeat = Heartbeat { links, ..self.heartbeat(number).await };
                    outgoing.push(from_node::Message::Heartbeat(heartbeat));
                }
                () = tokio::time::sleep_until(silent_at) => return Err(Parted::Silent),
            }
        }
    }

    async fn heartbeat(&self, number: u64) -> Heartbeat {
        let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let counts = self.managed.0.workers.counts();
        let figures = self.managed.0.workers.figures();
        let uses = self.managed.uses().into_iter().map(|of| LeaseLoad {
            lease_id: of.lease.0.to_vec().into(),
            bytes: of.figures.bytes(),
            commands: of.figures.commands,
            sessions: of.sessions,
            busy_ns: of.figures.busy,
            away: count(self.managed.0.workers.away_with(&format!("{:?}", of.lease))),
        });
        let hosts = self.managed.0.workers.hosts().into_iter();
        let hosts = hosts.map(|(worker, domain, sessions)| HostLoad {
            worker,
            domain: domain.to_owned(),
            sessions: u32::try_from(sessions).unwrap_or(u32::MAX),
        });
        Heartbeat {
            bytes: figures.bytes(),
            commands: figures.commands,
            sessions: u32::try_from(counts.sessions).unwrap_or(u32::MAX),
            number,
            leases: uses.collect(),
            devices: self.readiness.uses(Duration::ZERO).await,
            hosts: hosts.collect(),
            away: count(self.managed.0.workers.away().0),
            links: Vec::new(),
        }
    }

    fn hear(&self, message: to_node::Message) -> Result<(), Parted> {
        match message {
            to_node::Message::Grant(grant) => {
                let grant = read_grant(&grant)
                    .ok_or(Parted::Nonsense("a grant has an invalid lease id or unit"))?;
                self.managed.grant(grant);
            }
            to_node::Message::Withdraw(withdraw) => {
                let lease = lease_id(&withdraw.lease_id)
                    .ok_or(Parted::Nonsense("a withdrawal has an invalid lease id"))?;
                let epoch = Epoch(withdraw.epoch);
                self.managed.withdraw(lease, epoch, &withdraw.reason);
            }
            to_node::Message::Drain(drain) => {
                self.managed.0.state.lock().grants.drain(drain.draining);
                self.readiness.look_at_health();
            }
            to_node::Message::Move(order) => {
                let lease = lease_id(&order.lease_id)
                    .ok_or(Parted::Nonsense("a move has an invalid lease id"))?;
                self.managed.begin_move(lease, order);
            }
            to_node::Message::Stay(order) => {
                let lease = lease_id(&order.lease_id)
                    .ok_or(Parted::Nonsense("an order has an invalid lease id"))?;
                self.managed.stay(lease, Epoch(order.epoch));
            }
            to_node::Message::Welcome(_) => return Err(Parted::Nonsense("a second welcome")),
            to_node::Message::Alive(_) => {}
        }
        Ok(())
    }

    /// Reports changes of what the hello has `told`. Speeds may come later than the hello, whose addresses wait for no driver.
    async fn tell_changes(&self, outgoing: &Outgoing, mut told: Told) -> Never {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let known = self.readiness.current_inventory().await;
            let inventory = self.inventory(&known).await;
            let of_now = Told::of(&inventory, reached_at(self.description));
            if of_now == told {
                continue;
            }
            told = of_now;
            let offer = self.managed.offer(&inventory);
            outgoing.push(from_node::Message::Inventory(InventoryChanged {
                inventory: Some(inventory),
                shared: offer.shared,
                addresses: told.reached.clone(),
            }));
        }
    }
}

/// What the manager knows of the node's devices and addresses.
#[derive(PartialEq)]
struct Told {
    generation: u64,
    reached: Vec<String>,
    peers: Vec<String>,
    speeds: Vec<LinkSpeed>,
}

impl Told {
    fn of(inventory: &Inventory, reached: Vec<String>) -> Told {
        Told {
            generation: inventory.generation,
            reached,
            peers: inventory.peer_addresses.clone(),
            speeds: inventory.link_speeds.clone(),
        }
    }
}

/// Interval of heartbeats, and the silence after which the connection counts as lost.
#[derive(Clone, Copy)]
struct Pace {
    interval: Duration,
    limit: Duration,
}

impl Pace {
    fn of(welcome: &Welcome) -> Pace {
        let milliseconds = |ms| Duration::from_millis(u64::from(ms));
        let interval = milliseconds(welcome.heartbeat_interval_ms).clamp(INTERVALS.0, INTERVALS.1);
        Pace {
            interval,
            // One late answer must not count as a loss, whatever limit the manager asks for.
            limit: milliseconds(welcome.heartbeat_limit_ms).max(2 * interval),
        }
    }
}

async fn next(incoming: &mut Streaming<ToNode>) -> Result<to_node::Message, Parted> {
    loop {
        let message = incoming.message().await?.ok_or(Parted::HungUp)?;
        // Messages of an unknown kind come from a later version and are skipped.
        if let Some(message) = message.message {
            return Ok(message);
        }
    }
}

fn lease_id(bytes: &[u8]) -> Option<LeaseId> {
    bytes.try_into().ok().map(LeaseId)
}

fn read_grant(grant: &causeway_proto::manager::Grant) -> Option<Grant> {
    let units = grant.units.iter().map(|of| {
        Some(GrantedUnit {
            unit: of.unit.as_ref()?.into(),
            memory: of.memory,
        })
    });
    Some(Grant {
        lease: lease_id(&grant.lease_id)?,
        epoch: Epoch(grant.epoch),
        user: grant.user.clone(),
        units: units.collect::<Option<_>>()?,
        limit: (grant.limit_ms > 0).then(|| Duration::from_millis(grant.limit_ms)),
        autonomy: Duration::from_millis(grant.autonomy_ms),
        resume: (grant.resume_ms > 0).then(|| Duration::from_millis(grant.resume_ms)),
    })
}

impl From<&causeway_proto::manager::Unit> for Unit {
    fn from(unit: &causeway_proto::manager::Unit) -> Unit {
        Unit {
            device: DeviceAt {
                platform: unit.platform,
                device: unit.device,
            },
            share: unit.share,
        }
    }
}
