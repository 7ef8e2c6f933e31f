//! A fake node that speaks the real protocol under the test's control.
//!
//! The supervisor's side (gRPC, preamble, proof) runs by itself, with faults from [`Faults`]. Every proved connection
//! waits for the test in [`FakeNode::next`]. The test itself is the worker: it reads commands and sends events. Every
//! wait here is bounded by [`PATIENCE`].

pub mod bulk;
pub mod upper;
mod worker;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use causeway::config::{Carrier, Hold, ServerSettings};
use causeway::transport::{Node, Session, discover};
use causeway_lane::DaemonPlace;
use causeway_proto::command::worker_server::WorkerServer;
use causeway_proto::control::node_server::{Node as NodeService, NodeServer};
use causeway_proto::control::*;
use causeway_proto::frame::COMES_BACK;
use causeway_proto::id::SessionSecret;
use causeway_proto::preamble::{
    CLIENT_PROOF, Greeting, Introduction, PREAMBLE, Preamble, Purpose, Verdict, WORKER_PROOF,
    check_client_proof, worker_proof,
};
use causeway_proto::version::WireVersion;
use cl_headers::types::{
    CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, CL_DEVICE_TYPE,
    CL_DEVICE_TYPE_GPU, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status};

use self::upper::Upper;
use self::worker::{Bridge, Link};

pub use self::worker::FakeWorker;

/// Time limit of each step of a test.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The faults of the fake node.
#[derive(Clone, Debug)]
pub struct Faults {
    pub uuid: [u8; 16],
    /// The node does not report its UUID.
    pub nameless: bool,
    pub wire_version: u32,
    pub heartbeat_interval_ms: u32,
    pub heartbeat_limit_ms: u32,
    /// The node refuses sessions.
    pub refuse: bool,
    /// The verdict on every preamble.
    pub verdict: Verdict,
    /// Number of connections for which the node does not know the session, beginning with the first.
    pub unknown: usize,
    /// The node proves another secret than the one it gave out.
    pub impostor: bool,
    /// The heartbeat connection opens and then stays silent.
    pub silent: bool,
    pub bulk_connections: u32,
    /// Number of bulk connections that the node closes without an answer, beginning with the first.
    pub closed_lanes: usize,
    /// The bulk connections with these numbers, counted from 0, are not answered, and are closed after
    /// [`FakeNode::close_held_lanes`].
    pub held_lanes: Range<usize>,
    /// Number of heartbeat connections that the node closes without an answer, beginning with the first.
    pub closed_heartbeats: usize,
    /// The node accepts shared memory over a Unix socket. Such lanes come first.
    pub shares_memory: bool,
    /// The time for which the node keeps a session without connections.
    pub resume_ms: u32,
    /// The time for which the node parks a session.
    pub restart_ms: u32,
    /// The processes whose sessions are away.
    pub away: Vec<Client>,
    /// The node puts another worker into the place of one that has died.
    pub reexecutes: bool,
    /// Who holds checkpoints, by the client's settings.
    pub hold: Hold,
    /// Bytes of the client's memory for checkpoints.
    pub held: u64,
    /// Time from one checkpoint to the next.
    pub interval: Option<Duration>,
    /// Bytes of the client's log.
    pub log: u64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            uuid: *b"0123456789abcdef",
            nameless: false,
            wire_version: u32::from(WireVersion::CURRENT.number()),
            heartbeat_interval_ms: 50,
            heartbeat_limit_ms: 10_000,
            refuse: false,
            verdict: Verdict::Welcome,
            unknown: 0,
            impostor: false,
            silent: false,
            bulk_connections: 8,
            closed_lanes: 0,
            held_lanes: 0..0,
            closed_heartbeats: 0,
            shares_memory: false,
            resume_ms: 0,
            restart_ms: 0,
            away: Vec::new(),
            reexecutes: false,
            hold: Hold::Node,
            held: 1 << 30,
            interval: None,
            log: 1 << 30,
        }
    }
}

const SECRET: [u8; 32] = [9; 32];

pub struct FakeNode {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    proved: Mutex<Receiver<(Introduction, TcpStream)>>,
    /// Bulk lanes that came before the commands' connection.
    early: Mutex<Vec<TcpStream>>,
    runtime: tokio::runtime::Runtime,
}

