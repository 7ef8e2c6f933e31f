//! Tests of observers who see a session's connections or know its id, and of callers who open sessions and never
//! connect.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use causeway_proto::preamble::{self, Greeting, Preamble, Purpose, Verdict, WORKER_PROOF};

use crate::support::{Session, Setup, assert_open, connect, greeting};

fn preamble(session: &Session, lane: u8) -> [u8; preamble::PREAMBLE] {
    let preamble = Preamble {
        purpose: Purpose::Bulk,
        lane,
        session: session.id,
        link: 0,
    };
    preamble.encode()
}

#[tokio::test]
async fn a_preamble_that_was_seen_leads_nowhere() {
    let daemon = Setup::new().start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    let seen = preamble(&session, 0);
    let mut lane = connect(daemon.address());
    lane.write_all(&seen).unwrap();
    let welcome = greeting(&mut lane);
    assert_eq!(welcome.verdict, Verdict::Welcome);
    // The observer sends the same bytes, before and after the client has proved the secret.
    let replay = |bytes: &[u8]| {
        let mut socket = connect(daemon.address());
        socket.write_all(bytes).unwrap();
        greeting(&mut socket).verdict
    };
    assert_eq!(replay(&seen), Verdict::UnknownSession);
    let proof = preamble::client_proof(&session.secret, &seen, &welcome.nonce, &Default::default());
    lane.write_all(&proof).unwrap();
    lane.read_exact(&mut [0; WORKER_PROOF]).unwrap();
    assert_eq!(replay(&seen), Verdict::UnknownSession);
    // Another lane, made from the observed bytes.
    let mut other = seen;
    other[7] = 1;
    assert_eq!(replay(&other), Verdict::UnknownSession);
    session.connect(Purpose::Bulk, 1).unwrap();
    assert_open(&mut commands);
}

#[tokio::test]
async fn who_knows_the_id_does_not_block_new_lanes() {
    let daemon = Setup::new().start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    let mut silent = Vec::new();
    for _ in 0..64 {
        let mut socket = connect(daemon.address());
        socket.write_all(&preamble(&session, 0)).unwrap();
        // The worker has the connection, and waits for the proof.
        let welcome: Greeting = greeting(&mut socket);
        assert_eq!(welcome.verdict, Verdict::Welcome);
        silent.push(socket);
    }
    let begun = Instant::now();
    for lane in [0, 1] {
        session.connect(Purpose::Bulk, lane).unwrap();
    }
    // Silent connections have 5 s.
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert_open(silent.last_mut().unwrap());
    assert_open(&mut commands);
}

#[tokio::test]
async fn sessions_to_which_nobody_comes_make_room() {
    let daemon = Setup::new()
        .args(&["--session-limit", "4"])
        .config("[sessions]\nconnect_limit = 600\n")
        .start();
    let kept = daemon.open().await;
    let mut commands = kept.connect(Purpose::Commands, 0).unwrap();
    for _ in 0..3 {
        daemon.open().await;
    }
    let begun = Instant::now();
    for _ in 0..3 {
        let session = daemon.open().await;
        let mut own = session.connect(Purpose::Commands, 0).unwrap();
        assert_open(&mut own);
        let _left = session;
    }
    assert!(begun.elapsed() < Duration::from_secs(60));
    // A session whose client has connected stays.
    assert_open(&mut commands);
    kept.connect(Purpose::Heartbeat, 0).unwrap();
}
