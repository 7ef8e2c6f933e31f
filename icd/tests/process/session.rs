//! Tests a session inside a process that forks, is stopped, exits, and handles signals.
//!
//! A single test runs the cases one after the other, in a process of its own, because each examines or stops the
//! whole process.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway::config::Carrier;
use causeway::transport::{HostRegion, WireError, at_exit_flush};
use causeway_proto::command::command::Kind;
use causeway_proto::command::{Ping, Query, query::Question};
use causeway_proto::id::{EventId, RequestId};
use causeway_proto::region::Region;

use crate::frames::fake_node;
use crate::frames::fake_node::upper::{Upper, command};
use crate::frames::fake_node::{FakeNode, Faults, PATIENCE};

#[test]
fn a_session_in_its_process() {
    own_process!();
    a_child_of_fork_gets_errors_and_the_parent_goes_on();
    a_stopped_client_is_not_a_lost_one();
    what_is_queued_leaves_at_exit();
    exit_does_not_wait_for_a_worker_that_does_not_read();
    transport_threads_are_named_and_deaf_to_signals();
}

// Runs `body` in a child. The result is the child's exit code. The child must not return or panic.
fn in_child(body: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the child runs `body` and leaves by _exit; what it touches is the point of the test.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let code = body();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(code)) };
    }
    let deadline = Instant::now() + PATIENCE;
    let mut status = 0;
    loop {
        // SAFETY: our own child; the status is a local.
        let done = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if done == pid {
            assert!(
                libc::WIFEXITED(status),
                "the child ended by a signal: {status}"
            );
            return libc::WEXITSTATUS(status) as u8;
        }
        if Instant::now() > deadline {
            // SAFETY: our own child.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_child_of_fork_gets_errors_and_the_parent_goes_on() {
    let fake = FakeNode::start(Faults::default());
    let upper = Upper::new();
    let (node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    // Another thread has the session's locks nearly all the time.
    let stop = Arc::new(AtomicBool::new(false));
    let (busy, flag) = (Arc::clone(&session), Arc::clone(&stop));
    let sender = std::thread::spawn(move || {
        let mut sent = 0u64;
        while !flag.load(Ordering::SeqCst) {
            busy.send(&command(sent)).unwrap();
            sent += 1;
        }
        busy.flush().unwrap();
        sent
    });
    let received = std::thread::spawn(move || {
        let mut commands = 0;
        while let Some(batch) = worker.try_receive() {
            assert_eq!(batch.first, commands + 1);
            commands += batch.commands.len() as u64;
        }
        commands
    });
    for _ in 0..20 {
        let code = in_child(|| {
            let ping = Kind::Query(Query {
                request: 1,
                question: Some(Question::Ping(Ping {})),
            });
            let region = Region::linear(0, 1).unwrap();
            let mut byte = 0u8;
            // SAFETY: refused, so never touched.
            let target = unsafe { HostRegion::new(&raw mut byte, region) };
            let results = [
                session.send(&command(1)),
                session.send_now(&command(1)),
                session.flush(),
                session.request(RequestId(1), &ping).map(drop),
                session.request_async(RequestId(1), &ping, |_| ()),
                session.wait_until(&|| true),
                session.download(EventId(1), target),
                node.session(upper.clone()).map(drop),
                session.is_lost().map_or(Ok(()), Err),
            ];
            session.withdraw(EventId(1));
            at_exit_flush();
            let wrong = results
                .iter()
                .filter(|result| **result != Err(WireError::Forked))
                .count();
            wrong as u8 + u8::from(node.is_available())
        });
        assert_eq!(code, 0);
    }
    // The child drops its references too, without a message to the parent's worker.
    let held = (node, session);
    let mut held = Some(held);
    assert_eq!(
        in_child(|| {
            held.take();
            0
        }),
        0
    );
    assert_eq!(held.as_ref().unwrap().1.is_lost(), None);
    stop.store(true, Ordering::SeqCst);
    let sent = sender.join().unwrap();
    drop(held);
    assert_eq!(received.join().unwrap(), sent);
}

fn a_stopped_client_is_not_a_lost_one() {
    let faults = Faults {
        heartbeat_interval_ms: 20,
        heartbeat_limit_ms: 1000,
        ..Faults::default()
    };
    let fake = FakeNode::start(faults);
    let (_node, session, _worker) = fake.open(Carrier::Direct, &Upper::new());
    // The fake node is in this process and stops with it. That is the harder case: no heartbeat is waiting when the
    // clock has gone on.
    let helper = format!(
        "kill -STOP {0}; sleep 1.5; kill -CONT {0}",
        std::process::id()
    );
    let status = std::process::Command::new("sh")
        .args(["-c", &helper])
        .status()
        .unwrap();
    assert!(status.success());
    // Enough time for a wrong verdict.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(session.is_lost(), None);
}

fn what_is_queued_leaves_at_exit() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        let fake = FakeNode::start(Faults::default());
        let (_node, session, mut worker) = fake.open(carrier, &Upper::new());
        session.send(&command(5)).unwrap();
        at_exit_flush();
        assert_eq!(fake_node::upper::number(&worker.receive().commands[0]), 5);
    }
}

