//! Tests that a session outlives its connections: what was written is sent again, and each event is handled once.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use causeway::config::{Carrier, ServerSettings};
use causeway::transport::manager::this_process;
use causeway::transport::{Session, WireError, discover};
use causeway_cutter::{Forwarder, Hold, Purpose, Target};
use causeway_proto::command::command::Kind;
use causeway_proto::command::{BuildProgram, EventBatch};
use causeway_proto::frame;
use causeway_proto::preamble::Verdict;
use prost::Message;

use crate::frames::fake_node::bulk::wait_for;
use crate::frames::fake_node::upper::{Upper, command, completed, number};
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults};

const CARRIERS: [Carrier; 2] = [Carrier::Direct, Carrier::Grpc];

fn lasting() -> Faults {
    Faults {
        resume_ms: 60_000,
        ..Faults::default()
    }
}

fn numbered(number: u64, event: u64) -> EventBatch {
    EventBatch {
        number,
        ..completed(event, 0)
    }
}

// Receives commands `next` to `last`.
fn receive(worker: &mut FakeWorker, mut next: u64, last: u64) {
    while next <= last {
        let batch = worker.receive();
        assert!(batch.first <= next, "{} after {next}", batch.first);
        // Batches are sent again as a whole, and a worker skips what it has.
        for command in &batch.commands {
            let number = number(command);
            assert!(number <= next);
            next = next.max(number + 1);
        }
    }
}

#[test]
fn what_the_node_lacks_is_sent_again_and_waits_go_on() {
    for carrier in CARRIERS {
        let fake = FakeNode::start(lasting());
        let upper = Upper::new();
        let (node, session, mut worker) = fake.open(carrier, &upper);
        for i in 1..=5 {
            session.send_now(&command(i)).unwrap();
        }
        receive(&mut worker, 1, 5);
        worker.send(numbered(1, 100));
        upper.completion(100);
        let (waiting, heard) = (Arc::clone(&session), Arc::clone(&upper));
        let wait = std::thread::spawn(move || waiting.wait_until(&|| heard.has_completed(101)));
        // The worker has applied only three of the five.
        fake.set_position(3);
        worker.die();
        for i in 6..=10 {
            session.send_now(&command(i)).unwrap();
        }
        worker = fake.worker();
        receive(&mut worker, 4, 10);
        assert_eq!(fake.positions(), [0, 1]);
        // A batch that the client has, and a new one.
        worker.send(numbered(1, 999));
        worker.send(numbered(2, 101));
        wait.join().unwrap().unwrap();
        assert!(!upper.has_completed(999));
        // Once more, with nothing to be sent again.
        fake.set_position(10);
        worker.die();
        worker = fake.worker();
        session.send_now(&command(11)).unwrap();
        receive(&mut worker, 11, 11);
        assert_eq!(fake.positions(), [0, 1, 2]);
        assert!(Arc::ptr_eq(&session, &node.session(upper.clone()).unwrap()));
        assert!(node.is_available());
        assert_eq!(session.is_lost(), None);
    }
}

#[test]
fn a_session_whose_connections_break_while_it_is_opened_is_opened() {
    let faults = Faults {
        closed_heartbeats: 8,
        ..lasting()
    };
    let fake = FakeNode::start(faults);
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    session.send_now(&command(1)).unwrap();
    receive(&mut worker, 1, 1);
    assert_eq!(fake.sessions_opened(), 1);
}

#[test]
fn a_conversation_cut_at_any_byte_goes_on() {
    // One command and one event cross, cut after each number of bytes of the event's frame.
    let frame = numbered(1, 100).encode_to_vec();
    let bytes = [&frame::prefix(frame.len()).unwrap()[..], &frame].concat();
    for cut in 0..=bytes.len() {
        let fake = FakeNode::start(lasting());
        let upper = Upper::new();
        let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
        session.send_now(&command(1)).unwrap();
        receive(&mut worker, 1, 1);
        worker.send_raw(&bytes[..cut]);
        fake.set_position(1);
        worker.die();
        let mut worker = fake.worker();
        assert!(cut == bytes.len() || fake.positions()[1] == 0);
        worker.send(numbered(1, 100));
        worker.send(numbered(2, 101));
        session.wait_until(&|| upper.has_completed(101)).unwrap();
        let events: Vec<_> = upper.heard().completions.iter().map(|c| c.event).collect();
        assert_eq!(events, [100, 101]);
    }
}

