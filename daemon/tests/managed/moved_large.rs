//! Tests of sessions with so much memory that their contents move over connections of their own.

use std::net::ToSocketAddrs;
use std::time::Instant;

use causeway_links::{FarNode, NotDialled, certificate, dial_with};
use causeway_proto::command::{command::Kind, enqueue::Operation, *};
use causeway_proto::control::session_part::Part;
use causeway_proto::control::{ContentsWay, SessionPart, Taking};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::manager::{Grant, MoveEnded, Stay, from_node, to_node};
use causeway_proto::preamble::{Preamble, Purpose, Verdict};
use causeway_proto::version::WireVersion;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::common::cutter::Cutter;
use crate::common::manager::{Node, grant};
use crate::common::parking::{come_back, contents, park};
use crate::common::resuming::{Resuming, process};
use crate::common::{Daemon, LIMIT, block_on};
use crate::support::{Cluster, SHARES, cluster_with, configured, move_order, reach};

const LONG: (u32, u32) = (60_000, 600_000);
const MIB: u64 = 1 << 20;
/// Size of the session's buffer.
const SIZE: u64 = 200 * MIB + 12;
/// The leased device.
const DEVICE: u32 = 1;

/// What creates the session's objects.
fn record() -> Vec<Kind> {
    vec![
        Kind::CreateContext(CreateContext {
            context: 1,
            platform: 0,
            devices: vec![DEVICE],
        }),
        Kind::CreateQueue(CreateQueue {
            queue: 2,
            context: 1,
            device: DEVICE,
            ..CreateQueue::default()
        }),
        Kind::CreateBuffer(CreateBuffer {
            buffer: 3,
            context: 1,
            flags: 1,
            size: SIZE,
            ..CreateBuffer::default()
        }),
    ]
}

fn enqueue(event: u64, operation: Operation) -> Kind {
    Kind::Enqueue(Enqueue {
        event,
        queue: 2,
        operation: Some(operation),
        ..Enqueue::default()
    })
}

/// The parts of the buffer: where each begins, its length, and the number that it is full of.
fn parts() -> impl Iterator<Item = (u64, u64, u32)> {
    let starts = (0..SIZE).step_by(MIB as usize);
    starts
        .zip(1..)
        .map(|(at, number)| (at, MIB.min(SIZE - at), number * 0x0101_0001))
}

