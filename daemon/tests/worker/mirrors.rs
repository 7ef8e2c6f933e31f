//! Tests of mirrors: events of one site that represent events of another. The other worker's message ends them, or
//! the client's, or both.

use std::time::{Duration, Instant};

use causeway_proto::command::{ObjectKind, command::Kind, *};
use prost::bytes::Bytes;

use crate::common::{Daemon, Session, launch, memory};

const LINK: u64 = 5;
const WAIT_LIST_FAILED: i32 = -14;
/// A slow kernel, and a kernel that fails.
const SETTINGS: &str = "instant = true\nkernel.slow.ns = 200000000\nkernel.bad.fail = -5";
const SOURCE: &str = "kernel void slow(global int *x) { } kernel void bad(global int *x) { }";

/// A session with the objects that commands need.
struct Site {
    session: Session,
    context: u64,
    queue: u64,
    buffer: u64,
}

impl Site {
    fn new(daemon: &Daemon) -> Site {
        let mut session = daemon.session();
        let context = session.context();
        let queue = session.queue(context, 0);
        let buffer = session.buffer(context, 64, &[0; 64]);
        Site {
            session,
            context,
            queue,
            buffer,
        }
    }

    /// Enqueues a command that waits for `wait`.
    fn command(&mut self, wait: &[u64]) -> u64 {
        self.session.write(self.queue, wait, self.buffer, 0, b"x")
    }

    fn kernel(&mut self, name: &str) -> u64 {
        let (program, answer) = self.session.build(self.context, SOURCE, "");
        assert_eq!(answer.status, 0);
        self.session.kernel(program, name)
    }

    fn launch(&mut self, kernel: u64) -> u64 {
        let operation = launch(kernel, vec![memory(self.buffer)], &[1], &[]);
        self.session.enqueue(self.queue, &[], operation)
    }

    fn mirror(&mut self) -> u64 {
        let mirror = self.session.new_id();
        self.session.send(vec![Kind::CreateMirror(CreateMirror {
            mirror,
            link: LINK,
        })]);
        mirror
    }

    fn tell(&mut self, event: u64, mirror: u64, link: u64) {
        self.session.send(vec![Kind::TellEvent(TellEvent {
            event,
            mirror,
            link,
            order_only: false,
        })]);
    }

    fn status(&mut self, event: u64) -> i32 {
        self.session.wait(event).status
    }

    fn is_open(&mut self, event: u64) -> bool {
        self.session.ping();
        !self.session.heard.completions.contains_key(&event)
    }

    fn add_link(&mut self, peer: &Site, daemon: &Daemon, dial: bool) {
        self.session.send(vec![Kind::AddLink(AddLink {
            link: LINK,
            session: Bytes::copy_from_slice(&peer.session.id().0),
            secret: Bytes::from_static(&[3; 32]),
            addresses: vec![daemon.address.clone()],
            dial,
            ..AddLink::default()
        })]);
    }
}

/// Two nodes with a link between them.
struct Pair {
    a: Site,
    b: Site,
    _daemons: [Daemon; 2],
}

fn pair() -> Pair {
    let daemons = [Daemon::fake(SETTINGS), Daemon::fake(SETTINGS)];
    let (mut a, mut b) = (Site::new(&daemons[0]), Site::new(&daemons[1]));
    a.add_link(&b, &daemons[1], true);
    b.add_link(&a, &daemons[0], false);
    assert!(a.session.link_state(LINK, 0).up);
    assert!(b.session.link_state(LINK, 0).up);
    Pair {
        a,
        b,
        _daemons: daemons,
    }
}

#[test]
fn the_other_worker_ends_a_mirror_without_the_client() {
    let Pair {
        mut a,
        mut b,
        _daemons,
    } = pair();
    // This mirror is requested before the event's end.
    let user_event = a.session.user_event();
    let event = a.command(&[user_event]);
    let mirror = b.mirror();
    a.tell(event, mirror, LINK);
    let dependent = b.command(&[mirror]);
    let successor = b.command(&[]);
    assert!(a.is_open(event) && b.is_open(dependent) && b.is_open(successor));
    a.session.set(user_event, 0);
    assert_eq!(b.status(dependent), 0);
    assert_eq!(b.status(successor), 0);
    // This mirror is requested after the event's end.
    let mirror = b.mirror();
    a.tell(event, mirror, LINK);
    let dependent = b.command(&[mirror]);
    assert_eq!(b.status(dependent), 0);
    // User events and mirrors can have mirrors too.
    let (there, back) = (b.mirror(), a.mirror());
    let user_event = a.session.user_event();
    a.tell(user_event, there, LINK);
    b.tell(there, back, LINK);
    let dependent = a.command(&[back]);
    assert!(a.is_open(dependent));
    a.session.set(user_event, 0);
    assert_eq!(a.status(dependent), 0);
}

