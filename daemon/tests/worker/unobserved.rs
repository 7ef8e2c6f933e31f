//! Tests of unobserved commands: each is reported once, with its own status, on every path.

use causeway_proto::command::{Enqueue, FillBuffer, command::Kind, enqueue::Operation};

use crate::common::{Daemon, Session, Told, launch, linear, memory, read, write};

const OUT_OF_ORDER: u64 = 1;
const PROFILING: u64 = 2;
const INVALID_VALUE: i32 = -30;
const INVALID_WORK_GROUP_SIZE: i32 = -54;
const OUT_OF_RESOURCES: i32 = -5;
// More commands than one report covers.
const MANY: u64 = 300;

fn open(daemon: &Daemon, bits: u64) -> (Session, u64, u64) {
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, bits);
    let buffer = session.buffer(context, 64, &[0; 64]);
    (session, queue, buffer)
}

fn unobserved(event: u64, queue: u64, wait: &[u64], operation: Operation) -> Kind {
    Kind::Enqueue(Enqueue {
        event,
        queue,
        wait: wait.to_vec(),
        unobserved: true,
        operation: Some(operation),
    })
}

fn fill(buffer: u64, value: u8) -> Operation {
    Operation::FillBuffer(FillBuffer {
        buffer,
        pattern: vec![value; 4].into(),
        offset: 0,
        size: 64,
    })
}

#[test]
fn a_flood_is_told_in_order_and_done_when_it_is_told() {
    let daemon = Daemon::start();
    for bits in [0, OUT_OF_ORDER] {
        let (mut session, queue, buffer) = open(&daemon, bits);
        let events: Vec<u64> = (0..MANY).map(|_| session.new_id()).collect();
        let fills = events
            .iter()
            .map(|event| unobserved(*event, queue, &[], fill(buffer, 7)));
        session.send(fills.collect());
        for event in &events {
            assert_eq!(session.wait(*event).status, 0);
        }
        assert_eq!(&session.bytes(queue, buffer, 0, 64)[..], [7; 64]);
    }
}

#[test]
fn the_end_of_a_command_tells_of_those_before_it_in_one_batch() {
    const ROUNDS: u64 = 30;
    let daemon = Daemon::start();
    let (mut session, queue, buffer) = open(&daemon, 0);
    session.bytes(queue, buffer, 0, 64);
    let batches = session.heard.batches;
    for round in 0..ROUNDS {
        let [filled, refilled, told] = std::array::from_fn(|_| session.new_id());
        session.send(vec![
            unobserved(filled, queue, &[], fill(buffer, 0)),
            unobserved(refilled, queue, &[], fill(buffer, round as u8)),
            Kind::Enqueue(Enqueue {
                event: told,
                queue,
                wait: vec![],
                unobserved: false,
                operation: Some(read(buffer, linear(0, 64), false)),
            }),
        ]);
        assert_eq!(session.wait(told).contents[..], [round as u8; 64]);
        let ends = [filled, refilled, told].map(Told::Ended);
        assert!(
            session.heard.order.ends_with(&ends),
            "all ends in their order"
        );
        assert_eq!(session.wait(filled).status, 0);
        assert_eq!(session.wait(refilled).status, 0);
    }
    // The end of a fill may have its own batch if the worker sends just then. It has none in most rounds.
    let batches = session.heard.batches - batches;
    assert!((ROUNDS..2 * ROUNDS).contains(&batches), "{batches}");
}

// Tests launches without a native event, and a series whose last launch fails.
#[test]
fn a_flood_of_launches_is_told_in_order_and_one_that_is_refused_says_so() {
    for environment in [&[][..], &[("CAUSEWAYD_WATCHING", "1")]] {
        let daemon = Daemon::with(environment);
        let (mut session, queue, buffer) = open(&daemon, 0);
        let context = session.context();
        let queue_of_own = session.queue(context, 0);
        let counter = session.buffer(context, 64, &[0; 64]);
        let (program, answer) =
            session.build(context, "kernel void count(global int *x) { *x += 1; }", "");
        assert_eq!(answer.status, 0, "{answer:?}");
        let kernel = session.kernel(program, "count");
        let events: Vec<u64> = (0..MANY).map(|_| session.new_id()).collect();
        let mut commands: Vec<Kind> = events
            .iter()
            .map(|event| {
                let operation = launch(kernel, vec![memory(counter)], &[1], &[]);
                unobserved(*event, queue_of_own, &[], operation)
            })
            .collect();
        let [refused, elsewhere] = std::array::from_fn(|_| session.new_id());
        let operation = launch(kernel, vec![], &[3], &[2]);
        commands.push(unobserved(refused, queue_of_own, &[], operation));
        commands.push(unobserved(elsewhere, queue, &[], fill(buffer, 1)));
        session.send(commands);
        for event in &events {
            assert_eq!(session.wait(*event).status, 0);
        }
        assert_eq!(session.wait(refused).status, INVALID_WORK_GROUP_SIZE);
        assert_eq!(session.wait(elsewhere).status, 0);
        let count = u32::try_from(MANY).unwrap().to_ne_bytes();
        assert_eq!(session.bytes(queue_of_own, counter, 0, 4)[..], count);
    }
}

