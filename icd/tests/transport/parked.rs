//! Tests of a client whose session is parked: it stands, waits for the next daemon, and gives it the record.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway::config::Carrier;
use causeway::transport::Session;
use causeway_proto::command::command::Kind;
use causeway_proto::command::{CreateBuffer, EventBatch, ObjectKind, Parking, Recorded, Release};
use causeway_proto::preamble::{Verdict, WANTS_RECORD};
use causeway_proto::region::Region;

use crate::frames::fake_node::bulk::{Bulk, EVENT, pattern, send, wait_for};
use crate::frames::fake_node::upper::{Upper, command, completed, number};
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults};

fn parks() -> Faults {
    Faults {
        resume_ms: 60_000,
        restart_ms: 60_000,
        ..Faults::default()
    }
}

fn buffer(buffer: u64) -> Kind {
    Kind::CreateBuffer(CreateBuffer {
        buffer,
        size: 8,
        ..CreateBuffer::default()
    })
}

fn release(id: u64) -> Kind {
    let object = ObjectKind::Memory.into();
    Kind::Release(Release { object, id })
}

fn says(parking: Parking) -> EventBatch {
    EventBatch {
        parking: parking.into(),
        ..EventBatch::default()
    }
}

fn send_all(session: &Arc<Session>, kinds: Vec<Kind>) {
    for kind in kinds {
        session.send_now(&kind).unwrap();
    }
}

// Receives until the client stands. Returns the commands.
fn until_it_stands(worker: &mut FakeWorker) -> Vec<Kind> {
    let mut kinds = Vec::new();
    loop {
        let batch = worker.receive();
        if batch.stands {
            assert!(batch.commands.is_empty());
            return kinds;
        }
        kinds.extend(batch.commands.into_iter().filter_map(|of| of.kind));
    }
}

// The worker waits for the acknowledgement, and the program for the worker.
#[test]
fn a_client_that_stands_acknowledges_an_end_without_a_heartbeat() {
    let fake = FakeNode::start(parks());
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    send_all(&session, vec![buffer(1), command(EVENT.0)]);
    fake.stop_pulses();
    worker.send(says(Parking::Stand));
    until_it_stands(&mut worker);
    wait_for(|| fake.acknowledged() == 1);
    worker.send(completed(EVENT.0, 0));
    upper.completion(EVENT.0);
    wait_for(|| fake.acknowledged() == 2);
}

/// The thread that handles the last word breaks the connection, and another one dials at once.
#[test]
fn the_client_comes_back_behind_the_word_that_its_session_is_parked() {
    for round in 0..100 {
        let fake = FakeNode::start(parks());
        let upper = Upper::new();
        let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
        send_all(&session, vec![buffer(1)]);
        worker.send(says(Parking::Stand));
        until_it_stands(&mut worker);
        fake.set_position(1 | WANTS_RECORD);
        worker.send(says(Parking::Done));
        wait_for(|| fake.positions().len() == 2);
        // The worker has sent two batches. The client has got the second, because it has acted on it.
        assert_eq!(fake.positions()[1], 2, "round {round}");
    }
}

#[test]
fn the_next_daemon_gets_the_record_and_what_was_held_back() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        restarted(carrier);
    }
}

fn restarted(carrier: Carrier) {
    let fake = FakeNode::start(parks());
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(carrier, &upper);
    let before = vec![buffer(1), buffer(2), release(1), command(3)];
    send_all(&session, before.clone());
    worker.send(says(Parking::Stand));
    assert_eq!(until_it_stands(&mut worker), before);
    // Held back, with the release of what the record must still make.
    send_all(&session, vec![release(2), command(7), buffer(4)]);
    fake.set_verdict(Verdict::Parked);
    worker.send(says(Parking::Done));
    // The client shuts its connections.
    assert!(worker.try_receive().is_none());
    assert!(session.is_lost().is_none());
    fake.set_position(4 | WANTS_RECORD);
    fake.set_verdict(Verdict::Welcome);
    let mut worker = fake.worker();
    assert_record(&mut worker);
    // The connection breaks while the worker puts the session together. It gets all of it again.
    worker.die();
    let mut worker = fake.worker();
    assert_record(&mut worker);
    // Numbers of events go on.
    worker.send(EventBatch {
        number: 3,
        applied: 7,
        ..completed(100, 0)
    });
    upper.completion(100);
}

// Receives the record of what is alive behind command 4, and the commands behind it.
fn assert_record(worker: &mut FakeWorker) {
    let record = worker.receive();
    assert_eq!((record.first, record.recorded()), (1, Recorded::Last));
    let kinds = record.commands.into_iter().filter_map(|of| of.kind);
    assert_eq!(kinds.collect::<Vec<_>>(), [buffer(2)]);
    let mut first = None;
    let mut later = Vec::new();
    while later.len() < 3 {
        let batch = worker.receive();
        first.get_or_insert(batch.first);
        later.extend(batch.commands.into_iter().filter_map(|of| of.kind));
    }
    assert_eq!(first, Some(5));
    assert_eq!(later, [release(2), command(7), buffer(4)]);
}

