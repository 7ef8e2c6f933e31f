//! Tests of busy nodes: they answer late, or close connections when too many come at once.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway::config::ServerSettings;
use causeway::transport::{WireError, discover};

use crate::frames::fake_node::{FakeNode, Faults};

/// A proxy that closes the first connections, and delays the others.
struct Between {
    address: SocketAddr,
    came: Arc<AtomicUsize>,
}

impl Between {
    fn start(node: SocketAddr, closes: usize, delay: Duration) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let came = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&came);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if counted.fetch_add(1, Ordering::SeqCst) < closes {
                    continue;
                }
                std::thread::spawn(move || {
                    std::thread::sleep(delay);
                    join(client, TcpStream::connect(node).unwrap());
                });
            }
        });
        Between { address, came }
    }

    fn settings(&self) -> ServerSettings {
        ServerSettings::at(self.address.to_string().parse().unwrap())
    }
}

fn join(one: TcpStream, other: TcpStream) {
    for (mut from, mut to) in [
        (one.try_clone().unwrap(), other.try_clone().unwrap()),
        (other, one),
    ] {
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    }
}

fn asked(server: ServerSettings) -> (Result<(), WireError>, Duration) {
    let begun = Instant::now();
    let found = discover(&[server]).pop().unwrap();
    (found.inventory.map(drop), begun.elapsed())
}

#[test]
fn a_node_that_has_accepted_the_connection_may_take_longer_to_answer() {
    let node = FakeNode::start(Faults::default());
    let busy = Between::start(node.address, 0, Duration::from_millis(1500));
    let (answer, took) = asked(busy.settings());
    answer.unwrap();
    assert!(took >= Duration::from_millis(1500), "{took:?}");
    // The wait lasts as long as the settings say.
    let impatient = ServerSettings {
        answer_limit: Duration::from_secs(1),
        ..busy.settings()
    };
    let (answer, took) = asked(impatient);
    assert!(
        matches!(answer, Err(WireError::Unreachable { .. })),
        "{answer:?}"
    );
    assert!(took < Duration::from_millis(1500), "{took:?}");
}

#[test]
fn an_address_at_which_nobody_answers_costs_a_second() {
    // The listener's queue is full, so the system does not answer further connections.
    let listener = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        None,
    )
    .unwrap();
    rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
    let _queued: Vec<TcpStream> = std::iter::from_fn(|| connect().ok()).take(64).collect();
    assert!(connect().is_err(), "the queue is full");
    let (answer, took) = asked(ServerSettings::at(address.to_string().parse().unwrap()));
    assert!(
        matches!(answer, Err(WireError::Unreachable { .. })),
        "{answer:?}"
    );
    assert!(took < Duration::from_millis(2000), "{took:?}");
}

#[test]
fn a_connection_that_was_closed_is_opened_again() {
    let node = FakeNode::start(Faults::default());
    let full = Between::start(node.address, 3, Duration::ZERO);
    let (answer, _) = asked(full.settings());
    answer.unwrap();
    assert_eq!(full.came.load(Ordering::SeqCst), 4);
    // The client gives up a node that closes all connections.
    let closed = Between::start(node.address, usize::MAX, Duration::ZERO);
    let (answer, took) = asked(closed.settings());
    assert!(
        matches!(answer, Err(WireError::Closed { .. })),
        "{answer:?}"
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
}
