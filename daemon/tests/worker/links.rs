//! Tests of links between the workers of two nodes: how they begin, which peers are refused, how they end.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use causeway_proto::bulk::Header;
use causeway_proto::command::{
    AddLink, CreateMirror, DialLink, RouteViaClient, SetUserEventStatus, TellEvent, command::Kind,
};
use causeway_proto::id::{EventId, SessionSecret};
use causeway_proto::limits::LINK_LANES;
use causeway_proto::preamble::{EVENT_LANE, Preamble, Purpose, Verdict};
use prost::bytes::Bytes;

use crate::common::cutter::Cutter;
use crate::common::{Daemon, LIMIT, Session, connect_as};

const LINK: u64 = 77;
const SECRET: [u8; 32] = [9; 32];

fn two() -> (Daemon, Daemon) {
    (
        Daemon::fake("instant = true"),
        Daemon::fake("instant = true"),
    )
}

/// Adds a link to `peer` in `session`.
fn add(session: &mut Session, peer: &Session, secret: [u8; 32], addresses: &[&str], dial: bool) {
    session.send(vec![Kind::AddLink(AddLink {
        link: LINK,
        session: Bytes::copy_from_slice(&peer.id().0),
        secret: Bytes::copy_from_slice(&secret),
        addresses: addresses.iter().map(|a| (*a).to_owned()).collect(),
        dial,
        ..AddLink::default()
    })]);
}

fn dial(session: &mut Session) {
    session.send(vec![Kind::DialLink(DialLink { link: LINK })]);
}

fn is_up(session: &mut Session, after: usize) {
    let state = session.link_state(LINK, after);
    assert!(state.up, "{}", state.reason);
}

fn is_down(session: &mut Session, after: usize) -> String {
    let state = session.link_state(LINK, after);
    assert!(!state.up);
    state.reason
}

/// Returns an address at which nobody listens.
fn refused() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn either_end_may_dial_and_both_hear_of_it() {
    let (one, other) = two();
    for one_dials in [true, false] {
        let (mut a, mut b) = (one.session(), other.session());
        add(&mut a, &b, SECRET, &[&other.address], one_dials);
        add(&mut b, &a, SECRET, &[&one.address], !one_dials);
        is_up(&mut a, 0);
        is_up(&mut b, 0);
    }
}

#[test]
fn both_may_dial_at_once() {
    let (one, other) = two();
    for _ in 0..8 {
        let (mut a, mut b) = (one.session(), other.session());
        add(&mut a, &b, SECRET, &[&other.address], true);
        add(&mut b, &a, SECRET, &[&one.address], true);
        is_up(&mut a, 0);
        is_up(&mut b, 0);
        // A second message changes nothing.
        dial(&mut a);
        dial(&mut b);
        a.ping();
        b.ping();
        assert_eq!((a.heard.links.len(), b.heard.links.len()), (1, 1));
    }
}

#[test]
fn the_dialling_end_may_hear_of_the_link_long_before_the_other() {
    let (one, other) = two();
    let (mut a, mut b) = (one.session(), other.session());
    let way = Cutter::before(&other);
    add(&mut a, &b, SECRET, &[&way.address], true);
    // A dialer that is refused because the client's message is still missing tries again.
    way.accepted();
    way.accepted();
    add(&mut b, &a, SECRET, &[], false);
    is_up(&mut a, 0);
    is_up(&mut b, 0);
}

#[test]
fn the_address_that_leads_there_is_found_among_others() {
    let (one, other) = two();
    let (mut a, mut b) = (one.session(), other.session());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    // Addresses without a listener, with a silent one, invalid, of the wrong node, and of the right node.
    let addresses = [&refused(), &silent, "::", &one.address, &other.address];
    add(&mut a, &b, SECRET, &addresses, true);
    add(&mut b, &a, SECRET, &[], false);
    is_up(&mut a, 0);
    is_up(&mut b, 0);
}

#[test]
fn no_path_is_said_in_time_and_the_other_end_may_try() {
    let (one, other) = two();
    let (mut a, mut b) = (one.session(), other.session());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap().to_string();
    add(&mut a, &b, SECRET, &[&refused(), &silent_address], true);
    add(&mut b, &a, SECRET, &[&one.address], false);
    let reason = is_down(&mut a, 0);
    assert!(
        reason.contains(&silent_address) && reason.contains("refused"),
        "{reason}"
    );
    assert!(b.heard.links.is_empty());
    dial(&mut b);
    is_up(&mut b, 0);
    is_up(&mut a, 1);
}

