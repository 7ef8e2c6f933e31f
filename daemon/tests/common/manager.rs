//! A device manager under the test's control, over the real protocol.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use causeway_proto::manager::nodes_server::{Nodes, NodesServer};
use causeway_proto::manager::*;
use causeway_proto::metadata::{CLUSTER, ClusterId, LEADER, NODE, TERM};
use causeway_proto::version::WireVersion;
use causeway_security::LeaseKey;
use causeway_serving::services::Services;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::body::Body;
use tonic::codegen::http;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Code, Request, Response, Status, Streaming};

use super::{Closed, LIMIT};

/// The user of the leases, unless a test names another.
pub const USER: &str = "ann";
/// Longer than any test.
pub const LONG: Duration = Duration::from_secs(3600);

/// Accepts daemons. The test decides what they get.
pub struct Manager {
    pub address: SocketAddr,
    pub key: LeaseKey,
    joined: Receiver<Node>,
    part: Arc<Mutex<Part>>,
    /// The questions whether this manager leads, each with the node that does not reach the leader, as it says.
    questions: Arc<Mutex<Vec<Option<String>>>>,
}

/// What a manager that shares its store with others does.
#[derive(Clone, Debug)]
pub enum Part {
    /// Leads in this term, in this cluster.
    Leads(u64, ClusterId),
    /// Stands by, and names this leader.
    StandsBy(Option<SocketAddr>),
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
        Manager::playing(Part::Leads(0, ClusterId([0; 16])))
    }

    /// Starts a manager that shares its store with others.
    pub fn playing(part: Part) -> Manager {
        Manager::playing_at(Closed::port(), part)
    }

    /// Starts such a manager at a port that was closed before.
    pub fn playing_at(closed: Closed, part: Part) -> Manager {
        let (joins, joined) = channel();
        let part = Arc::new(Mutex::new(part));
        let played = Arc::clone(&part);
        let questions = Arc::default();
        let asked = Arc::clone(&questions);
        let address = closed.address;
        let listener = closed.listen();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            super::block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let services = Services::default()
                    .with(NodesServer::new(Service(joins, Arc::clone(&played))))
                    .with(Admin(played, asked));
                tonic::transport::Server::builder()
                    .serve_with_incoming(services, TcpListenerStream::new(listener))
                    .await
                    .unwrap();
            });
        });
        Manager {
            address,
            key: LeaseKey::generate().unwrap(),
            joined,
            part,
            questions,
        }
    }

    /// Returns the nodes that have said that they do not reach the leader.
    pub fn missing(&self) -> Vec<String> {
        self.questions
            .lock()
            .unwrap()
            .iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Returns how many times this manager was asked whether it leads.
    pub fn asked(&self) -> usize {
        self.questions.lock().unwrap().len()
    }

    pub fn plays(&self, part: Part) {
        *self.part.lock().unwrap() = part;
    }

    /// Whether no daemon has introduced itself since the last one that the test has taken.
    pub fn is_alone(&self) -> bool {
        self.joined.try_recv().is_err()
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
    /// Welcomes the daemon in a term of a cluster.
    pub fn welcome_in(&self, key: &LeaseKey, fence: u64, term: u64, cluster: ClusterId) {
        self.say(to_node::Message::Welcome(Welcome {
            term,
            cluster_id: cluster.0.to_vec().into(),
            ..welcome(key, fence)
        }));
    }

    pub fn welcome(&self, key: &LeaseKey, fence: u64) {
        self.say(to_node::Message::Welcome(welcome(key, fence)));
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

fn welcome(key: &LeaseKey, fence: u64) -> Welcome {
    Welcome {
        wire_version: WireVersion::CURRENT.number().into(),
        epoch: fence,
        public_key: key.verifier().public_key().to_vec().into(),
        heartbeat_interval_ms: 50,
        heartbeat_limit_ms: 60_000,
        ..Welcome::default()
    }
}

/// The status of a standby, or the metadata of a leader's answer.
fn judge(part: &Mutex<Part>) -> Result<MetadataMap, Status> {
    let mut metadata = MetadataMap::new();
    match &*part.lock().unwrap() {
        Part::Leads(term, cluster) => {
            metadata.insert(TERM, (*term).into());
            metadata.insert(CLUSTER, cluster.to_string().parse().unwrap());
            Ok(metadata)
        }
        Part::StandsBy(leader) => {
            if let Some(leader) = leader {
                metadata.insert(LEADER, leader.to_string().parse().unwrap());
            }
            let text = "this device manager is a standby";
            Err(Status::with_metadata(Code::Unavailable, text, metadata))
        }
    }
}

/// The service `Admin`, of which only the question who leads is asked. A leader refuses it.
#[derive(Clone)]
struct Admin(Arc<Mutex<Part>>, Arc<Mutex<Vec<Option<String>>>>);

impl NamedService for Admin {
    const NAME: &'static str = "causeway.manager.v1.Admin";
}

impl tonic::codegen::Service<http::Request<Body>> for Admin {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let node = request.headers().get(NODE);
        let node = node.map(|node| node.to_str().unwrap().to_owned());
        self.1.lock().unwrap().push(node);
        let refused = |metadata| {
            Status::with_metadata(Code::Unauthenticated, "a token is required", metadata)
        };
        let status = judge(&self.0).map_or_else(|standby| standby, refused);
        std::future::ready(Ok(status.into_http()))
    }
}

struct Service(Sender<Node>, Arc<Mutex<Part>>);

#[tonic::async_trait]
impl Nodes for Service {
    type JoinStream = UnboundedReceiverStream<Result<ToNode, Status>>;

    async fn join(
        &self,
        request: Request<Streaming<FromNode>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        judge(&self.1)?;
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