#[test]
fn silence_is_a_pause() {
    let faults = Faults {
        heartbeat_interval_ms: 20,
        heartbeat_limit_ms: 200,
        ..lasting()
    };
    let fake = FakeNode::start(faults);
    let upper = Upper::new();
    let (_node, session, worker) = fake.open(Carrier::Direct, &upper);
    fake.stop_pulses();
    let mut worker2 = fake.worker();
    fake.start_pulses();
    drop(worker);
    session.send_now(&command(1)).unwrap();
    receive(&mut worker2, 1, 1);
    assert_eq!(session.is_lost(), None);
    assert!(fake.positions().len() >= 2);
    // Or the node would take it for a program that was killed.
    while fake.returns() < 1 {
        std::thread::yield_now();
    }
}

#[test]
fn an_attempt_that_fails_halfway_does_not_look_like_a_killed_program() {
    let fake = FakeNode::start(lasting());
    let upper = Upper::new();
    let (_node, _session, worker) = fake.open(Carrier::Direct, &upper);
    let attempts = 2;
    fake.close_commands(attempts);
    worker.die();
    let _worker = fake.worker();
    wait_for(|| fake.returns() == 1 + attempts);
}

#[test]
fn an_address_that_accepts_and_is_silent_keeps_no_other_away() {
    let fake = FakeNode::start(Faults {
        heartbeat_interval_ms: 20,
        heartbeat_limit_ms: 200,
        ..lasting()
    });
    let [first, second] = ["127.0.0.1:0", "127.0.0.2:0"].map(|listen| {
        let target = Some(Target::Tcp(fake.address));
        Forwarder::start_on(listen.parse().unwrap(), target).unwrap()
    });
    let address = |forwarder: &Forwarder| forwarder.address().to_string().parse().unwrap();
    let settings = ServerSettings {
        further: vec![address(&second)],
        ..ServerSettings::at(address(&first))
    };
    let node = discover(&[settings]).pop().unwrap().node;
    let session = node.session(Upper::new()).unwrap();
    let mut worker = fake.worker();
    session.send_now(&command(1)).unwrap();
    receive(&mut worker, 1, 1);
    first.hold(Hold::ALL);
    fake.set_position(1);
    let mut worker = fake.worker();
    session.send_now(&command(2)).unwrap();
    receive(&mut worker, 2, 2);
    assert_eq!(session.is_lost(), None);
    assert_eq!(second.connected(Purpose::Commands), 1);
}

#[test]
fn batches_are_acknowledged_with_heartbeats() {
    let fake = FakeNode::start(lasting());
    let upper = Upper::new();
    let (_node, _session, mut worker) = fake.open(Carrier::Direct, &upper);
    worker.send(numbered(1, 1));
    while fake.acknowledged() < 1 {
        std::thread::yield_now();
    }
}

#[test]
fn a_gap_in_the_batches_ends_the_session() {
    for carrier in CARRIERS {
        let fake = FakeNode::start(lasting());
        let upper = Upper::new();
        let (_node, _session, mut worker) = fake.open(carrier, &upper);
        worker.send(numbered(2, 1));
        assert!(upper.loss().to_string().contains("batch 2 after batch 0"));
    }
}

