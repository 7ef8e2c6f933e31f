//! Tests of sessions that outlive their connections: what they do while their clients are away, and when they end.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use causeway_proto::bulk::{HEADER, Header};
use causeway_proto::command::{CreateBuffer, CreateContext, command::Kind};
use causeway_proto::frame::COMES_BACK;
use causeway_proto::id::SessionSecret;
use causeway_proto::preamble::{Purpose, Verdict};
use prost::bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::resuming::{Resuming, end_away, process};
use crate::common::{Daemon, connect, eventually};

const FAKE: &str = "devices = 1";
const WATCHED: [&str; 2] = ["--metrics", "127.0.0.1:0"];
const TOGETHER: [&str; 4] = ["--metrics", "127.0.0.1:0", "--together", "user"];
/// Times that do not end in a test.
const LONG: (u32, u32) = (60_000, 600_000);
/// Times of a session whose client does not come back.
const SHORT: (u32, u32) = (300, 300);

fn daemon() -> Daemon {
    Daemon::fake_with(FAKE, &WATCHED, &[])
}

fn until_sessions(daemon: &Daemon, count: u64) {
    eventually("the session ends", || {
        (daemon.count("causeway_sessions") == count).then_some(())
    });
}

fn until_away(daemon: &Daemon, count: u64) {
    eventually("the session is away", || {
        (daemon.count("causeway_sessions_away") == count).then_some(())
    });
}

fn create_buffer(context: u64, buffer: u64) -> Kind {
    Kind::CreateBuffer(CreateBuffer {
        buffer,
        context,
        flags: 1,
        size: 64,
        contents: Bytes::from_static(&[7; 64]),
    })
}

fn create_context(context: u64) -> Kind {
    Kind::CreateContext(CreateContext {
        context,
        platform: 0,
        devices: vec![0],
    })
}

/// Breaks the command connection inside of frames, between them and while events are unread. Compares the driver's log.
fn commands_are_applied_once(arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("%p.log");
    let environment = [("FAKE_OPENCL_LOG", log.to_str().unwrap())];
    let daemon = Daemon::fake_with(FAKE, arguments, &environment);
    let mut session = Resuming::open(&daemon, LONG);
    session.send(vec![create_context(1)]);
    session.send(vec![Resuming::ping(1)]);
    session.answer(1);
    let mut buffers = 0;
    for round in 0..60u64 {
        let mut bytes = Vec::new();
        for _ in 0..4 {
            buffers += 2;
            let create = [buffers - 1, buffers].map(|number| create_buffer(1, 100 + number));
            bytes.extend(session.encode(create.to_vec()));
            bytes.extend(session.encode(vec![Resuming::ping(1000 + buffers)]));
        }
        let cut = (bytes.len() as u64 * round / 59) as usize;
        let _ = session.commands.write_all(&bytes[..cut]);
        if round % 2 == 0 {
            session.commands.shutdown(Shutdown::Both).unwrap();
        } else if round % 12 != 1 {
            session.leave();
        }
        // In the other rounds, the new connection takes the place of one that still works.
        session.resume().unwrap();
        session.answer(1000 + buffers);
        session.acknowledge(session.handled);
    }
    let mut answers = session.answers.clone();
    answers.sort_unstable();
    answers.dedup();
    assert_eq!(answers.len(), session.answers.len(), "an answer came twice");
    let calls: usize = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .map(|text| {
            text.lines()
                .filter(|line| line.contains("clCreateBuffer"))
                .count()
        })
        .sum();
    assert_eq!(calls as u64, buffers);
    session.say_farewell();
    until_sessions(&daemon, 0);
}

#[test]
fn commands_are_applied_once_wherever_a_connection_breaks() {
    commands_are_applied_once(&WATCHED);
}

#[test]
fn a_daemon_that_ends_does_not_wait_long_for_clients_that_are_away() {
    let daemon = Daemon::fake_with(
        FAKE,
        &[&WATCHED[..], &["--drain-limit", "3600"]].concat(),
        &[],
    );
    let session = Resuming::open(&daemon, LONG);
    session.leave();
    until_away(&daemon, 1);
    assert!(daemon.terminate());
}

