//! A device manager under the test's control, over the real protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use causeway_proto::manager::nodes_server::{Nodes, NodesServer};
use causeway_proto::manager::*;
use causeway_proto::version::WireVersion;
use causeway_security::LeaseKey;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

use super::LIMIT;

/// The user of the leases, unless a test names another.
pub const USER: &str = "ann";
/// Longer than any test.
pub const LONG: Duration = Duration::from_secs(3600);

/// Accepts daemons. The test decides what they get.
pub struct Manager {
    pub address: SocketAddr,
    pub key: LeaseKey,
    joined: Receiver<Node>,
}

/// A daemon's connection, closed on drop.
pub struct Node {
    pub hello: Hello,
    words: Receiver<from_node::Message>,
    beats: Receiver<Heartbeat>,
    to: UnboundedSender<Result<ToNode, Status>>,
    answers: Arc<AtomicBool>,
}

impl Manager {
    pub fn start() -> Manager {
        let (joins, joined) = channel();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            super::block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tonic::transport::Server::builder()
                    .serve_with_incoming(
                        NodesServer::new(Service(joins)),
                        TcpListenerStream::new(listener),
                    )
                    .await
                    .unwrap();
            });
        });
        Manager {
            address,
            key: LeaseKey::generate().unwrap(),
            joined,
        }
    }

    /// Returns the next daemon that introduces itself.
    pub fn joined(&self) -> Node {
        self.joined.recv_timeout(LIMIT).expect("a daemon joins")
    }

    /// Returns the next daemon, after a welcome.
    pub fn welcomed(&self, fence: u64) -> Node {
        let node = self.joined();
        node.welcome(&self.key, fence);
        node
    }

    /// Returns the credential that a client of the lease shows to the node.
    pub fn credential(&self, node: &Node, grant: &Grant) -> Vec<u8> {
        self.key.sign(claim(node, grant))
    }
}

/// Makes a valid claim.
pub fn claim(node: &Node, grant: &Grant) -> Claim {
    let soon = SystemTime::now() + LONG;
    let soon = soon.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Claim {
        lease_id: grant.lease_id.clone(),
        user: grant.user.clone(),
        nodes: vec![ClaimedNode {
            node_uuid: node.hello.node_uuid.clone(),
            epoch: grant.epoch,
            units: grant.units.iter().filter_map(|of| of.unit).collect(),
        }],
        not_after_unix_ms: soon.as_millis() as u64,
        key_id: Default::default(),
    }
}

/// Makes a grant of these units (platform, device, share, memory) to [`USER`].
pub fn grant(lease: u8, epoch: u64, units: &[(u32, u32, u32, u64)]) -> Grant {
    let unit = |(platform, device, share, memory): &(u32, u32, u32, u64)| LeasedUnit {
        unit: Some(Unit {
            platform: *platform,
            device: *device,
            share: *share,
        }),
        memory: *memory,
    };
    Grant {
        lease_id: vec![lease; 16].into(),
        epoch,
        user: USER.to_owned(),
        units: units.iter().map(unit).collect(),
        limit_ms: 0,
        autonomy_ms: LONG.as_millis() as u64,
        ..Default::default()
    }
}

impl Node {
    pub fn welcome(&self, key: &LeaseKey, fence: u64) {
        self.say(to_node::Message::Welcome(Welcome {
            wire_version: WireVersion::CURRENT.number().into(),
            epoch: fence,
            public_key: key.verifier().public_key().to_vec().into(),
            heartbeat_interval_ms: 50,
            heartbeat_limit_ms: 60_000,
            ..Welcome::default()
        }));
    }

    pub fn say(&self, message: to_node::Message) {
        let _ = self.to.send(Ok(ToNode {
            message: Some(message),
        }));
    }

    /// Returns the daemon's next message, except heartbeats.
    pub fn word(&self) -> from_node::Message {
        self.words.recv_timeout(LIMIT).expect("the daemon speaks")
    }

    /// Waits until the daemon has disconnected, without a further message.
    pub fn left(&self) {
        let word = self.words.recv_timeout(LIMIT);
        assert_eq!(word, Err(RecvTimeoutError::Disconnected));
    }

