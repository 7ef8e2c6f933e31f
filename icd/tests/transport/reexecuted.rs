//! Tests of a client whose worker dies: which ends of connections it takes for a death.

use causeway::config::Carrier;
use causeway_proto::command::command::Kind;
use causeway_proto::command::{
    CreateKernel, CreateQueue, Enqueue, EventBatch, NdRange, Recorded, enqueue::Operation,
};
use causeway_proto::preamble::{REEXECUTES, WANTS_RECORD};

use crate::frames::fake_node::upper::{Upper, completed};
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults};

const LAUNCH: u64 = 9;

fn node() -> FakeNode {
    FakeNode::start(Faults {
        resume_ms: 60_000,
        reexecutes: true,
        ..Faults::default()
    })
}

/// A kernel that does not end.
fn commands() -> Vec<Kind> {
    let queue = CreateQueue {
        queue: 1,
        ..CreateQueue::default()
    };
    let kernel = CreateKernel {
        kernel: 2,
        name: "endless".to_owned(),
        ..CreateKernel::default()
    };
    let launch = NdRange {
        kernel: 2,
        ..NdRange::default()
    };
    let launch = Enqueue {
        queue: 1,
        event: LAUNCH,
        operation: Some(Operation::NdRange(launch)),
        ..Enqueue::default()
    };
    vec![
        Kind::CreateQueue(queue),
        Kind::CreateKernel(kernel),
        Kind::Enqueue(launch),
    ]
}

/// Receives the record, which is empty, and the commands.
fn receive_all(worker: &mut FakeWorker) {
    assert_eq!(worker.receive().recorded(), Recorded::Last);
    let mut received = Vec::new();
    while received.len() < commands().len() {
        received.extend(worker.receive().commands);
    }
    let kinds: Vec<_> = received.into_iter().filter_map(|of| of.kind).collect();
    assert_eq!(kinds, commands());
}

#[test]
fn connections_that_break_again_and_again_are_no_deaths() {
    let fake = node();
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    for kind in commands() {
        session.send_now(&kind).unwrap();
    }
    let mut received = 0;
    while received < commands().len() {
        received += worker.receive().commands.len();
    }
    // The first death. The connections to the next worker break before it has put the session together.
    fake.set_position(WANTS_RECORD | REEXECUTES);
    fake.set_incarnation(2);
    for _ in 0..4 {
        worker.die();
        worker = fake.worker();
        receive_all(&mut worker);
    }
    worker.send(EventBatch {
        applied: 3,
        ..completed(LAUNCH, 0)
    });
    assert_eq!(upper.completion(LAUNCH).status, 0);
    assert!(session.is_lost().is_none());
}

#[test]
fn a_kernel_at_which_two_workers_die_is_not_executed_again() {
    let fake = node();
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    for kind in commands() {
        session.send_now(&kind).unwrap();
    }
    let mut received = 0;
    while received < commands().len() {
        received += worker.receive().commands.len();
    }
    fake.set_position(WANTS_RECORD | REEXECUTES);
    fake.set_incarnation(2);
    worker.die();
    let mut worker = fake.worker();
    receive_all(&mut worker);
    fake.set_incarnation(3);
    worker.die();
    let loss = upper.loss().to_string();
    assert!(
        loss.contains("died 2 times at the kernel `endless`"),
        "{loss}"
    );
}
