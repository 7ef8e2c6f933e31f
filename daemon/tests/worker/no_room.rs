//! Tests a session at its limit of objects, and a driver that fails to create objects: the client gets the reason
//! with the code, and goes on.

use std::fmt::Write;

use causeway_proto::command::{Marker, ObjectKind, command::Kind, enqueue, *};

use crate::common::{Daemon, Session, launch, memory};

const OUT_OF_HOST_MEMORY: i32 = -6;
const OBJECTS: usize = 50;

fn limited() -> (tempfile::NamedTempFile, Daemon) {
    let limits = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(limits.path(), format!("[sessions]\nobjects = {OBJECTS}\n")).unwrap();
    let daemon = Daemon::with_arguments(&["--config", limits.path().to_str().unwrap()]);
    (limits, daemon)
}

fn notice_of(session: &Session, id: u64) -> &Notice {
    let mut notices = session.heard.notices.iter();
    notices.find(|notice| notice.id == id).expect("a notice")
}

#[test]
fn objects_beyond_the_limit_are_failures_and_the_session_goes_on() {
    let (_limits, daemon) = limited();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let source = "kernel void put(global int *x) { x[0] = 7; }";
    let (program, _) = session.build(context, source, "");
    let kernel = session.kernel(program, "put");
    let first = session.buffer(context, 4, &[1, 2, 3, 4]);
    let mut buffers: Vec<u64> = (0..20 * OBJECTS)
        .map(|_| session.buffer(context, 4, &[]))
        .collect();
    let queue_beyond = session.queue(context, 0);
    let kernel_beyond = session.kernel(program, "put");
    let (program_beyond, answer) = session.build(context, source, "");
    assert_eq!(answer.status, OUT_OF_HOST_MEMORY);
    session.ping();
    let last = *buffers.last().unwrap();
    for id in [last, queue_beyond, kernel_beyond, program_beyond] {
        let notice = notice_of(&session, id);
        assert_eq!(notice.status, OUT_OF_HOST_MEMORY);
        let told = &notice.message;
        assert!(told.ends_with(": CL_OUT_OF_HOST_MEMORY (-6)"), "{told}");
    }
    // Commands that use them fail, also because an event would be one object more.
    let failed = session.enqueue(queue, &[], launch(kernel, vec![memory(last)], &[1], &[]));
    assert_eq!(session.wait(failed).status, OUT_OF_HOST_MEMORY);
    session.release(ObjectKind::Event, failed);
    for buffer in buffers.drain(..) {
        session.release(ObjectKind::Memory, buffer);
    }
    // There is room again.
    let good = session.enqueue(queue, &[], launch(kernel, vec![memory(first)], &[1], &[]));
    assert_eq!(session.wait(good).status, 0);
    assert_eq!(session.bytes(queue, first, 0, 4)[..], 7i32.to_ne_bytes());
}

#[test]
fn commands_beyond_the_limit_are_failures_without_end() {
    let (_limits, daemon) = limited();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let user_event = session.user_event();
    let marker = |event| {
        Kind::Enqueue(Enqueue {
            event,
            queue,
            wait: vec![user_event],
            operation: Some(enqueue::Operation::Marker(Marker {})),
            ..Enqueue::default()
        })
    };
    let events: Vec<u64> = (0..20 * OBJECTS).map(|_| session.new_id()).collect();
    session.send(events.iter().map(|event| marker(*event)).collect());
    let last = *events.last().unwrap();
    assert_eq!(session.wait(last).status, OUT_OF_HOST_MEMORY);
    session.set(user_event, 0);
    assert_eq!(session.wait(events[0]).status, 0);
    session.ping();
}

/// Starts a daemon whose driver returns this code at these calls for a context.
fn failing(code: i32, calls: &[u32]) -> Daemon {
    let mut rules = String::new();
    for at in calls {
        let name = "clCreateContext";
        let rule = format!("[[call]]\nname = \"{name}\"\nat = {at}\nfail = {code}\n");
        rules.write_str(&rule).unwrap();
    }
    Daemon::fake_with("", &[], &[("FAKE_OPENCL_CONFIG", &rules)])
}

#[test]
fn a_context_is_made_when_what_the_driver_lacked_is_there() {
    for code in [-5, -9999] {
        let daemon = failing(code, &[1, 2]);
        let mut session = daemon.session();
        let context = session.context();
        let queue = session.queue(context, 0);
        let buffer = session.buffer(context, 4, &[1, 2, 3, 4]);
        assert_eq!(session.bytes(queue, buffer, 0, 4)[..], [1, 2, 3, 4]);
        assert!(session.heard.notices.is_empty());
    }
}

#[test]
fn a_context_that_cannot_be_made_is_told_with_the_drivers_code() {
    let text = |code, calls: &[u32]| {
        let daemon = failing(code, calls);
        let mut session = daemon.session();
        let context = session.context();
        session.ping();
        let notice = notice_of(&session, context).clone();
        assert_eq!(notice.status, code);
        notice.message
    };
    let lasting = text(-9999, &[1, 2, 3, 4, 5, 6]);
    assert!(
        lasting.ends_with(": code -9999, a driver's own"),
        "{lasting}"
    );
    // A permanent failure is not retried.
    let refused = text(-33, &[1]);
    assert!(refused.ends_with(": CL_INVALID_DEVICE (-33)"), "{refused}");
}
