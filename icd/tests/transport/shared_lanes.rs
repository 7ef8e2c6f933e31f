//! Tests of shared-memory lanes whose worker gives up. Before it has the memory, TCP takes over. Afterwards, the
//! lane's end is the session's end.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use causeway::config::Carrier;
use causeway::transport::{HostRegion, Session};
use causeway_lane::{Stream, accept};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::preamble::Purpose;
use causeway_proto::region::Region;
use causeway_proto::status::WireError;

use crate::frames::fake_node::upper::Upper;
use crate::frames::fake_node::{FakeNode, Faults, PATIENCE};

const EVENT: EventId = EventId(77);

fn node() -> FakeNode {
    FakeNode::start(Faults {
        bulk_connections: 1,
        shares_memory: true,
        ..Faults::default()
    })
}

// A node that keeps sessions without connections.
fn lasting() -> FakeNode {
    FakeNode::start(Faults {
        bulk_connections: 1,
        shares_memory: true,
        resume_ms: 60_000,
        ..Faults::default()
    })
}

fn upload(session: &Session, bytes: &Arc<Vec<u8>>) {
    let region = Region::linear(0, bytes.len() as u64).unwrap();
    // SAFETY: the transfer keeps them.
    let source = unsafe { HostRegion::new(bytes.as_ptr().cast_mut(), region) };
    session.upload(EVENT, source, bytes.clone(), None).unwrap();
}

fn shared_lane(fake: &FakeNode) -> OwnedFd {
    let (preamble, socket) = fake.next();
    assert_eq!(preamble.purpose, Purpose::SharedBulk);
    socket.into()
}

fn take(mut lane: impl Read + Write, length: usize) -> Vec<u8> {
    let credit = Header {
        kind: Kind::Credit,
        transfer: EVENT,
        offset: length as u64,
        length: 0,
    };
    lane.write_all(&credit.encode()).unwrap();
    let mut header = [0; HEADER];
    lane.read_exact(&mut header).unwrap();
    assert_eq!(Header::decode(&header).unwrap().kind, Kind::Data);
    let mut bytes = vec![0; length];
    lane.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_worker_that_does_not_take_the_memory_is_reached_over_tcp() {
    let fake = node();
    let (_node, session, _worker) = fake.open(Carrier::Direct, &Upper::new());
    let bytes = Arc::new(vec![7; 1000]);
    upload(&session, &bytes);
    drop(shared_lane(&fake));
    // The lane is kept, because its end would end the session.
    let mut lane = fake.lane();
    assert!(take(&mut lane, 1000) == *bytes);
    assert_eq!(session.is_lost(), None);
}

// Opens a session of this node with one lane through shared memory, and ends the lane after `before`.
fn lane_ends(fake: &FakeNode, before: impl FnOnce()) -> WireError {
    let upper = Upper::new();
    let (_node, session, _worker) = fake.open(Carrier::Direct, &upper);
    let bytes = Arc::new(vec![7; 1000]);
    upload(&session, &bytes);
    let socket = shared_lane(fake);
    let lane = Stream::Shared(accept(socket, Instant::now() + PATIENCE).unwrap());
    assert!(take(&lane, 1000) == *bytes);
    before();
    drop(lane);
    upper.loss()
}

#[test]
fn a_shared_lane_that_ends_is_the_sessions_end() {
    let error = lane_ends(&node(), || ()).to_string();
    assert!(error.contains("bulk"), "{error}");
}

#[test]
fn the_node_is_asked_why_a_shared_lane_has_ended() {
    let fake = lasting();
    let error = lane_ends(&fake, || fake.forget_session("the worker was killed"));
    let WireError::Ended { reason, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(reason.starts_with("the worker was killed; its connection had broken "));
}

#[test]
fn a_session_without_its_shared_lane_is_not_resumed() {
    let error = lane_ends(&lasting(), || ());
    let WireError::Lost { reason, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(reason.contains("has closed the memory"), "{reason}");
}
