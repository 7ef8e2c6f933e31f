//! The connection to the device manager: hello, what it says, what this node says, heartbeats; made anew for ever.
//!
//! What it is not: nothing is decided here; words go into the table and come out of it. Invariants: what the table
//! says after a hello was made from it is sent after that hello, in order; the manager counts as heard of as of
//! when the last heartbeat that it has answered was sent, so this node never believes itself in touch for longer
//! than the manager does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::control::Inventory;
use causeway_proto::manager::nodes_client::NodesClient;
use causeway_proto::manager::{
    FromNode, GrantAcknowledged, GrantRefused, GrantWithdrawn, Heartbeat, Hello, InventoryChanged,
    LeaseLoad, LeaseSessions, RunningLease, Stopping, ToNode, Welcome, from_node, to_node,
};
use causeway_proto::version::{self, WireVersion};
use causeway_security::LeaseVerifier;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming};

use super::dial::{self, NotDialled};
use super::name::{DeviceAt, Epoch, GrantedUnit, LeaseId, Time, Unit};
use super::word::{Grant, Word};
use super::{Managed, offer, reach};
use crate::config::ManagerAddress;
use crate::supervisor::Supervisor;

/// For the manager to answer a hello. It may wait for its disk.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);
/// Between two attempts, the first time; twice as long each time after.
const PAUSE: Duration = Duration::from_millis(200);
/// At most.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often this node looks whether it has other devices.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// What a manager may ask for.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(60));

/// To the manager; `None`: no more will be said. What is said while a connection is breaking is lost; the next hello has
/// it all.
#[derive(Clone)]
pub(super) struct Outgoing(mpsc::UnboundedSender<Option<FromNode>>);

impl Outgoing {
    pub(super) fn say(&self, lease: LeaseId, epoch: Epoch, word: Word) {
        let (lease_id, epoch) = (lease.0.to_vec().into(), epoch.0);
        self.send(match word {
            Word::Acknowledged => {
                from_node::Message::Acknowledged(GrantAcknowledged { lease_id, epoch })
            }
            Word::Refused(why) => from_node::Message::Refused(GrantRefused {
                lease_id,
                epoch,
                reason: why.to_string(),
            }),
            Word::Withdrawn => from_node::Message::Withdrawn(GrantWithdrawn { lease_id, epoch }),
            Word::Sessions(sessions) => from_node::Message::Sessions(LeaseSessions {
                lease_id,
                epoch,
                sessions,
            }),
        });
    }

    fn send(&self, message: from_node::Message) {
        let message = Some(message);
        // It fails when the connection is over.
        let _ = self.0.send(Some(FromNode { message }));
    }

    pub(super) fn say_stopping(&self) {
        self.send(from_node::Message::Stopping(Stopping {}));
    }

    /// What was said before is on its way; the manager answers by hanging up.
    pub(super) fn say_no_more(&self) {
        let _ = self.0.send(None);
    }
}