#[test]
fn without_an_address_there_is_nothing_to_dial() {
    let (one, other) = two();
    let (mut a, b) = (one.session(), other.session());
    add(&mut a, &b, SECRET, &[], true);
    assert!(is_down(&mut a, 0).contains("no known address"));
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    let (one, other) = two();
    let (mut a, mut b) = (one.session(), other.session());
    add(&mut b, &a, SECRET, &[], false);
    add(&mut a, &b, [8; 32], &[&other.address], true);
    let reason = is_down(&mut a, 0);
    assert!(reason.contains("did not prove"), "{reason}");
    b.ping();
    assert!(b.heard.links.is_empty());
}

fn preamble(of: &Session, link: u64, lane: u8) -> Preamble {
    Preamble {
        purpose: Purpose::Peer,
        lane,
        session: of.id(),
        link,
    }
}

#[test]
fn a_stranger_waits_a_little_and_holds_nobody_up() {
    let daemon = Daemon::fake("instant = true");
    let mut session = daemon.session();
    session.ping();
    let secret = SessionSecret(SECRET);
    // Fewer connections than the supervisor accepts unauthenticated from one address.
    let strangers: Vec<_> = (0..48)
        .map(|link| {
            let (address, preamble) =
                (daemon.address.clone(), preamble(&session, link, EVENT_LANE));
            let secret = secret.clone();
            std::thread::spawn(move || connect_as(&address, &preamble, &secret).unwrap_err())
        })
        .collect();
    drop(session.lane(0));
    session.ping();
    for stranger in strangers {
        assert_eq!(stranger.join().unwrap(), Verdict::UnknownLink);
    }
}

/// The other end of a link, under the test's control.
struct Peer {
    events: std::net::TcpStream,
    _lanes: Vec<std::net::TcpStream>,
}

fn join(daemon: &Daemon, session: &Session) -> Peer {
    let secret = SessionSecret(SECRET);
    let open = |lane| connect_as(&daemon.address, &preamble(session, LINK, lane), &secret).unwrap();
    let events = open(EVENT_LANE);
    Peer {
        events,
        _lanes: (0..LINK_LANES).map(open).collect(),
    }
}

#[test]
fn a_place_is_taken_once_and_an_attempt_that_was_given_up_is_forgotten() {
    let (one, other) = two();
    let (mut a, b) = (one.session(), other.session());
    add(&mut a, &b, SECRET, &[], false);
    a.ping();
    let secret = SessionSecret(SECRET);
    let open = |lane| connect_as(&one.address, &preamble(&a, LINK, lane), &secret);
    assert_eq!(open(0).unwrap_err(), Verdict::TooMany, "events come first");
    let first = open(EVENT_LANE).unwrap();
    let _lane = open(0).unwrap();
    assert_eq!(open(0).unwrap_err(), Verdict::TooMany);
    assert_eq!(open(EVENT_LANE).unwrap_err(), Verdict::TooMany);
    assert_eq!(open(LINK_LANES).unwrap_err(), Verdict::Malformed);
    drop(first);
    let peer = join(&one, &a);
    is_up(&mut a, 0);
    let open = |lane| connect_as(&one.address, &preamble(&a, LINK, lane), &secret);
    assert_eq!(open(EVENT_LANE).unwrap_err(), Verdict::TooMany);
    drop(peer);
    is_down(&mut a, 1);
    // The link may come up again.
    let _peer = join(&one, &a);
    is_up(&mut a, 2);
}

#[test]
fn nonsense_from_the_other_end_costs_the_link_and_nothing_else() {
    let (one, other) = two();
    let b = other.session();
    let garbage: [&[u8]; 3] = [
        &[0x55; 64],
        // This header is not the end of an event.
        &Header::event(EventId(1), 1).encode(),
        &Header {
            kind: causeway_proto::bulk::Kind::Credit,
            ..Header::event(EventId(1), 0)
        }
        .encode(),
    ];
    for garbage in garbage {
        let mut a = one.session();
        add(&mut a, &b, SECRET, &[], false);
        a.ping();
        let mut peer = join(&one, &a);
        is_up(&mut a, 0);
        // A message for an unknown event is valid.
        let word = Header::event(EventId(1 << 60), -5).encode();
        peer.events.write_all(&word).unwrap();
        peer.events.write_all(garbage).unwrap();
        is_down(&mut a, 1);
        assert_eq!(peer.events.read(&mut [0]).unwrap_or(0), 0);
        a.ping();
    }
}

