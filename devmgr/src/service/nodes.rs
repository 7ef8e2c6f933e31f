//! The `Nodes` service, to which daemons in managed mode stay connected.
//!
//! One task per connection reads messages and passes them to the owner. Messages to the node go through a
//! bounded queue of the connection. A node that reads too slowly is disconnected, and one that is silent
//! is lost. Nothing waits for either.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use causeway_links::LinkEntry;
use causeway_proto::manager::nodes_server::Nodes;
use causeway_proto::manager::{Alive, FromNode, Hello, MoveEnded, ToNode, from_node, to_node};
use causeway_proto::metadata::Term;
use causeway_proto::version;
use causeway_serving::gate::Peer;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::authentication::{Authenticator, check_name, wall_now};
use super::book::Sight;
use super::identity::Identity;
use super::input::{ConnectionId, Input, Load, NodeLink, NotJoined};
use super::link_place::{LinkPlace, MAX_ADDRESS, MAX_ADDRESSES};
use super::links::{ReportedLinks, UncheckedLinks, checked, figures};
use super::reading::{gone, read};
use super::wire;
use crate::identity::{Caller, NotKnown};
use crate::inventory::{NodeId, limits};
use crate::lease::{Epoch, Event, GrantReport, Joined, MoveResult, ServedGrant};
use crate::policy::UserName;
use crate::time::Wall;

/// Length of a node's outbound queue: enough to grant and withdraw as many leases as a node can have.
const OUTBOUND: usize = 2 * limits::NODE_UNITS + 64;
/// Maximum length in bytes of a node's key for measured links.
const MAX_LINK_KEY: usize = 32;
/// Maximum length in characters of the reason why a lease is not moved.
const MAX_REASON: usize = 256;

/// The `Nodes` service.
pub(super) struct NodesService {
    pub(super) authenticator: Authenticator,
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) silence_limit: Duration,
    pub(super) identity: Identity,
    pub(super) links: ReportedLinks,
}

#[tonic::async_trait]
impl Nodes for NodesService {
    type JoinStream = Pin<Box<dyn Stream<Item = Result<ToNode, Status>> + Send>>;

    async fn join(
        &self,
        request: Request<Streaming<FromNode>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let caller = self.authenticator.caller(&request)?;
        check_may_join(&caller)?;
        let from = request
            .extensions()
            .get::<Peer>()
            .map(|peer| tracing::field::display(peer.address));
        let mut words = request.into_inner();
        let hello = self.hello(&mut words).await?;
        self.identity.check_term(Term(hello.term), &caller)?;
        if hello.link_key.len() > MAX_LINK_KEY {
            return Err(Status::invalid_argument("a link key of the wrong length"));
        }
        let is_insecure = hello.insecure;
        let place = LinkPlace::new(&hello.link_key, hello.inventory.as_ref());
        let account = self
            .authenticator
            .authenticates()
            .then(|| caller.user.clone());
        let joined = joined(hello, account)?;
        tracing::info!(node = ?joined.node, name = joined.name, devices = joined.devices.len(),
            leases = joined.running.len(), user = %caller.user, from, "a node has joined");
        let (outbound, sent) = mpsc::channel(OUTBOUND);
        let (open, closed) = oneshot::channel();
        let connection = Connection {
            id: ConnectionId::fresh(),
            node: joined.node,
            owner: self.owner.clone(),
            alive: outbound.clone(),
            load: Arc::default(),
            silence_limit: self.silence_limit,
            links: self.links.clone(),
            place: place.clone(),
            unchecked: UncheckedLinks::default(),
            until: caller.until,
        };
        let link = NodeLink {
            connection: connection.id,
            outbound,
            load: Arc::clone(&connection.load),
            caller: caller.clone(),
            is_insecure,
            place,
            is_welcomed: false,
            _open: open,
        };
        let (answer, answered) = oneshot::channel();
        let input = Input::Joined(joined, link, answer);
        self.owner.send(input).await.map_err(|_| gone())?;
        // A separate task, because this call is dropped when the node disconnects.
        tokio::spawn(connection.read(words, closed));
        let answer = answered.await.map_err(|_| gone())?;
        answer.map_err(|not| refusal(&not))?;
        let sent = tokio_stream::StreamExt::map(ReceiverStream::new(sent), Ok);
        Ok(Response::new(Box::pin(sent)))
    }
}

