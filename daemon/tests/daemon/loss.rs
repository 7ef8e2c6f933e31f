//! Tests that client and worker notice each other's end, and tests of heartbeats.

use std::io::Read;
use std::time::{Duration, Instant};

use causeway_proto::preamble::Purpose;

use crate::support::{Setup, read_to_close};

#[tokio::test]
async fn heartbeats_come_at_their_interval() {
    let daemon = Setup::new()
        .config("[heartbeat]\ninterval_ms = 50\nlimit_ms = 400\n")
        .start();
    let session = daemon.open().await;
    let _commands = session.connect(Purpose::Commands, 0).unwrap();
    let mut heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
    let begun = Instant::now();
    let mut beats = [1; 5];
    heartbeat.read_exact(&mut beats).unwrap();
    assert_eq!(beats, [0; 5]);
    assert!(
        begun.elapsed() >= Duration::from_millis(150),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn the_end_of_the_command_connection_ends_the_session() {
    let daemon = Setup::new().start();
    for purpose in [Purpose::Commands, Purpose::CommandsGrpc] {
        let session = daemon.open().await;
        let commands = session.connect(purpose, 0).unwrap();
        let mut heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
        let mut lane = session.connect(Purpose::Bulk, 0).unwrap();
        drop(commands);
        // Unread heartbeats may still be there.
        assert!(read_to_close(&mut heartbeat).iter().all(|&byte| byte == 0));
        read_to_close(&mut lane);
        daemon.until_sessions(0).await;
    }
}

#[tokio::test]
async fn the_end_of_the_pulse_ends_the_session() {
    let daemon = Setup::new().start();
    let session = daemon.open().await;
    let mut commands = session.connect(Purpose::Commands, 0).unwrap();
    drop(session.connect(Purpose::Heartbeat, 0).unwrap());
    assert!(read_to_close(&mut commands).is_empty());
    daemon.until_sessions(0).await;
}
