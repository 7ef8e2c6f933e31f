//! Tests that a stranger's garbage only closes its own connection.

use std::io::{Read, Write};
use std::net::Shutdown;

use causeway_proto::preamble::{Preamble, Purpose, Verdict};

use crate::support::{Setup, assert_open, connect, greeting, read_to_close};

#[tokio::test]
async fn strangers_are_closed_and_sessions_go_on() {
    let daemon = Setup::new().start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();

    let mut random = vec![0; 64 << 10];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .unwrap();
    // The random bytes must not begin like a valid connection.
    random[0] = 0x80;
    let huge_frame = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0xff; 4096]].concat();
    for garbage in [
        &random[..],
        b"GET / HTTP/1.1\r\nHost: node\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &[0; 65536],
        &huge_frame,
    ] {
        let mut socket = connect(daemon.address());
        // The daemon may close before it has taken everything.
        let _ = socket.write_all(garbage);
        let _ = socket.shutdown(Shutdown::Write);
        read_to_close(&mut socket);
    }

    assert_open(&mut commands);
    daemon.assert_serves().await;
}

#[tokio::test]
async fn half_a_preamble_and_then_nothing() {
    let daemon = Setup::new().start();
    let preamble = Preamble {
        purpose: Purpose::Commands,
        lane: 0,
        session: daemon.open().await.id,
        link: 0,
    };
    for cut in [1, 4, 16, 31] {
        let mut socket = connect(daemon.address());
        socket.write_all(&preamble.encode()[..cut]).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        assert!(read_to_close(&mut socket).is_empty());
    }
    daemon.assert_serves().await;
}

#[tokio::test]
async fn a_preamble_that_makes_no_sense_is_told_so() {
    let daemon = Setup::new().start();
    let mut bytes = Preamble {
        purpose: Purpose::Bulk,
        lane: 0,
        session: daemon.open().await.id,
        link: 0,
    }
    .encode();
    bytes[6] = 77;
    let mut socket = connect(daemon.address());
    socket.write_all(&bytes).unwrap();
    assert_eq!(greeting(&mut socket).verdict, Verdict::Malformed);
    assert!(read_to_close(&mut socket).is_empty());
}

#[tokio::test]
async fn a_huge_frame_ends_its_own_session_only() {
    let daemon = Setup::new().start();
    let (hostile, other) = (daemon.open().await, daemon.open().await);
    let mut others = other.connect(Purpose::Commands, 0).unwrap();
    for frame in [
        &[0xff; 4][..],
        &[0xff; 8],
        b"\x08\0\0\0garbage!",
        b"\x02\0\0\0\x0a\xff",
    ] {
        let hostile = if frame.len() == 4 {
            hostile.clone()
        } else {
            daemon.open().await
        };
        let mut socket = hostile.connect(Purpose::Commands, 0).unwrap();
        socket.write_all(frame).unwrap();
        read_to_close(&mut socket);
    }
    daemon.until_sessions(1).await;
    assert_open(&mut others);
}

#[tokio::test]
async fn tls_is_refused_in_its_own_words() {
    let daemon = Setup::new().start();
    let mut socket = connect(daemon.address());
    socket.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let said = read_to_close(&mut socket);
    assert_eq!(
        said,
        [21, 3, 3, 0, 2, 2, 40],
        "a fatal alert: handshake_failure"
    );
    daemon.assert_serves().await;
}
