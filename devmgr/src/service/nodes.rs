//! The `Nodes` service: what daemons in managed mode hold open.
//!
//! A task a connection reads and hands over; what is sent goes through a bounded queue of its own. A node that
//! is slow to read is cut off, one that is silent is lost; neither is waited for.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use causeway_proto::manager::nodes_server::Nodes;
use causeway_proto::manager::{Alive, FromNode, Hello, ToNode, from_node, to_node};
use causeway_proto::version;
use causeway_serving::door::Peer;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::book::Sight;
use super::gate::{Gate, check_name, wall_now};
use super::input::{ConnectionId, Input, Load, NodeLink, NotJoined};
use super::wire;
use crate::identity::NotKnown;
use crate::inventory::{NodeId, limits};
use crate::lease::{Epoch, Event, GrantWord, Joined, Running, Wall};
use crate::policy::UserName;

/// Messages that a node may be behind: as many leases as it can have, granted and withdrawn at once.
const OUTBOUND: usize = 2 * limits::NODE_UNITS + 64;
/// Addresses of one node.
const MAX_ADDRESSES: usize = 32;
/// Bytes of one of them: a name of the DNS and a port.
const MAX_ADDRESS: usize = 260;

/// See the module.
pub(super) struct NodesService {
    pub(super) gate: Gate,
    pub(super) owner: mpsc::Sender<Input>,
    pub(super) silence_limit: Duration,
}

#[tonic::async_trait]
impl Nodes for NodesService {
    type JoinStream = Pin<Box<dyn Stream<Item = Result<ToNode, Status>> + Send>>;

    async fn join(
        &self,
        request: Request<Streaming<FromNode>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let caller = self.gate.caller(&request)?;
        if !caller.may_join() {
            let text = format!(
                "{0} is not known as a node; an administrator says `causeway users add --node {0}`, or of a user who is there \
                 `causeway users node {0} yes`",
                caller.user
            );
            return Err(Status::permission_denied(text));
        }
        let from = request.extensions().get::<Peer>().map(|peer| peer.address);
        let mut words = request.into_inner();
        let hello = tokio::time::timeout(self.silence_limit, words.message()).await;
        let hello = hello.map_err(|_| Status::deadline_exceeded("a node says hello first"))??;
        let Some(from_node::Message::Hello(hello)) = hello.and_then(|word| word.message) else {
            return Err(Status::invalid_argument("a node says hello first"));
        };
        let is_insecure = hello.insecure;
        let account = self.gate.authenticates().then(|| caller.user.clone());
        let joined = joined(hello, account)?;
        tracing::info!(node = ?joined.node, name = joined.name, devices = joined.devices.len(),
            leases = joined.running.len(), user = %caller.user, ?from, "a node says hello");
        let (outbound, sent) = mpsc::channel(OUTBOUND);
        let (open, closed) = oneshot::channel();
        let connection = Connection {
            id: ConnectionId::fresh(),
            node: joined.node,
            owner: self.owner.clone(),
            alive: outbound.clone(),
            load: Arc::default(),
            silence_limit: self.silence_limit,
            until: caller.until,
        };
        let link = NodeLink {
            connection: connection.id,
            outbound,
            load: Arc::clone(&connection.load),
            caller: caller.clone(),
            is_insecure,
            is_welcomed: false,
            _open: open,
        };
        let gone = || Status::unavailable("the device manager is stopping");
        let (answer, answered) = oneshot::channel();
        let input = Input::Joined(joined, link, answer);
        self.owner.send(input).await.map_err(|_| gone())?;
        // A task of its own: who hangs up here has left.
        tokio::spawn(connection.read(words, closed));
        let answer = answered.await.map_err(|_| gone())?;
        answer.map_err(|not| match not {
            NotJoined::TooMany | NotJoined::TooMuch(_) => {
                Status::resource_exhausted(not.to_string())
            }
            NotJoined::AnothersNode | NotJoined::NoNode => {
                Status::permission_denied(not.to_string())
            }
        })?;
        let sent = tokio_stream::StreamExt::map(ReceiverStream::new(sent), Ok);
        Ok(Response::new(Box::pin(sent)))
    }
}

fn joined(hello: Hello, account: Option<UserName>) -> Result<Joined, Status> {
    version::check(hello.wire_version)
        .map_err(|mismatch| Status::failed_precondition(format!("causeway-devmgr: {mismatch}")))?;
    check_name(&hello.name).map_err(Status::invalid_argument)?;
    check_addresses(&hello.addresses)?;
    limits::check_leases(hello.leases.len()).map_err(wire::too_much)?;
    let running = hello.leases.iter().map(|of| {
        Ok(Running {
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
    /// When what it has shown counts no more.
    until: Option<Wall>,
}

impl Connection {
    /// Until the node leaves, is silent or talks nonsense, or the owner drops its link.
    async fn read(self, mut words: Streaming<FromNode>, mut closed: oneshot::Receiver<()>) {
        let reason = loop {
            let word = tokio::select! {
                word = tokio::time::timeout(self.silence_limit, words.message()) => word,
                _ = &mut closed => break "it was replaced or cut off".to_owned(),
            };
            let word = match word {
                Ok(Ok(Some(word))) => word,
                Ok(Ok(None)) => break "it left".to_owned(),
                Ok(Err(status)) => break status.message().to_owned(),
                Err(_) => break "it was silent for too long".to_owned(),
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
                Ok(None) => {}
                Err(status) => break status.message().to_owned(),
            }
        };
        tracing::info!(node = ?self.node, reason, "a node's connection is over");
        // It fails only when the owner is gone.
        let _ = self.owner.send(Input::Left(self.id, self.node)).await;
    }

    /// Says so in the log, before the owner takes it in, who knows yet whose it was.
    async fn tell_of_refusal(&self, word: GrantWord, reason: String) {
        let tell = move |sight: &Sight<'_>| {
            let user = sight.manager.holder(word.epoch).map(|user| &*user.0);
            tracing::warn!(node = ?word.node, lease = ?word.lease, user, reason, "a grant was refused");
        };
        // It fails only when the owner is gone.
        let _ = self.owner.send(Input::Read(Box::new(tell))).await;
    }

    fn heard(&self, word: FromNode) -> Result<Option<Event>, Status> {
        use from_node::Message;
        let grant = |lease: &[u8], epoch| -> Result<GrantWord, Status> {
            Ok(GrantWord {
                node: self.node,
                lease: wire::lease_id(lease)?,
                epoch: Epoch(epoch),
            })
        };
        Ok(match word.message {
            Some(Message::Hello(_)) => {
                return Err(Status::invalid_argument("a node says hello once"));
            }
            Some(Message::Inventory(changed)) => {
                check_addresses(&changed.addresses)?;
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
            Some(Message::Sessions(of)) => Some(Event::Sessions {
                of: grant(&of.lease_id, of.epoch)?,
                count: of.sessions,
            }),
            Some(Message::Heartbeat(_)) if self.until.is_some_and(|until| wall_now() >= until) => {
                return Err(Status::unauthenticated(NotKnown::Expired.to_string()));
            }
            Some(Message::Heartbeat(beat)) => {
                limits::check_leases(beat.leases.len()).map_err(wire::too_much)?;
                self.load.set(&beat);
                let alive = to_node::Message::Alive(Alive {
                    number: beat.number,
                });
                // A node that is behind in reading hears of the next one.
                let _ = self.alive.try_send(ToNode {
                    message: Some(alive),
                });
                None
            }
            // Of a later version.
            None => None,
        })
    }
}