fn exit_does_not_wait_for_a_worker_that_does_not_read() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        let fake = FakeNode::start(Faults::default());
        let (_node, session, worker) = fake.open(carrier, &Upper::new());
        let blocked = Arc::clone(&session);
        let sender = std::thread::spawn(move || {
            let text = "x".repeat(1 << 20);
            let build = causeway_proto::command::BuildProgram {
                options: text.into(),
                ..Default::default()
            };
            let build = Kind::BuildProgram(build);
            while blocked.send(&build).is_ok() {}
        });
        // The connection is full when the sender has made no progress for a while.
        std::thread::sleep(Duration::from_millis(200));
        let begun = Instant::now();
        at_exit_flush();
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(1500), "{carrier:?}: {took:?}");
        worker.die();
        sender.join().unwrap();
    }
}

fn transport_threads_are_named_and_deaf_to_signals() {
    for carrier in [Carrier::Direct, Carrier::Grpc] {
        let fake = FakeNode::start(Faults::default());
        let (_node, session, _worker) = fake.open(carrier, &Upper::new());
        let mut byte = 0u8;
        // SAFETY: the session is dropped, and no byte comes, before the local goes.
        let target = unsafe { HostRegion::new(&raw mut byte, Region::linear(0, 1).unwrap()) };
        session.download(EventId(1), target).unwrap();
        let _lanes = [fake.next(), fake.next()];
        let expected = if carrier == Carrier::Direct {
            "cw-events"
        } else {
            "cw-grpc"
        };
        let expected = [
            expected,
            "cw-heartbeat",
            "cw-flush",
            "cw-bulk-in",
            "cw-bulk-out",
        ];
        let deadline = Instant::now() + PATIENCE;
        // Threads of earlier sessions may still exist. So all threads must block signals, and these must exist.
        while !expected
            .iter()
            .all(|name| threads().iter().any(|(thread, _)| thread == name))
        {
            assert!(Instant::now() < deadline, "{:?}", threads());
            std::thread::yield_now();
        }
        for (name, blocked) in threads() {
            // All signals but SIGKILL, SIGSTOP, and the two that glibc reserves.
            assert_eq!(
                blocked & 0x7fff_fffe_7ffb_feff,
                0x7fff_fffe_7ffb_feff,
                "{name}: {blocked:x}"
            );
        }
    }
}

// Returns the name and the blocked signals of each of our threads.
fn threads() -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let mut status = String::new();
        let file = std::fs::File::open(task.unwrap().path().join("status"));
        // The thread may have ended since.
        if file
            .and_then(|mut file| file.read_to_string(&mut status))
            .is_err()
        {
            continue;
        }
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or("")
                .trim()
        };
        if field("Name:").starts_with("cw-") {
            found.push((
                field("Name:").to_owned(),
                u64::from_str_radix(field("SigBlk:"), 16).unwrap(),
            ));
        }
    }
    found
}