#[test]
fn a_client_goes_on_if_the_worker_says_so() {
    let fake = FakeNode::start(parks());
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    for round in 0..3 {
        worker.send(says(Parking::Stand));
        assert!(until_it_stands(&mut worker).is_empty());
        session.send(&command(round)).unwrap();
        worker.send(says(Parking::GoOn));
        assert_eq!(number(&worker.receive().commands[0]), round);
    }
    // A break while it stands is a pause like any other, and the worker is told again.
    worker.send(says(Parking::Stand));
    assert!(until_it_stands(&mut worker).is_empty());
    fake.set_position(3);
    worker.die();
    let mut worker = fake.worker();
    assert!(until_it_stands(&mut worker).is_empty());
    assert!(session.is_lost().is_none());
}

#[test]
fn a_session_that_was_not_granted_it_is_not_parked() {
    let faults = Faults {
        restart_ms: 0,
        ..parks()
    };
    let fake = FakeNode::start(faults);
    let upper = Upper::new();
    let (_node, _session, mut worker) = fake.open(Carrier::Direct, &upper);
    worker.send(says(Parking::Stand));
    let loss = upper.loss().to_string();
    assert!(loss.contains("cannot be parked"), "{loss}");
}

#[test]
fn another_worker_that_lacks_commands_ends_the_session() {
    // One that wants a record of a client that does not stand, and one that has not applied what was written.
    for stands in [false, true] {
        let fake = FakeNode::start(parks());
        let upper = Upper::new();
        let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
        send_all(&session, vec![buffer(1), buffer(2)]);
        if stands {
            worker.send(says(Parking::Stand));
            until_it_stands(&mut worker);
        }
        fake.set_position((if stands { 1 } else { 2 }) | WANTS_RECORD);
        worker.die();
        let loss = upper.loss().to_string();
        assert!(loss.contains("another worker"), "{loss}");
    }
}

#[test]
fn a_batch_is_acknowledged_when_the_bytes_of_its_transfers_have_arrived() {
    let mut bulk = Bulk::new(Faults {
        bulk_connections: 1,
        ..parks()
    });
    let bytes = pattern(3000);
    let mut memory = vec![0; bytes.len()];
    bulk.download(&mut memory, Region::linear(0, 3000).unwrap());
    let lane = bulk.fake.lane();
    bulk.worker.send(completed(EVENT.0, 0));
    bulk.worker.send(says(Parking::Stand));
    until_it_stands(&mut bulk.worker);
    // All connections break. The client does not claim the last batch, although it has handled that.
    bulk.worker.die();
    let mut worker = bulk.fake.worker();
    assert!(*bulk.fake.positions().last().unwrap() < 2);
    drop(lane);
    worker.send(EventBatch {
        number: 2,
        ..says(Parking::Stand)
    });
    until_it_stands(&mut worker);
    let mut lane = bulk.fake.lane();
    // The acknowledgement waits for no heartbeat.
    bulk.fake.stop_pulses();
    send(&mut lane, &bytes, 0, 3000);
    assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
    assert!(memory == bytes);
    wait_for(|| bulk.fake.acknowledged() == 2);
    bulk.fake.start_pulses();
    // The worker parks the session only now, and the client goes to the next one.
    bulk.fake.set_position(WANTS_RECORD);
    worker.send(says(Parking::Done));
    assert!(worker.try_receive().is_none());
    let mut worker = bulk.fake.worker();
    assert_eq!(worker.receive().recorded(), Recorded::Last);
    assert!(bulk.session.is_lost().is_none());
}

#[test]
fn a_batch_is_acknowledged_when_the_ends_of_its_transfers_were_passed_on() {
    let mut bulk = Bulk::new(Faults {
        bulk_connections: 1,
        ..parks()
    });
    let bytes = pattern(3000);
    let mut memory = vec![0; bytes.len()];
    bulk.download(&mut memory, Region::linear(0, 3000).unwrap());
    let mut lane = bulk.fake.lane();
    // The lane has the last bytes, and is about to report the end.
    let delayed = bulk.upper.delay();
    bulk.worker.send(EventBatch {
        parking: Parking::Stand.into(),
        ..completed(EVENT.0, 0)
    });
    until_it_stands(&mut bulk.worker);
    send(&mut lane, &bytes, 0, 3000);
    let begun = Instant::now();
    // The client acknowledges with every heartbeat, of which there are many meanwhile.
    while begun.elapsed() < Duration::from_secs(1) {
        assert_eq!(bulk.fake.acknowledged(), 0);
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(delayed);
    assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
    wait_for(|| bulk.fake.acknowledged() == 1);
    assert!(memory == bytes);
}
