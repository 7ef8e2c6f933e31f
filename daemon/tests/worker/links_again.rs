//! Tests of links whose connections are cut, in sessions that outlive their connections.

use std::io::Write;
use std::time::Instant;

use causeway_proto::bulk::HEADER;
use causeway_proto::command::{AddLink, command::Kind};
use causeway_proto::id::SessionSecret;
use causeway_proto::limits::LINK_LANES;
use causeway_proto::preamble::{ClientWord, EVENT_LANE, Preamble, Purpose, Verdict};
use prost::bytes::Bytes;

use crate::common::bulk::pattern;
use crate::common::cutter::Cutter;
use crate::common::site::{STAGED, Site, site_on, transfer};
use crate::common::{Daemon, Session, eventually, linear, prove_with};

const MINUTE: u32 = 60_000;

/// Two sites with a link through a proxy.
struct Cut {
    a: Site,
    b: Site,
    cutter: Cutter,
    link: u64,
    _daemons: (Daemon, Daemon),
}

impl Cut {
    fn with(ours: &[(&str, &str)], theirs: &[(&str, &str)], resume_ms: u32) -> Cut {
        Cut::between(ours, theirs, [resume_ms; 2])
    }

    fn between(ours: &[(&str, &str)], theirs: &[(&str, &str)], resume_ms: [u32; 2]) -> Cut {
        let daemons = (Daemon::with(ours), Daemon::with(theirs));
        let site = |daemon, resume_ms| site_on(Session::open_resuming(daemon, resume_ms), 0);
        let (mut a, mut b) = (
            site(&daemons.0, resume_ms[0]),
            site(&daemons.1, resume_ms[1]),
        );
        let cutter = Cutter::before(&daemons.1);
        let link = a.session.link(&mut b.session, &cutter.address);
        for _ in 0..=LINK_LANES {
            cutter.accepted();
        }
        for site in [&mut a, &mut b] {
            site.session.hears_of_link(link, true);
        }
        Cut {
            a,
            b,
            cutter,
            link,
            _daemons: daemons,
        }
    }

    /// Lets everything pass again once a broken connection has been dialled again.
    fn restore(&self) {
        self.cutter.accepted();
        self.cutter.cut_after(i64::MAX);
    }

    /// Has the first end dial whenever an end has given the link up, as a client would.
    fn until_both_are_up(&mut self) {
        let downs = |site: &Site| {
            let states = site.session.heard.links.iter();
            states.filter(|state| !state.up && !state.mending).count()
        };
        let is_up = |site: &Site| site.session.heard.links.last().unwrap().up;
        let mut known = 0;
        eventually("both ends are up", || {
            self.a.session.ping();
            self.b.session.ping();
            let now = downs(&self.a) + downs(&self.b);
            if now > std::mem::replace(&mut known, now) {
                self.a.session.dial(self.link);
            }
            (is_up(&self.a) && is_up(&self.b)).then_some(())
        });
    }

    /// Compares samples of a buffer at the receiver.
    fn has_arrived(&mut self, to: u64, bytes: &[u8]) {
        let queue = self.b.queue;
        for at in (0..bytes.len() - 64).step_by(77_777) {
            let got = self.b.session.bytes(queue, to, at as u64, 64);
            assert_eq!(&got[..], &bytes[at..at + 64], "at {at}");
        }
    }

    fn was_never_down(&self) {
        for site in [&self.a, &self.b] {
            let mut states = site.session.heard.links.iter();
            assert!(states.all(|state| state.up || state.mending));
        }
    }
}

#[test]
fn a_transfer_over_a_cut_link_goes_on() {
    const SIZE: usize = 32 << 20;
    for (ours, theirs) in [(&[][..], &[][..]), (STAGED, STAGED), (&[], STAGED)] {
        let mut cut = Cut::with(ours, theirs, MINUTE);
        let bytes = pattern(SIZE);
        let (from, put) = cut.a.filled(&bytes);
        cut.a.ended(put);
        let to = cut.b.buffer(SIZE);
        for at in [8 << 20, 1 << 20] {
            cut.cutter.cut_after(at);
            let (sent, received) =
                transfer((&mut cut.a, from, &[]), (&mut cut.b, to), SIZE, cut.link);
            cut.restore();
            cut.b.ended(received);
            cut.a.ended(sent);
        }
        cut.has_arrived(to, &bytes);
        cut.was_never_down();
    }
}

#[test]
fn an_event_told_over_a_cut_link_arrives() {
    let mut cut = Cut::with(&[], &[], MINUTE);
    let buffer = cut.b.buffer(4);
    for _ in 0..3 {
        let event = cut.a.session.user_event();
        let mirror = (cut.b.session).mirror_of(event, &mut cut.a.session, cut.link);
        cut.b.session.ping();
        cut.a.session.ping();
        cut.cutter.cut_after(0);
        cut.a.session.set(event, 0);
        cut.restore();
        let (b, queue) = (&mut cut.b.session, cut.b.queue);
        let next = b.read(queue, &[mirror], buffer, 0, 4);
        assert_eq!(b.wait(next).status, 0);
    }
    cut.was_never_down();
}

