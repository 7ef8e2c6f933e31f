//! Tests of links whose connections are cut, in sessions that outlive their connections.

use causeway_proto::limits::LINK_LANES;

use crate::common::bulk::pattern;
use crate::common::cutter::Cutter;
use crate::common::site::{STAGED, Site, site_on, transfer};
use crate::common::{Daemon, Session, linear};

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
        let daemons = (Daemon::with(ours), Daemon::with(theirs));
        let site = |daemon| site_on(Session::open_resuming(daemon, resume_ms), 0);
        let (mut a, mut b) = (site(&daemons.0), site(&daemons.1));
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

    fn was_never_down(&self) {
        for site in [&self.a, &self.b] {
            assert!(site.session.heard.links.iter().all(|state| state.up));
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
        let queue = cut.b.queue;
        for at in (0..SIZE - 64).step_by(77_777) {
            let got = cut.b.session.bytes(queue, to, at as u64, 64);
            assert_eq!(&got[..], &bytes[at..at + 64], "at {at}");
        }
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