struct Shared {
    faults: Faults,
    place: Option<DaemonPlace>,
    proved: Sender<(Introduction, TcpStream)>,
    heartbeats: AtomicBool,
    sessions: AtomicUsize,
    /// Whether the client asked for a worker of its own in the latest request for a session.
    isolated: AtomicBool,
    lanes_asked: AtomicUsize,
    heartbeats_asked: AtomicUsize,
    /// Whether the held bulk connections stay open.
    holds_lanes: (Mutex<bool>, Condvar),
    /// Whether new heartbeat connections wait for their greeting.
    holds_heartbeats: (Mutex<bool>, Condvar),
    /// Number of the last command that the worker has, for the next connection.
    position: AtomicU64,
    /// The number of the worker, for the next connections.
    incarnation: AtomicU64,
    /// The number of the worker that takes the place of the present one after its next heartbeat connection; 0: none.
    successor: AtomicU64,
    /// The verdict on new connections.
    verdict: Mutex<Verdict>,
    /// Number of command connections that the node closes without an answer, beginning with the next one.
    closed_commands: AtomicUsize,
    /// Number of connections that got another verdict than a welcome.
    refused: AtomicUsize,
    /// The processes that the client has named as ended.
    ended: Mutex<Vec<Client>>,
    /// Why the session has ended.
    end: Mutex<Option<String>>,
    acknowledged: AtomicU64,
    /// How often the client has said that it closes its connections and comes back.
    returns: AtomicUsize,
    /// The client's positions on its command connections.
    handled: Mutex<Vec<u64>>,
    /// Per lane, the bytes that the node and the client have received, as their latest proofs say.
    positions: [[AtomicU64; 8]; 2],
}

