//! Tests of a session that moves to another node while the client dials the old one.

use bytes::Bytes;
use causeway::config::Carrier;
use causeway_proto::command::command::Kind;
use causeway_proto::command::{CreateQueue, EventBatch};
use causeway_proto::preamble::Verdict;

use crate::frames::fake_node::bulk::wait_for;
use crate::frames::fake_node::upper::{Upper, completed};
use crate::frames::fake_node::{FakeNode, Faults};

const EVENT: u64 = 9;

fn node() -> FakeNode {
    FakeNode::start(Faults {
        resume_ms: 60_000,
        ..Faults::default()
    })
}

// The session moves while the old node has not answered the client's attempt yet. If the old node then `forgets` the
// session, the new node is not ready yet.
fn the_program_goes_on_at_the_new_node(forgets: bool) {
    let (old, new) = (node(), node());
    let upper = Upper::new();
    let (node, session, worker) = old.open(Carrier::Direct, &upper);
    old.hold_heartbeats(true);
    worker.die();
    wait_for(|| old.heartbeats_asked() == 2);
    node.move_to(Bytes::from_static(b"another node    "), new.settings());
    if forgets {
        old.forget_session("the lease has moved");
        new.set_verdict(Verdict::Parked);
    }
    old.hold_heartbeats(false);
    if forgets {
        wait_for(|| new.refused() >= 2 || session.is_lost().is_some());
        new.set_verdict(Verdict::Welcome);
    }
    let mut worker = new.worker();
    let queue = Kind::CreateQueue(CreateQueue {
        queue: 1,
        ..CreateQueue::default()
    });
    session.send_now(&queue).unwrap();
    assert_eq!(worker.receive().commands[0].kind, Some(queue));
    worker.send(EventBatch {
        applied: 1,
        ..completed(EVENT, 0)
    });
    assert_eq!(upper.completion(EVENT).status, 0);
    assert!(session.is_lost().is_none());
}

#[test]
fn a_dial_of_the_node_that_a_session_has_left_resumes_nothing() {
    the_program_goes_on_at_the_new_node(false);
}

#[test]
fn the_node_that_a_session_has_left_does_not_end_it() {
    the_program_goes_on_at_the_new_node(true);
}