#[test]
fn who_is_at_the_other_end_of_one_link_speaks_for_no_mirror_of_another() {
    const OTHER: u64 = LINK + 1;
    let (one, other) = two();
    let (mut a, b) = (one.session(), other.session());
    add(&mut a, &b, SECRET, &[], false);
    let (known, early) = (a.new_id(), a.new_id());
    let mirror = |mirror| {
        Kind::CreateMirror(CreateMirror {
            mirror,
            link: OTHER,
        })
    };
    a.send(vec![mirror(known)]);
    a.ping();
    let mut peer = join(&one, &a);
    is_up(&mut a, 0);
    for event in [early, known] {
        let word = Header::event(EventId(event), -5).encode();
        peer.events.write_all(&word).unwrap();
    }
    is_down(&mut a, 1);
    a.send(vec![mirror(early)]);
    let context = a.context();
    let (queue, buffer) = (a.queue(context, 0), a.buffer(context, 4, b""));
    for event in [early, known] {
        let after = a.write(queue, &[event], buffer, 0, b"here");
        a.ping();
        assert!(!a.heard.completions.contains_key(&after));
        a.set(event, 0);
        assert_eq!(a.wait(after).status, 0);
    }
}

/// Returns the names of the worker's threads.
fn threads(session: &Session) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", session.worker())).unwrap();
    let names = tasks.map(|task| {
        let comm = task.unwrap().path().join("comm");
        std::fs::read_to_string(comm).unwrap_or_default()
    });
    names.collect()
}

#[test]
fn a_link_has_one_thread_that_dials() {
    let (one, other) = two();
    let (mut a, mut b) = (one.session(), other.session());
    add(&mut a, &b, SECRET, &[&other.address], false);
    add(&mut b, &a, SECRET, &[], false);
    a.ping();
    b.ping();
    // The worker waits for the other end's attempt, which makes no progress.
    let secret = SessionSecret(SECRET);
    let begun = connect_as(&one.address, &preamble(&a, LINK, EVENT_LANE), &secret).unwrap();
    dial(&mut a);
    // A thread sets its name after its start.
    let until = std::time::Instant::now() + LIMIT;
    while !threads(&a).iter().any(|name| name.trim() == "link-dial") {
        assert!(std::time::Instant::now() < until, "no end dials");
        std::thread::yield_now();
    }
    let before = threads(&a).len();
    for _ in 0..100 {
        dial(&mut a);
    }
    a.ping();
    assert!(threads(&a).len() <= before, "{:?}", threads(&a));
    drop(begun);
    is_up(&mut a, 0);
    is_up(&mut b, 0);
}

#[test]
fn the_death_of_the_other_end_is_noticed() {
    let (one, other) = two();
    let (mut a, mut b) = (one.session(), other.session());
    add(&mut a, &b, SECRET, &[&other.address], true);
    add(&mut b, &a, SECRET, &[], false);
    is_up(&mut a, 0);
    is_up(&mut b, 0);
    let pid = rustix::process::Pid::from_raw(b.worker().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    is_down(&mut a, 1);
    let context = a.context();
    let queue = a.queue(context, 0);
    let buffer = a.buffer(context, 4, b"here");
    assert_eq!(&a.bytes(queue, buffer, 0, 4)[..], b"here");
}

/// Distinguishes the inner run from a manual `--ignored`.
const INSIDE: &str = "CAUSEWAY_TEST_INSIDE_NAMESPACE";

#[test]
fn a_cut_between_the_nodes_is_noticed_in_time() {
    let possible = Command::new("unshare").args(["-n", "true"]).status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no network namespace can be made here");
        return;
    }
    let inner = Command::new("unshare")
        .arg("-n")
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "links::cut_inside_a_namespace"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inner.stdout);
    assert!(
        inner.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[test]
#[ignore = "run by a_cut_between_the_nodes_is_noticed_in_time, inside a namespace"]
fn cut_inside_a_namespace() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let ip = |arguments: &str| {
        let done = Command::new("ip").args(arguments.split(' ')).status();
        assert!(done.unwrap().success());
    };
    ip("link set lo up");
    let one = Daemon::fake("instant = true");
    let other = Daemon::fake_on("127.0.0.2:0", "instant = true");
    let (mut a, mut b) = (one.session(), other.session());
    add(&mut a, &b, SECRET, &[&other.address], true);
    add(&mut b, &a, SECRET, &[], false);
    is_up(&mut a, 0);
    is_up(&mut b, 0);
    // From now on nothing reaches the second node, without any error.
    ip("route add blackhole 127.0.0.2/32 table local");
    is_down(&mut a, 1);
    a.ping();
}