#[test]
fn a_link_that_stays_broken_is_given_up_after_the_granted_time() {
    const SIZE: usize = 4 << 20;
    let mut cut = Cut::with(&[], &[], 1000);
    let (from, put) = cut.a.filled(&pattern(SIZE));
    cut.a.ended(put);
    let to = cut.b.buffer(SIZE);
    cut.cutter.cut_after(1 << 20);
    let (sent, received) = transfer((&mut cut.a, from, &[]), (&mut cut.b, to), SIZE, cut.link);
    for site in [&mut cut.a, &mut cut.b] {
        site.session.hears_of_link(cut.link, false);
    }
    assert_eq!(cut.b.session.wait(received).status, -2);
    cut.a.ended(sent);
    cut.cutter.cut_after(i64::MAX);
    cut.a.session.dial(cut.link);
    cut.a.session.hears_of_link(cut.link, true);
    let whole = linear(0, SIZE as u64);
    let received = (cut.b.session).receive(cut.b.queue, &[], (to, whole), cut.link);
    let queue = cut.a.queue;
    let sent = (cut.a.session).send_region(queue, &[], (from, whole), received, cut.link);
    cut.b.ended(received);
    cut.a.ended(sent);
}

#[test]
fn the_client_hears_of_a_link_that_is_not_mended_soon_and_of_its_return() {
    const SIZE: usize = 8 << 20;
    let mut cut = Cut::with(&[], &[], MINUTE);
    let bytes = pattern(SIZE);
    let (from, put) = cut.a.filled(&bytes);
    cut.a.ended(put);
    let to = cut.b.buffer(SIZE);
    for _ in 0..2 {
        let ends = transfer((&mut cut.a, from, &[]), (&mut cut.b, to), SIZE, cut.link);
        cut.cutter.close();
        for site in [&mut cut.a, &mut cut.b] {
            site.session.hears_of_mending(cut.link);
        }
        cut.cutter.open();
        for site in [&mut cut.a, &mut cut.b] {
            let state = site.session.hears_of_link(cut.link, true);
            assert!(state.reason.is_empty());
        }
        cut.a.ended(ends.0);
        cut.b.ended(ends.1);
    }
    cut.has_arrived(to, &bytes);
}

#[test]
fn both_ends_act_alike_if_one_node_grants_nothing() {
    for resume_ms in [[MINUTE, 0], [0, MINUTE]] {
        let mut cut = Cut::between(&[], &[], resume_ms);
        let before = Instant::now();
        cut.cutter.close();
        for site in [&mut cut.a, &mut cut.b] {
            site.session.hears_of_link(cut.link, false);
        }
        assert!(before.elapsed().as_secs() < 20);
    }
}

#[test]
fn a_broken_link_is_dialled_at_every_address() {
    let daemons = (Daemon::with(&[]), Daemon::with(&[]));
    let site = |daemon| site_on(Session::open_resuming(daemon, MINUTE), 0);
    let (mut a, mut b) = (site(&daemons.0), site(&daemons.1));
    let ways = [(); 2].map(|()| Cutter::before(&daemons.1));
    let addresses = ways.each_ref().map(|way| way.address.as_str());
    // The second address is the only one at first.
    ways[0].close();
    let link = a.session.link_at(&mut b.session, &addresses);
    for site in [&mut a, &mut b] {
        site.session.hears_of_link(link, true);
    }
    for from in [1, 0] {
        ways[1 - from].open();
        ways[from].close();
        let buffers = [&mut a, &mut b].map(|site| site.buffer(1000));
        let (sent, received) =
            transfer((&mut a, buffers[0], &[]), (&mut b, buffers[1]), 1000, link);
        b.ended(received);
        a.ended(sent);
    }
    assert!(
        a.session
            .heard
            .links
            .iter()
            .all(|state| state.up || state.mending)
    );
}

#[test]
fn an_end_may_give_up_while_the_other_dials() {
    const SIZE: usize = 1 << 20;
    // The third try comes after some 750 ms.
    for resume_ms in (744..774).step_by(3) {
        let mut cut = Cut::with(&[], STAGED, resume_ms);
        let bytes = pattern(SIZE + resume_ms as usize);
        let (from, put) = cut.a.filled(&bytes);
        cut.a.ended(put);
        let to = cut.b.buffer(bytes.len());
        let ends = transfer((&mut cut.a, from, &[]), (&mut cut.b, to), SIZE, cut.link);
        cut.cutter.close();
        while cut.a.session.heard.links.last().unwrap().up {
            assert!(cut.a.session.hear());
        }
        cut.cutter.open();
        cut.until_both_are_up();
        cut.a.ended(ends.0);
        let status = cut.b.session.wait(ends.1).status;
        assert!([0, -2].contains(&status), "{status}");
        let size = bytes.len();
        let ends = transfer((&mut cut.a, from, &[]), (&mut cut.b, to), size, cut.link);
        cut.a.ended(ends.0);
        cut.b.ended(ends.1);
        cut.has_arrived(to, &bytes);
    }
}

