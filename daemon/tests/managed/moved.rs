//! Tests of a daemon whose leases move to another node: the sessions go on here if that node is lost at any time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use causeway_proto::command::Parking;
use causeway_proto::control::node_server::{Node as NodeService, NodeServer};
use causeway_proto::control::session_part::Part;
use causeway_proto::control::*;
use causeway_proto::limits::PARKED_HOLD;
use causeway_proto::manager::{Grant, MoveEnded, Stay, Withdraw, from_node, to_node};
use causeway_proto::preamble::{Purpose, Verdict};
use causeway_proto::version::WireVersion;
use tokio::sync::{Notify, mpsc};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::common::manager::{Manager, grant};
use crate::common::parking::{come_back, contents, hear_parking, park, read, record_on, stands};
use crate::common::resuming::{Resuming, process};
use crate::common::{Daemon, LIMIT, block_on};
use crate::support::{Cluster, DEVICES, cluster, move_order, reach};

const LONG: (u32, u32) = (60_000, 600_000);
const CONTENTS: &[u8; 64] = &[7; 64];
/// The leased device.
const DEVICE: u32 = 1;

/// A node that takes sessions under the test's control.
struct Target {
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
    /// Notified when a call has brought the first contents.
    begun: Receiver<()>,
    /// Notified when a call's stream of sessions has ended.
    received: Receiver<()>,
    answers: Arc<Notify>,
}

/// When a target begins its answer.
#[derive(Clone, Copy, PartialEq)]
enum Begins {
    /// With the first part, as a node does.
    AtOnce,
    /// When it has all sessions.
    AtTheEnd,
}

impl Target {
    /// Starts a node that answers once it has all sessions, or not until it is told to.
    fn start(answers: bool) -> Target {
        Target::start_beginning(Begins::AtTheEnd, answers)
    }

    fn start_beginning(when: Begins, answers: bool) -> Target {
        let may_answer = Arc::new(Notify::new());
        if answers {
            may_answer.notify_one();
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let ((begins, begun), (receives, received)) = (channel(), channel());
        let bound = tokio::net::TcpListener::bind("127.0.0.1:0");
        let listener = runtime.block_on(bound).unwrap();
        let address = listener.local_addr().unwrap();
        let service = NodeServer::new(Taker {
            when,
            answers: Arc::clone(&may_answer),
            begins,
            receives,
        });
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener)),
        );
        Target {
            address,
            runtime,
            begun,
            received,
            answers: may_answer,
        }
    }

    /// Waits until the node has the last byte.
    fn has_all(&self) {
        self.received.recv_timeout(LIMIT).expect("all sessions");
    }

    /// Waits until the node has the first bytes of a session.
    fn has_some(&self) {
        self.begun.recv_timeout(LIMIT).expect("contents");
    }

    /// Closes all connections, as a node does that is killed.
    fn crash(self) {
        self.runtime.shutdown_timeout(Duration::ZERO);
    }
}

#[derive(Clone)]
struct Taker {
    when: Begins,
    answers: Arc<Notify>,
    begins: Sender<()>,
    receives: Sender<()>,
}

fn nothing<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("this node only takes sessions"))
}

impl Taker {
    async fn receive(
        self,
        mut parts: Streaming<SessionPart>,
        answer: mpsc::Sender<Result<SessionsTaken, Status>>,
    ) -> Result<(), Status> {
        let mut has_begun = false;
        while let Some(part) = parts.next().await {
            let is_contents =
                |part: &Part| matches!(part, Part::Contents(bytes) if !bytes.is_empty());
            if part?.part.as_ref().is_some_and(is_contents)
                && !std::mem::replace(&mut has_begun, true)
            {
                let _ = self.begins.send(());
            }
        }
        let _ = self.receives.send(());
        self.answers.notified().await;
        let _ = answer.send(Ok(SessionsTaken::default())).await;
        Ok(())
    }
}

#[tonic::async_trait]
impl NodeService for Taker {
    type TakeSessionsStream = ReceiverStream<Result<SessionsTaken, Status>>;