#[test]
fn a_daemon_that_ends_notices_when_its_last_client_leaves() {
    let daemon = Daemon::fake_with(
        FAKE,
        &["--drain-limit", "3600", "--spare-workers", "1"],
        &[],
    );
    let session = Resuming::open(&daemon, LONG);
    eventually("there is a spare worker", || {
        (daemon.workers().len() > 1).then_some(())
    });
    daemon.begin_to_end();
    // A daemon that ends has no spare workers.
    eventually("the daemon ends", || {
        (daemon.workers().len() == 1).then_some(())
    });
    session.leave();
    assert!(daemon.has_ended_well());
}

#[test]
fn commands_are_applied_once_in_a_host() {
    commands_are_applied_once(&TOGETHER);
}

#[test]
fn events_come_again_after_the_last_that_was_handled() {
    let daemon = daemon();
    let mut session = Resuming::open(&daemon, LONG);
    for request in 1..=200 {
        session.send(vec![Resuming::ping(request)]);
    }
    session.answer(50);
    session.leave();
    until_away(&daemon, 1);
    session.resume().unwrap();
    session.answer(200);
    assert_eq!(session.answers, (1..=200).collect::<Vec<_>>());
    until_away(&daemon, 0);
    assert_eq!(daemon.count("causeway_sessions_resumed_total"), 1);
}

#[test]
fn acknowledgements_are_checked() {
    let daemon = daemon();
    type Say = fn(&mut Resuming);
    let wrong: [Say; 3] = [
        |session| session.acknowledge(session.handled + 1000),
        |session| {
            session.acknowledge(session.handled);
            session.acknowledge(session.handled - 1);
        },
        |session| {
            session.leave();
            let _ = session.connect(Purpose::Commands, session.handled + 1000);
        },
    ];
    for say in wrong {
        let mut session = Resuming::open(&daemon, LONG);
        for request in 1..=3 {
            session.send(vec![Resuming::ping(request)]);
            session.answer(request);
        }
        // An acknowledgement may come in parts.
        let bytes = session.handled.to_le_bytes();
        session.heartbeat.write_all(&bytes[..3]).unwrap();
        session.heartbeat.write_all(&bytes[3..]).unwrap();
        say(&mut session);
        let reason = session.end_reason();
        assert!(reason.contains("violated the protocol"), "{reason}");
    }
    until_sessions(&daemon, 0);
}

/// Sends nonsense on bulk connections, beside another session.
fn nonsense_ends_its_session_with_a_reason(arguments: &[&str]) {
    let daemon = Daemon::fake_with(FAKE, arguments, &[]);
    let mut neighbour = Resuming::open(&daemon, LONG);
    neighbour.send(vec![Resuming::ping(1)]);
    neighbour.answer(1);
    let garbage = [
        ([0x55; HEADER], "magic"),
        (Header::ack(0, 1 << 40).encode(), "only 0 were sent"),
    ];
    let lane_of = |session: &Resuming| {
        let (at, id, secret) = (&session.address, session.id, &session.secret);
        connect(at, id, secret, Purpose::Bulk, 0)
    };
    for (bytes, fault) in garbage {
        let mut session = Resuming::open(&daemon, LONG);
        session.send(vec![Resuming::ping(1)]);
        session.answer(1);
        lane_of(&session).write_all(&bytes).unwrap();
        let reason = session.end_reason();
        assert!(reason.contains("violated the protocol"), "{reason}");
        assert!(reason.contains(fault), "{reason}");
    }
    neighbour.send(vec![Resuming::ping(2)]);
    neighbour.answer(2);
    neighbour.say_farewell();
    until_sessions(&daemon, 0);
}

#[test]
fn nonsense_on_a_bulk_connection_ends_its_session_with_a_reason() {
    nonsense_ends_its_session_with_a_reason(&WATCHED);
}

#[test]
fn nonsense_on_a_bulk_connection_ends_no_neighbour() {
    nonsense_ends_its_session_with_a_reason(&TOGETHER);
}

