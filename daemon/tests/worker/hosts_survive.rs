//! Tests of sessions that share a process: each is parked, and each goes on after a neighbour has killed the process, if its
//! client asks for that.

use causeway_proto::command::{CommandBatch, CreateKernel, Enqueue, Parking, command::Kind};
use causeway_proto::control::OpenSessionRequest;
use causeway_proto::preamble::REEXECUTES;

use super::hosts::kill;
use super::parked::{CONTENTS, FAKE, LONG, LOOPBACK, Node, record};
use crate::common::parking::{come_back, contents, hear_parking, park, read, record_on, stands};
use crate::common::resuming::{Resuming, process};
use crate::common::{Daemon, build_commands, eventually, launch, memory};

const TOGETHER: &str = "[sharing]\ntogether = \"user\"";
/// A kernel that goes on, and one that ends its process.
const DRIVER: &str = "devices = 1\nkernel.endless.hang = true\nkernel.crashes.crash = \"segv\"";
const SOURCE: &str = "kernel void endless(global int *x) {} kernel void crashes(global int *x) {} kernel void fails(global int *x) {}";
/// Objects of a session, beside those of `record`.
const PROGRAM: u64 = 4;
const KERNEL: u64 = 5;

/// Opens a session with a buffer of these contents.
fn opened(daemon: &Daemon, request: OpenSessionRequest, contents: &'static [u8]) -> Resuming {
    let request = OpenSessionRequest {
        client: Some(process(1)),
        resume_ms: LONG.0,
        keep_ms: LONG.1,
        restart_ms: 300_000,
        ..request
    };
    let reexecute = request.reexecute;
    let mut session = Resuming::open_asking(daemon, request, false).unwrap();
    assert_eq!(session.reply.restart_ms, 300_000);
    assert_eq!(session.reply.reexecutes, reexecute);
    session.send(record_on(0, contents));
    session.send(vec![Resuming::ping(1)]);
    session.answer(1);
    session
}

fn reexecuted() -> OpenSessionRequest {
    OpenSessionRequest {
        reexecute: true,
        ..OpenSessionRequest::default()
    }
}

/// Has the node keep a checkpoint of the session.
fn checkpoint(session: &mut Resuming) {
    session.send_raw(&CommandBatch {
        checkpoint: true,
        ..CommandBatch::default()
    });
    hear_parking(session, Parking::Stand);
    session.send_raw(&stands());
    hear_parking(session, Parking::Checkpoint);
}

/// Launches a kernel of `SOURCE`.
fn launches(session: &mut Resuming, name: &str) {
    session.send(build_commands(1, PROGRAM, 2, SOURCE, ""));
    session.answer(2);
    session.send(vec![
        Kind::CreateKernel(CreateKernel {
            kernel: KERNEL,
            program: PROGRAM,
            name: name.to_owned(),
        }),
        Kind::Enqueue(Enqueue {
            event: 20,
            queue: 2,
            operation: Some(launch(KERNEL, vec![memory(3)], &[1], &[])),
            ..Enqueue::default()
        }),
    ]);
}

/// Launches the kernel that does not end, and waits until the worker has applied that.
fn launch_endless(session: &mut Resuming) {
    launches(session, "endless");
    session.send(vec![Resuming::ping(3)]);
    session.answer(3);
}

/// Waits until the worker is gone. It says nothing before.
fn loses_its_worker(session: &mut Resuming) {
    while let Some(batch) = session.hear() {
        assert_eq!(batch.close_reason, "");
    }
    session.leave();
}

fn until_workers(daemon: &Daemon, count: usize) {
    eventually("the number of workers", || {
        (daemon.workers().len() == count).then_some(())
    });
}

