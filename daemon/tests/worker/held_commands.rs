//! Tests of commands behind an unset user event: the worker withholds them with their successors, releases them in
//! order, cancels them after a failure, and gives none to the driver meanwhile.

use causeway_proto::command::{Barrier, FillBuffer, Marker, ObjectKind, command::Kind, enqueue, *};

use crate::common::{Daemon, Session, launch, memory, plain};

const OUT_OF_ORDER: u64 = 1;
const WAIT_LIST_FAILED: i32 = -14;

fn open(daemon: &Daemon, bits: u64) -> (Session, u64, u64, u64) {
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, bits);
    let buffer = session.buffer(context, 64, &[0; 64]);
    (session, context, queue, buffer)
}

#[test]
fn releases_and_later_changes_do_not_touch_what_is_held() {
    let daemon = Daemon::start();
    let (mut session, context, queue, buffer) = open(&daemon, 0);
    let source = "kernel void put(global int *x, int i, int v) { x[i] = v; }";
    let (program, _) = session.build(context, source, "");
    let kernel = session.kernel(program, "put");
    let user_event = session.user_event();
    let put = |session: &mut Session, wait: &[u64], i: i32, v: i32| {
        let args = vec![
            memory(buffer),
            plain(&i.to_ne_bytes()),
            plain(&v.to_ne_bytes()),
        ];
        session.enqueue(queue, wait, launch(kernel, args, &[1], &[]))
    };
    let first = put(&mut session, &[user_event], 0, 10);
    let second = put(&mut session, &[], 1, 20);
    // The arguments change while the launches are withheld.
    let third = put(&mut session, &[], 0, 30);
    let other = session.buffer(context, 4, &[9, 9, 9, 9]);
    let unrelated = session.queue(context, 0);
    assert_eq!(&session.bytes(unrelated, other, 0, 4)[..], [9; 4]);
    let read = session.read(queue, &[], buffer, 0, 8);
    for (kind, id) in [
        (ObjectKind::Kernel, kernel),
        (ObjectKind::Program, program),
        (ObjectKind::Memory, buffer),
        (ObjectKind::Queue, queue),
        (ObjectKind::Event, first),
        (ObjectKind::Event, second),
    ] {
        session.release(kind, id);
    }
    session.ping();
    assert!(!session.heard.completions.contains_key(&first));
    session.set(user_event, 0);
    let done = session.wait(read);
    assert_eq!(done.status, 0, "{}", done.message);
    let values: Vec<i32> = done
        .contents
        .chunks_exact(4)
        .map(|c| i32::from_ne_bytes(c.try_into().unwrap()))
        .collect();
    assert_eq!(values, [30, 20]);
    assert_eq!(session.wait(third).status, 0);
}

#[test]
fn a_failed_user_event_cancels_what_waits_for_it_and_nothing_else() {
    let daemon = Daemon::start();
    let (mut session, _, queue, buffer) = open(&daemon, 0);
    let user_event = session.user_event();
    let doomed = session.write(queue, &[user_event], buffer, 0, &[1; 4]);
    let behind = session.write(queue, &[doomed], buffer, 4, &[2; 4]);
    let successor = session.write(queue, &[], buffer, 8, &[3; 4]);
    session.set(user_event, -42);
    assert_eq!(session.wait(doomed).status, WAIT_LIST_FAILED);
    assert_eq!(session.wait(behind).status, WAIT_LIST_FAILED);
    assert_eq!(session.wait(successor).status, 0);
    // A command that names the failed event only now fails too.
    let late = session.write(queue, &[doomed], buffer, 0, &[4; 4]);
    assert_eq!(session.wait(late).status, WAIT_LIST_FAILED);
    assert_eq!(
        &session.bytes(queue, buffer, 0, 12)[..],
        [0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3]
    );
}