    /// Waits for a heartbeat for which `wanted` returns true.
    pub fn beat(&self, wanted: impl Fn(&Heartbeat) -> bool) -> Heartbeat {
        let until = std::time::Instant::now() + LIMIT;
        loop {
            let beat = self.beats.recv_timeout(LIMIT).expect("a heartbeat");
            if wanted(&beat) {
                return beat;
            }
            assert!(std::time::Instant::now() < until, "not in time: {beat:?}");
        }
    }

    /// Grants, and waits for the acknowledgement.
    pub fn grant(&self, grant: &Grant) {
        self.say(to_node::Message::Grant(grant.clone()));
        let (lease_id, epoch) = (grant.lease_id.clone(), grant.epoch);
        let acknowledged = GrantAcknowledged { lease_id, epoch };
        assert_eq!(self.word(), from_node::Message::Acknowledged(acknowledged));
    }

    /// Grants, and returns the reason of the refusal.
    pub fn grant_refused(&self, grant: &Grant) -> String {
        self.say(to_node::Message::Grant(grant.clone()));
        match self.word() {
            from_node::Message::Refused(refused) if refused.epoch == grant.epoch => refused.reason,
            other => panic!("{other:?}"),
        }
    }

    pub fn withdraw(&self, grant: &Grant) {
        self.say(to_node::Message::Withdraw(Withdraw {
            lease_id: grant.lease_id.clone(),
            epoch: grant.epoch,
            reason: "a test".to_owned(),
        }));
    }

    pub fn expect_withdrawn(&self, grant: &Grant) {
        let (lease_id, epoch) = (grant.lease_id.clone(), grant.epoch);
        let withdrawn = GrantWithdrawn { lease_id, epoch };
        assert_eq!(self.word(), from_node::Message::Withdrawn(withdrawn));
    }

    pub fn expect_sessions(&self, grant: &Grant, sessions: u32) {
        let expected = LeaseSessions {
            lease_id: grant.lease_id.clone(),
            epoch: grant.epoch,
            sessions,
        };
        assert_eq!(self.word(), from_node::Message::Sessions(expected));
    }

    /// Stops answering heartbeats.
    pub fn fall_silent(&self) {
        self.answers.store(false, Ordering::Relaxed);
    }
}

struct Service(Sender<Node>);

#[tonic::async_trait]
impl Nodes for Service {
    type JoinStream = UnboundedReceiverStream<Result<ToNode, Status>>;

    async fn join(
        &self,
        request: Request<Streaming<FromNode>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let mut incoming = request.into_inner();
        let first = incoming.next().await.unwrap()?.message.unwrap();
        let from_node::Message::Hello(hello) = first else {
            return Err(Status::invalid_argument(
                "protocol error: a node's first message must be Hello",
            ));
        };
        let (to, sent) = unbounded_channel();
        let (heard, words) = channel();
        let (felt, beats) = channel();
        let answers = Arc::new(AtomicBool::new(true));
        // A weak reference, so that the connection closes when the test drops its end.
        tokio::spawn(hear(
            incoming,
            (heard, felt),
            to.downgrade(),
            Arc::clone(&answers),
        ));
        let node = Node {
            hello,
            words,
            beats,
            to,
            answers,
        };
        let _ = self.0.send(node);
        Ok(Response::new(UnboundedReceiverStream::new(sent)))
    }
}

async fn hear(
    mut incoming: Streaming<FromNode>,
    (heard, felt): (Sender<from_node::Message>, Sender<Heartbeat>),
    to: tokio::sync::mpsc::WeakUnboundedSender<Result<ToNode, Status>>,
    answers: Arc<AtomicBool>,
) {
    while let Some(Ok(FromNode {
        message: Some(message),
    })) = incoming.next().await
    {
        match message {
            from_node::Message::Heartbeat(beat) => {
                let number = beat.number;
                let _ = felt.send(beat);
                if answers.load(Ordering::Relaxed)
                    && let Some(to) = to.upgrade()
                {
                    let alive = to_node::Message::Alive(Alive { number });
                    let _ = to.send(Ok(ToNode {
                        message: Some(alive),
                    }));
                }
            }
            message => {
                let _ = heard.send(message);
            }
        }
    }
}