impl FakeNode {
    pub fn start(faults: Faults) -> FakeNode {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, receiver) = mpsc::channel();
        let shared = Arc::new(Shared {
            heartbeats: AtomicBool::new(!faults.silent),
            place: DaemonPlace::here(salt(address)),
            faults,
            proved: sender,
            sessions: AtomicUsize::new(0),
            isolated: AtomicBool::new(false),
            lanes_asked: AtomicUsize::new(0),
            holds_lanes: (Mutex::new(true), Condvar::new()),
            heartbeats_asked: AtomicUsize::new(0),
            holds_heartbeats: Default::default(),
            position: AtomicU64::new(0),
            incarnation: AtomicU64::new(1),
            successor: AtomicU64::new(0),
            verdict: Mutex::new(Verdict::Welcome),
            closed_commands: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            ended: Mutex::default(),
            end: Mutex::new(None),
            acknowledged: AtomicU64::new(0),
            returns: AtomicUsize::new(0),
            handled: Mutex::default(),
            positions: Default::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (control, accepted) =
            tokio::sync::mpsc::unbounded_channel::<io::Result<tokio::net::TcpStream>>();
        let service = NodeServer::new(Supervisor(Arc::clone(&shared)));
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(UnboundedReceiverStream::new(accepted)),
        );
        let (acceptor, handle) = (Arc::clone(&shared), runtime.handle().clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), Arc::clone(&acceptor));
                let (control, handle) = (control.clone(), handle.clone());
                std::thread::spawn(move || route(stream, &shared, &control, &handle));
            }
        });
        if shared.faults.shares_memory {
            share(&shared);
        }
        FakeNode {
            address,
            shared,
            proved: Mutex::new(receiver),
            early: Mutex::default(),
            runtime,
        }
    }

    pub fn settings(&self) -> ServerSettings {
        let mut settings = ServerSettings::at(self.address.to_string().parse().unwrap());
        settings.survival.reexecute = self.shared.faults.reexecutes;
        settings.survival.hold = self.shared.faults.hold;
        settings.survival.held = self.shared.faults.held;
        settings.survival.interval = self.shared.faults.interval;
        settings.survival.log = self.shared.faults.log;
        settings
    }

    /// The node as the client sees it.
    pub fn node(&self, carrier: Carrier) -> Arc<Node> {
        let settings = ServerSettings {
            carrier,
            ..self.settings()
        };
        let found = discover(&[settings]).pop().unwrap();
        found.inventory.unwrap();
        found.node
    }

    /// Opens a session, and returns it with its worker's end.
    pub fn open(
        &self,
        carrier: Carrier,
        upper: &Arc<Upper>,
    ) -> (Arc<Node>, Arc<Session>, FakeWorker) {
        let node = self.node(carrier);
        let session = node.session(upper.clone()).unwrap();
        let worker = self.worker();
        (node, session, worker)
    }

    /// Returns the worker's end of the newly opened session.
    pub fn worker(&self) -> FakeWorker {
        loop {
            let (preamble, stream) = self.next();
            let link = match preamble.purpose {
                Purpose::Commands => Link::Direct(stream),
                Purpose::CommandsGrpc => self.serve_grpc(stream),
                // Lanes are dialled beside the commands.
                Purpose::Bulk => {
                    self.early.lock().unwrap().push(stream);
                    continue;
                }
                other => panic!("{other:?} before the commands"),
            };
            return FakeWorker(link, 0);
        }
    }

    /// Returns the next proved connection, except heartbeats.
    pub fn next(&self) -> (Introduction, TcpStream) {
        let (preamble, stream) = self
            .proved
            .lock()
            .unwrap()
            .recv_timeout(PATIENCE)
            .expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (preamble, stream)
    }

    /// Returns the next bulk lane.
    pub fn lane(&self) -> TcpStream {
        if let Some(early) = self.early.lock().unwrap().pop() {
            return early;
        }
        let (preamble, stream) = self.next();
        assert_eq!(preamble.purpose, Purpose::Bulk);
        stream
    }

    /// Sets the number of bytes that the node claims to have received over a lane.
    pub fn received(&self, lane: usize, bytes: u64) {
        self.shared.positions[0][lane].store(bytes, Ordering::SeqCst);
    }

    /// Number of bytes that the client has claimed to have received over a lane.
    pub fn claimed(&self, lane: usize) -> u64 {
        self.shared.positions[1][lane].load(Ordering::SeqCst)
    }

    /// Sets the last command that the worker has applied. The next connection begins there.
    pub fn set_position(&self, command: u64) {
        self.shared.position.store(command, Ordering::SeqCst);
    }

    /// Sets the number of the worker. The next connections lead to it.
    pub fn set_incarnation(&self, number: u64) {
        self.shared.incarnation.store(number, Ordering::SeqCst);
    }

    /// Has the worker die once the client has its next heartbeat connection. The worker with this number takes its place.
    pub fn die_after_heartbeat(&self, successor: u64) {
        self.shared.successor.store(successor, Ordering::SeqCst);
    }

    /// Forgets the session, for this reason.
    pub fn forget_session(&self, reason: &str) {
        *self.shared.end.lock().unwrap() = Some(reason.to_owned());
        self.set_verdict(Verdict::UnknownSession);
    }

    /// Knows the session no longer, until a client opens it again.
    pub fn lose_session(&self) {
        self.set_verdict(Verdict::UnknownSession);
    }

    /// Sets the verdict on new connections.
    pub fn set_verdict(&self, verdict: Verdict) {
        *self.shared.verdict.lock().unwrap() = verdict;
    }

    /// Closes the next command connections without an answer.
    pub fn close_commands(&self, count: usize) {
        self.shared.closed_commands.store(count, Ordering::SeqCst);
    }

    /// The processes that the client has named as ended.
    pub fn ended(&self) -> Vec<Client> {
        self.shared.ended.lock().unwrap().clone()
    }

    /// The last event batch that the client has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.shared.acknowledged.load(Ordering::SeqCst)
    }

    /// How often the client has said that it closes its connections and comes back.
    pub fn returns(&self) -> usize {
        self.shared.returns.load(Ordering::SeqCst)
    }

    /// The client's positions on its command connections so far.
    pub fn positions(&self) -> Vec<u64> {
        self.shared.handled.lock().unwrap().clone()
    }

    /// Number of heartbeat connections so far.
    pub fn heartbeats_asked(&self) -> usize {
        self.shared.heartbeats_asked.load(Ordering::SeqCst)
    }

    /// Lets new heartbeat connections wait for their greeting, or greets all.
    pub fn hold_heartbeats(&self, holds: bool) {
        let (held, changed) = &self.shared.holds_heartbeats;
        *held.lock().unwrap() = holds;
        changed.notify_all();
    }

    /// Closes the held bulk connections.
    pub fn close_held_lanes(&self) {
        let (held, changed) = &self.shared.holds_lanes;
        *held.lock().unwrap() = false;
        changed.notify_all();
    }

    /// Starts the heartbeats again.
    pub fn start_pulses(&self) {
        self.shared.heartbeats.store(true, Ordering::SeqCst);
    }

    /// Stops the heartbeats.
    pub fn stop_pulses(&self) {
        self.shared.heartbeats.store(false, Ordering::SeqCst);
    }

    /// Number of connections that got another verdict than a welcome.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }

    /// Number of bulk connections so far.
    pub fn lanes_asked(&self) -> usize {
        self.shared.lanes_asked.load(Ordering::SeqCst)
    }

    pub fn sessions_opened(&self) -> usize {
        self.shared.sessions.load(Ordering::SeqCst)
    }

    /// Returns whether the latest request for a session asked for a worker of its own.
    pub fn isolation_asked(&self) -> bool {
        self.shared.isolated.load(Ordering::SeqCst)
    }

    fn serve_grpc(&self, stream: TcpStream) -> Link {
        let (batches, received) = mpsc::channel();
        let (events, outgoing) = tokio::sync::mpsc::unbounded_channel();
        let bridge = Bridge {
            batches: Mutex::new(batches),
            events: Mutex::new(Some(outgoing)),
        };
        let killer = stream.try_clone().unwrap();
        stream.set_nonblocking(true).unwrap();
        self.runtime.spawn(async move {
            let stream = tokio::net::TcpStream::from_std(stream);
            tonic::transport::Server::builder()
                .add_service(WorkerServer::new(bridge).max_decoding_message_size(64 << 20))
                .serve_with_incoming(tokio_stream::iter([stream]))
                .await
        });
        Link::Grpc {
            received,
            events,
            killer,
        }
    }
}