    async fn take_sessions(
        &self,
        request: Request<Streaming<SessionPart>>,
    ) -> Result<Response<Self::TakeSessionsStream>, Status> {
        let (answer, answered) = mpsc::channel(1);
        let received = self.clone().receive(request.into_inner(), answer);
        match self.when {
            Begins::AtOnce => drop(tokio::spawn(received)),
            Begins::AtTheEnd => received.await?,
        }
        Ok(Response::new(ReceiverStream::new(answered)))
    }

    async fn get_inventory(
        &self,
        _: Request<GetInventoryRequest>,
    ) -> Result<Response<Inventory>, Status> {
        nothing()
    }

    async fn open_session(
        &self,
        _: Request<OpenSessionRequest>,
    ) -> Result<Response<OpenSessionReply>, Status> {
        nothing()
    }

    async fn close_session(
        &self,
        _: Request<CloseSessionRequest>,
    ) -> Result<Response<CloseSessionReply>, Status> {
        nothing()
    }

    async fn measure_link(
        &self,
        _: Request<MeasureLinkRequest>,
    ) -> Result<Response<MeasureLinkReply>, Status> {
        nothing()
    }

    async fn get_links(&self, _: Request<GetLinksRequest>) -> Result<Response<Links>, Status> {
        nothing()
    }

    async fn end_away(&self, _: Request<EndAwayRequest>) -> Result<Response<EndAwayReply>, Status> {
        nothing()
    }

    async fn get_session_end(
        &self,
        _: Request<GetSessionEndRequest>,
    ) -> Result<Response<SessionEnd>, Status> {
        nothing()
    }

    async fn get_status(
        &self,
        _: Request<GetStatusRequest>,
    ) -> Result<Response<NodeStatus>, Status> {
        nothing()
    }
}

/// A session in a lease that moves.
struct Scene {
    cluster: Cluster,
    lease: Grant,
    credential: Vec<u8>,
    session: Resuming,
}

impl Scene {
    fn new() -> Scene {
        let cluster = cluster();
        let (lease, credential) = cluster.lease();
        Scene::with(cluster, lease, credential)
    }

    fn with(cluster: Cluster, lease: Grant, credential: Vec<u8>) -> Scene {
        let opened = Resuming::open_leased(&cluster.daemon, process(1), LONG, false, &credential);
        let mut session = opened.unwrap();
        assert_ne!(session.reply.restart_ms, 0);
        session.send(record_on(DEVICE, CONTENTS));
        session.send(vec![Resuming::ping(1)]);
        session.answer(1);
        Scene {
            cluster,
            lease,
            credential,
            session,
        }
    }

    /// Orders the move to a target that has this grant.
    fn moves_to(&self, target: &Target, target_epoch: u64) {
        self.moves_to_address(target.address, target_epoch);
    }

    fn moves_to_address(&self, address: SocketAddr, target_epoch: u64) {
        let credential = self.credential.clone().into();
        let order = move_order(&self.lease, address.to_string(), credential, target_epoch);
        self.cluster.node.say(order);
    }

    /// Orders the move to a node that cannot be reached.
    fn moves_to_nobody(&self, target_epoch: u64) {
        let nobody = Target::start(true);
        let address = nobody.address;
        nobody.crash();
        self.moves_to_address(address, target_epoch);
    }

    fn withdraws(&self, epoch: u64, reason: &str) {
        self.cluster.node.say(to_node::Message::Withdraw(Withdraw {
            lease_id: self.lease.lease_id.clone(),
            epoch,
            reason: reason.to_owned(),
        }));
    }

