//! Tests that commands go out in order and by themselves, and that answers and events come back, over both carriers.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use causeway::config::{Carrier, ServerSettings};
use causeway::transport::discover;
use causeway_proto::command::command::Kind;
use causeway_proto::command::{Answer, EventBatch, Notice, Ping, Query, query::Question};
use causeway_proto::id::RequestId;

use crate::frames::fake_node::upper::{Upper, command, completed, number};
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults, PATIENCE};

const CARRIERS: [Carrier; 2] = [Carrier::Direct, Carrier::Grpc];

fn ping(request: u64) -> Kind {
    Kind::Query(Query {
        request,
        question: Some(Question::Ping(Ping {})),
    })
}

fn answer(request: u64, status: i32) -> EventBatch {
    EventBatch {
        answers: vec![Answer {
            request,
            status,
            ..Answer::default()
        }],
        ..EventBatch::default()
    }
}

// Receives until command `last` has come, and checks that all commands from `next` on come in order.
fn receive_in_order(worker: &mut FakeWorker, mut next: u64, last: u64) {
    while next <= last {
        let batch = worker.receive();
        assert_eq!(batch.first, next);
        for command in &batch.commands {
            assert_eq!(number(command), next);
            next += 1;
        }
    }
}

#[test]
fn commands_leave_in_order_without_being_flushed() {
    for carrier in CARRIERS {
        let fake = FakeNode::start(Faults::default());
        let (_node, session, mut worker) = fake.open(carrier, &Upper::new());
        for i in 1..=10_000 {
            session.send(&command(i)).unwrap();
        }
        receive_in_order(&mut worker, 1, 10_000);
        // Also after the flusher has gone to sleep.
        std::thread::sleep(std::time::Duration::from_millis(50));
        session.send(&command(10_001)).unwrap();
        receive_in_order(&mut worker, 10_001, 10_001);
    }
}

#[test]
fn many_threads_append_to_one_sequence() {
    for carrier in CARRIERS {
        let fake = FakeNode::start(Faults::default());
        let (_node, session, mut worker) = fake.open(carrier, &Upper::new());
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let session = Arc::clone(&session);
                std::thread::spawn(move || {
                    for i in 0..1000 {
                        session.send(&command(thread * 1000 + i)).unwrap();
                    }
                    session.flush().unwrap();
                })
            })
            .collect();
        let (mut seen, mut latest) = (0, [None; 8]);
        while seen < 8000 {
            let batch = worker.receive();
            assert_eq!(batch.first, seen + 1);
            for command in &batch.commands {
                let (thread, i) = (number(command) / 1000, number(command) % 1000);
                assert!(
                    latest[thread as usize] < Some(i),
                    "a thread's own order is kept"
                );
                latest[thread as usize] = Some(i);
            }
            seen += batch.commands.len() as u64;
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_request_waits_for_its_own_answer() {
    for carrier in CARRIERS {
        let fake = FakeNode::start(Faults::default());
        let (_node, session, mut worker) = fake.open(carrier, &Upper::new());
        let (sender, receiver) = mpsc::channel();
        let later = sender.clone();
        session
            .request_async(RequestId(1), &ping(1), move |answer| {
                later.send(answer.unwrap().status).unwrap()
            })
            .unwrap();
        let asking = Arc::clone(&session);
        let thread =
            std::thread::spawn(move || asking.request(RequestId(2), &ping(2)).unwrap().status);
        let mut commands = 0;
        while commands < 2 {
            commands += worker.receive().commands.len();
        }
        // Answers in reverse order, and one that nobody requested.
        worker.send(answer(9, 9));
        worker.send(answer(2, -2));
        assert_eq!(thread.join().unwrap(), -2);
        worker.send(answer(1, 5));
        assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), 5);
        assert_eq!(session.is_lost(), None);
    }
}

