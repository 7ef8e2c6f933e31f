//! Tests of stopped workers: a kernel can stop its own process.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use causeway_proto::preamble::Purpose;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Daemon, Session, Setup, assert_open, eventually, is_alive};
use crate::watched::get;

fn daemon() -> Setup {
    Setup::new().args(&["--spare-workers", "0"])
}

/// Opens a session. Returns it with its worker: the only child of the daemon that is not in `others`.
async fn open(daemon: &Daemon, others: &[Pid]) -> (Session, Pid) {
    let session = daemon.open().await;
    let worker = eventually("one worker more", || {
        let mut children = daemon.children();
        children.retain(|child| !others.contains(child));
        (children.len() == 1).then(|| children[0])
    });
    (session, worker)
}

#[tokio::test]
async fn a_stopped_worker_goes_when_its_client_has_gone() {
    let daemon = daemon().watched().args(&["--session-limit", "2"]).start();
    let (first, stopped) = open(&daemon, &[]).await;
    let (second, other) = open(&daemon, &[stopped]).await;
    let commands = [&first, &second].map(|of| of.connect(Purpose::Commands, 0).unwrap());
    let mut heartbeats = [&first, &second].map(|of| of.connect(Purpose::Heartbeat, 0).unwrap());
    for heartbeat in &mut heartbeats {
        // By now the supervisor has the connection.
        heartbeat.read_exact(&mut [0]).unwrap();
    }
    for worker in [stopped, other] {
        kill_process(worker, Signal::STOP).unwrap();
    }
    let [gone, alive] = commands;
    let [gone_too, mut still_there] = heartbeats;
    drop((gone, gone_too));
    daemon.until_sessions(1).await;
    assert!(!is_alive(stopped));
    eventually("a warning", || {
        let log = daemon.log();
        log.contains("has not ended after its client left")
            .then_some(())
    });
    let metrics = get(&daemon, "/metrics");
    let counted = "causeway_sessions_ended_total{reason=\"unresponsive\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    assert!(metrics.contains("causeway_workers_stuck 0"), "{metrics}");
    // The other session's client is there, so that session stays.
    assert!(is_alive(other));
    kill_process(other, Signal::CONT).unwrap();
    still_there.read_exact(&mut [0]).unwrap();
    drop(alive);
    daemon.until_sessions(0).await;
}

#[tokio::test]
async fn the_end_of_either_connection_is_enough() {
    let daemon = daemon().start();
    for purpose in [Purpose::Commands, Purpose::CommandsGrpc, Purpose::Heartbeat] {
        let (session, worker) = open(&daemon, &[]).await;
        let kind = match purpose {
            Purpose::Heartbeat => Purpose::Commands,
            other => other,
        };
        let commands = session.connect(kind, 0).unwrap();
        let mut heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
        heartbeat.read_exact(&mut [0]).unwrap();
        kill_process(worker, Signal::STOP).unwrap();
        let _kept = match purpose {
            Purpose::Heartbeat => (drop(heartbeat), commands).1,
            _ => (drop(commands), heartbeat).1,
        };
        daemon.until_sessions(0).await;
    }
}

#[tokio::test]
async fn a_stopped_worker_to_which_nobody_comes_goes_in_time() {
    let daemon = daemon().config("[sessions]\nconnect_limit = 1\n").start();
    let (_session, worker) = open(&daemon, &[]).await;
    kill_process(worker, Signal::STOP).unwrap();
    daemon.until_sessions(0).await;
    assert!(!is_alive(worker));
}

/// Keeps a session's connections open until the process is killed; see `a_killed_client_is_gone`.
fn be_client(ids: &str) -> ! {
    let session: Session = Session::decode(ids);
    let _commands = session.connect(Purpose::Commands, 0).unwrap();
    let mut heartbeat = session.connect(Purpose::Heartbeat, 0).unwrap();
    heartbeat.read_exact(&mut [0]).unwrap();
    println!("connected");
    loop {
        heartbeat.read_exact(&mut [0]).unwrap();
    }
}

fn client_process(session: &Session, role: &str) -> Child {
    let own = std::env::current_exe().unwrap();
    let mut client = Command::new(own)
        .args(["--exact", "--nocapture", "stopped::a_killed_client_is_gone"])
        .env(role, session.encode())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("connected") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut said, &mut line).unwrap() > 0);
    }
    client
}

#[tokio::test]
async fn a_killed_client_is_gone() {
    const ROLE: &str = "CAUSEWAYD_TEST_CLIENT";
    if let Ok(session) = std::env::var(ROLE) {
        be_client(&session);
    }
    let daemon = daemon().start();
    let (session, worker) = open(&daemon, &[]).await;
    let mut client = client_process(&session, ROLE);
    kill_process(worker, Signal::STOP).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    daemon.until_sessions(0).await;
    // A client that a debugger has stopped is alive: its kernel answers.
    let (session, worker) = open(&daemon, &[]).await;
    let mut client = client_process(&session, ROLE);
    let debugged = Pid::from_child(&client);
    kill_process(debugged, Signal::STOP).unwrap();
    kill_process(worker, Signal::STOP).unwrap();
    let (gone, other) = open(&daemon, &[worker]).await;
    let commands = gone.connect(Purpose::Commands, 0).unwrap();
    let mut heartbeat = gone.connect(Purpose::Heartbeat, 0).unwrap();
    heartbeat.read_exact(&mut [0]).unwrap();
    kill_process(other, Signal::STOP).unwrap();
    drop((commands, heartbeat));
    daemon.until_sessions(1).await;
    assert!(is_alive(worker));
    kill_process(worker, Signal::CONT).unwrap();
    let mut own = daemon.open().await.connect(Purpose::Commands, 0).unwrap();
    assert_open(&mut own);
    client.kill().unwrap();
    client.wait().unwrap();
    daemon.until_sessions(1).await;
}