#[test]
fn an_event_ends_with_its_command_and_not_with_its_enqueue() {
    let Pair {
        mut a,
        mut b,
        _daemons,
    } = pair();
    let kernel = a.kernel("slow");
    let mirror = b.mirror();
    let dependent = b.command(&[mirror]);
    b.session.ping();
    let begun = Instant::now();
    let event = a.launch(kernel);
    a.tell(event, mirror, LINK);
    assert_eq!(b.status(dependent), 0);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(a.status(event), 0);
}

#[test]
fn a_failure_cancels_what_waits_on_the_other_node() {
    let Pair {
        mut a,
        mut b,
        _daemons,
    } = pair();
    let kernel = a.kernel("bad");
    let mirror = b.mirror();
    let event = a.launch(kernel);
    a.tell(event, mirror, LINK);
    let dependent = b.command(&[mirror]);
    let behind = b.command(&[dependent]);
    let successor = b.command(&[]);
    assert_eq!(a.status(event), -5);
    assert_eq!(b.status(dependent), WAIT_LIST_FAILED);
    assert_eq!(b.status(behind), WAIT_LIST_FAILED);
    assert_eq!(b.status(successor), 0);
    // A cancelled command ends its mirror, and the mirror's mirror.
    let back = a.mirror();
    b.tell(behind, back, LINK);
    let last = a.command(&[back]);
    assert_eq!(a.status(last), WAIT_LIST_FAILED);
}

#[test]
fn the_first_word_counts() {
    let Pair {
        mut a,
        mut b,
        _daemons,
    } = pair();
    let (one, other) = (b.mirror(), b.mirror());
    let user_event = a.session.user_event();
    a.tell(user_event, one, LINK);
    a.tell(user_event, other, LINK);
    let (first, second) = (b.command(&[one]), b.command(&[other]));
    // The client's message comes before the worker's.
    b.session.set(one, -7);
    assert_eq!(b.status(first), WAIT_LIST_FAILED);
    a.session.set(user_event, 0);
    assert_eq!(b.status(second), 0);
    // The client's message comes after the worker's, twice.
    b.session.set(other, -7);
    b.session.set(other, 0);
    b.session.set(one, 0);
    let (first, second) = (b.command(&[one]), b.command(&[other]));
    assert_eq!(b.status(first), WAIT_LIST_FAILED);
    assert_eq!(b.status(second), 0);
}

#[test]
fn a_mirror_may_be_released_before_its_end() {
    let Pair {
        mut a,
        mut b,
        _daemons,
    } = pair();
    let user_events = [a.session.user_event(), a.session.user_event()];
    let mirrors = [b.mirror(), b.mirror()];
    let dependents = mirrors.map(|mirror| b.command(&[mirror]));
    for mirror in mirrors {
        b.session.release(ObjectKind::Event, mirror);
    }
    for (user_event, mirror) in user_events.into_iter().zip(mirrors) {
        a.tell(user_event, mirror, LINK);
    }
    a.session.set(user_events[0], 0);
    assert_eq!(b.status(dependents[0]), 0);
    b.session.set(mirrors[1], 0);
    assert_eq!(b.status(dependents[1]), 0);
    // Both mirrors are gone, and late messages of both senders have no effect.
    b.session.set(mirrors[0], 0);
    a.session.set(user_events[1], -1);
    let (event, mirror) = (a.command(&[]), b.mirror());
    a.tell(event, mirror, LINK);
    let dependent = b.command(&[mirror]);
    assert_eq!(b.status(dependent), 0);
}

#[test]
fn a_word_may_come_before_the_mirror() {
    let Pair {
        mut a,
        mut b,
        _daemons,
    } = pair();
    let event = a.command(&[]);
    let early = b.session.new_id();
    let known = b.mirror();
    a.tell(event, early, LINK);
    a.tell(event, known, LINK);
    let after = b.command(&[known]);
    // Messages of one link arrive in their order.
    assert_eq!(b.status(after), 0);
    b.session.send(vec![Kind::CreateMirror(CreateMirror {
        mirror: early,
        link: LINK,
    })]);
    let dependent = b.command(&[early]);
    assert_eq!(b.status(dependent), 0);
}