#[test]
fn events_arrive_printed_text_first() {
    for carrier in CARRIERS {
        let fake = FakeNode::start(Faults::default());
        let upper = Upper::new();
        let (_node, session, mut worker) = fake.open(carrier, &upper);
        session.send(&command(1)).unwrap();
        worker.receive();
        worker.send(EventBatch {
            notices: vec![Notice {
                id: 4,
                ..Notice::default()
            }],
            printed: vec![Bytes::from_static(b"hello")],
            applied: 1,
            ..completed(3, -5)
        });
        session.wait_until(&|| upper.has_completed(3)).unwrap();
        let heard = upper.heard();
        assert_eq!(
            (heard.notices[0].id, &heard.printed[0][..]),
            (4, &b"hello"[..])
        );
        assert_eq!(heard.completions[0].status, -5);
    }
}

#[test]
fn a_worker_that_does_not_read_holds_the_sender_and_loses_nothing() {
    for carrier in CARRIERS {
        let fake = FakeNode::start(Faults::default());
        let (_node, session, mut worker) = fake.open(carrier, &Upper::new());
        // More bytes than all buffers on the way can contain.
        let text = "x".repeat(1 << 20);
        let sender = std::thread::spawn(move || {
            for request in 1..=64 {
                let build = causeway_proto::command::BuildProgram {
                    request,
                    options: text.clone().into(),
                    ..Default::default()
                };
                session.send(&Kind::BuildProgram(build)).unwrap();
            }
            session.flush().unwrap();
            session
        });
        let mut seen = 0;
        while seen < 64 {
            let batch = worker.receive();
            assert_eq!(batch.first, seen + 1);
            seen += batch.commands.len() as u64;
        }
        sender.join().unwrap();
    }
}

#[test]
fn a_session_is_shared_by_all_who_ask() {
    let fake = FakeNode::start(Faults::default());
    let (node, session, _worker) = fake.open(Carrier::Direct, &Upper::new());
    let again = node.session(Upper::new()).unwrap();
    assert!(Arc::ptr_eq(&session, &again));
    assert_eq!(fake.sessions_opened(), 1);
}

#[test]
fn a_session_asks_for_a_worker_of_its_own_if_its_server_is_isolated() {
    for isolated in [false, true] {
        let fake = FakeNode::start(Faults::default());
        let settings = ServerSettings {
            isolated,
            ..fake.settings()
        };
        let found = discover(&[settings]).pop().unwrap();
        found.inventory.unwrap();
        let _session = found.node.session(Upper::new()).unwrap();
        assert_eq!(fake.isolation_asked(), isolated);
    }
}

#[test]
fn a_server_is_reached_by_the_first_of_its_addresses_that_answers() {
    let fake = FakeNode::start(Faults::default());
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let of = |first: SocketAddr, further: &[SocketAddr]| ServerSettings {
        further: further
            .iter()
            .map(|address| address.to_string().parse().unwrap())
            .collect(),
        ..ServerSettings::at(first.to_string().parse().unwrap())
    };
    let found = discover(&[of(closed, &[fake.address])]).pop().unwrap();
    assert!(found.inventory.is_ok(), "{:?}", found.inventory);
    assert_eq!(found.node.address(), closed.to_string());
    // An address that closes its connections does not answer.
    let closes = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closes.local_addr().unwrap();
    std::thread::spawn(move || closes.incoming().for_each(drop));
    let found = discover(&[of(address, &[fake.address])]).pop().unwrap();
    assert!(found.inventory.is_ok(), "{:?}", found.inventory);
    // Nor does an address that accepts connections and stays silent. The session is opened where the node answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let found = discover(&[of(address, &[fake.address])]).pop().unwrap();
    assert!(found.inventory.is_ok(), "{:?}", found.inventory);
    let session = found.node.session(Upper::new()).unwrap();
    let _worker = fake.worker();
    assert_eq!(session.location().peer, fake.address);
    // Without an answer, the message has the reason of each.
    let other = SocketAddr::from(([127, 0, 0, 2], closed.port()));
    let found = discover(&[of(closed, &[other])]).pop().unwrap();
    let error = found.inventory.unwrap_err().to_string();
    let reasons = format!("{closed}: connection refused; {other}: connection refused");
    assert!(error.ends_with(&reasons), "{error}");
}
