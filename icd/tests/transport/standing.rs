//! Tests what a session costs while it stands, with commands that it holds back.

use std::time::Duration;

use causeway::config::Carrier;
use causeway_proto::command::{EventBatch, Parking};

use crate::frames::fake_node::upper::{Upper, command};
use crate::frames::fake_node::{FakeNode, Faults};

/// For how long the flusher is observed.
const OBSERVED: Duration = Duration::from_millis(500);

// For how long the flusher of the only session was on a processor.
fn flusher_was_busy() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let read = |task: std::fs::DirEntry| {
        let read = |file| std::fs::read_to_string(task.path().join(file)).ok();
        (read("comm")?.trim() == "cw-flush").then_some(())?;
        let nanoseconds = read("schedstat")?.split(' ').next()?.parse().ok()?;
        Some(Duration::from_nanos(nanoseconds))
    };
    tasks.into_iter().find_map(read).unwrap()
}

#[test]
fn what_is_held_back_keeps_no_core_busy() {
    own_process!();
    let fake = FakeNode::start(Faults {
        resume_ms: 60_000,
        restart_ms: 60_000,
        ..Faults::default()
    });
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    worker.send(EventBatch {
        parking: Parking::Stand.into(),
        ..EventBatch::default()
    });
    assert!(worker.receive().stands);
    session.send(&command(1)).unwrap();
    let before = flusher_was_busy();
    std::thread::sleep(OBSERVED);
    let busy = flusher_was_busy() - before;
    // Little, because the machine may be busy with other tests.
    assert!(busy < OBSERVED / 25, "{busy:?}");
}