#[test]
fn words_wait_for_the_link() {
    let daemons = [Daemon::fake(SETTINGS), Daemon::fake(SETTINGS)];
    let (mut a, mut b) = (Site::new(&daemons[0]), Site::new(&daemons[1]));
    a.add_link(&b, &daemons[1], true);
    let (event, mirror) = (a.command(&[]), b.mirror());
    a.tell(event, mirror, LINK);
    let dependent = b.command(&[mirror]);
    assert_eq!(a.status(event), 0);
    assert!(b.is_open(dependent));
    b.add_link(&a, &daemons[0], false);
    assert_eq!(b.status(dependent), 0);
}

#[test]
fn without_a_link_the_client_says_it() {
    let daemons = [Daemon::fake(SETTINGS), Daemon::fake(SETTINGS)];
    let (mut a, mut b) = (Site::new(&daemons[0]), Site::new(&daemons[1]));
    a.add_link(&b, &daemons[1], false);
    b.add_link(&a, &daemons[0], false);
    a.session
        .send(vec![Kind::RouteViaClient(RouteViaClient { link: LINK })]);
    let (event, mirror) = (a.command(&[]), b.mirror());
    a.tell(event, mirror, LINK);
    let dependent = b.command(&[mirror]);
    assert_eq!(a.status(event), 0);
    assert!(b.is_open(dependent));
    b.session.set(mirror, 0);
    assert_eq!(b.status(dependent), 0);
}

#[test]
fn two_contexts_of_one_worker() {
    let daemon = Daemon::fake(&format!(
        "{SETTINGS}\n[[device]]\nplatform = 0\n[[device]]\nplatform = 1"
    ));
    let mut site = Site::new(&daemon);
    let context = site.session.new_id();
    site.session.send(vec![Kind::CreateContext(CreateContext {
        context,
        platform: 1,
        devices: vec![0],
    })]);
    let queue = site.session.queue(context, 0);
    let buffer = site.session.buffer(context, 4, &[0; 4]);
    let kernel = site.kernel("slow");
    let mirror = site.mirror();
    let dependent = site.session.write(queue, &[mirror], buffer, 0, b"x");
    let event = site.launch(kernel);
    site.tell(event, mirror, 0);
    assert!(site.is_open(dependent));
    assert_eq!(site.status(dependent), 0);
    assert_eq!(site.status(event), 0);
    assert!(site.session.heard.notices.is_empty());
}

#[test]
fn mirrors_of_mirrors_end_however_many_there_are() {
    const CHAIN: usize = 20_000;
    let daemon = Daemon::fake(SETTINGS);
    let mut site = Site::new(&daemon);
    for status in [0, -3] {
        let user_event = site.session.user_event();
        let mut last = user_event;
        for _ in 0..CHAIN {
            let mirror = site.mirror();
            site.tell(last, mirror, 0);
            last = mirror;
        }
        let dependent = site.command(&[last]);
        assert!(site.is_open(dependent));
        site.session.set(user_event, status);
        let expected = if status == 0 { 0 } else { WAIT_LIST_FAILED };
        assert_eq!(site.status(dependent), expected);
    }
}

#[test]
fn a_broken_link_leaves_mirrors_to_the_client() {
    let Pair {
        mut a,
        mut b,
        _daemons,
    } = pair();
    let user_event = a.session.user_event();
    let mirror = b.mirror();
    a.tell(user_event, mirror, LINK);
    let dependent = b.command(&[mirror]);
    b.session.ping();
    drop(a);
    assert!(!b.session.link_state(LINK, 1).up);
    assert!(b.is_open(dependent));
    b.session.set(mirror, -2);
    assert_eq!(b.status(dependent), WAIT_LIST_FAILED);
}

#[test]
fn a_node_may_play_ball_with_another() {
    const TURNS: usize = 500;
    let Pair {
        mut a,
        mut b,
        _daemons,
    } = pair();
    // Each command waits for the previous one, on the other node. All are sent before the first may run.
    let user_event = a.session.user_event();
    let mut before = a.command(&[user_event]);
    for turn in 0..TURNS {
        let (from, to) = if turn % 2 == 0 {
            (&mut a, &mut b)
        } else {
            (&mut b, &mut a)
        };
        let mirror = to.mirror();
        from.tell(before, mirror, LINK);
        before = to.command(&[mirror]);
    }
    let begun = Instant::now();
    a.session.set(user_event, 0);
    assert_eq!(a.status(before), 0);
    println!("{:?} a turn", begun.elapsed() / TURNS as u32);
}
