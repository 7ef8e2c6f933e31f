//! Tests that sending allocates nothing once the buffers have grown, whether or not the session outlives its connections.
//!
//! The process's allocator counts the allocations of the calling thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway::config::Carrier;

use causeway_proto::command::EventBatch;

use crate::frames::counting::allocations;
use crate::frames::fake_node::upper::{Upper, command};
use crate::frames::fake_node::{FakeNode, Faults};

#[test]
fn steady_sending_allocates_nothing_on_the_calling_thread() {
    steady_sending_allocates_nothing(0);
}

#[test]
fn steady_sending_allocates_nothing_in_a_session_that_can_be_resumed() {
    steady_sending_allocates_nothing(60_000);
}

fn steady_sending_allocates_nothing(resume_ms: u32) {
    let fake = FakeNode::start(Faults {
        resume_ms,
        ..Faults::default()
    });
    let (node, session, mut worker) = fake.open(Carrier::Direct, &Upper::new());
    let received = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&received);
    let reader = std::thread::spawn(move || {
        while let Some(batch) = worker.try_receive() {
            let commands = batch.commands.len() as u64;
            let applied = counted.load(Ordering::SeqCst) + commands;
            // What is kept until then goes back to the pool.
            if resume_ms > 0 && commands > 0 {
                worker.send(EventBatch {
                    applied,
                    ..EventBatch::default()
                });
            }
            counted.store(applied, Ordering::SeqCst);
        }
    });
    let flood = |count: u64| {
        for i in 0..count {
            session.send(&command(i)).unwrap();
        }
    };
    // Both buffers grow as needed, whichever thread writes. On a busy machine, that shows only when nobody has
    // written for a while. The buffers have a maximum size, so in the end a flood allocates nothing.
    let mut floods = 1;
    flood(100_000);
    loop {
        let before = allocations();
        flood(100_000);
        session.flush().unwrap();
        floods += 1;
        if allocations() == before {
            break;
        }
        assert!(floods < 20, "every flood allocates");
    }
    while received.load(Ordering::SeqCst) < floods * 100_000 {
        std::thread::yield_now();
    }
    drop((node, session));
    reader.join().unwrap();
    assert_eq!(received.load(Ordering::SeqCst), floods * 100_000);
}
