//! Tests that successful commands need nothing in the worker, whether the client releases their events or not. They
//! count against no limit, and a wait list that names them waits for its other events.

use causeway_proto::command::{Marker, enqueue};

use crate::common::{Daemon, Session};

const OUT_OF_ORDER: u64 = 1;
const WAIT_LIST_FAILED: i32 = -14;
/// Limit on objects, far below the number of events of each test.
const OBJECTS: usize = 50;
const EVENTS: usize = 20 * OBJECTS;

fn daemon() -> (tempfile::NamedTempFile, Daemon) {
    let limits = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(limits.path(), format!("[sessions]\nobjects = {OBJECTS}\n")).unwrap();
    let daemon = Daemon::with_arguments(&["--config", limits.path().to_str().unwrap()]);
    (limits, daemon)
}

fn marker(session: &mut Session, queue: u64, wait: &[u64]) -> u64 {
    session.enqueue(queue, wait, enqueue::Operation::Marker(Marker {}))
}

#[test]
fn events_that_nobody_releases_do_not_fill_the_session() {
    let (_limits, daemon) = daemon();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let first = marker(&mut session, queue, &[]);
    assert_eq!(session.wait(first).status, 0);
    let mut last = first;
    for _ in 0..EVENTS {
        let user = session.user_event();
        let next = marker(&mut session, queue, &[user, first, last]);
        session.set(user, 0);
        assert_eq!(session.wait(next).status, 0);
        last = next;
    }
    session.ping();
}

#[test]
fn a_failed_event_fails_whoever_names_it_however_many_have_ended_since() {
    let (_limits, daemon) = daemon();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    let failed = session.user_event();
    session.set(failed, -1);
    for _ in 0..EVENTS {
        let next = marker(&mut session, queue, &[]);
        assert_eq!(session.wait(next).status, 0);
    }
    let cancelled = marker(&mut session, queue, &[failed]);
    assert_eq!(session.wait(cancelled).status, WAIT_LIST_FAILED);
}

#[test]
fn a_marker_after_what_has_ended_waits_for_nothing_held() {
    let (_limits, daemon) = daemon();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, OUT_OF_ORDER);
    let ended = marker(&mut session, queue, &[]);
    assert_eq!(session.wait(ended).status, 0);
    let user_event = session.user_event();
    let held = marker(&mut session, queue, &[user_event]);
    session.ping();
    let free = marker(&mut session, queue, &[ended]);
    assert_eq!(session.wait(free).status, 0);
    assert!(!session.heard.completions.contains_key(&held));
    session.set(user_event, 0);
    assert_eq!(session.wait(held).status, 0);
}

#[test]
fn what_never_was_still_ends_the_session() {
    let (_limits, daemon) = daemon();
    let mut session = daemon.session();
    let context = session.context();
    let queue = session.queue(context, 0);
    marker(&mut session, queue, &[u64::MAX]);
    session.ends();
}
