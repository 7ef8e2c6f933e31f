//! Tests of links that the client drops: what remains, and later commands that name them.

use std::net::TcpListener;

use causeway_proto::command::{
    AddLink, CreateMirror, DropLink, RouteViaClient, TellEvent, command::Kind,
};
use causeway_proto::id::SessionSecret;
use causeway_proto::limits::MAX_LINKS;
use causeway_proto::preamble::{EVENT_LANE, Preamble, Purpose, Verdict};
use prost::bytes::Bytes;

use crate::common::{Daemon, Session, connect_as, linear};

const SECRET: [u8; 32] = [9; 32];
const SIZE: u64 = 1 << 20;

fn daemon() -> Daemon {
    Daemon::fake("instant = true")
}

fn add_link(link: u64, peer: &Session, addresses: &[&str]) -> Kind {
    Kind::AddLink(AddLink {
        link,
        session: Bytes::copy_from_slice(&peer.id().0),
        secret: Bytes::from_static(&SECRET),
        addresses: addresses.iter().map(|a| (*a).to_owned()).collect(),
        dial: !addresses.is_empty(),
        ..AddLink::default()
    })
}

fn drop_link(link: u64) -> Kind {
    Kind::DropLink(DropLink { link })
}

/// Makes a queue and a buffer.
fn objects(session: &mut Session) -> (u64, u64) {
    let context = session.context();
    (
        session.queue(context, 0),
        session.buffer(context, SIZE, b""),
    )
}

#[test]
fn a_session_may_have_any_number_of_links_one_after_the_other() {
    let (one, other) = (daemon(), daemon());
    let (mut a, b) = (one.session(), other.session());
    let kept = MAX_LINKS as u64 - 1;
    a.send((1..=kept).map(|link| add_link(link, &b, &[])).collect());
    for link in kept + 1..kept + 100 {
        a.send(vec![add_link(link, &b, &[]), drop_link(link)]);
    }
    a.ping();
    // A session may have this number of links at a time.
    a.send(vec![add_link(kept + 200, &b, &[])]);
    a.ping();
    a.send(vec![add_link(kept + 201, &b, &[])]);
    a.ends();
}

#[test]
fn who_names_a_dropped_link_hears_that_it_leads_nowhere() {
    let (one, other) = (daemon(), daemon());
    let (mut a, b) = (one.session(), other.session());
    let (queue, buffer) = objects(&mut a);
    let (link, transfer) = (a.new_id(), a.new_id());
    a.send(vec![
        add_link(link, &b, &[]),
        drop_link(link),
        drop_link(link),
    ]);
    a.dial(link);
    a.route_via_client(link);
    let target = (buffer, linear(0, SIZE));
    let sent = a.send_region(queue, &[], target, transfer, link);
    let received = a.receive(queue, &[], target, link);
    assert_eq!(a.wait(sent).status, 0, "the buffer is no longer read");
    let done = a.wait(received);
    assert_eq!(done.status, -2);
    assert!(done.message.contains("other worker"), "{}", done.message);
    let (mirror, far) = (a.new_id(), a.new_id());
    a.send(vec![
        Kind::CreateMirror(CreateMirror { mirror, link }),
        Kind::TellEvent(TellEvent {
            event: mirror,
            mirror: far,
            link,
            order_only: false,
        }),
    ]);
    a.set(mirror, 0);
    a.ping();
    // An id can be used once.
    a.send(vec![add_link(link, &b, &[])]);
    a.ends();
}

#[test]
fn transfers_end_with_their_link_and_the_other_end_sees_it_go() {
    let (one, other) = (daemon(), daemon());
    for via_client in [false, true] {
        let (mut a, mut b) = (one.session(), other.session());
        let [(queue, from), (into, to)] = [&mut a, &mut b].map(objects);
        let link = a.link(&mut b, &other.address);
        a.hears_of_link(link, true);
        b.hears_of_link(link, true);
        if via_client {
            a.send(vec![Kind::RouteViaClient(RouteViaClient { link })]);
        }
        let held = b.user_event();
        let received = b.receive(into, &[], (to, linear(0, SIZE)), link);
        let late = b.receive(into, &[held], (to, linear(0, SIZE)), link);
        let transfer = a.new_id();
        let sent = a.send_region(queue, &[], (from, linear(0, SIZE)), transfer, link);
        a.ping();
        b.ping();
        b.send(vec![drop_link(link)]);
        assert_eq!(b.wait(received).status, -2);
        b.set(held, 0);
        assert_eq!(b.wait(late).status, -2);
        a.hears_of_link(link, false);
        a.send(vec![drop_link(link)]);
        assert_eq!(a.wait(sent).status, 0);
        // Dropped links are not reported.
        let heard = b.heard.links.len();
        b.ping();
        assert_eq!(b.heard.links.len(), heard);
        assert_eq!(&a.bytes(queue, from, 0, 1)[..], [0]);
    }
}

#[test]
fn a_dropped_link_is_dialled_no_more_and_takes_no_connection() {
    let (one, other) = (daemon(), daemon());
    let (mut a, b) = (one.session(), other.session());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let link = a.new_id();
    a.send(vec![add_link(link, &b, &[&address])]);
    let (_asked, _) = silent.accept().unwrap();
    a.send(vec![drop_link(link)]);
    a.ping();
    let preamble = Preamble {
        purpose: Purpose::Peer,
        lane: EVENT_LANE,
        session: a.id(),
        link,
    };
    let refused = connect_as(&one.address, &preamble, &SessionSecret(SECRET));
    assert_eq!(refused.unwrap_err(), Verdict::UnknownLink);
    // The session knows no other link whose end could come before this one's.
    let next = a.new_id();
    a.send(vec![add_link(next, &b, &[&other.address])]);
    let mut b = b;
    b.send(vec![add_link(next, &a, &[])]);
    assert!(a.link_state(next, 0).up);
    assert!(a.heard.links.iter().all(|state| state.link == next));
}