// Different from the salt of every other fake on this host.
fn salt(address: SocketAddr) -> [u8; 16] {
    let numbers = u64::from(std::process::id()) << 16 | u64::from(address.port());
    (u128::from(numbers)).to_le_bytes()
}

// Accepts connections with shared memory, which are proved like others.
fn share(shared: &Arc<Shared>) {
    let listener = shared.place.unwrap().listen().unwrap();
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = TcpStream::from(OwnedFd::from(stream.unwrap()));
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || greet(stream, &shared));
        }
    });
}

fn route(
    stream: TcpStream,
    shared: &Arc<Shared>,
    control: &tokio::sync::mpsc::UnboundedSender<io::Result<tokio::net::TcpStream>>,
    handle: &tokio::runtime::Handle,
) {
    let mut first = [0];
    if !matches!(stream.peek(&mut first), Ok(1)) {
        return;
    }
    if first == *b"P" {
        stream.set_nonblocking(true).unwrap();
        let _inside = handle.enter();
        let _ = control.send(tokio::net::TcpStream::from_std(stream));
        return;
    }
    greet(stream, shared);
}

fn greet(mut stream: TcpStream, shared: &Arc<Shared>) {
    let mut bytes = [0; PREAMBLE];
    stream.read_exact(&mut bytes).unwrap();
    let preamble = Preamble::decode(&bytes).unwrap();
    if preamble.purpose == Purpose::Heartbeat {
        let before = shared.heartbeats_asked.fetch_add(1, Ordering::SeqCst);
        if before < shared.faults.closed_heartbeats {
            return;
        }
        let (held, changed) = &shared.holds_heartbeats;
        let greeted = changed.wait_timeout_while(held.lock().unwrap(), PATIENCE, |held| *held);
        drop(greeted.unwrap());
    }
    if shared.faults.verdict != Verdict::Welcome {
        stream
            .write_all(&Greeting::refusal(shared.faults.verdict).encode())
            .unwrap();
        return;
    }
    let verdict = match *shared.verdict.lock().unwrap() {
        Verdict::Welcome if shared.refused.load(Ordering::SeqCst) < shared.faults.unknown => {
            Verdict::UnknownSession
        }
        verdict => verdict,
    };
    if verdict != Verdict::Welcome {
        shared.refused.fetch_add(1, Ordering::SeqCst);
        let refusal = Greeting::refusal(verdict);
        stream.write_all(&refusal.encode()).unwrap();
        return;
    }
    if preamble.purpose == Purpose::Bulk {
        let before = shared.lanes_asked.fetch_add(1, Ordering::SeqCst);
        if before < shared.faults.closed_lanes {
            return;
        }
        if shared.faults.held_lanes.contains(&before) {
            let (held, changed) = &shared.holds_lanes;
            let closed = changed.wait_timeout_while(held.lock().unwrap(), PATIENCE, |held| *held);
            drop(closed.unwrap());
            return;
        }
    }
    if preamble.purpose == Purpose::Commands {
        let left = |count: usize| count.checked_sub(1);
        let closed = &shared.closed_commands;
        if closed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left)
            .is_ok()
        {
            return;
        }
    }
    let greeting = Greeting::welcome();
    stream.write_all(&greeting.encode()).unwrap();
    let mut client = [0; CLIENT_PROOF];
    if stream.read_exact(&mut client).is_err() {
        return;
    }
    let proof = check_client_proof(&SessionSecret(SECRET), &bytes, &greeting.nonce, &client);
    let word = proof.expect("the client knows the secret");
    if ![0, shared.incarnation.load(Ordering::SeqCst)].contains(&word.worker) {
        let refusal = Greeting::refusal(Verdict::OtherWorker);
        stream.write_all(&refusal.encode()).unwrap();
        return;
    }
    let mut position = 0;
    let mut dies = false;
    if preamble.purpose == Purpose::Bulk {
        let [own, claimed] = [0, 1].map(|of| &shared.positions[of][usize::from(preamble.lane)]);
        claimed.store(word.position, Ordering::SeqCst);
        position = own.load(Ordering::SeqCst);
    }
    if matches!(preamble.purpose, Purpose::Commands | Purpose::CommandsGrpc) {
        shared.handled.lock().unwrap().push(word.position);
        position = shared.position.load(Ordering::SeqCst);
    }
    if preamble.purpose == Purpose::Heartbeat {
        position = shared.incarnation.load(Ordering::SeqCst);
        let successor = shared.successor.swap(0, Ordering::SeqCst);
        dies = successor != 0;
        if dies {
            shared.incarnation.store(successor, Ordering::SeqCst);
        }
    }
    let proof = if shared.faults.impostor {
        [0; WORKER_PROOF]
    } else {
        worker_proof(
            &SessionSecret(SECRET),
            &bytes,
            &greeting.nonce,
            &client,
            position,
        )
    };
    stream.write_all(&proof).unwrap();
    if dies {
        return;
    }
    if preamble.purpose == Purpose::Heartbeat {
        beat(stream, shared);
    } else {
        let _ = shared.proved.send((preamble, stream));
    }
}