/// A session with a large buffer, in a lease of a node that can move to another one.
struct Scene {
    cluster: Cluster,
    lease: Grant,
    session: Resuming,
    other: Daemon,
    /// The other daemon's side of the manager, and its grant of the lease.
    other_node: Node,
    other_lease: Grant,
    _other_state: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene::with(SHARES)
    }

    /// With these settings of both daemons.
    fn with(text: &str) -> Scene {
        let cluster = cluster_with(text);
        let (lease, credential) = cluster.lease();
        let opened = Resuming::open_leased(&cluster.daemon, process(1), LONG, false, &credential);
        let mut session = opened.unwrap();
        session.send(record());
        let fills = parts().zip(10..).map(|((offset, size, number), event)| {
            let fill = FillBuffer {
                buffer: 3,
                pattern: Bytes::copy_from_slice(&number.to_le_bytes()),
                offset,
                size,
            };
            enqueue(event, Operation::FillBuffer(fill))
        });
        session.send(fills.collect());
        session.send(vec![Resuming::ping(1)]);
        session.answer(1);
        let other_state = tempfile::tempdir().unwrap();
        let other = configured(&cluster.manager, other_state.path(), text);
        let other_node = cluster.manager.welcomed(10);
        let other_lease = grant(1, 21, &[(0, DEVICE, 0, 0)]);
        other_node.grant(&other_lease);
        Scene {
            cluster,
            lease,
            session,
            other,
            other_node,
            other_lease,
            _other_state: other_state,
        }
    }

    fn credential(&self) -> Bytes {
        let manager = &self.cluster.manager;
        manager
            .credential(&self.other_node, &self.other_lease)
            .into()
    }

    fn moves_to(&self, address: &str) {
        let epoch = self.other_lease.epoch;
        let order = move_order(&self.lease, address.to_owned(), self.credential(), epoch);
        self.cluster.node.say(order);
    }

    fn ended(&self) -> MoveEnded {
        loop {
            match self.cluster.node.word() {
                from_node::Message::MoveEnded(ended) => return ended,
                from_node::Message::Sessions(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The session goes on at the node that its client dials, with the contents of its buffer.
    fn goes_on(&mut self) {
        come_back(&mut self.session, record());
        for ((offset, size, number), event) in parts().zip(1000..) {
            let read = ReadBuffer {
                buffer: 3,
                region: Some(Region {
                    offset: offset + size - 12,
                    row_length: 12,
                    ..Region::default()
                }),
                bulk: false,
            };
            self.session
                .send(vec![enqueue(event, Operation::ReadBuffer(read))]);
            let number = number.to_le_bytes();
            assert_eq!(contents(&mut self.session, event), [number; 3].concat());
        }
    }
}

#[test]
fn a_large_session_moves() {
    let mut scene = Scene::new();
    let cutter = Cutter::before(&scene.other);
    scene.moves_to(&cutter.address);
    park(&mut scene.session);
    assert_eq!(scene.ended().reason, "");
    // The node is looked for before the session is parked, and called anew. Each further file has a connection.
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(cutter.count(), 2 + (cores - 1).clamp(1, 4));
    scene.session.address = scene.other.address.clone();
    scene.goes_on();
}

#[test]
fn a_session_that_shares_a_process_moves_and_shares_one_again() {
    let mut scene = Scene::with(&format!("{SHARES}[sharing]\ntogether = \"user\"\n"));
    let credential = scene
        .cluster
        .manager
        .credential(&scene.cluster.node, &scene.lease);
    let mut second =
        Resuming::open_leased(&scene.cluster.daemon, process(1), LONG, false, &credential).unwrap();
    second.send(record());
    second.send(vec![Resuming::ping(1)]);
    second.answer(1);
    assert_eq!(scene.cluster.daemon.workers().len(), 1);
    scene.moves_to(&scene.other.address);
    park(&mut scene.session);
    park(&mut second);
    assert_eq!(scene.ended().reason, "");
    second.address = scene.other.address.clone();
    scene.session.address = scene.other.address.clone();
    come_back(&mut second, record());
    scene.goes_on();
    assert_eq!(scene.other.workers().len(), 1);
}

#[test]
fn a_large_session_whose_transfer_breaks_goes_on_here() {
    let mut scene = Scene::new();
    let cutter = Cutter::before(&scene.other);
    cutter.cut_after(60 * MIB as i64);
    scene.moves_to(&cutter.address);
    park(&mut scene.session);
    let ended = scene.ended();
    assert!(ended.elsewhere && !ended.reason.is_empty(), "{ended:?}");
    // ---- also after the move has been called off
    cutter.cut_after(i64::MAX);
    scene.moves_to(&cutter.address);
    assert_eq!(scene.ended().reason, "");
    scene.cluster.node.say(to_node::Message::Stay(Stay {
        lease_id: scene.lease.lease_id.clone(),
        epoch: scene.lease.epoch,
    }));
    scene.goes_on();
}

/// The id and secret of a transfer.
fn far_of(way: &ContentsWay) -> FarNode {
    FarNode {
        id: SessionId(way.id[..].try_into().unwrap()),
        secret: SessionSecret(way.secret[..].try_into().unwrap()),
        fingerprint: certificate(&way.certificate_sha256).unwrap(),
        addresses: Vec::new(),
    }
}

/// Connects for the first further file of the first session.
fn connect(daemon: &Daemon, far: &FarNode) -> Result<(), NotDialled> {
    let preamble = Preamble {
        purpose: Purpose::Contents,
        lane: 1,
        session: far.id,
        link: 1,
    };
    let at = daemon.address.to_socket_addrs().unwrap().next().unwrap();
    dial_with(far, at, &preamble, Instant::now() + LIMIT).map(drop)
}

#[test]
fn only_the_sender_of_an_admitted_session_can_connect_for_its_contents() {
    let scene = Scene::new();
    let taking = Taking {
        wire_version: WireVersion::CURRENT.number().into(),
        credential: scene.credential(),
        sessions: 1,
    };
    let parts = [Part::Taking(taking), Part::Contents(Bytes::new())];
    let (queue, sent) = mpsc::channel(2);
    for part in parts {
        queue.try_send(SessionPart { part: Some(part) }).unwrap();
    }
    block_on(async {
        let mut node = reach(&scene.other).await;
        let answers = node.take_sessions(ReceiverStream::new(sent)).await.unwrap();
        let mut answers = answers.into_inner();
        let first = answers.message().await.unwrap().unwrap();
        let far = far_of(&first.contents.unwrap());
        see_strangers_refused(&scene.other, &far);
        // A connection that breaks ends the call, and the transfer.
        connect(&scene.other, &far).unwrap();
        let refused = answers.message().await.unwrap_err();
        assert!(refused.message().contains("connection"), "{refused}");
        see_refused(connect(&scene.other, &far), Verdict::UnknownSession);
    });
    drop(queue);
}

fn see_refused(refused: Result<(), NotDialled>, verdict: Verdict) {
    let is_it = matches!(&refused, Err(NotDialled::Verdict(of)) if *of == verdict);
    assert!(is_it, "{refused:?}");
}

fn see_strangers_refused(daemon: &Daemon, far: &FarNode) {
    let stranger = FarNode {
        id: SessionId([7; 16]),
        ..far.clone()
    };
    see_refused(connect(daemon, &stranger), Verdict::UnknownSession);
    let guesses = FarNode {
        secret: SessionSecret([7; 32]),
        ..far.clone()
    };
    see_refused(connect(daemon, &guesses), Verdict::Unproved);
}
