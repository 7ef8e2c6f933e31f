//! Tests of many simultaneous connections: silent ones keep nobody out, and all others are served.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use causeway_proto::control::GetStatusRequest;
use causeway_security::secure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::secured::{Caller, Cluster};
use crate::support::{Daemon, PATIENCE, Setup, VERSION, client, connect, connect_from};

/// The first bytes of an HTTP/2 client: its preface, and empty settings.
const BEGINNING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const FOR_LONG: &str = "[connections]\nhandshake_time_limit_ms = 60000\n";

async fn ask(daemon: &Daemon) {
    let request = GetStatusRequest {
        wire_version: VERSION,
    };
    let mut client = client(daemon.address()).await;
    client.get_status(request).await.unwrap();
}

/// Opens connections that send these bytes, `each` from each of these machines.
fn silent(daemon: &Daemon, machines: &[u8], each: usize, said: &[u8]) -> Vec<TcpStream> {
    let open = |machine: u8| {
        (0..each).map(move |_| {
            let mut socket = connect_from(machine, daemon.address());
            socket.write_all(said).unwrap();
            socket
        })
    };
    machines.iter().flat_map(|machine| open(*machine)).collect()
}

#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    for said in [
        &b""[..],
        &b"\x16\x03\x01"[..1],
        b"CSWY",
        b"PRI * HTTP",
        BEGINNING,
    ] {
        let daemon = Setup::new().config(FOR_LONG).start();
        let _others = silent(&daemon, &[1, 2, 3, 4], 64, said);
        for _ in 0..20 {
            ask(&daemon).await;
        }
        // Also from the address of the callers that ask.
        let _own: Vec<_> = (0..256)
            .map(|_| {
                let mut socket = connect(daemon.address());
                // The first ones may be closed by now.
                let _ = socket.write_all(said);
                socket
            })
            .collect();
        for _ in 0..20 {
            ask(&daemon).await;
        }
        daemon.assert_serves().await;
    }
}

#[tokio::test]
async fn a_hundred_programs_of_one_address_are_served_at_once() {
    let daemon = Setup::new().start();
    // All connections are open before any of them sends.
    let mut sockets: Vec<_> = (0..100).map(|_| connect(daemon.address())).collect();
    for socket in &mut sockets {
        socket.write_all(BEGINNING).unwrap();
    }
    for socket in &mut sockets {
        // Reads the server's settings.
        std::io::Read::read_exact(socket, &mut [0; 9]).unwrap();
    }
}

#[tokio::test]
async fn strangers_that_are_past_tls_keep_nobody_out() {
    let cluster = Cluster::new();
    let daemon = cluster
        .with_tokens()
        .config(
            "[connections]\nhandshake_time_limit_ms = 60000\ncontrol = 8\ncontrol_per_peer = 4\n",
        )
        .start();
    let tls = cluster.client(None);
    let mut strangers = Vec::new();
    for machine in 0..64u8 {
        let socket = connect_from(machine / 16, daemon.address());
        socket.set_nonblocking(true).unwrap();
        let socket = tokio::net::TcpStream::from_std(socket).unwrap();
        let handshake = tls.handshake("127.0.0.1").unwrap();
        // The connection may be closed already.
        let Ok(mut stream) = secure(handshake, socket, &[]).await else {
            continue;
        };
        let _ = stream.write_all(BEGINNING).await;
        strangers.push(stream);
    }
    for _ in 0..10 {
        let caller = Caller::reach(daemon.address(), &tls, Some(&cluster.token)).await;
        caller.unwrap().status().await.unwrap();
    }
}

/// Returns the longest wait of some new callers for an answer.
async fn slowest(daemon: &Daemon, cluster: &Cluster) -> Duration {
    let tls = cluster.client(None);
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let begun = Instant::now();
        let caller = Caller::reach(daemon.address(), &tls, Some(&cluster.token)).await;
        caller.unwrap().status().await.unwrap();
        slowest = slowest.max(begun.elapsed());
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_that_flood_slow_nobody_down_and_are_closed() {
    // `WINDOW_UPDATE`, `PING`, `SETTINGS`, `PRIORITY`, `RST_STREAM`, empty `DATA`, `CONTINUATION`.
    let floods: [(u8, &[u8]); 7] = [
        (8, &[0, 0, 0, 1]),
        (6, &[0; 8]),
        (4, &[]),
        (2, &[0; 5]),
        (3, &[0; 4]),
        (0, &[]),
        (9, &[]),
    ];
    let cluster = Cluster::new();
    let daemon = cluster.with_tokens().config(FOR_LONG).start();
    let tls = cluster.client(None);
    for (kind, payload) in floods {
        let stream = u8::from(!matches!(kind, 4 | 6 | 8));
        let length = u8::try_from(payload.len()).unwrap();
        let frame = [&[0, 0, length, kind, 0, 0, 0, 0, stream], payload].concat();
        let bytes = [BEGINNING, &frame.repeat(100_000)].concat();
        let mut waits = Vec::new();
        let holds = |(flooded, quiet): &(Duration, Duration)| *flooded <= 2 * *quiet;
        // Other work on the machine may slow down a few new callers, but not each time.
        while waits.len() < 3 && !waits.iter().any(holds) {
            let quiet = slowest(&daemon, &cluster).await;
            let mut flooding = Vec::new();
            for _ in 0..4 {
                let socket = tokio::net::TcpStream::connect(daemon.address())
                    .await
                    .unwrap();
                let handshake = tls.handshake("127.0.0.1").unwrap();
                let mut stream = secure(handshake, socket, &[]).await.unwrap();
                let bytes = bytes.clone();
                flooding.push(tokio::spawn(async move {
                    // The write fails if the connection is closed before its end.
                    let said = stream.write_all(&bytes).await;
                    let mut heard = Vec::new();
                    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await;
                    let _ = end.expect("the node ends the connection");
                    said.is_err()
                }));
            }
            waits.push((slowest(&daemon, &cluster).await, quiet));
            for flooding in flooding {
                flooding.await.unwrap();
            }
        }
        assert!(waits.iter().any(holds), "{kind}: flooded, quiet: {waits:?}");
    }
}
