//! Tests of the links between the workers of a process's sessions: the messages to each worker, and when the client
//! forwards bytes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use causeway::coherence::Route;
use causeway::config::Carrier;
use causeway::stub::{SessionLink, server::peer};
use causeway::transport::Node;
use causeway_proto::bulk::{HEADER, Header, Kind as Bulk};
use causeway_proto::command::command::Kind;
use causeway_proto::command::{AddLink, EventBatch, LinkState};
use causeway_proto::id::{EventId, LinkId};

use crate::frames::fake_node::{FakeNode, FakeWorker, Faults};

struct End {
    fake: FakeNode,
    node: Arc<Node>,
    session: Arc<SessionLink>,
    worker: FakeWorker,
    // Commands of a batch that the test has not read yet.
    waiting: Vec<Kind>,
    // Kept, because a closed lane ends the session.
    lane: Option<TcpStream>,
}

impl End {
    fn open(uuid: u8) -> End {
        End::open_for(uuid, 0)
    }

    // Opens a session that outlives its connections for this time.
    fn open_for(uuid: u8, resume_ms: u32) -> End {
        let fake = FakeNode::start(Faults {
            uuid: [uuid; 16],
            resume_ms,
            // With one lane, the test knows where a message arrives.
            bulk_connections: 1,
            ..Faults::default()
        });
        let node = fake.node(Carrier::Direct);
        let session = SessionLink::open_all(&[&node]).unwrap().remove(0);
        let worker = fake.worker();
        End {
            fake,
            node,
            session,
            worker,
            waiting: Vec::new(),
            lane: None,
        }
    }

    // Returns a new session after the worker has died.
    fn again(self) -> End {
        self.worker.die();
        while !self.session.session().has_failed() {
            std::thread::yield_now();
        }
        let session = SessionLink::open_all(&[&self.node]).unwrap().remove(0);
        let worker = self.fake.worker();
        End {
            session,
            worker,
            lane: None,
            ..self
        }
    }

    fn next(&mut self) -> Kind {
        while self.waiting.is_empty() {
            let batch = self.worker.receive();
            self.waiting
                .extend(batch.commands.into_iter().filter_map(|c| c.kind));
        }
        self.waiting.remove(0)
    }

    fn added(&mut self) -> AddLink {
        match self.next() {
            Kind::AddLink(add) => add,
            other => panic!("{other:?}"),
        }
    }

    fn tell(&mut self, link: LinkId, up: bool) {
        self.tell_state(link, up, false);
    }

    // Tells that the worker makes broken connections of the link again.
    fn tell_mending(&mut self, link: LinkId) {
        self.tell_state(link, false, true);
    }

    fn tell_state(&mut self, link: LinkId, up: bool, mending: bool) {
        self.worker.send(EventBatch {
            links: vec![LinkState {
                link: link.0,
                up,
                reason: "a reason".to_owned(),
                mending,
            }],
            ..EventBatch::default()
        });
    }

    // Waits until the client takes this route.
    fn until_route(&self, other: &End, route: Route) {
        while peer::route(&self.session, &other.session) != route {
            std::thread::yield_now();
        }
    }

    fn lane(&mut self) -> &mut TcpStream {
        self.lane.get_or_insert_with(|| self.fake.lane())
    }

    fn word(&mut self) -> Header {
        let mut bytes = [0; HEADER];
        self.lane().read_exact(&mut bytes).unwrap();
        Header::decode(&bytes).unwrap()
    }
}

// Makes a link of the two, which `one` dials.
fn linked(one: &mut End, other: &mut End) -> LinkId {
    let link = peer::link(&one.session, &other.session).unwrap();
    assert!(one.added().dial);
    assert!(!other.added().dial);
    link
}

fn no_path(one: &mut End, other: &mut End, link: LinkId) {
    one.tell(link, false);
    assert!(matches!(other.next(), Kind::DialLink(_)));
    other.tell(link, false);
    for end in [one, other] {
        assert!(matches!(end.next(), Kind::RouteViaClient(_)));
    }
}

/// Sends an offer of the sender, which must arrive at the receiver.
fn assert_path_is_open(sender: &mut End, receiver: &mut End, transfer: EventId) {
    let offer = Header {
        kind: Bulk::Offer,
        transfer,
        offset: 100,
        length: 0,
    };
    sender.lane().write_all(&offer.encode()).unwrap();
    assert_eq!(receiver.word(), offer);
}

#[test]
fn both_ends_are_told_once_and_one_dials() {
    let (mut one, mut other) = (End::open(11), End::open(12));
    let link = peer::link(&one.session, &other.session).unwrap();
    assert_eq!(peer::link(&other.session, &one.session), Ok(link));
    assert_eq!(peer::link(&one.session, &one.session), Ok(LinkId(0)));
    let (first, second) = (one.added(), other.added());
    assert_eq!([first.link, second.link], [link.0; 2]);
    assert_eq!(first.secret, second.secret);
    assert_eq!(first.secret.len(), 32);
    assert!(first.dial && !second.dial);
    assert_eq!(first.addresses, [other.fake.address.to_string()]);
    assert_eq!(second.addresses, [one.fake.address.to_string()]);
    assert_eq!(&first.session[..], other.session.session().id().0);

    one.tell(link, true);
    // The worker that reports a break must dial again.
    one.tell(link, false);
    assert!(matches!(one.next(), Kind::DialLink(dial) if dial.link == link.0));
    // What begins meanwhile does not wait for that.
    assert_eq!(peer::route(&one.session, &other.session), Route::ViaClient);
    one.tell(link, true);
    one.until_route(&other, Route::Direct);
}

