//! Tests that every fault of a peer ends a session once and soon, and wakes all threads that wait in it.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway::config::{Carrier, ServerSettings};
use causeway::transport::{Session, WireError, discover};
use causeway_proto::command::command::Kind;
use causeway_proto::command::{EventBatch, Ping, Query, query::Question};
use causeway_proto::frame;
use causeway_proto::id::RequestId;
use causeway_proto::preamble::Verdict;
use prost::Message;

use crate::frames::fake_node::upper::{Upper, command, completed};
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults, PATIENCE};

// Waits in every possible way while `fault` happens. Returns the reason for the end.
fn all_waits_end(
    carrier: Carrier,
    faults: Faults,
    fault: impl FnOnce(&FakeNode, FakeWorker),
) -> WireError {
    let fake = FakeNode::start(faults);
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(carrier, &upper);
    let asking = Arc::clone(&session);
    let request = std::thread::spawn(move || {
        let ping = Query {
            request: 1,
            question: Some(Question::Ping(Ping {})),
        };
        asking
            .request(RequestId(1), &Kind::Query(ping))
            .unwrap_err()
    });
    let waiting = Arc::clone(&session);
    let wait = std::thread::spawn(move || waiting.wait_until(&|| false).unwrap_err());
    let (sender, answered) = std::sync::mpsc::channel();
    let later = Kind::Query(Query {
        request: 2,
        question: Some(Question::Ping(Ping {})),
    });
    session
        .request_async(RequestId(2), &later, move |answer| {
            sender.send(answer.unwrap_err()).unwrap()
        })
        .unwrap();
    let mut commands = 0;
    while commands < 2 {
        commands += worker.receive().commands.len();
    }
    fault(&fake, worker);
    let error = upper.loss();
    assert_eq!(request.join().unwrap(), error);
    assert_eq!(wait.join().unwrap(), error);
    assert_eq!(answered.recv_timeout(PATIENCE).unwrap(), error);
    assert_refuses_everything(&session, &error);
    assert_eq!(upper.heard().lost.len(), 1);
    assert!(matches!(error, WireError::Lost { .. }), "{error:?}");
    error
}

fn assert_refuses_everything(session: &Session, error: &WireError) {
    assert_eq!(session.is_lost().as_ref(), Some(error));
    assert_eq!(session.send(&command(1)).as_ref(), Err(error));
    assert_eq!(session.flush().as_ref(), Err(error));
    assert_eq!(session.wait_until(&|| false).as_ref(), Err(error));
    assert_eq!(session.wait_until(&|| true), Ok(()));
    let ping = Kind::Query(Query {
        request: 3,
        question: Some(Question::Ping(Ping {})),
    });
    assert_eq!(session.request(RequestId(3), &ping).as_ref(), Err(error));
    let never = |_| panic!("must not be called");
    assert_eq!(
        session.request_async(RequestId(4), &ping, never).as_ref(),
        Err(error)
    );
}

#[test]
fn a_worker_that_dies() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        all_waits_end(carrier, Faults::default(), |_, worker| worker.die());
    }
}

#[test]
fn a_worker_that_sends_garbage() {
    let garbage: Vec<u8> = (0..65_536u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    all_waits_end(Carrier::Direct, Faults::default(), |_, mut worker| {
        worker.send_raw(&garbage)
    });
}

#[test]
fn a_frame_that_is_no_event_batch() {
    let error = all_waits_end(Carrier::Direct, Faults::default(), |_, mut worker| {
        worker.send_raw(&[3, 0, 0, 0, 0xff, 0xff, 0xff]);
    });
    assert!(error.to_string().contains("invalid data"), "{error}");
}

#[test]
fn nothing_that_comes_behind_nonsense_is_believed() {
    let fake = FakeNode::start(Faults::default());
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    // Invalid bytes of the length of one read: the bytes behind them are still at the socket when they are parsed.
    let frame = completed(7, 0).encode_to_vec();
    let mut bytes = frame::prefix((64 << 10) - frame::PREFIX).unwrap().to_vec();
    bytes.resize(64 << 10, 0xff);
    while bytes.len() < 100 << 10 {
        bytes.extend_from_slice(&frame::prefix(frame.len()).unwrap());
        bytes.extend_from_slice(&frame);
    }
    let (sender, looks) = std::sync::mpsc::channel();
    let waiting = Arc::clone(&session);
    let wait = std::thread::spawn(move || {
        let condition = || {
            let _ = sender.send(());
            false
        };
        waiting.wait_until(&condition).unwrap_err()
    });
    // The thread checks once before it gets the role to read.
    for _ in 0..2 {
        looks.recv_timeout(PATIENCE).unwrap();
    }
    // The client may close before it has all bytes.
    let _ = worker.socket().write_all(&bytes);
    assert_eq!(wait.join().unwrap(), upper.loss());
    assert!(upper.loss().to_string().contains("invalid data"));
    assert_eq!(upper.heard().completions, []);
}

#[test]
fn half_a_frame() {
    all_waits_end(Carrier::Direct, Faults::default(), |_, mut worker| {
        worker.send_raw(&[100, 0, 0, 0, 1, 2, 3]);
        worker.die();
    });
}

#[test]
fn a_length_that_nobody_sends() {
    let error = all_waits_end(Carrier::Direct, Faults::default(), |_, mut worker| {
        worker.send_raw(&[0xff; 8])
    });
    assert!(error.to_string().contains("4294967295"), "{error}");
}

#[test]
fn an_acknowledgement_of_what_was_not_sent() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        let error = all_waits_end(carrier, Faults::default(), |_, mut worker| {
            worker.send(EventBatch {
                applied: 1000,
                ..EventBatch::default()
            });
        });
        assert!(error.to_string().contains("1000"), "{error}");
    }
}

