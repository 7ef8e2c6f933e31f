//! Connections without authentication: silent ones keep no other client out, and connections that flood the
//! manager are closed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use causeway_proto::manager::ListNodesRequest;
use rustix::net::{AddressFamily, SocketType};

use super::process::{AT_MOST, Client, Manager};
use super::strangers::admin;

/// The first bytes of an HTTP/2 client: the preface, and an empty SETTINGS frame.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A connection from another loopback address, which the manager treats as another machine.
fn connect_from(machine: u8, address: SocketAddr) -> TcpStream {
    let from = SocketAddr::from(([127, 0, 1, machine], 0));
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &from).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(AT_MOST)).unwrap();
    socket.set_write_timeout(Some(AT_MOST)).unwrap();
    socket
}

#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let manager = Manager::configured("");
    for said in [&b""[..], b"PRI * HTTP"] {
        let _silent: Vec<TcpStream> = [0, 1, 2, 3, 4]
            .into_iter()
            .flat_map(|machine| [machine; 140])
            .map(|machine| {
                let mut socket = connect_from(machine, manager.address);
                // The manager may have closed the first ones already.
                let _ = socket.write_all(said);
                socket
            })
            .collect();
        for _ in 0..10 {
            let mut ann = manager.user("ann").await;
            list(&mut ann).await;
        }
    }
}

async fn list(client: &mut Client) {
    let nodes = client.who.request(ListNodesRequest {});
    client.admin.list_nodes(nodes).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_that_flood_slow_nobody_down_and_are_closed() {
    let manager = Manager::configured("authenticate = true");
    let slowest = async || {
        let mut slowest = Duration::ZERO;
        for _ in 0..10 {
            let begun = Instant::now();
            list(&mut admin(&manager).await).await;
            slowest = slowest.max(begun.elapsed());
        }
        slowest
    };
    let quiet = slowest().await;
    let frames = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1].repeat(100_000);
    let flooding: Vec<_> = (0..4)
        .map(|machine| {
            let mut socket = connect_from(machine, manager.address);
            let frames = frames.clone();
            std::thread::spawn(move || {
                let _ = socket.write_all(BEGINNING);
                let _ = socket.write_all(&frames);
                // The connection ends or is reset.
                match socket.read_to_end(&mut Vec::new()) {
                    Ok(_) => {}
                    Err(end) => assert_ne!(end.kind(), std::io::ErrorKind::WouldBlock),
                }
            })
        })
        .collect();
    let flooded = slowest().await;
    for flooding in flooding {
        flooding.join().unwrap();
    }
    let most = 2 * quiet + Duration::from_millis(100);
    assert!(flooded <= most, "{flooded:?}, quiet {quiet:?}");
}