/// A connection to the manager is over, or did not come to be.
#[derive(Debug, thiserror::Error)]
enum Parted {
    #[error(transparent)]
    NotDialled(#[from] NotDialled),
    #[error("{}", .0.message())]
    Refused(#[from] Status),
    #[error("it does not answer")]
    Silent,
    #[error("it hung up")]
    HungUp,
    #[error(transparent)]
    Version(#[from] version::VersionMismatch),
    #[error("it speaks nonsense: {0}")]
    Nonsense(&'static str),
}

impl Parted {
    /// What to do about it.
    fn cure(&self) -> Option<&'static str> {
        match self {
            Parted::NotDialled(not) => not.cure(),
            Parted::Refused(status) if status.code() == Code::Unimplemented => Some(
                "that is no device manager's port: its port is 7078 unless it was told another (7079 is a node's)",
            ),
            _ => None,
        }
    }
}

/// Stays with the manager, for ever.
pub(in crate::supervisor) async fn join(supervisor: Arc<Supervisor>, managed: Managed) {
    let mut pause = PAUSE;
    let addresses = managed.0.settings.addresses.clone();
    tell_reach(&supervisor, &addresses);
    for address in addresses.iter().cycle() {
        let link = Link {
            supervisor: &supervisor,
            managed: &managed,
            address,
        };
        let mut welcomed = false;
        let Err(parted) = link.stay(&mut welcomed).await;
        managed.0.state.lock().manager = None;
        managed.0.parted.notify_waiters();
        if welcomed {
            pause = PAUSE;
            tracing::warn!(manager = %address, error = %parted, "the device manager is away; what it has granted is served on");
        } else {
            tracing::warn!(manager = %address, error = %parted, cure = parted.cure(), "the device manager cannot be joined; trying again");
        }
        // All daemons of a cluster lose their manager at the same moment, and need not come back at one.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn node(supervisor: &Supervisor) -> reach::Node<'_> {
    reach::Node {
        listening: &supervisor.addresses,
        advertised: &supervisor.settings.advertise,
        certificate: supervisor.settings.security.certificate.as_ref(),
    }
}

/// Where the manager's users are told to reach this node, as of now.
fn reached_at(supervisor: &Supervisor) -> Vec<String> {
    reach::addresses(&node(supervisor), supervisor.peer_addresses())
}

/// Says it, and what is wrong with it: what nobody can reach is leased all the same.
fn tell_reach(supervisor: &Supervisor, managers: &[ManagerAddress]) {
    let told = reached_at(supervisor);
    tracing::info!(
        addresses = told.join(", "),
        "users are told to reach this node at"
    );
    let is_near = managers.iter().all(ManagerAddress::is_loopback);
    for hindrance in reach::hindrances(&node(supervisor), &told, is_near) {
        tracing::warn!(cure = hindrance.cure, "UNREACHABLE: {}", hindrance.problem);
    }
}

/// One connection.
struct Link<'a> {
    supervisor: &'a Supervisor,
    managed: &'a Managed,
    address: &'a ManagerAddress,
}

/// Nothing but its end comes of it.
enum Never {}

impl Link<'_> {
    async fn stay(&self, welcomed: &mut bool) -> Result<Never, Parted> {
        let settings = &self.managed.0.settings;
        let channel = dial::dial(self.address, settings.tls.as_ref()).await?;
        let known = self.supervisor.current_inventory().await;
        let (outgoing, words) = mpsc::unbounded_channel();
        let outgoing = Outgoing(outgoing);
        let asked = self.hello(&outgoing, self.supervisor.told(&known));
        let words = UnboundedReceiverStream::new(words).map_while(|word| word);
        let mut request = tonic::Request::new(words);
        dial::authorize(&mut request, settings.token.as_ref());
        let mut client = NodesClient::new(channel);
        let (mut incoming, welcome) = tokio::time::timeout(WELCOME_WITHIN, async {
            let mut incoming = client.join(request).await?.into_inner();
            let welcome = next(&mut incoming).await?;
            Ok::<_, Parted>((incoming, welcome))
        })
        .await
        .map_err(|_| Parted::Silent)??;
        let to_node::Message::Welcome(welcome) = welcome else {
            return Err(Parted::Nonsense("no welcome"));
        };
        let pace = self.welcome(asked, &welcome)?;
        *welcomed = true;
        tokio::select! {
            parted = self.listen(&mut incoming, &outgoing, pace) => parted,
            never = self.tell_changes(&outgoing, known.inventory.generation) => match never {},
        }
    }

    /// Says hello, and has all words from now on said after it; when.
    fn hello(&self, outgoing: &Outgoing, inventory: Inventory) -> Time {
        for share in offer::idle(&inventory, &self.managed.0.shares) {
            tracing::warn!(device = %share.device, "[[shares]] names a device that this node does not have");
        }
        let offer = self.managed.offer(&inventory);
        let asked = self.managed.now();
        let mut state = self.managed.0.state.lock();
        outgoing.send(from_node::Message::Hello(Hello {
            wire_version: WireVersion::CURRENT.number().into(),
            node_uuid: self.managed.0.node.to_vec().into(),
            name: self.supervisor.settings.name.clone(),
            addresses: reached_at(self.supervisor),
            inventory: Some(inventory),
            shared: offer.shared,
            stopping: state.grants.is_stopping(),
            insecure: self.supervisor.is_exposed(),
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
        state.manager = Some(outgoing.clone());
        asked
    }

    fn welcome(&self, asked: Time, welcome: &Welcome) -> Result<Pace, Parted> {
        version::check(welcome.wire_version)?;
        let verifier = LeaseVerifier::from_public_key(&welcome.public_key)
            .ok_or(Parted::Nonsense("no public key"))?;
        let fence = Epoch(welcome.epoch);
        {
            let mut state = self.managed.0.state.lock();
            if state.grants.is_set_back(fence) {
                tracing::error!(
                    manager = %self.address,
                    "the device manager knows less than it did: it was set back, or is another one. Its leases are \
                     refused until it has caught up, or this daemon is started anew"
                );
            }
            state.grants.welcomed(asked, fence);
            state.verifier = Some(verifier);
        }
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
        let mut silent_at = Instant::now() + pace.limit;
        loop {
            tokio::select! {
                message = next(incoming) => match message? {
                    to_node::Message::Alive(alive) => {
                        let mut heard = None;
                        while unanswered.front().is_some_and(|(number, _)| *number <= alive.number) {
                            heard = unanswered.pop_front();
                        }
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
                    outgoing.send(from_node::Message::Heartbeat(self.heartbeat(number)));
                }
                () = tokio::time::sleep_until(silent_at) => return Err(Parted::Silent),
            }
        }
    }

    fn heartbeat(&self, number: u64) -> Heartbeat {
        let counts = self.supervisor.workers.counts();
        let figures = self.supervisor.workers.figures();
        let uses = self.managed.uses().into_iter().map(|of| LeaseLoad {
            lease_id: of.lease.0.to_vec().into(),
            bytes: of.figures.bytes(),
            commands: of.figures.commands,
            sessions: of.sessions,
        });
        Heartbeat {
            bytes: figures.bytes(),
            commands: figures.commands,
            sessions: u32::try_from(counts.sessions).unwrap_or(u32::MAX),
            number,
            leases: uses.collect(),
        }
    }

    fn hear(&self, message: to_node::Message) -> Result<(), Parted> {
        match message {
            to_node::Message::Grant(grant) => {
                let grant = read_grant(&grant).ok_or(Parted::Nonsense("a grant of no lease"))?;
                self.managed.grant(grant);
            }
            to_node::Message::Withdraw(withdraw) => {
                let lease = lease_id(&withdraw.lease_id)
                    .ok_or(Parted::Nonsense("a withdrawal of no lease"))?;
                let epoch = Epoch(withdraw.epoch);
                self.managed.withdraw(lease, epoch, &withdraw.reason);
            }
            to_node::Message::Drain(drain) => {
                self.managed.0.state.lock().grants.drain(drain.draining);
                self.supervisor.look_at_health();
            }
            to_node::Message::Welcome(_) => return Err(Parted::Nonsense("welcome, again")),
            to_node::Message::Alive(_) => {}
        }
        Ok(())
    }

    /// Tells when the node has other devices, or can be reached elsewhere.
    async fn tell_changes(&self, outgoing: &Outgoing, mut generation: u64) -> Never {
        let mut addresses = reached_at(self.supervisor);
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let known = self.supervisor.current_inventory().await;
            let (now, reached_at) = (known.inventory.generation, reached_at(self.supervisor));
            if now == generation && reached_at == addresses {
                continue;
            }
            (generation, addresses) = (now, reached_at);
            let inventory = self.supervisor.told(&known);
            let offer = self.managed.offer(&inventory);
            outgoing.send(from_node::Message::Inventory(InventoryChanged {
                inventory: Some(inventory),
                shared: offer.shared,
                addresses: addresses.clone(),
            }));
        }
    }
}

/// How often each side speaks, and which silence is a loss.
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
            limit: milliseconds(welcome.heartbeat_limit_ms).max(2 * interval),
        }
    }
}

async fn next(incoming: &mut Streaming<ToNode>) -> Result<to_node::Message, Parted> {
    loop {
        let word = incoming.message().await?.ok_or(Parted::HungUp)?;
        // What has no message here is of a later version.
        if let Some(message) = word.message {
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
