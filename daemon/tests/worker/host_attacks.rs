//! Attacks of one session on its neighbours in a host, again and again: the neighbour's results stay right, and nothing
//! of the attacker is left in the process or on the card.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use causeway_proto::command::ObjectKind;

use super::hosts::{Program, SOURCE, STEPS, SoonIdle, held, leave_behind, until_alone};
use crate::common::{
    Daemon, Session, build_commands, eventually, launch, linear, memory, plain, read, write,
};

/// Rounds of a test that runs each time.
const ROUNDS: usize = 40;
const MANY_ROUNDS: usize = 1000;
/// Launches of a flood.
const FLOOD: usize = 500;
/// Time for threads that end with their session.
const SOON: Duration = Duration::from_secs(5);

/// Calls of a driver that make objects, and those that keep and release them.
const MADE: [&str; 6] = [
    "clCreateBuffer",
    "clCreateBufferWithProperties",
    "clCreateKernel",
    "clCreateProgramWithSource",
    "clCreateCommandQueueWithProperties",
    "clCreateCommandQueue",
];
const KEPT: [&str; 4] = [
    "clRetainMemObject",
    "clRetainKernel",
    "clRetainProgram",
    "clRetainCommandQueue",
];
const RELEASED: [&str; 4] = [
    "clReleaseMemObject",
    "clReleaseKernel",
    "clReleaseProgram",
    "clReleaseCommandQueue",
];

/// A session in the host of the one that is attacked.
type Attack = fn(&Daemon, &Program, usize);

const ATTACKS: [Attack; 4] = [
    |daemon, good, round| guess(daemon.session(), good, round),
    |daemon, _, _| flood(daemon.session()),
    |daemon, _, round| leave_behind(daemon, round % (STEPS + 1)),
    |daemon, _, round| die_in_a_build(daemon.session(), round),
];

/// Names one object of the neighbour, which ends the session.
fn guess(mut session: Session, good: &Program, round: usize) {
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 64, &[1; 64]);
    // An unknown id in a release is ignored, as it is in a worker of its own.
    session.release(ObjectKind::Memory, good.buffer);
    match round % 4 {
        0 => drop(session.enqueue(queue, &[], read(good.buffer, linear(0, 64), false))),
        1 => drop(session.enqueue(queue, &[], write(good.buffer, linear(0, 4), Some(&[9; 4])))),
        2 => drop(session.enqueue(good.queue, &[], read(buffer, linear(0, 64), false))),
        _ => {
            let args = vec![memory(buffer), plain(&[0; 4]), plain(&[9; 4])];
            session.enqueue(queue, &[], launch(good.kernel, args, &[1], &[]));
        }
    }
    session.ends();
    assert!(session.heard.completions.is_empty());
}

/// Launches kernels and reads nothing.
fn flood(mut session: Session) {
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 64, &[1; 64]);
    let (program, _) = session.build(context, SOURCE, "");
    let kernel = session.kernel(program, "put");
    for _ in 0..FLOOD {
        let args = vec![memory(buffer), plain(&[0; 4]), plain(&[9; 4])];
        session.enqueue(queue, &[], launch(kernel, args, &[1], &[]));
    }
}

/// Is cut off before a build, within its message, while it runs, or after it.
fn die_in_a_build(mut session: Session, round: usize) {
    let context = session.context();
    let (program, request) = (session.new_id(), session.new_id());
    let source = format!("{SOURCE}\n// {round}");
    let frame = session.encode(build_commands(context, program, request, &source, ""));
    let sent = frame.len() * (round % 17).min(16) / 16;
    session.sender().write_all(&frame[..sent]).unwrap();
    if sent == frame.len() && round.is_multiple_of(2) {
        session.answer(request);
        session.kernel(program, "put");
    }
}

/// The number of live objects of the driver whose calls this log has.
fn live_objects(log: &Path) -> usize {
    let text = std::fs::read_to_string(log).unwrap();
    let count = |calls: &[&str]| {
        let is_one = |line: &&str| calls.iter().any(|call| line.contains(&format!("{call}(")));
        text.lines().filter(is_one).count()
    };
    count(&MADE) + count(&KEPT) - count(&RELEASED)
}

fn attack(daemon: &Daemon, rounds: usize, log: Option<&Path>) {
    let mut good = Program::new(daemon.session());
    let host = good.session.worker();
    let sessions = || daemon.count("causeway_sessions");
    let alone = || {
        eventually("the attackers' sessions end", || {
            (sessions() == 1).then_some(())
        })
    };
    // The first session's own transfers use memory that it keeps.
    good.session.write(good.queue, &[], good.buffer, 0, &[0; 4]);
    good.values();
    // The first sessions start threads of the driver.
    for round in 0..2 * ATTACKS.len() {
        ATTACKS[round % ATTACKS.len()](daemon, &good, round);
    }
    alone();
    let before = held(host);
    let log = log.map(|folder| folder.join(format!("calls-{host}")));
    let objects = log.as_deref().map(live_objects);
    for round in 0..rounds {
        ATTACKS[round % ATTACKS.len()](daemon, &good, round / ATTACKS.len());
        let (index, value) = (round % 16, i32::try_from(round).unwrap());
        // A write and not a launch, because the fake driver's kernels compute nothing.
        let (queue, buffer) = (good.queue, good.buffer);
        let at = 4 * index as u64;
        good.session
            .write(queue, &[], buffer, at, &value.to_ne_bytes());
        assert_eq!(good.values()[index], value, "round {round}");
    }
    alone();
    let until = Instant::now() + SOON;
    while held(host) > before {
        assert!(Instant::now() < until, "{before:?} became {:?}", held(host));
        std::thread::yield_now();
    }
    assert_eq!(log.as_deref().map(live_objects), objects);
    until_alone(&good.session, host);
}

fn on_the_fake_driver(rounds: usize) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls-%p");
    let environment = [("FAKE_OPENCL_LOG", log.to_str().unwrap())];
    let settings = SoonIdle::new();
    let daemon = Daemon::fake_with("devices = 1", &settings.arguments(), &environment);
    attack(&daemon, rounds, Some(folder.path()));
}

#[test]
fn a_session_that_attacks_its_neighbours_harms_none_and_leaves_nothing() {
    on_the_fake_driver(ROUNDS);
}

#[test]
#[ignore = "takes minutes; run it by name"]
fn a_thousand_attacks_of_each_kind_harm_no_neighbour() {
    on_the_fake_driver(MANY_ROUNDS * ATTACKS.len());
}

#[test]
#[ignore = "takes minutes; run it by name"]
fn a_thousand_attacks_on_a_driver_that_computes_harm_no_neighbour() {
    let settings = SoonIdle::new();
    let daemon = Daemon::with_arguments(&settings.arguments());
    attack(&daemon, MANY_ROUNDS, None);
}