#[test]
fn a_ping_on_a_lane_is_acknowledged_at_once() {
    let daemon = daemon();
    let session = Resuming::open(&daemon, LONG);
    let (mut lane, _) = session.connect(Purpose::Bulk, 0).unwrap();
    for pings in 1..=3 {
        lane.write_all(&Header::ping().encode()).unwrap();
        let mut answer = [0; HEADER];
        lane.read_exact(&mut answer).unwrap();
        let ack = Header::ack(0, pings * HEADER as u64);
        assert_eq!(Header::decode(&answer), Ok(ack));
    }
}

#[test]
fn a_client_comes_back_while_the_driver_works() {
    let folder = tempfile::tempdir().unwrap();
    // The call waits for a second file in the folder.
    let settings = format!(
        "devices = 1\n[[call]]\nname = \"clCreateBuffer\"\nat = 1\nmeet = \"{}\"\nof = 2",
        folder.path().display()
    );
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let daemon = Daemon::fake_with(&settings, &WATCHED, &[]);
    let mut session = Resuming::open(&daemon, LONG);
    session.send(vec![Resuming::ping(1)]);
    session.answer(1);
    session.send(vec![
        create_context(1),
        create_buffer(1, 2),
        Resuming::ping(2),
    ]);
    eventually("the driver works", || (files() == 1).then_some(()));
    for _ in 0..3 {
        session.leave();
        session.resume().unwrap();
    }
    assert_eq!(files(), 1);
    std::fs::write(folder.path().join("second"), "").unwrap();
    session.send(vec![Resuming::ping(3)]);
    session.answer(3);
    assert_eq!(session.answers, [1, 2, 3]);
    session.say_farewell();
    until_sessions(&daemon, 0);
}

#[test]
fn a_stranger_changes_nothing() {
    let daemon = daemon();
    let mut session = Resuming::open(&daemon, LONG);
    let secret = std::mem::replace(&mut session.secret, SessionSecret([7; 32]));
    for purpose in [Purpose::Commands, Purpose::Heartbeat] {
        let refused = session.connect(purpose, 0).err();
        assert_eq!(refused, Some(Verdict::Unproved));
    }
    assert!(!session.session_end(&session.secret).known);
    session.secret = secret;
    session.send(vec![Resuming::ping(1)]);
    session.answer(1);
    assert_eq!(daemon.count("causeway_sessions_away"), 0);
}

#[test]
fn two_holders_of_a_secret_take_a_place_in_turns_ten_times() {
    let daemon = daemon();
    let mut session = Resuming::open(&daemon, LONG);
    for request in 1..=10 {
        let before = session.commands.try_clone().unwrap();
        session.resume_commands().unwrap();
        // The connection before was shut down.
        let end = (&before).read_to_end(&mut Vec::new());
        assert!(end.is_ok() || end.is_err_and(|error| error.kind() != ErrorKind::WouldBlock));
        session.send(vec![Resuming::ping(request)]);
        session.answer(request);
    }
    let refused = session.connect(Purpose::Commands, session.handled).err();
    assert_eq!(refused, Some(Verdict::TooMany));
    // A client that uses gRPC cannot go on with another carrier's session.
    let refused = session.connect(Purpose::CommandsGrpc, 0).err();
    assert_eq!(refused, Some(Verdict::TooMany));
    session.send(vec![Resuming::ping(11)]);
    session.answer(11);
}

#[test]
fn a_session_waits_for_as_long_as_was_granted() {
    for arguments in [&WATCHED[..], &TOGETHER] {
        let daemon = Daemon::fake_with(FAKE, arguments, &[]);
        let mut session = Resuming::open(&daemon, SHORT);
        assert_eq!((session.reply.resume_ms, session.reply.keep_ms), SHORT);
        session.send(vec![Resuming::ping(1)]);
        session.answer(1);
        session.leave();
        let reason = session.end_reason();
        let text = "the client did not come back within 0.3 s: the client closed its connections";
        assert_eq!(reason, text);
        assert_eq!(session.resume().err(), Some(Verdict::UnknownSession));
        until_sessions(&daemon, 0);
    }
}

