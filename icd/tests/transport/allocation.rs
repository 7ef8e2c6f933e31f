//! Tests that sending allocates nothing once the buffers have grown, whether or not the session outlives its connections.
//!
//! The process's allocator counts the allocations of the calling thread.

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
    let reader = std::thread::spawn(move || {
        let mut commands = 0;
        while let Some(batch) = worker.try_receive() {
            if batch.closes {
                break;
            }
            commands += batch.commands.len();
            // What is kept until then goes back to the pool.
            if resume_ms > 0 {
                worker.send(EventBatch {
                    applied: commands as u64,
                    ..EventBatch::default()
                });
            }
        }
        commands
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
    drop((node, session));
    assert_eq!(reader.join().unwrap(), floods * 100_000);
}