#[test]
fn what_goes_via_the_client_is_not_dialled() {
    let (one, other) = two();
    let (mut a, mut b) = (one.session(), other.session());
    add(&mut a, &b, SECRET, &[&refused()], true);
    is_down(&mut a, 0);
    a.send(vec![Kind::RouteViaClient(RouteViaClient { link: LINK })]);
    add(&mut b, &a, SECRET, &[&one.address], false);
    a.ping();
    let secret = SessionSecret(SECRET);
    let refusal = connect_as(&one.address, &preamble(&a, LINK, EVENT_LANE), &secret);
    assert_eq!(refusal.unwrap_err(), Verdict::UnknownLink);
    dial(&mut a);
    b.send(vec![Kind::RouteViaClient(RouteViaClient { link: LINK })]);
    a.ping();
    b.ping();
    assert_eq!((a.heard.links.len(), b.heard.links.len()), (1, 0));
}

#[test]
fn what_no_client_of_ours_says_of_links_ends_its_session() {
    let (one, other) = two();
    let b = other.session();
    let link = AddLink {
        link: 1,
        session: Bytes::copy_from_slice(&b.id().0),
        secret: Bytes::from_static(&SECRET),
        addresses: vec![],
        dial: false,
        ..AddLink::default()
    };
    let add = |change: &dyn Fn(&mut AddLink)| {
        let mut changed = link.clone();
        change(&mut changed);
        Kind::AddLink(changed)
    };
    let tell = |event, link| {
        Kind::TellEvent(TellEvent {
            event,
            mirror: 9,
            link,
            order_only: false,
        })
    };
    let mirror = |mirror| Kind::CreateMirror(CreateMirror { mirror, link: 0 });
    let bad = [
        vec![add(&|l| l.link = 0)],
        vec![add(&|l| l.secret = Bytes::from_static(&[1; 31]))],
        vec![add(&|l| l.session = Bytes::new())],
        vec![add(&|l| l.addresses = vec!["a:1".to_owned(); 1000])],
        vec![add(&|_| {}), add(&|_| {})],
        vec![Kind::DialLink(DialLink { link: 3 })],
        vec![Kind::RouteViaClient(RouteViaClient { link: 0 })],
        vec![tell(5, 0)],
        vec![mirror(5), tell(5, 3)],
        vec![mirror(5), mirror(5)],
        vec![
            mirror(5),
            Kind::SetUserEventStatus(SetUserEventStatus {
                event: 6,
                status: 0,
            }),
        ],
    ];
    for commands in bad {
        let what = format!("{commands:?}");
        let mut session = one.session();
        session.send(commands);
        session.ends();
        drop(what);
    }
}

#[test]
fn nodes_say_where_they_may_be_reached() {
    let daemon = Daemon::fake("instant = true");
    let own = std::slice::from_ref(&daemon.address);
    assert_eq!(daemon.inventory().peer_addresses, own);
    let daemon = Daemon::with_arguments(&["--advertise", "node1", "--advertise", "10.9.8.7:1"]);
    let port = daemon.address.rsplit_once(':').unwrap().1;
    assert_eq!(
        daemon.inventory().peer_addresses,
        [format!("node1:{port}"), "10.9.8.7:1".to_owned()]
    );
    let daemon = Daemon::with_arguments(&["--insecure", "--listen", "0.0.0.0:0"]);
    let addresses = daemon.inventory().peer_addresses;
    assert!(addresses.last().unwrap().starts_with("127.0.0.1:"));
    assert!(!addresses.iter().any(|a| a.starts_with("0.0.0.0")));
}
