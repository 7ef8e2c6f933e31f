//! Tests that faults stay in their session: kernels that crash, clients that break the protocol.

use causeway_proto::command::{command::Kind, *};

use crate::common::{Daemon, Session, Told, launch, linear, memory, plain, read, write};

/// Runs a faulty kernel. Its worker may die, or its driver may survive (PoCL catches a division by zero). With
/// `dies`, the worker must die.
fn fault(dies: bool, source: &str, args: impl Fn(&mut Session, u64) -> Vec<kernel_arg::Value>) {
    let daemon = Daemon::start();
    let mut bystander = daemon.session();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let (program, answer) = session.build(context, source, "-cl-opt-disable");
    assert_eq!(answer.status, 0, "{answer:?}");
    let kernel = session.kernel(program, "fault");
    let args = args(&mut session, context);
    let event = session.enqueue(queue, &[], launch(kernel, args, &[1], &[]));
    while !session.heard.completions.contains_key(&event) && session.hear() {}
    assert!(!dies || session.heard.completions.is_empty());
    // The other session is unaffected, and there is room for a new one.
    bystander.ping();
    let context = bystander.context();
    let queue = bystander.queue(context, 0);
    let buffer = bystander.buffer(context, 2, b"ok");
    assert_eq!(&bystander.bytes(queue, buffer, 0, 2)[..], b"ok");
    daemon.session().ping();
}

#[test]
fn a_division_by_zero_disturbs_no_other_session() {
    fault(
        false,
        "kernel void fault(global int *x, int zero) { x[0] = 1 / zero; x[0] = x[0] % zero; }",
        |session, context| {
            let buffer = session.buffer(context, 4, &[]);
            vec![memory(buffer), plain(&[0; 4])]
        },
    );
}

#[test]
fn an_access_out_of_bounds_ends_its_own_worker() {
    fault(
        true,
        "kernel void fault(global int *x, long far) { x[far] = 1; }",
        |session, context| {
            let buffer = session.buffer(context, 4, &[]);
            vec![memory(buffer), plain(&(1i64 << 44).to_ne_bytes())]
        },
    );
}

#[test]
fn a_client_that_breaks_the_protocol_loses_its_session_only() {
    let daemon = Daemon::start();
    let mut bystander = daemon.session();
    let release = |object: i32, id| Kind::Release(Release { object, id });
    let bad: Vec<Vec<Kind>> = vec![
        vec![Kind::CreateQueue(CreateQueue {
            queue: 1,
            context: 77,
            ..CreateQueue::default()
        })],
        vec![Kind::CreateContext(CreateContext {
            context: 1,
            platform: 99,
            devices: vec![0],
        })],
        vec![Kind::CreateContext(CreateContext {
            context: 1,
            platform: 0,
            devices: vec![1 << 20],
        })],
        vec![
            Kind::CreateUserEvent(CreateUserEvent { event: 5 }),
            Kind::CreateUserEvent(CreateUserEvent { event: 5 }),
        ],
        vec![Kind::SetUserEventStatus(SetUserEventStatus {
            event: 5,
            status: 0,
        })],
        vec![release(99, 1)],
        vec![Kind::Enqueue(Enqueue::default())],
        vec![Kind::Query(Query::default())],
    ];
    for commands in bad {
        let mut session = daemon.session();
        session.send(commands);
        session.ends();
    }
    let mut session = daemon.session();
    session.send_raw(&CommandBatch {
        commands: vec![Command { kind: None }],
        first: 2,
        ..Default::default()
    });
    session.ends();
    bystander.ping();
}

#[test]
fn regions_outside_a_buffer_are_errors_of_their_commands() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, 16, &[0; 16]);
    let wrong = [
        session.write(queue, &[], buffer, 13, &[1; 4]),
        session.read(queue, &[], buffer, 1 << 40, 4),
        session.enqueue(queue, &[], read(buffer, linear(8, 1 << 30), true)),
        session.enqueue(queue, &[], write(buffer, linear(8, 1 << 30), None)),
    ];
    for event in wrong {
        assert_eq!(session.wait(event).status, -30);
    }
    assert_eq!(&session.bytes(queue, buffer, 0, 16)[..], [0; 16]);
}

#[test]
fn an_object_that_cannot_be_made_breaks_what_uses_it_and_is_told() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let huge = session.buffer(context, 1 << 60, &[]);
    let event = session.write(queue, &[], huge, 0, &[1; 4]);
    let after = session.buffer(context, 4, &[1, 2, 3, 4]);
    assert!(session.wait(event).status < 0);
    let notice = session.heard.notices[0].clone();
    assert_eq!(
        (notice.object, notice.id),
        (ObjectKind::Memory.into(), huge)
    );
    assert!(notice.status < 0);
    assert_eq!(notice.context, context);
    assert_eq!(&session.bytes(queue, after, 0, 4)[..], [1, 2, 3, 4]);
}

#[test]
fn printed_text_comes_before_the_completion() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let source = "kernel void say(int n) { printf(\"line %d\\n\", n); }";
    let (program, answer) = session.build(context, source, "");
    assert_eq!(answer.status, 0, "{answer:?}");
    let kernel = session.kernel(program, "say");
    for n in 0..20i32 {
        let args = vec![plain(&n.to_ne_bytes())];
        let event = session.enqueue(queue, &[], launch(kernel, args, &[1], &[]));
        assert_eq!(session.wait(event).status, 0);
        let at = session
            .heard
            .order
            .iter()
            .position(|t| *t == Told::Ended(event))
            .unwrap();
        let before: String = session.heard.order[..at]
            .iter()
            .filter_map(|t| match t {
                Told::Printed(text) => Some(text.as_str()),
                Told::Ended(_) => None,
            })
            .collect();
        assert!(before.ends_with(&format!("line {n}\n")), "{before:?}");
    }
}