impl NodesService {
    /// Reads a node's first message.
    async fn hello(&self, words: &mut Streaming<FromNode>) -> Result<Hello, Status> {
        const RULE: &str = "protocol error: a node's first message must be Hello";
        let first = tokio::time::timeout(self.silence_limit, words.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded(RULE))??;
        match first.and_then(|word| word.message) {
            Some(from_node::Message::Hello(hello)) => Ok(hello),
            _ => Err(Status::invalid_argument(RULE)),
        }
    }
}

fn refusal(not: &NotJoined) -> Status {
    match not {
        NotJoined::TooMany | NotJoined::TooMuch(_) => Status::resource_exhausted(not.to_string()),
        NotJoined::AnothersNode | NotJoined::NoNode => Status::permission_denied(not.to_string()),
        NotJoined::Unwritten(of) => wire::unwritten(of),
    }
}

fn check_may_join(caller: &Caller) -> Result<(), Status> {
    if caller.may_join() {
        return Ok(());
    }
    Err(Status::permission_denied(format!(
        "{0} may not join as a node; an administrator can allow it: `causeway users add --node {0}`, or for an existing \
         user `causeway users node {0} yes`",
        caller.user
    )))
}

fn move_result(of: &MoveEnded) -> MoveResult {
    let reason = of.reason.chars().take(MAX_REASON).collect();
    match (of.reason.is_empty(), of.elsewhere) {
        (true, _) => MoveResult::Moved,
        (false, false) => MoveResult::Stays(reason),
        (false, true) => MoveResult::NotTaken(reason),
    }
}

fn joined(hello: Hello, account: Option<UserName>) -> Result<Joined, Status> {
    version::check(hello.wire_version)
        .map_err(|mismatch| Status::failed_precondition(format!("causeway-devmgr: {mismatch}")))?;
    check_name(&hello.name).map_err(Status::invalid_argument)?;
    check_addresses(&hello.addresses)?;
    limits::check_leases(hello.leases.len()).map_err(wire::too_much)?;
    let running = hello.leases.iter().map(|of| {
        Ok(ServedGrant {
            lease: wire::lease_id(&of.lease_id)?,
            epoch: Epoch(of.epoch),
            sessions: of.sessions,
        })
    });
    Ok(Joined {
        node: wire::node_id(&hello.node_uuid)?,
        account,
        running: running.collect::<Result<_, Status>>()?,
        devices: wire::devices(hello.inventory, &hello.shared)?,
        name: hello.name,
        addresses: hello.addresses,
        stopping: hello.stopping,
    })
}

fn check_addresses(addresses: &[String]) -> Result<(), Status> {
    let is_long = |address: &String| address.len() > MAX_ADDRESS;
    if addresses.len() > MAX_ADDRESSES || addresses.iter().any(is_long) {
        let text = "too many addresses, or too long ones";
        return Err(Status::invalid_argument(text));
    }
    Ok(())
}

/// The reading half of a node's connection.
struct Connection {
    id: ConnectionId,
    node: NodeId,
    owner: mpsc::Sender<Input>,
    alive: mpsc::Sender<ToNode>,
    load: Arc<Load>,
    silence_limit: Duration,
    links: ReportedLinks,
    place: LinkPlace,
    /// Figures whose check by the owner is due.
    unchecked: UncheckedLinks,
    /// When the node's credentials expire.
    until: Option<Wall>,
}

impl Connection {
    /// Reads until the node leaves, is silent or sends a malformed message, or until the owner drops its
    /// link.
    async fn read(self, mut words: Streaming<FromNode>, mut closed: oneshot::Receiver<()>) {
        let reason = loop {
            let word = tokio::select! {
                word = tokio::time::timeout(self.silence_limit, words.message()) => word,
                _ = &mut closed => break "the connection was replaced or closed by the manager".to_owned(),
            };
            let mut word = match word {
                Ok(Ok(Some(word))) => word,
                Ok(Ok(None)) => break "the node disconnected".to_owned(),
                Ok(Err(status)) => break status.message().to_owned(),
                Err(_) => break "the node sent nothing within the heartbeat limit".to_owned(),
            };
            let links = match &mut word.message {
                Some(from_node::Message::Heartbeat(beat)) => std::mem::take(&mut beat.links),
                _ => Vec::new(),
            };
            let refusal = match &word.message {
                Some(from_node::Message::Refused(of)) => {
                    Some(of.reason.chars().take(256).collect())
                }
                _ => None,
            };
            match self.heard(word) {
                Ok(Some(event)) => {
                    if let (Some(reason), Event::GrantRefused(word)) = (refusal, &event) {
                        self.tell_of_refusal(*word, reason).await;
                    }
                    let input = Input::FromNode(self.id, self.node, event);
                    if self.owner.send(input).await.is_err() {
                        return;
                    }
                }
                Ok(None) => self.keep(figures(self.node, &links)),
                Err(status) => break status.message().to_owned(),
            }
        };
        tracing::info!(node = ?self.node, reason, "a node's connection is over");
        // Fails only when the owner has ended.
        let _ = self.owner.send(Input::Left(self.id, self.node)).await;
    }