#[test]
fn a_node_that_forgot_the_session_says_why() {
    let fake = FakeNode::start(lasting());
    let upper = Upper::new();
    let (_node, _session, worker) = fake.open(Carrier::Direct, &upper);
    fake.forget_session("the administrator ended it");
    worker.die();
    let error = upper.loss();
    let WireError::Ended { reason, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(reason.starts_with("the administrator ended it; its connection had broken "));
    assert!(reason.contains(" s before: "), "{reason}");
}

#[test]
fn a_node_is_asked_for_the_reason_when_no_time_is_left() {
    let faults = Faults {
        resume_ms: 300,
        ..Faults::default()
    };
    let fake = FakeNode::start(faults);
    let upper = Upper::new();
    let (_node, _session, worker) = fake.open(Carrier::Direct, &upper);
    fake.forget_session("the administrator ended it");
    fake.set_verdict(Verdict::TooMany);
    worker.die();
    let error = upper.loss();
    assert!(
        matches!(&error, WireError::Ended { reason, .. } if reason.starts_with("the administrator")),
        "{error:?}"
    );
}

#[test]
fn after_the_granted_time_the_session_is_lost() {
    let faults = Faults {
        resume_ms: 300,
        ..Faults::default()
    };
    let fake = FakeNode::start(faults);
    let upper = Upper::new();
    let (node, session, worker) = fake.open(Carrier::Direct, &upper);
    fake.set_verdict(Verdict::TooMany);
    worker.die();
    let error = upper.loss().to_string();
    assert!(error.contains("was not resumed within 0."), "{error}");
    assert!(error.contains("the node closed the connection"), "{error}");
    let granted = "; the node keeps a session for at most 0.3 s";
    assert!(error.ends_with(granted), "{error}");
    assert!(session.has_failed() && !node.is_available());
}

/// Time that the library gives itself for the farewell of a dropped session.
const FAREWELL_LIMIT: Duration = Duration::from_millis(100);

// Whether the farewell of a dropped session arrives; `None` if the library ran out of time.
fn says_farewell(carrier: Carrier) -> Option<bool> {
    let fake = FakeNode::start(lasting());
    let (node, session, mut worker) = fake.open(carrier, &Upper::new());
    session.send(&command(1)).unwrap();
    session.flush().unwrap();
    // The fake node's HTTP/2 drops a request that it reads together with the end of its connection.
    worker.receive();
    session.send(&command(2)).unwrap();
    let begun = Instant::now();
    drop((node, session));
    if begun.elapsed() >= FAREWELL_LIMIT {
        return None;
    }
    while let Some(batch) = worker.try_receive() {
        if batch.closes {
            return Some(true);
        }
    }
    Some(false)
}

#[test]
fn a_dropped_session_says_farewell() {
    for carrier in CARRIERS {
        let said: Vec<_> = (0..10).map(|_| says_farewell(carrier)).collect();
        assert!(!said.contains(&Some(false)), "{carrier:?}: {said:?}");
        // A busy machine may be late, but not ten times.
        assert!(said.contains(&Some(true)), "{carrier:?}: {said:?}");
    }
}

/// Sends this number of commands of 1 MiB on a thread, and counts them.
fn send_large(session: &Arc<Session>, count: u64) -> (JoinHandle<()>, Arc<AtomicU64>) {
    let sent = Arc::new(AtomicU64::new(0));
    let (session, counter) = (Arc::clone(session), Arc::clone(&sent));
    let sender = std::thread::spawn(move || {
        let options = "x".repeat(1 << 20);
        for request in 1..=count {
            let build = BuildProgram {
                request,
                options: options.clone().into(),
                ..Default::default()
            };
            session.send(&Kind::BuildProgram(build)).unwrap();
            counter.store(request, Ordering::SeqCst);
        }
        session.flush().unwrap();
    });
    (sender, sent)
}

// Receives large commands up to `last` and reports them as applied. Each comes once or again, in order.
fn receive_large(worker: &mut FakeWorker, mut applied: u64, last: u64) {
    while applied < last {
        let batch = worker.receive();
        assert!(
            batch.first <= applied + 1,
            "{} after {applied}",
            batch.first
        );
        for (number, command) in (batch.first..).zip(&batch.commands) {
            let Some(Kind::BuildProgram(build)) = &command.kind else {
                panic!("{number} is no large command")
            };
            assert_eq!(build.request, number);
            applied = applied.max(number);
        }
        worker.send(EventBatch {
            applied,
            ..EventBatch::default()
        });
    }
}

#[test]
fn commands_beyond_the_bound_wait_for_the_node() {
    let fake = FakeNode::start(lasting());
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &Upper::new());
    let (sender, _) = send_large(&session, 100);
    let mut seen = 0;
    while seen < 20 {
        seen += worker.receive().commands.len() as u64;
    }
    assert!(!sender.is_finished());
    worker.send(EventBatch {
        applied: seen,
        ..EventBatch::default()
    });
    receive_large(&mut worker, seen, 100);
    sender.join().unwrap();
}