    fn sees_withdrawn(&self, epoch: u64) {
        loop {
            match self.cluster.node.word() {
                from_node::Message::Withdrawn(of) => break assert_eq!(of.epoch, epoch),
                from_node::Message::Sessions(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn stays(&self) {
        self.cluster.node.say(to_node::Message::Stay(Stay {
            lease_id: self.lease.lease_id.clone(),
            epoch: self.lease.epoch,
        }));
    }

    /// Waits for the end of the move to the target that has this grant.
    fn ended(&self, target_epoch: u64) -> MoveEnded {
        loop {
            match self.cluster.node.word() {
                from_node::Message::MoveEnded(ended) => {
                    assert_eq!(ended.epoch, self.lease.epoch);
                    assert_eq!(ended.target_epoch, target_epoch);
                    return ended;
                }
                from_node::Message::Sessions(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn sees_not_taken(&self, target_epoch: u64) {
        let ended = self.ended(target_epoch);
        assert!(ended.elsewhere && !ended.reason.is_empty(), "{ended:?}");
    }

    fn sees_taken(&self, target_epoch: u64) {
        assert_eq!(self.ended(target_epoch).reason, "");
    }

    fn sees_that_it_waits(&self) {
        let refused = self.session.connect(Purpose::Heartbeat, 0).err();
        assert_eq!(refused, Some(Verdict::Parked));
    }

    /// The session goes on here, with the contents of its buffer.
    fn goes_on(mut self) {
        assert_eq!(come_back(&mut self.session, record_on(DEVICE, &[])), 4);
        self.session.send(vec![read(10, vec![])]);
        assert_eq!(contents(&mut self.session, 10), CONTENTS[..]);
    }
}

#[test]
fn a_stranger_who_brings_sessions_starts_no_probe() {
    let (manager, state) = (Manager::start(), tempfile::tempdir().unwrap());
    let driver = state.path().join("fake.toml");
    std::fs::write(&driver, DEVICES).unwrap();
    let config = state.path().join("daemon.toml");
    std::fs::write(&config, "[inventory]\nprobe_time_limit = 120\n").unwrap();
    let (address, config) = (manager.address.to_string(), config.to_str().unwrap());
    let arguments = ["--manager", &address, "--config", config];
    let folder = [("STATE_DIRECTORY", state.path().to_str().unwrap())];
    let daemon = Daemon::fake_with(driver.to_str().unwrap(), &arguments, &folder);
    let node = manager.welcomed(10);
    node.beat(|_| true);
    // From now on, a probe does not end before its time limit.
    let hangs = "[[call]]\nname = \"clGetDeviceIDs\"\ndelay_us = 600000000\n";
    std::fs::write(&driver, format!("{DEVICES}\n{hangs}")).unwrap();
    daemon.change_driver();
    let taking = Taking {
        wire_version: WireVersion::CURRENT.number().into(),
        credential: b"no lease".as_slice().into(),
        sessions: 1,
    };
    let part = SessionPart {
        part: Some(session_part::Part::Taking(taking)),
    };
    let refused = block_on(async {
        let mut stranger = reach(&daemon).await;
        let asked = async {
            let taken = stranger.take_sessions(tokio_stream::once(part)).await?;
            taken.into_inner().message().await
        };
        tokio::time::timeout(LIMIT, asked).await
    });
    let status = refused.expect("an answer without a probe").unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
}

#[test]
fn a_target_that_dies_before_its_answer_leaves_the_session_here() {
    let mut scene = Scene::new();
    let target = Target::start(false);
    scene.moves_to(&target, 21);
    park(&mut scene.session);
    target.has_all();
    target.crash();
    scene.sees_not_taken(21);
    scene.goes_on();
}

#[test]
fn contents_leave_before_the_sessions_worker_has_ended() {
    let mut scene = Scene::new();
    let target = Target::start(true);
    scene.moves_to(&target, 21);
    hear_parking(&mut scene.session, Parking::Stand);
    scene.session.send_raw(&stands());
    hear_parking(&mut scene.session, Parking::Done);
    target.has_some();
    // The worker waits until its client has left.
    let commands = &scene.session.commands;
    commands.set_nonblocking(true).unwrap();
    let end = commands.peek(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::WouldBlock);
    commands.set_nonblocking(false).unwrap();
    scene.session.leave();
    target.has_all();
    scene.sees_taken(21);
    scene.stays();
    scene.goes_on();
}

/// Dials a node whose session leaves, or stays. Returns the refusal.
fn dial(session: &Resuming) -> Option<Verdict> {
    let begun = Instant::now();
    let refused = session.connect(Purpose::Heartbeat, 0).err();
    // A client that is refused pauses, so the node refuses no client at once.
    assert!(refused.is_none() || begun.elapsed() >= PARKED_HOLD);
    refused
}

#[test]
fn a_client_whose_session_leaves_is_kept_waiting() {
    let mut scene = Scene::new();
    let target = Target::start(false);
    scene.moves_to(&target, 21);
    park(&mut scene.session);
    target.has_all();
    assert_eq!(dial(&scene.session), Some(Verdict::Parked));
    let session = &scene.session;
    std::thread::scope(|scope| {
        let dials = scope.spawn(|| while dial(session).is_some() {});
        scene.stays();
        dials.join().unwrap();
    });
    scene.sees_not_taken(21);
    scene.goes_on();
}

#[test]
fn the_manager_ends_the_wait_for_a_silent_target() {
    let mut scene = Scene::new();
    let (silent, other) = (Target::start(false), Target::start(false));
    scene.moves_to(&silent, 21);
    park(&mut scene.session);
    silent.has_all();
    // Another target is asked at once, and falls silent too.
    scene.stays();
    scene.moves_to(&other, 22);
    scene.sees_not_taken(21);
    other.has_all();
    scene.stays();
    scene.sees_not_taken(22);
    scene.goes_on();
}

#[test]
fn a_session_that_a_lost_target_has_taken_stays() {
    let mut scene = Scene::new();
    let target = Target::start(true);
    scene.moves_to(&target, 21);
    park(&mut scene.session);
    scene.sees_taken(21);
    scene.sees_that_it_waits();
    target.crash();
    scene.stays();
    scene.goes_on();
}

#[test]
fn a_session_that_a_lost_target_has_taken_moves_to_another_one() {
    let mut scene = Scene::new();
    let (first, second) = (Target::start(true), Target::start(true));
    scene.moves_to(&first, 21);
    park(&mut scene.session);
    scene.sees_taken(21);
    first.crash();
    scene.moves_to(&second, 22);
    second.has_all();
    scene.sees_taken(22);
    // The manager completes the move.
    scene.withdraws(scene.lease.epoch, "");
    scene.sees_withdrawn(scene.lease.epoch);
    scene.sees_that_it_waits();
}

#[test]
fn a_session_whose_next_target_cannot_be_reached_stays() {
    let mut scene = Scene::new();
    let target = Target::start(true);
    scene.moves_to(&target, 21);
    park(&mut scene.session);
    scene.sees_taken(21);
    target.crash();
    scene.moves_to_nobody(22);
    scene.sees_not_taken(22);
    scene.goes_on();
}

#[test]
fn a_move_is_called_off_while_its_sessions_are_being_parked() {
    let mut scene = Scene::new();
    let (first, second) = (Target::start(true), Target::start(true));
    scene.moves_to(&first, 21);
    hear_parking(&mut scene.session, Parking::Stand);
    // The client does not stand yet.
    scene.stays();
    scene.sees_not_taken(21);
    // ---- the next move takes the session when it is parked
    scene.moves_to(&second, 22);
    scene.session.send_raw(&stands());
    hear_parking(&mut scene.session, Parking::Done);
    scene.session.leave();
    second.has_all();
    scene.sees_taken(22);
    assert!(first.received.try_recv().is_err());
    scene.stays();
    scene.goes_on();
}

#[test]
fn a_move_that_is_called_off_ends_its_call_while_another_session_is_waited_for() {
    let mut scene = Scene::new();
    let daemon = &scene.cluster.daemon;
    let other = Resuming::open_leased(daemon, process(2), LONG, false, &scene.credential);
    let mut other = other.unwrap();
    // A heartbeat from before the other session opened would look like the end of the first one.
    scene.cluster.node.beat(|of| of.sessions == 2);
    let first = Target::start(true);
    scene.moves_to(&first, 21);
    park(&mut scene.session);
    hear_parking(&mut other, Parking::Stand);
    // The other client never stands.
    scene.cluster.node.beat(|of| of.sessions == 1);
    scene.stays();
    scene.sees_not_taken(21);
    // ---- this move sends the session that is parked already
    let second = Target::start_beginning(Begins::AtOnce, false);
    scene.moves_to(&second, 22);
    second.has_some();
    scene.stays();
    scene.sees_not_taken(22);
    second.has_all();
    scene.goes_on();
}

#[test]
fn a_session_that_is_parked_after_its_move_was_called_off_goes_on() {
    let mut scene = Scene::new();
    let target = Target::start(true);
    scene.moves_to(&target, 21);
    hear_parking(&mut scene.session, Parking::Stand);
    scene.stays();
    scene.sees_not_taken(21);
    scene.cluster.node.beat(|of| of.sessions == 1);
    scene.session.send_raw(&stands());
    hear_parking(&mut scene.session, Parking::Done);
    scene.session.leave();
    // The worker has ended.
    scene.cluster.node.beat(|of| of.sessions == 0);
    scene.goes_on();
}

#[test]
fn the_end_of_a_lease_ends_a_session_that_a_target_has_taken() {
    let mut scene = Scene::new();
    let target = Target::start(true);
    scene.moves_to(&target, 21);
    park(&mut scene.session);
    scene.sees_taken(21);
    scene.withdraws(scene.lease.epoch, "revoked");
    scene.sees_withdrawn(scene.lease.epoch);
    let refused = scene.session.connect(Purpose::Heartbeat, 0).err();
    assert_eq!(refused, Some(Verdict::UnknownSession));
    let reason = scene.session.end_reason();
    assert!(reason.contains("revoked"), "{reason}");
}

#[test]
fn a_session_on_its_way_may_begin_anew_elsewhere_when_its_node_loses_the_manager() {
    let cluster = cluster();
    let lease = Grant {
        autonomy_ms: 1000,
        ..grant(1, 11, &[(0, 1, 0, 0)])
    };
    cluster.node.grant(&lease);
    let credential = cluster.manager.credential(&cluster.node, &lease);
    let mut scene = Scene::with(cluster, lease, credential);
    let target = Target::start(false);
    scene.moves_to(&target, 21);
    park(&mut scene.session);
    target.has_all();
    scene.cluster.node.fall_silent();
    let reason = scene.session.end_reason();
    assert!(
        reason.contains("no contact with the device manager"),
        "{reason}"
    );
    assert!(scene.session.session_end(&scene.session.secret).lease_lost);
}

#[test]
fn the_withdrawal_of_an_older_grant_stops_no_move() {
    let mut scene = Scene::new();
    let target = Target::start(false);
    scene.moves_to(&target, 21);
    park(&mut scene.session);
    target.has_all();
    let older = scene.lease.epoch - 1;
    scene.withdraws(older, "");
    scene.sees_withdrawn(older);
    target.answers.notify_one();
    scene.sees_taken(21);
    scene.stays();
    scene.goes_on();
}

#[test]
fn a_new_grant_of_a_lease_that_has_moved_opens_sessions() {
    let cluster = cluster();
    let (lease, credential) = cluster.lease();
    let opened = Resuming::open_leased(&cluster.daemon, process(1), LONG, false, &credential);
    let scene = Scene {
        cluster,
        lease,
        credential,
        session: opened.unwrap(),
    };
    scene.session.close();
    loop {
        match scene.cluster.node.word() {
            from_node::Message::Sessions(of) if of.sessions == 0 => break,
            from_node::Message::Sessions(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let target = Target::start(true);
    scene.moves_to(&target, 21);
    scene.sees_taken(21);
    // The lease comes back, and the daemon has missed its withdrawal.
    let again = Grant {
        epoch: 31,
        ..scene.lease.clone()
    };
    scene
        .cluster
        .node
        .say(to_node::Message::Grant(again.clone()));
    scene.sees_withdrawn(scene.lease.epoch);
    match scene.cluster.node.word() {
        from_node::Message::Acknowledged(of) => assert_eq!(of.epoch, 31),
        other => panic!("{other:?}"),
    }
    let credential = scene
        .cluster
        .manager
        .credential(&scene.cluster.node, &again);
    let opened = Resuming::open_leased(&scene.cluster.daemon, process(2), LONG, false, &credential);
    assert!(opened.is_ok(), "{:?}", opened.err());
}