#[test]
fn markers_and_barriers_order_an_out_of_order_queue() {
    let daemon = Daemon::start();
    let (mut session, _, queue, buffer) = open(&daemon, OUT_OF_ORDER);
    let user_event = session.user_event();
    let gated = session.write(queue, &[user_event], buffer, 0, &[1; 4]);
    let free = session.write(queue, &[], buffer, 4, &[2; 4]);
    assert_eq!(session.wait(free).status, 0);
    let all = session.enqueue(queue, &[], enqueue::Operation::Marker(Marker {}));
    let some = session.enqueue(queue, &[free], enqueue::Operation::Marker(Marker {}));
    assert_eq!(session.wait(some).status, 0);
    let barrier = session.enqueue(queue, &[], enqueue::Operation::Barrier(Barrier {}));
    let after = session.read(queue, &[], buffer, 0, 4);
    session.ping();
    for held in [gated, all, barrier, after] {
        assert!(!session.heard.completions.contains_key(&held));
    }
    session.set(user_event, 0);
    assert_eq!(session.wait(all).status, 0);
    assert_eq!(session.wait(barrier).status, 0);
    assert_eq!(&session.wait(after).contents[..], [1; 4]);
}

#[test]
fn a_flood_behind_one_user_event_is_held_and_then_runs() {
    const COUNT: u64 = 100_000;
    let daemon = Daemon::start();
    let (mut session, _, queue, buffer) = open(&daemon, 0);
    let user_event = session.user_event();
    let first = session.new_id();
    let fill = |event, wait: Vec<u64>| {
        Kind::Enqueue(Enqueue {
            event,
            queue,
            wait,
            unobserved: false,
            operation: Some(enqueue::Operation::FillBuffer(FillBuffer {
                buffer,
                pattern: vec![7].into(),
                offset: 0,
                size: 64,
            })),
        })
    };
    let mut commands = vec![fill(first, vec![user_event])];
    let mut last = first;
    for _ in 1..COUNT {
        last = session.new_id();
        commands.push(fill(last, vec![]));
    }
    session.send(commands);
    session.ping();
    assert!(session.heard.completions.is_empty());
    session.set(user_event, 0);
    assert_eq!(session.wait(last).status, 0);
    assert_eq!(session.heard.completions.len() as u64, COUNT);
    assert_eq!(&session.bytes(queue, buffer, 0, 64)[..], [7; 64]);
}

#[test]
fn a_command_beyond_the_number_of_objects_fails_and_may_still_be_named() {
    let limits = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(limits.path(), "[sessions]\nobjects = 10\n").unwrap();
    let daemon = Daemon::with_arguments(&["--config", limits.path().to_str().unwrap()]);
    let (mut session, _, queue, _) = open(&daemon, 0);
    let user_event = session.user_event();
    let marker = || enqueue::Operation::Marker(Marker {});
    let held: Vec<u64> = (0..6)
        .map(|_| session.enqueue(queue, &[user_event], marker()))
        .collect();
    let beyond = session.enqueue(queue, &[], marker());
    assert_eq!(session.wait(beyond).status, -6);
    for event in &held[4..] {
        session.release(ObjectKind::Event, *event);
    }
    session.set(user_event, 0);
    assert_eq!(session.wait(held[5]).status, 0);
    let after = session.enqueue(queue, &[beyond], marker());
    assert_eq!(session.wait(after).status, WAIT_LIST_FAILED);
    session.ping();
}

#[test]
fn too_much_held_ends_in_out_of_host_memory() {
    let limits = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(limits.path(), "[sessions]\nheld_commands = 10\n").unwrap();
    let daemon = Daemon::with_arguments(&["--config", limits.path().to_str().unwrap()]);
    let (mut session, _, queue, buffer) = open(&daemon, 0);
    let user_event = session.user_event();
    let held: Vec<u64> = (0..12)
        .map(|_| session.write(queue, &[user_event], buffer, 0, &[5; 4]))
        .collect();
    assert_eq!(session.wait(held[10]).status, -6);
    assert_eq!(session.wait(held[11]).status, -6);
    session.set(user_event, 0);
    for event in &held[..10] {
        assert_eq!(session.wait(*event).status, 0);
    }
}

#[test]
fn profiling_times_of_what_was_held_are_the_devices() {
    let daemon = Daemon::start();
    let (mut session, _, queue, buffer) = open(&daemon, 2);
    let user_event = session.user_event();
    let event = session.write(queue, &[user_event], buffer, 0, &[1; 4]);
    session.set(user_event, 0);
    let done = session.wait(event);
    assert!(0 < done.queued && done.queued <= done.submitted && done.submitted <= done.started);
    assert!(done.started <= done.ended);
}