#[test]
fn the_ends_of_a_traced_program_have_times_and_others_have_none() {
    for environment in [&[][..], &[("CAUSEWAYD_WATCHING", "1")]] {
        let daemon = Daemon::with(environment);
        let mut session = daemon.session();
        let context = session.context();
        let buffer = session.buffer(context, 64, &[0; 64]);
        let (program, answer) = session.build(context, "kernel void f(global int *x) {}", "");
        assert_eq!(answer.status, 0, "{answer:?}");
        let kernel = session.kernel(program, "f");
        for traced in [true, false] {
            let queue = session.queue_of(context, PROFILING, traced);
            let events: Vec<u64> = (0..MANY).map(|_| session.new_id()).collect();
            let launches = events.iter().map(|event| {
                let operation = launch(kernel, vec![memory(buffer)], &[1], &[]);
                unobserved(*event, queue, &[], operation)
            });
            session.send(launches.collect());
            // The read may report the last of them.
            session.bytes(queue, buffer, 0, 4);
            let mut last = 0;
            for event in events {
                let end = session.wait(event);
                assert_eq!(end.status, 0);
                let times = [end.submitted, end.started, end.ended];
                assert!(times.is_sorted(), "{end:?}");
                assert!(
                    times.iter().all(|time| (*time > 0) == traced),
                    "{traced}: {end:?}"
                );
                assert!(last <= end.started, "{last}: {end:?}");
                last = end.ended;
            }
        }
    }
}

#[test]
fn one_of_a_traced_program_that_fails_has_its_status_and_no_times() {
    let config = (
        "FAKE_OPENCL_CONFIG",
        "kernel.f.ns = 1\nkernel.bad.fail = -5",
    );
    for watching in ["0", "1"] {
        let environment = [config, ("CAUSEWAYD_WATCHING", watching)];
        let daemon = Daemon::fake_with("", &[], &environment[..1 + usize::from(watching == "1")]);
        let mut session = daemon.session();
        let context = session.context();
        let queue = session.queue_of(context, PROFILING, true);
        let buffer = session.buffer(context, 64, &[0; 64]);
        let source = "kernel void f(global int *x) {} kernel void bad(global int *x) {}";
        let (program, answer) = session.build(context, source, "");
        assert_eq!(answer.status, 0, "{answer:?}");
        let kernels = ["f", "bad", "f"].map(|name| session.kernel(program, name));
        let events = kernels.map(|_| session.new_id());
        let launches = kernels.iter().zip(events).map(|(kernel, event)| {
            let operation = launch(*kernel, vec![memory(buffer)], &[1], &[]);
            unobserved(event, queue, &[], operation)
        });
        session.send(launches.collect());
        let [good, bad, _] = events.map(|event| session.wait(event));
        assert!(good.status == 0 && good.ended > 0, "{good:?}");
        assert_eq!((bad.status, bad.ended), (OUT_OF_RESOURCES, 0), "{bad:?}");
    }
}

// Tests launches without a native event before a fill, which reports itself.
#[test]
fn where_no_marker_can_be_made_only_what_nothing_tells_of_fails() {
    let environment = [
        ("CAUSEWAYD_WATCHING", "1"),
        (
            "FAKE_OPENCL_CONFIG",
            "kernel.f.ns = 1\n[[call]]\nname = \"clEnqueueMarkerWithWaitList\"\nfail = -5",
        ),
    ];
    let daemon = Daemon::fake_with("", &[], &environment);
    let (mut session, queue, buffer) = open(&daemon, 0);
    let context = session.context();
    let queue_of_own = session.queue(context, 0);
    let (program, answer) = session.build(context, "kernel void f(global int *x) {}", "");
    assert_eq!(answer.status, 0, "{answer:?}");
    let kernel = session.kernel(program, "f");
    let of_own = session.buffer(context, 64, &[0; 64]);
    let [filled, launched, refused, elsewhere] = std::array::from_fn(|_| session.new_id());
    let launch = || launch(kernel, vec![memory(of_own)], &[1], &[]);
    session.send(vec![
        unobserved(filled, queue_of_own, &[], fill(of_own, 1)),
        unobserved(launched, queue_of_own, &[], launch()),
        unobserved(
            refused,
            queue_of_own,
            &[],
            write(of_own, linear(62, 4), Some(b"four")),
        ),
        unobserved(elsewhere, queue, &[], fill(buffer, 1)),
    ]);
    assert_eq!(session.wait(refused).status, INVALID_VALUE);
    assert_eq!(session.wait(launched).status, OUT_OF_RESOURCES);
    assert_eq!(session.wait(filled).status, 0);
    assert_eq!(session.wait(elsewhere).status, 0);
}