/// The dialing end of a link, under the test's control.
struct Dialler {
    address: String,
    preamble: Preamble,
    generation: u64,
}

impl Dialler {
    fn connect(&self, lane: u8, position: u64) -> Result<(std::net::TcpStream, u64), Verdict> {
        let socket = std::net::TcpStream::connect(&self.address).unwrap();
        let word = ClientWord {
            position,
            generation: self.generation,
            ..ClientWord::default()
        };
        let preamble = Preamble {
            lane,
            ..self.preamble
        };
        prove_with(socket, &preamble, &SessionSecret([9; 32]), &word)
    }

    fn connect_all(&self) -> Vec<std::net::TcpStream> {
        let lanes = [EVENT_LANE].into_iter().chain(0..LINK_LANES);
        lanes.map(|lane| self.connect(lane, 0).unwrap().0).collect()
    }
}

/// A session with a link that waits for this dialing end.
fn dialled_by_test(daemon: &Daemon) -> (Session, Dialler, u64) {
    let (mut session, peer) = (Session::open_resuming(daemon, MINUTE), daemon.session());
    let link = session.new_id();
    session.send(vec![Kind::AddLink(AddLink {
        link,
        session: Bytes::copy_from_slice(&peer.id().0),
        secret: Bytes::from_static(&[9; 32]),
        resume_ms: MINUTE,
        ..AddLink::default()
    })]);
    session.ping();
    let dialler = Dialler {
        address: daemon.address.clone(),
        preamble: Preamble {
            purpose: Purpose::Peer,
            lane: 0,
            session: session.id(),
            link,
        },
        generation: 1,
    };
    (session, dialler, link)
}

#[test]
fn a_connection_of_an_earlier_link_takes_no_lane_of_a_later_one() {
    let daemon = Daemon::fake("instant = true");
    let (mut session, mut dialler, link) = dialled_by_test(&daemon);
    let earlier = dialler.connect_all();
    session.hears_of_link(link, true);
    let generation = std::mem::replace(&mut dialler.generation, 2);
    // The end that makes a new link has given the earlier one up.
    assert_eq!(
        dialler.connect(EVENT_LANE, 0).unwrap_err(),
        Verdict::TooMany
    );
    drop(earlier);
    let begun = eventually("the link is made anew", || {
        dialler.connect(EVENT_LANE, 0).ok()
    });
    session.hears_of_link(link, false);
    dialler.generation = generation;
    assert_eq!(dialler.connect(0, 0).unwrap_err(), Verdict::TooMany);
    dialler.generation = 2;
    let lanes: Vec<_> = (0..LINK_LANES)
        .map(|lane| dialler.connect(lane, 0).unwrap())
        .collect();
    session.hears_of_link(link, true);
    dialler.generation = generation;
    for lane in [EVENT_LANE, 0] {
        assert_eq!(dialler.connect(lane, 1).unwrap_err(), Verdict::UnknownLink);
    }
    // The present link has not noticed anything.
    session.ping();
    assert!(session.heard.links.last().unwrap().up);
    drop((begun, lanes));
    session.hears_of_mending(link);
    dialler.generation = 2;
    assert_eq!(dialler.connect(EVENT_LANE, 1).unwrap().1, 0);
}

#[test]
fn a_position_that_cannot_be_ends_the_link_and_nothing_else() {
    let daemon = Daemon::fake("instant = true");
    for lane in [EVENT_LANE, 0] {
        let (mut session, dialler, link) = dialled_by_test(&daemon);
        let _sockets = dialler.connect_all();
        session.hears_of_link(link, true);
        // No byte and no message was sent.
        let _late = dialler.connect(lane, 1 + 1000).unwrap();
        let reason = session.hears_of_link(link, false).reason;
        assert!(reason.contains("1000"), "{reason}");
        session.ping();
    }
}

#[test]
fn nonsense_ends_a_link_although_it_outlives_its_connections() {
    let daemon = Daemon::fake("instant = true");
    for lane in [EVENT_LANE, 0] {
        let (mut session, dialler, link) = dialled_by_test(&daemon);
        let sockets = dialler.connect_all();
        session.hears_of_link(link, true);
        let mut socket = &sockets[if lane == EVENT_LANE { 0 } else { 1 }];
        socket.write_all(&[0x55; HEADER]).unwrap();
        let reason = session.hears_of_link(link, false).reason;
        assert!(reason.contains("magic"), "{reason}");
        assert_eq!(
            dialler.connect(lane, 1).unwrap_err(),
            Verdict::UnknownLink,
            "the lane is over"
        );
        session.ping();
    }
}
