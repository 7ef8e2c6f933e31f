//! Tests that sending allocates nothing once the buffers have grown, and costs what it should.
//!
//! The process's allocator counts the allocations of the calling thread.

use causeway::config::Carrier;

use crate::frames::counting::allocations;
use crate::frames::fake_node::upper::{Upper, command};
use crate::frames::fake_node::{FakeNode, Faults};

#[test]
fn steady_sending_allocates_nothing_on_the_calling_thread() {
    let fake = FakeNode::start(Faults::default());
    let (node, session, mut worker) = fake.open(Carrier::Direct, &Upper::new());
    let reader = std::thread::spawn(move || {
        let mut commands = 0;
        while let Some(batch) = worker.try_receive() {
            commands += batch.commands.len();
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