fn beat(mut stream: TcpStream, shared: &Shared) {
    // The loop ends when the client closes the connection.
    let interval = Duration::from_millis(u64::from(shared.faults.heartbeat_interval_ms));
    stream.set_read_timeout(Some(interval)).unwrap();
    let mut unread = Vec::new();
    loop {
        if shared.heartbeats.load(Ordering::SeqCst) && stream.write_all(&[0]).is_err() {
            return;
        }
        let mut bytes = [0; 64];
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) => unread.extend_from_slice(&bytes[..count]),
            // The test's process may have been stopped meanwhile.
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return;
            }
            _ => {}
        }
        while let Some((number, rest)) = unread.split_first_chunk() {
            assert!(
                shared.faults.resume_ms > 0,
                "an acknowledgement without resume"
            );
            match u64::from_le_bytes(*number) {
                COMES_BACK => _ = shared.returns.fetch_add(1, Ordering::SeqCst),
                number => assert!(shared.acknowledged.swap(number, Ordering::SeqCst) <= number),
            }
            unread = rest.to_vec();
        }
    }
}

/// A device with the info that contexts, queues and buffers require.
fn device() -> Device {
    let answer = |name: u32, value: u64| InfoAnswer {
        name,
        value: Bytes::copy_from_slice(&value.to_le_bytes()),
        status: 0,
    };
    let queues = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
    Device {
        info: vec![
            answer(CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU),
            answer(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES, queues),
            answer(CL_DEVICE_MAX_MEM_ALLOC_SIZE, 1 << 30),
        ],
        ..Device::default()
    }
}