#[test]
fn a_heart_that_stands_still() {
    let faults = Faults {
        heartbeat_interval_ms: 20,
        heartbeat_limit_ms: 200,
        ..Faults::default()
    };
    let begun = Instant::now();
    let error = all_waits_end(Carrier::Direct, faults, |fake, worker| {
        fake.stop_pulses();
        // The connection stays open, because silence alone must suffice.
        std::mem::forget(worker);
    });
    assert!(error.to_string().contains("heartbeat"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_sender_blocked_in_a_full_connection_is_freed() {
    let faults = Faults {
        heartbeat_interval_ms: 20,
        heartbeat_limit_ms: 300,
        ..Faults::default()
    };
    let fake = FakeNode::start(faults);
    let upper = Upper::new();
    let (_node, session, _worker) = fake.open(Carrier::Direct, &upper);
    let sender = std::thread::spawn(move || {
        let text = "x".repeat(1 << 20);
        loop {
            let build = causeway_proto::command::BuildProgram {
                options: text.clone().into(),
                ..Default::default()
            };
            if let Err(error) = session.send(&Kind::BuildProgram(build)) {
                return error;
            }
        }
    });
    fake.stop_pulses();
    assert_eq!(sender.join().unwrap(), upper.loss());
}

#[test]
fn the_next_context_gets_a_new_session() {
    let fake = FakeNode::start(Faults::default());
    let upper = Upper::new();
    let (node, session, worker) = fake.open(Carrier::Direct, &upper);
    assert!(node.is_available());
    worker.die();
    upper.loss();
    assert!(!node.is_available());
    let second = node.session(Upper::new()).unwrap();
    let mut worker = fake.worker();
    assert!(!Arc::ptr_eq(&session, &second));
    assert!(node.is_available());
    second.send_now(&command(1)).unwrap();
    assert_eq!(worker.receive().first, 1);
    assert_eq!(fake.sessions_opened(), 2);
}

#[test]
fn a_dropped_session_closes_its_connection() {
    let fake = FakeNode::start(Faults::default());
    let upper = Upper::new();
    let (node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    session.send_now(&command(1)).unwrap();
    worker.receive();
    drop((node, session));
    assert_eq!(worker.try_receive(), None);
    upper.loss();
}

#[test]
fn a_node_that_refuses_says_why() {
    let fake = FakeNode::start(Faults {
        refuse: true,
        ..Faults::default()
    });
    let error = fake
        .node(Carrier::Direct)
        .session(Upper::new())
        .unwrap_err();
    assert!(
        matches!(&error, WireError::Refused { reason, .. } if reason == "the house is full"),
        "{error:?}"
    );
}

#[test]
fn a_refused_connection_says_why() {
    let fake = FakeNode::start(Faults {
        verdict: Verdict::UnknownSession,
        ..Faults::default()
    });
    let error = fake
        .node(Carrier::Direct)
        .session(Upper::new())
        .unwrap_err();
    assert!(matches!(&error, WireError::Refused { .. }), "{error:?}");
}

#[test]
fn a_session_whose_process_dies_before_the_first_connection_is_opened_anew() {
    let fake = FakeNode::start(Faults {
        unknown: 1,
        ..Faults::default()
    });
    let upper = Upper::new();
    let (_node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    session.send_now(&command(1)).unwrap();
    worker.receive();
    assert_eq!(fake.refused(), 1);

    let dies_always = FakeNode::start(Faults {
        unknown: usize::MAX,
        ..Faults::default()
    });
    let node = dies_always.node(Carrier::Direct);
    let error = node.session(Upper::new()).unwrap_err();
    assert!(matches!(&error, WireError::Refused { .. }), "{error:?}");
    assert_eq!(dies_always.refused(), 3);
}

#[test]
fn a_worker_that_does_not_know_the_secret_is_not_trusted() {
    let fake = FakeNode::start(Faults {
        impostor: true,
        ..Faults::default()
    });
    let error = fake
        .node(Carrier::Direct)
        .session(Upper::new())
        .unwrap_err();
    assert!(matches!(&error, WireError::Protocol { .. }), "{error:?}");
}

#[test]
fn a_daemon_that_is_gone_at_the_first_context() {
    let fake = FakeNode::start(Faults::default());
    let node = fake.node(Carrier::Direct);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = listener.local_addr().unwrap();
    drop(listener);
    let found = discover(&[ServerSettings::at(gone.to_string().parse().unwrap())])
        .pop()
        .unwrap();
    let error = found.node.session(Upper::new()).unwrap_err();
    assert!(
        matches!(&error, WireError::Unreachable { reason, .. } if reason == "connection refused"),
        "{error:?}"
    );
    assert!(!found.node.is_available());
    assert!(node.is_available());
}

#[test]
fn a_handshake_with_a_talker_of_nonsense_ends() {
    let fake = FakeNode::start(Faults::default());
    let node = fake.node(Carrier::Direct);
    drop(node);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(&[b'x'; 1000]);
        // Stays open until the client has closed.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let found = discover(&[ServerSettings::at(address.to_string().parse().unwrap())])
        .pop()
        .unwrap();
    let error = found.inventory.unwrap_err();
    assert!(matches!(&error, WireError::Protocol { .. }), "{error:?}");
    thread.join().unwrap();
}