#[test]
fn the_log_has_one_plain_line_about_the_end_of_a_session_that_was_away() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_causewayd"));
    program.stderr(std::fs::File::create(&log).unwrap());
    let daemon = Daemon::by_fake(program, FAKE, &["--log", "debug"], &[]);
    let session = Resuming::open(&daemon, (1_500, 1_500));
    session.leave();
    session.end_reason();
    assert!(daemon.terminate());
    let log = std::fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("client")).collect();
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    for (text, times) in [
        ("the client is away; its session waits for it", 1),
        (
            "the client has not come back in time, so the session ends",
            1,
        ),
        ("the client closed the session", 0),
        ("ClientLost", 0),
        ("ClientClosed", 0),
    ] {
        assert_eq!(count(text), times, "{text}: {lines:#?}");
    }
}

#[test]
fn a_killed_program_is_not_waited_for() {
    let daemon = daemon();
    let session = Resuming::open_by(&daemon, process(1), LONG, true).unwrap();
    let begun = Instant::now();
    session.leave();
    until_sessions(&daemon, 0);
    let time = begun.elapsed();
    assert!(time >= Duration::from_secs(2), "{time:?}");
    assert!(time < Duration::from_secs(30), "{time:?}");
}

#[test]
fn a_program_that_closes_a_broken_connection_is_waited_for() {
    let arguments = [&WATCHED[..], &["--spare-workers", "0"]].concat();
    let daemon = Daemon::fake_with(FAKE, &arguments, &[]);
    let open = |pid| Resuming::open_by(&daemon, process(pid), LONG, true).unwrap();
    // This one is killed. Its worker, which says nothing, is not waited for until the session's time is over.
    let killed = open(1);
    let worker = Pid::from_raw(daemon.workers()[0] as i32).unwrap();
    kill_process(worker, Signal::STOP).unwrap();
    let mut session = open(2);
    session.acknowledge(COMES_BACK);
    session.leave();
    until_away(&daemon, 1);
    killed.leave();
    until_sessions(&daemon, 1);
    assert!(killed.end_reason().contains("was killed"));
    session.resume().unwrap();
    session.send(vec![Resuming::ping(1)]);
    session.answer(1);
}

#[test]
fn a_program_that_is_killed_while_the_driver_works_is_not_waited_for() {
    let slow = "devices = 1\n[[call]]\nname = \"clCreateBuffer\"\nat = 1\ndelay_us = 600000000";
    let daemon = Daemon::fake_with(slow, &WATCHED, &[]);
    let mut session = Resuming::open_by(&daemon, process(1), LONG, true).unwrap();
    session.send(vec![create_context(1), Resuming::ping(1)]);
    session.answer(1);
    session.send(vec![create_buffer(1, 2)]);
    session.leave();
    until_sessions(&daemon, 0);
}

#[test]
fn a_farewell_ends_a_session_at_once() {
    for arguments in [&WATCHED[..], &TOGETHER] {
        let daemon = Daemon::fake_with(FAKE, arguments, &[]);
        let mut session = Resuming::open(&daemon, LONG);
        session.send(vec![Resuming::ping(1)]);
        session.say_farewell();
        until_sessions(&daemon, 0);
        assert_eq!(session.end_reason(), "the client closed the session");
    }
}

#[test]
fn a_session_that_was_granted_nothing_ends_with_its_connections() {
    let refusing = Daemon::fake_with(
        FAKE,
        &[&WATCHED[..], &["--resume-limit", "0"]].concat(),
        &[],
    );
    let granting = daemon();
    for (daemon, asked) in [(&refusing, LONG), (&granting, (0, 600_000))] {
        let mut session = Resuming::open(daemon, asked);
        assert_eq!((session.reply.resume_ms, session.reply.keep_ms), (0, 0));
        session.send(vec![Resuming::ping(1)]);
        session.answer(1);
        let refused = session.connect(Purpose::Commands, session.handled).err();
        assert_eq!(refused, Some(Verdict::TooMany));
        session.commands.shutdown(Shutdown::Both).unwrap();
        until_sessions(daemon, 0);
        assert!(!session.session_end(&session.secret).known);
    }
}

