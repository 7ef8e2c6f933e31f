//! Tests of connections that send nothing, or too little too slowly.

use std::io::Write;
use std::time::{Duration, Instant};

use causeway_proto::preamble::{Preamble, Purpose};

use crate::support::{Setup, assert_open, connect, read_to_close};

#[tokio::test]
async fn a_silent_connection_is_closed_in_time() {
    let daemon = Setup::new()
        .config("[connections]\nhandshake_time_limit_ms = 300\n")
        .start();
    let preamble = Preamble {
        purpose: Purpose::Commands,
        lane: 0,
        session: daemon.open().await.id,
        link: 0,
    };
    for said in [&b""[..], b"P", b"PRI * HTTP/2.0", &preamble.encode()[..31]] {
        let begun = Instant::now();
        let mut socket = connect(daemon.address());
        socket.write_all(said).unwrap();
        assert!(read_to_close(&mut socket).is_empty());
        assert!(begun.elapsed() >= Duration::from_millis(250), "too soon");
        assert!(begun.elapsed() < Duration::from_secs(10), "too late");
    }
    daemon.assert_serves().await;
}

#[tokio::test]
async fn a_drip_of_bytes_gets_no_more_time() {
    let daemon = Setup::new()
        .config("[connections]\nhandshake_time_limit_ms = 300\n")
        .start();
    let mut socket = connect(daemon.address());
    let begun = Instant::now();
    for byte in b"CSWY".iter().chain([0; 20].iter()) {
        if socket.write_all(&[*byte]).is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    read_to_close(&mut socket);
    assert!(begun.elapsed() < Duration::from_secs(10));
    daemon.assert_serves().await;
}

#[tokio::test]
async fn of_too_many_silent_connections_the_oldest_is_closed() {
    let daemon = Setup::new()
        .config("[connections]\nhandshakes = 3\nhandshake_time_limit_ms = 60000\n")
        .start();
    // Many more connections than places at once, so that the first one has no second's grace.
    let mut silent: Vec<_> = (0..13).map(|_| connect(daemon.address())).collect();
    assert!(read_to_close(&mut silent[0]).is_empty());
    daemon.assert_serves().await;
    for newer in &mut silent[5..] {
        assert_open(newer);
    }
}