// The ends of commands are polled. Only the first few of a queue were once, so what overtook many was told with them.
#[test]
fn what_overtakes_many_commands_of_an_out_of_order_queue_is_told_at_once() {
    let environment = [
        ("CAUSEWAYD_WATCHING", "1"),
        (
            "FAKE_OPENCL_CONFIG",
            "kernel.slow.ns = 1000000000\nkernel.f.ns = 1",
        ),
    ];
    let daemon = Daemon::fake_with("", &[], &environment);
    let (mut session, queue, buffer) = open(&daemon, OUT_OF_ORDER);
    let context = session.context();
    let queue_of_own = session.queue(context, OUT_OF_ORDER);
    let of_own = session.buffer(context, 64, &[0; 64]);
    let source = "kernel void f(global int *x) {} kernel void slow(global int *x) {}";
    let (program, answer) = session.build(context, source, "");
    assert_eq!(answer.status, 0, "{answer:?}");
    let [slow, f] = ["slow", "f"].map(|name| session.kernel(program, name));
    let enqueue = |event, queue, wait: &[u64], operation| {
        Kind::Enqueue(Enqueue {
            event,
            queue,
            wait: wait.to_vec(),
            unobserved: false,
            operation: Some(operation),
        })
    };
    let [running, overtakes] = std::array::from_fn(|_| session.new_id());
    let waiting: Vec<u64> = (0..40).map(|_| session.new_id()).collect();
    let mut commands = vec![enqueue(
        running,
        queue_of_own,
        &[],
        launch(slow, vec![memory(of_own)], &[1], &[]),
    )];
    commands.extend(waiting.iter().map(|event| {
        let operation = launch(f, vec![memory(of_own)], &[1], &[]);
        enqueue(*event, queue_of_own, &[running], operation)
    }));
    commands.push(enqueue(overtakes, queue_of_own, &[], fill(of_own, 1)));
    session.send(commands);
    assert_eq!(session.wait(overtakes).status, 0);
    let is_told = |event: &u64| session.heard.order.contains(&Told::Ended(*event));
    assert!(!waiting.iter().any(is_told), "the slow kernel still runs");
    for event in waiting {
        assert_eq!(session.wait(event).status, 0);
    }
    session.bytes(queue, buffer, 0, 4);
}

#[test]
fn one_that_fails_says_so_and_the_others_go_on() {
    let daemon = Daemon::start();
    let (mut session, queue, buffer) = open(&daemon, 0);
    let [good, outside, last] = std::array::from_fn(|_| session.new_id());
    session.send(vec![
        unobserved(good, queue, &[], fill(buffer, 1)),
        unobserved(
            outside,
            queue,
            &[],
            write(buffer, linear(62, 4), Some(b"four")),
        ),
        unobserved(
            last,
            queue,
            &[],
            write(buffer, linear(60, 4), Some(b"last")),
        ),
    ]);
    assert_eq!(session.wait(outside).status, INVALID_VALUE);
    assert_eq!(session.wait(last).status, 0);
    assert_eq!(session.wait(good).status, 0);
    assert_eq!(&session.bytes(queue, buffer, 58, 6)[..], b"\x01\x01last");
}

#[test]
fn behind_what_is_held_it_waits_its_turn() {
    let daemon = Daemon::start();
    let (mut session, queue, buffer) = open(&daemon, 0);
    let user_event = session.user_event();
    let first = session.enqueue(queue, &[user_event], fill(buffer, 1));
    let [second, third] = std::array::from_fn(|_| session.new_id());
    session.send(vec![
        unobserved(second, queue, &[], fill(buffer, 2)),
        unobserved(third, queue, &[], write(buffer, linear(0, 2), Some(b"go"))),
    ]);
    session.ping();
    for event in [first, second, third] {
        assert!(!session.heard.completions.contains_key(&event));
    }
    session.set(user_event, 0);
    for event in [first, second, third] {
        assert_eq!(session.wait(event).status, 0);
    }
    assert_eq!(&session.bytes(queue, buffer, 0, 4)[..], b"go\x02\x02");
}

// Causeway's client never sends this. The worker must not take the short path for it.
#[test]
fn a_wait_list_is_waited_for_all_the_same() {
    let daemon = Daemon::start();
    let (mut session, queue, buffer) = open(&daemon, 0);
    let user_event = session.user_event();
    let event = session.new_id();
    session.send(vec![unobserved(
        event,
        queue,
        &[user_event],
        fill(buffer, 3),
    )]);
    session.ping();
    assert!(!session.heard.completions.contains_key(&event));
    session.set(user_event, 0);
    assert_eq!(session.wait(event).status, 0);
    assert_eq!(&session.bytes(queue, buffer, 0, 4)[..], [3; 4]);
}