#[test]
fn both_ends_are_told_the_shorter_of_the_times_that_their_nodes_grant() {
    let times = [(13, 20_000), (14, 30_000), (15, 0)];
    let mut ends = times.map(|(uuid, resume_ms)| End::open_for(uuid, resume_ms));
    for (one, other, resume_ms) in [(0, 1, 20_000), (1, 2, 0)] {
        peer::link(&ends[one].session, &ends[other].session).unwrap();
        for end in [one, other] {
            assert_eq!(ends[end].added().resume_ms, resume_ms);
        }
    }
}

#[test]
fn without_a_path_the_client_carries_and_remembers_it() {
    let (mut one, mut other) = (End::open(21), End::open(22));
    let link = linked(&mut one, &mut other);
    no_path(&mut one, &mut other, link);
    assert_eq!(peer::route(&other.session, &one.session), Route::ViaClient);

    // The node's next session has no path either.
    let mut one = one.again();
    let anew = loop {
        // The client notices the loss before it has told all workers.
        let anew = peer::link(&one.session, &other.session).unwrap();
        if anew != link {
            break anew;
        }
    };
    assert_eq!(peer::route(&one.session, &other.session), Route::ViaClient);
    assert!(matches!(other.next(), Kind::DropLink(drop) if drop.link == link.0));
    for end in [&mut one, &mut other] {
        let add = end.added();
        assert_eq!((add.link, add.dial), (anew.0, false));
        assert!(matches!(end.next(), Kind::RouteViaClient(route) if route.link == anew.0));
    }
}

#[test]
fn transfers_that_were_begun_are_carried_when_the_path_is_given_up() {
    let (mut one, mut other) = (End::open(31), End::open(32));
    let link = linked(&mut one, &mut other);
    let transfer = EventId(7);
    peer::begin_transfer(transfer, link, &one.session, &other.session, 100);
    no_path(&mut one, &mut other, link);
    assert_path_is_open(&mut one, &mut other, transfer);
    peer::end_transfer(transfer);
    peer::end_transfer(transfer);
}

#[test]
fn what_begins_while_a_link_is_interrupted_goes_through_the_client() {
    let (mut one, mut other) = (End::open(35), End::open(36));
    let link = linked(&mut one, &mut other);
    one.tell(link, true);
    other.tell(link, true);
    let early = EventId(17);
    peer::begin_transfer(early, link, &one.session, &other.session, 100);
    let mut detours = Vec::new();
    for name in [18, 19] {
        other.tell_mending(link);
        one.until_route(&other, Route::ViaClient);
        let detour = peer::link(&one.session, &other.session).unwrap();
        assert_ne!(detour, link);
        detours.push(detour);
        let transfer = EventId(name);
        peer::begin_transfer(transfer, detour, &one.session, &other.session, 100);
        assert_path_is_open(&mut one, &mut other, transfer);
        peer::end_transfer(transfer);
        other.tell(link, true);
        one.until_route(&other, Route::Direct);
        assert_eq!(peer::link(&one.session, &other.session), Ok(link));
    }
    // One detour serves all interruptions of a link.
    assert_eq!(detours[0], detours[1]);
    for end in [&mut one, &mut other] {
        let add = end.added();
        assert_eq!((add.link, add.dial), (detours[0].0, false));
        assert!(matches!(end.next(), Kind::RouteViaClient(route) if route.link == add.link));
    }
    // A link that was not mended is made anew.
    one.tell_mending(link);
    one.tell(link, false);
    assert!(matches!(one.next(), Kind::DialLink(dial) if dial.link == link.0));
    assert_eq!(peer::link(&one.session, &other.session), Ok(detours[0]));
    other.tell(link, true);
    one.until_route(&other, Route::Direct);
    peer::end_transfer(early);
}

#[test]
fn a_lost_session_ends_its_transfers_for_the_other_end() {
    let (mut one, mut other) = (End::open(41), End::open(42));
    let link = linked(&mut one, &mut other);
    let transfer = EventId(8);
    peer::begin_transfer(transfer, link, &one.session, &other.session, 100);
    one.worker.die();
    assert_eq!(other.word(), Header::cancel(transfer, -2));
    // And forgets the link, which may be named once more.
    assert!(matches!(other.next(), Kind::DropLink(drop) if drop.link == link.0));
    assert!(peer::link(&one.session, &other.session).is_err());
    // This transfer begins too late to be told of the loss.
    let late = EventId(9);
    peer::begin_transfer(late, link, &other.session, &one.session, 100);
    peer::end_transfer(late);
}

#[test]
fn a_node_that_speaks_of_a_link_of_others_is_not_heard() {
    let (mut one, mut other, mut third) = (End::open(51), End::open(52), End::open(53));
    let link = linked(&mut one, &mut other);
    let own = peer::link(&one.session, &third.session).unwrap();
    for _ in 0..2 {
        third.tell(link, false);
    }
    assert!(matches!(third.next(), Kind::AddLink(_)));
    // After its own message about its own link, the others' messages arrived too.
    assert!(matches!(one.next(), Kind::AddLink(_)));
    one.tell(own, false);
    assert!(matches!(third.next(), Kind::DialLink(dial) if dial.link == own.0));
    assert_eq!(peer::route(&one.session, &other.session), Route::Direct);
}
