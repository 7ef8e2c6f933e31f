//! Tests waiting threads that read the connection in turn: each gets its own event, whichever thread has read it.
//! Events are read also while no thread waits.

use std::sync::Barrier;

use causeway::config::Carrier;
use causeway_proto::id::EventId;

use crate::frames::fake_node::upper::{Upper, completed};
use crate::frames::fake_node::{FakeNode, Faults};

const WAITERS: u64 = 4;
const ROUNDS: u64 = 200;

#[test]
fn every_waiter_hears_of_its_own_event_and_the_rest_comes_too() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        let fake = FakeNode::start(Faults::default());
        let upper = Upper::new();
        let (_node, session, mut worker) = fake.open(carrier, &upper);
        let round_begins = Barrier::new(WAITERS as usize + 1);
        std::thread::scope(|scope| {
            for waiter in 0..WAITERS {
                let (session, upper, round_begins) = (&session, &upper, &round_begins);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        round_begins.wait();
                        let event = 1 + round * (WAITERS + 1) + waiter;
                        let waited =
                            session.wait_for(EventId(event), &|| upper.has_completed(event));
                        assert!(waited.is_ok() && upper.has_completed(event));
                    }
                });
            }
            for round in 0..ROUNDS {
                round_begins.wait();
                // Another thread is first each time, so that the reading thread leaves before or after others.
                for place in 0..WAITERS {
                    let event = 1 + round * (WAITERS + 1) + (place + round) % WAITERS;
                    worker.send(completed(event, 0));
                }
                // No thread waits for this event.
                let unawaited = (round + 1) * (WAITERS + 1);
                worker.send(completed(unawaited, 0));
                upper.completion(unawaited);
            }
        });
    }
}