#[test]
fn commands_beyond_the_bound_wait_until_a_session_that_is_away_is_resumed() {
    for carrier in CARRIERS {
        let fake = FakeNode::start(lasting());
        let (_node, session, worker) = fake.open(carrier, &Upper::new());
        fake.set_verdict(Verdict::TooMany);
        worker.die();
        while !session.is_away() {
            std::thread::yield_now();
        }
        let (sender, sent) = send_large(&session, 100);
        // One command is in the caller's hand while 64 MiB are kept.
        while sent.load(Ordering::SeqCst) < 62 {
            std::thread::yield_now();
        }
        let refused = fake.refused();
        while fake.refused() < refused + 3 {
            std::thread::yield_now();
        }
        assert!(sent.load(Ordering::SeqCst) <= 64);
        assert!(!sender.is_finished());
        fake.set_verdict(Verdict::Welcome);
        let mut worker = fake.worker();
        receive_large(&mut worker, 0, 100);
        sender.join().unwrap();
        assert_eq!((session.is_away(), session.resumed()), (false, 1));
    }
}

#[test]
fn a_break_while_commands_are_sent_again_is_another_pause() {
    const COUNT: u64 = 40;
    let fake = FakeNode::start(lasting());
    let (_node, session, worker) = fake.open(Carrier::Direct, &Upper::new());
    fake.set_verdict(Verdict::TooMany);
    worker.die();
    while !session.is_away() {
        std::thread::yield_now();
    }
    let (sender, _) = send_large(&session, COUNT);
    fake.set_verdict(Verdict::Welcome);
    // These are fewer bytes than are sent again, so each break comes in the middle.
    for cut in [0, 1, 5, 1000, (1 << 20) + 7, 5 << 20] {
        let mut worker = fake.worker();
        let mut bytes = vec![0; cut];
        worker.socket().read_exact(&mut bytes).unwrap();
        worker.die();
    }
    // The worker that died last has applied something.
    let mut worker = fake.worker();
    let first = worker.receive();
    assert_eq!(first.first, 1);
    let applied = first.commands.len() as u64;
    fake.set_position(applied);
    worker.die();
    let mut worker = fake.worker();
    receive_large(&mut worker, applied, COUNT);
    sender.join().unwrap();
    assert!(session.resumed() <= 8 && session.is_lost().is_none());
}

#[test]
fn silence_is_noticed_while_commands_are_sent_again() {
    // More than the sockets' buffers take.
    const COUNT: u64 = 40;
    for carrier in CARRIERS {
        let faults = Faults {
            heartbeat_interval_ms: 20,
            heartbeat_limit_ms: 1000,
            ..lasting()
        };
        let fake = FakeNode::start(faults);
        let (_node, session, mut worker) = fake.open(carrier, &Upper::new());
        let (sender, _) = send_large(&session, COUNT);
        let mut received = 0;
        while received < COUNT {
            received += worker.receive().commands.len() as u64;
        }
        sender.join().unwrap();
        fake.stop_pulses();
        worker.die();
        // Nobody reads from this connection, and no heartbeat comes.
        let silent = fake.worker();
        let mut worker = fake.worker();
        fake.start_pulses();
        receive_large(&mut worker, 0, COUNT);
        drop(silent);
        assert_eq!(session.is_lost(), None);
    }
}

#[test]
fn sessions_of_this_hosts_ended_processes_are_ended() {
    let ended = |pid| causeway_proto::control::Client {
        pid,
        // No process of this boot has this start time.
        start_time: u64::MAX,
        ..this_process()
    };
    let elsewhere = causeway_proto::control::Client {
        boot_id: "another".into(),
        ..ended(1)
    };
    let faults = Faults {
        away: vec![this_process(), ended(1), elsewhere, ended(2)],
        ..lasting()
    };
    let fake = FakeNode::start(faults);
    let (_node, _session, _worker) = fake.open(Carrier::Direct, &Upper::new());
    assert_eq!(fake.ended(), [ended(1), ended(2)]);
}