    /// Keeps figures that the owner finds right. While a task waits for the owner, later figures join those that wait.
    fn keep(&self, figures: Vec<(NodeId, LinkEntry)>) {
        if !self.unchecked.add(figures) {
            return;
        }
        let (owner, id, node) = (self.owner.clone(), self.id, self.node);
        let (links, unchecked) = (self.links.clone(), self.unchecked.clone());
        // A separate task, because heartbeats need their answers while the owner waits for its disk.
        tokio::spawn(async move {
            while let Some(figures) = unchecked.take() {
                let known = read(&owner, move |sight| {
                    checked(sight.book, (id, node), figures)
                });
                match known.await {
                    Ok(known) => links.note(node, known, wall_now()),
                    // The owner has ended.
                    Err(_) => return,
                }
            }
        });
    }

    /// Logs a refusal before the owner handles it, while the owner still knows the lease's user.
    async fn tell_of_refusal(&self, word: GrantReport, reason: String) {
        let tell = move |sight: &Sight<'_>| {
            let user = sight.manager.holder(word.epoch).map(|user| &*user.0);
            tracing::warn!(node = ?word.node, lease = ?word.lease, user, reason, "a grant was refused");
        };
        // Fails only when the owner has ended.
        let _ = self.owner.send(Input::Read(Box::new(tell))).await;
    }

    fn heard(&self, word: FromNode) -> Result<Option<Event>, Status> {
        use from_node::Message;
        let grant = |lease: &[u8], epoch| -> Result<GrantReport, Status> {
            Ok(GrantReport {
                node: self.node,
                lease: wire::lease_id(lease)?,
                epoch: Epoch(epoch),
            })
        };
        Ok(match word.message {
            Some(Message::Hello(_)) => {
                return Err(Status::invalid_argument(
                    "protocol error: a node sent Hello twice",
                ));
            }
            Some(Message::Inventory(changed)) => {
                check_addresses(&changed.addresses)?;
                self.place.set(changed.inventory.as_ref());
                Some(Event::NodeChanged {
                    node: self.node,
                    addresses: changed.addresses,
                    devices: wire::devices(changed.inventory, &changed.shared)?,
                })
            }
            Some(Message::Acknowledged(of)) => {
                Some(Event::GrantAcknowledged(grant(&of.lease_id, of.epoch)?))
            }
            Some(Message::Refused(of)) => Some(Event::GrantRefused(grant(&of.lease_id, of.epoch)?)),
            Some(Message::Stopping(_)) => Some(Event::NodeStopping { node: self.node }),
            Some(Message::Withdrawn(of)) => Some(Event::Withdrawn(grant(&of.lease_id, of.epoch)?)),
            Some(Message::MoveEnded(of)) => {
                let (word, target) = (grant(&of.lease_id, of.epoch)?, Epoch(of.target_epoch));
                Some(Event::MoveEnded(word, target, move_result(&of)))
            }
            Some(Message::Sessions(of)) => Some(Event::Sessions {
                of: grant(&of.lease_id, of.epoch)?,
                count: of.sessions,
            }),
            // Checked here, because heartbeats arrive as long as the connection lives.
            Some(Message::Heartbeat(_)) if self.until.is_some_and(|until| wall_now() >= until) => {
                return Err(Status::unauthenticated(NotKnown::Expired.to_string()));
            }
            Some(Message::Heartbeat(beat)) => {
                limits::check_leases(beat.leases.len()).map_err(wire::too_much)?;
                self.load.set(&beat);
                let alive = to_node::Message::Alive(Alive {
                    number: beat.number,
                });
                // If the queue is full, the node gets the answer to a later heartbeat.
                let _ = self.alive.try_send(ToNode {
                    message: Some(alive),
                });
                None
            }
            // A message of a later version.
            None => None,
        })
    }
}