#[test]
fn what_is_granted_is_limited() {
    let daemon = Daemon::fake_with(FAKE, &["--resume-limit", "30"], &[]);
    let session = Resuming::open(&daemon, LONG);
    assert_eq!(
        (session.reply.resume_ms, session.reply.keep_ms),
        (30_000, 30_000)
    );
    let inventory = daemon.inventory();
    assert_eq!(inventory.resume_limit_ms, 30_000);
    assert_eq!((inventory.own_sessions, inventory.own_away), (1, 0));
}

#[test]
fn a_stopped_worker_is_killed_when_its_client_stays_away() {
    let arguments = [&WATCHED[..], &["--spare-workers", "0"]].concat();
    let daemon = Daemon::fake_with(FAKE, &arguments, &[]);
    let session = Resuming::open(&daemon, SHORT);
    let worker = Pid::from_raw(daemon.workers()[0] as i32).unwrap();
    kill_process(worker, Signal::STOP).unwrap();
    session.leave();
    until_sessions(&daemon, 0);
    let reason = session.end_reason();
    assert!(reason.contains("was killed"), "{reason}");
}

#[test]
fn sessions_end_whose_programs_have_ended() {
    let daemon = daemon();
    let sessions: Vec<_> = (1..=3)
        .map(|pid| Resuming::open_by(&daemon, process(pid), LONG, false).unwrap())
        .collect();
    sessions[0].leave();
    sessions[1].leave();
    until_away(&daemon, 2);
    let session = Resuming::open_by(&daemon, process(4), LONG, false).unwrap();
    let mut away: Vec<_> = session.reply.away.iter().map(|of| of.pid).collect();
    away.sort_unstable();
    assert_eq!(away, [1, 2]);
    // Sessions stay of processes that are not named, are not away, or are of another host or user.
    let mut stranger = process(4);
    stranger.boot_id = "another".into();
    let mut other_user = process(4);
    other_user.user = "another".into();
    assert_eq!(end_away(&daemon, other_user, vec![process(1)], &[]), 0);
    let mut later = process(2);
    later.start_time += 1;
    assert_eq!(end_away(&daemon, stranger, vec![process(1)], &[]), 0);
    assert_eq!(
        end_away(&daemon, process(4), vec![later, process(3)], &[]),
        0
    );
    assert_eq!(end_away(&daemon, process(4), vec![process(1)], &[]), 1);
    assert_eq!(daemon.count("causeway_sessions"), 3);
    let reason = sessions[0].end_reason();
    assert!(reason.contains("the program"), "{reason}");
}

#[test]
fn the_end_of_a_session_that_is_away_waits_for_nobody_to_read_the_reason() {
    let daemon = daemon();
    let mut times = (1..=5).map(|pid| {
        let session = Resuming::open_by(&daemon, process(pid), LONG, false).unwrap();
        session.leave();
        until_away(&daemon, 1);
        let begun = Instant::now();
        assert_eq!(end_away(&daemon, process(9), vec![process(pid)], &[]), 1);
        begun.elapsed()
    });
    // A client that is there gets half a second. A busy machine may delay some of the ends.
    assert!(times.any(|time| time < Duration::from_millis(500)));
}

#[test]
fn a_session_that_is_away_makes_room_for_another() {
    let arguments = [&WATCHED[..], &["--session-limit", "2"]].concat();
    let daemon = Daemon::fake_with(FAKE, &arguments, &[]);
    let first = Resuming::open(&daemon, LONG);
    let second = Resuming::open(&daemon, LONG);
    let begun = Instant::now();
    second.leave();
    until_away(&daemon, 1);
    let refused = Resuming::open_by(&daemon, process(3), LONG, false).err();
    let refused = refused.expect("the limit is reached").message().to_owned();
    let away =
        "your sessions that are away: 1; one that has been away for 5 s ends when you try again";
    assert!(refused.contains(away), "{refused}");
    let inventory = daemon.inventory();
    assert_eq!((inventory.own_sessions, inventory.own_away), (2, 1));
    let third = eventually("a session opens", || {
        Resuming::open_by(&daemon, process(3), LONG, false).ok()
    });
    assert!(begun.elapsed() >= Duration::from_secs(5));
    let reason = second.end_reason();
    assert!(reason.contains("opened another one"), "{reason}");
    for mut session in [first, third] {
        session.send(vec![Resuming::ping(1)]);
        session.answer(1);
    }
}