struct Supervisor(Arc<Shared>);

#[tonic::async_trait]
impl NodeService for Supervisor {
    async fn get_inventory(
        &self,
        _: Request<GetInventoryRequest>,
    ) -> Result<Response<Inventory>, Status> {
        Ok(Response::new(Inventory {
            wire_version: self.0.faults.wire_version,
            node_uuid: if self.0.faults.nameless {
                Bytes::new()
            } else {
                Bytes::copy_from_slice(&self.0.faults.uuid)
            },
            generation: 7,
            platforms: vec![Platform {
                info: Vec::new(),
                devices: vec![device()],
            }],
            ..Inventory::default()
        }))
    }

    async fn open_session(
        &self,
        request: Request<OpenSessionRequest>,
    ) -> Result<Response<OpenSessionReply>, Status> {
        assert_eq!(request.get_ref().inventory_generation, 7);
        if self.0.faults.refuse {
            return Err(Status::resource_exhausted("the house is full"));
        }
        if !request.get_ref().session_id.is_empty() {
            *self.0.verdict.lock().unwrap() = Verdict::Welcome;
        }
        let isolated = request.get_ref().isolated;
        self.0.isolated.store(isolated, Ordering::SeqCst);
        self.0.sessions.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(OpenSessionReply {
            session_id: Bytes::from_static(&[5; 16]),
            session_secret: Bytes::from_static(&SECRET),
            heartbeat_interval_ms: self.0.faults.heartbeat_interval_ms,
            heartbeat_limit_ms: self.0.faults.heartbeat_limit_ms,
            bulk_connections: self.0.faults.bulk_connections,
            resume_ms: self.0.faults.resume_ms.min(request.get_ref().resume_ms),
            restart_ms: self.0.faults.restart_ms.min(request.get_ref().restart_ms),
            away: self.0.faults.away.clone(),
            reexecutes: self.0.faults.reexecutes,
            // Mostly nobody listens at this path, and lanes then use TCP.
            shared_memory: self
                .0
                .place
                .map(|place| Bytes::copy_from_slice(&place.tell()))
                .unwrap_or_default(),
            ..OpenSessionReply::default()
        }))
    }

    async fn close_session(
        &self,
        _: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionReply>, Status> {
        Ok(Response::new(CloseSessionReply {}))
    }

    async fn end_away(
        &self,
        request: Request<EndAwayRequest>,
    ) -> Result<Response<EndAwayReply>, Status> {
        let ended = request.into_inner().ended;
        self.0.ended.lock().unwrap().extend(ended);
        Ok(Response::new(EndAwayReply::default()))
    }

    async fn measure_link(
        &self,
        _: Request<MeasureLinkRequest>,
    ) -> Result<Response<MeasureLinkReply>, Status> {
        Err(Status::unimplemented("the fake node measures no link"))
    }

    async fn get_links(&self, _: Request<GetLinksRequest>) -> Result<Response<Links>, Status> {
        Ok(Response::new(Links::default()))
    }

    type TakeSessionsStream = tokio_stream::Empty<Result<SessionsTaken, Status>>;

    async fn take_sessions(
        &self,
        _: Request<tonic::Streaming<SessionPart>>,
    ) -> Result<Response<Self::TakeSessionsStream>, Status> {
        Err(Status::unimplemented("this node takes no sessions"))
    }

    async fn get_session_end(
        &self,
        _: Request<GetSessionEndRequest>,
    ) -> Result<Response<SessionEnd>, Status> {
        let end = self.0.end.lock().unwrap().clone();
        Ok(Response::new(SessionEnd {
            known: end.is_some(),
            reason: end.unwrap_or_default(),
            lease_lost: false,
        }))
    }

    async fn get_status(
        &self,
        _: Request<GetStatusRequest>,
    ) -> Result<Response<NodeStatus>, Status> {
        Ok(Response::new(NodeStatus {
            sessions: 3,
            ..NodeStatus::default()
        }))
    }
}