#[test]
fn sessions_of_a_host_are_parked_and_have_a_host_again() {
    let node = Node::holding(TOGETHER);
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let isolated = OpenSessionRequest {
        isolated: true,
        ..OpenSessionRequest::default()
    };
    let all: [(_, &'static [u8; 64]); 3] = [
        (OpenSessionRequest::default(), &[1; 64]),
        (OpenSessionRequest::default(), &[2; 64]),
        (isolated, &[3; 64]),
    ];
    let mut sessions =
        all.map(|(request, contents)| (opened(&daemon, request, contents), contents));
    assert_eq!(daemon.workers().len(), 2);
    let address = daemon.address.clone();
    let ended = std::thread::spawn(|| daemon.terminate());
    for (session, _) in &mut sessions {
        park(session);
    }
    assert!(ended.join().unwrap());
    let kinds = [
        "contents", "contents", "contents", "session", "session", "session",
    ];
    assert_eq!(node.kinds(), kinds);

    let daemon = node.daemon(&address, FAKE, "30");
    for (session, own) in &mut sessions {
        come_back(session, record(&[]));
        session.send(vec![read(11, vec![])]);
        assert_eq!(contents(session, 11), &own[..]);
    }
    assert_eq!(daemon.workers().len(), 2);
}

#[test]
fn a_neighbours_crash_is_a_pause_for_sessions_that_are_executed_again() {
    let node = Node::holding(TOGETHER);
    let daemon = node.daemon(LOOPBACK, DRIVER, "30");
    let mut busy = opened(&daemon, reexecuted(), CONTENTS);
    let mut idle = [(); 2].map(|()| opened(&daemon, reexecuted(), CONTENTS));
    let mut plain = opened(&daemon, OpenSessionRequest::default(), CONTENTS);
    for session in idle.iter_mut().chain([&mut busy]) {
        checkpoint(session);
    }
    launch_endless(&mut busy);
    assert_eq!(daemon.workers().len(), 1);
    let mut crashes = opened(&daemon, OpenSessionRequest::default(), CONTENTS);
    launches(&mut crashes, "crashes");

    loses_its_worker(&mut plain);
    let reason = plain.end_reason();
    assert!(
        reason.contains("another one is the likely cause"),
        "{reason}"
    );
    // Each begins at its checkpoint, which it made in the process that has died.
    for session in idle.iter_mut().chain([&mut busy]) {
        loses_its_worker(session);
        assert_eq!(come_back(session, record(&[])), REEXECUTES | 4);
        // What came behind the checkpoint is not executed again here.
        session.next = 5;
        session.answers.clear();
        session.send(vec![read(11, vec![])]);
        assert_eq!(contents(session, 11), &CONTENTS[..]);
    }
    // The session that had a command in progress may be the cause, and is alone now.
    until_workers(&daemon, 2);
    // Whichever process it has, the other one is not affected.
    launch_crash(&mut busy);
    for session in &mut idle {
        session.send(vec![read(12, vec![])]);
        assert_eq!(contents(session, 12), &CONTENTS[..]);
    }
}

/// Launches the kernel that ends the process, and waits for that.
fn launch_crash(session: &mut Resuming) {
    launches(session, "crashes");
    loses_its_worker(session);
}

#[test]
fn no_session_of_a_host_that_dies_without_a_command_shares_a_process_again() {
    let node = Node::holding(TOGETHER);
    let daemon = node.daemon(LOOPBACK, FAKE, "30");
    let mut sessions = [(); 2].map(|()| opened(&daemon, reexecuted(), CONTENTS));
    sessions.iter_mut().for_each(checkpoint);
    let [host] = daemon.workers()[..] else {
        panic!("not one host");
    };
    kill(host);
    for session in &mut sessions {
        loses_its_worker(session);
        come_back(session, record(&[]));
    }
    until_workers(&daemon, 2);
}

#[test]
fn a_session_whose_next_host_dies_before_its_client_comes_is_not_lost() {
    let node = Node::holding(TOGETHER);
    let daemon = node.daemon(LOOPBACK, DRIVER, "30");
    let mut idle = opened(&daemon, reexecuted(), CONTENTS);
    checkpoint(&mut idle);
    let mut crashes = opened(&daemon, OpenSessionRequest::default(), CONTENTS);
    let before = daemon.workers();
    launches(&mut crashes, "crashes");
    loses_its_worker(&mut crashes);
    loses_its_worker(&mut idle);
    let host = eventually("another host", || match daemon.workers()[..] {
        [host] if !before.contains(&host) => Some(host),
        _ => None,
    });
    kill(host);
    eventually("a process of its own", || {
        (daemon.workers().len() == 1 && daemon.workers() != [host]).then_some(())
    });
    assert_eq!(come_back(&mut idle, record(&[])), REEXECUTES | 4);
    idle.send(vec![read(11, vec![])]);
    assert_eq!(contents(&mut idle, 11), &CONTENTS[..]);
}

#[test]
fn a_kernel_that_never_ends_costs_neighbours_nothing_that_are_executed_again() {
    let node = Node::holding(TOGETHER);
    let daemon = node.daemon(LOOPBACK, DRIVER, "30");
    let mut neighbour = opened(&daemon, reexecuted(), CONTENTS);
    checkpoint(&mut neighbour);
    let mut endless = opened(&daemon, OpenSessionRequest::default(), CONTENTS);
    launch_endless(&mut endless);
    endless.say_farewell();
    loses_its_worker(&mut neighbour);
    assert_eq!(come_back(&mut neighbour, record(&[])), REEXECUTES | 4);
    neighbour.send(vec![read(11, vec![])]);
    assert_eq!(contents(&mut neighbour, 11), &CONTENTS[..]);
}

/// Launches a kernel that fails alone, in a context that works or not. Returns the status that the client hears; `None` if it
/// hears of no end, because the session goes on in another process.
fn failure_of(driver: &str) -> Option<i32> {
    let node = Node::holding(TOGETHER);
    let daemon = node.daemon(LOOPBACK, driver, "30");
    let mut session = opened(&daemon, reexecuted(), CONTENTS);
    let mut plain = opened(&daemon, OpenSessionRequest::default(), CONTENTS);
    checkpoint(&mut session);
    launches(&mut session, "fails");
    let mut status = None;
    while status.is_none()
        && let Some(batch) = session.hear()
    {
        assert_eq!(batch.close_reason, "");
        let end = batch.completions.iter().find(|of| of.event == 20);
        status = end.map(|end| end.status);
    }
    if status.is_none() {
        session.leave();
        assert_eq!(come_back(&mut session, record(&[])), REEXECUTES | 4);
        until_workers(&daemon, 2);
    }
    // Others in the process are not affected by that.
    plain.send(vec![Resuming::ping(5)]);
    plain.answer(5);
    status
}

#[test]
fn a_context_that_a_neighbour_has_broken_is_a_pause_for_sessions_that_are_executed_again() {
    let fails = "devices = 1\nkernel.fails.fail = -5\n";
    assert_eq!(failure_of(fails), Some(-5));
    let broken = "[[call]]\nname = \"clEnqueueMarkerWithWaitList\"\nfail = -36";
    assert_eq!(failure_of(&format!("{fails}{broken}")), None);
}
