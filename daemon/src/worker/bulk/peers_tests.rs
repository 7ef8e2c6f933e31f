//! Tests of messages about transfers: early, late, and from a peer that may not send them.

use super::*;

const LINK: LinkId = LinkId(7);
const NAME: EventId = EventId(3);
const PEER: Origin = Origin::Peer(LINK);

#[derive(Default)]
struct Ear {
    heard: Mutex<Vec<u64>>,
    stopped: Mutex<Vec<Status>>,
}

impl Running for Ear {
    fn heard(self: Arc<Self>, amount: u64) {
        self.heard.lock().push(amount);
    }

    fn stop(self: Arc<Self>, why: Why) {
        self.stopped.lock().push(why.status);
    }
}

fn far(direction: Direction, link: LinkId) -> Far {
    Far {
        transfer: NAME,
        direction,
        link,
    }
}

fn why() -> Why {
    Why {
        status: Status(-2),
        message: "it broke".into(),
    }
}

#[test]
fn what_comes_early_is_kept_whoever_said_it() {
    for from in [PEER, Origin::Client] {
        let peers = Peers::default();
        let send = far(Direction::Send, LINK);
        // Messages on different lanes may overtake each other.
        for amount in [2, 9, 5] {
            assert_eq!(peers.message(from, &credit(NAME, amount)), Ok(None));
        }
        assert!(peers.register(&send, 10));
        assert_eq!(peers.message(from, &credit(NAME, 10)), Ok(None));
        let ear = Arc::new(Ear::default());
        let running: Arc<dyn Running> = Arc::<Ear>::clone(&ear);
        assert_eq!(
            peers.started(&send, running).amount(Direction::Send),
            Some(10)
        );
        assert_eq!(peers.message(from, &credit(NAME, 10)), Ok(None));
        assert_eq!(*ear.heard.lock(), [10]);
        peers.cancel(from, &Header::cancel(NAME, -14)).unwrap();
        assert_eq!(*ear.stopped.lock(), [Status(-14)]);
    }
}

#[test]
fn an_early_cancellation_waits_for_its_command() {
    let peers = Peers::default();
    peers.cancel(PEER, &Header::cancel(NAME, 0)).unwrap();
    let receive = far(Direction::Receive, LINK);
    assert!(peers.register(&receive, 1));
    let over = peers.heard(&receive).over.unwrap();
    assert_eq!(over.status, Status::OUT_OF_RESOURCES);
}

#[test]
fn late_words_are_answered_only_about_what_ended_before_its_time() {
    let peers = Peers::default();
    let receive = far(Direction::Receive, LINK);
    assert!(peers.register(&receive, 1));
    assert!(!peers.register(&receive, 1));
    assert!(peers.end(&receive, Some(Status(-5))));
    assert!(!peers.end(&receive, None));
    let answer = peers.message(PEER, &offer(NAME, 1)).unwrap();
    assert_eq!(answer, Some(Header::cancel(NAME, -5)));
    let other = Far {
        transfer: EventId(4),
        ..receive
    };
    assert!(peers.register(&other, 1));
    assert!(peers.end(&other, None));
    assert_eq!(peers.message(PEER, &offer(other.transfer, 1)), Ok(None));
    let answer = peers.message(PEER, &offer(other.transfer, 2)).unwrap();
    assert_eq!(answer, Some(Header::cancel(other.transfer, -59)));
    peers
        .cancel(PEER, &Header::cancel(other.transfer, 0))
        .unwrap();
    assert!(peers.0.lock().early.is_empty());
}

#[test]
fn a_peer_speaks_of_its_own_transfers_only() {
    let peers = Peers::default();
    let send = far(Direction::Send, LINK);
    let stranger = Origin::Peer(LinkId(8));
    // An early message is kept under its sender, so this transfer does not get it.
    assert_eq!(peers.message(stranger, &credit(NAME, 4)), Ok(None));
    assert!(peers.register(&send, 10));
    assert_eq!(peers.heard(&send).amount(Direction::Send), None);
    assert_eq!(
        peers.message(stranger, &credit(NAME, 4)),
        Err(Foreign(NAME))
    );
    let cancel = Header::cancel(NAME, 0);
    assert_eq!(peers.cancel(stranger, &cancel), Err(Foreign(NAME)));
}

#[test]
fn within_one_worker_a_cancellation_is_for_the_end_that_is_left() {
    let own = Origin::Peer(LinkId(0));
    let (send, receive) = (
        far(Direction::Send, LinkId(0)),
        far(Direction::Receive, LinkId(0)),
    );
    let peers = Peers::default();
    assert!(peers.register(&send, 1));
    peers.end(&send, Some(Status(-14)));
    // The other end is not registered yet.
    peers.cancel(own, &Header::cancel(NAME, -14)).unwrap();
    assert!(peers.register(&receive, 1));
    assert_eq!(peers.heard(&receive).over.unwrap().status, Status(-14));
    peers.end(&receive, Some(Status(-14)));
    peers.cancel(own, &Header::cancel(NAME, -14)).unwrap();
    assert!(peers.0.lock().early.is_empty());
}

#[test]
fn a_break_ends_what_had_credit_and_the_rest_is_said_again() {
    let peers = Peers::default();
    let ends = [1, 2, 3, 4].map(|name| Far {
        transfer: EventId(name),
        ..far(
            if name % 2 == 0 {
                Direction::Send
            } else {
                Direction::Receive
            },
            LINK,
        )
    });
    let ears = [(); 4].map(|()| Arc::new(Ear::default()));
    for (end, ear) in ends.iter().zip(&ears) {
        assert!(peers.register(end, 10));
        peers.started(end, Arc::<Ear>::clone(ear));
    }
    peers.credited(&ends[0]);
    peers.message(PEER, &credit(EventId(2), 1)).unwrap();
    for running in peers.broke(LINK, &why()) {
        running.stop(why());
    }
    let stopped = ears.each_ref().map(|ear| ear.stopped.lock().len());
    assert_eq!(stopped, [1, 1, 0, 0]);
    let mut again = peers.again(LINK);
    again.sort_by_key(|header| header.transfer);
    assert_eq!(again, [credit(EventId(3), 0), offer(EventId(4), 10)]);
    assert_eq!(peers.lost(LINK, &why()).len(), 4);
    assert!(peers.lost(LinkId(8), &why()).is_empty());
}

#[test]
fn early_words_are_bounded() {
    let peers = Peers::default();
    for name in 0..=MOST_EARLY as u64 {
        peers.message(PEER, &offer(EventId(name), 1)).unwrap();
    }
    let state = peers.0.lock();
    assert_eq!(state.early.len(), MOST_EARLY);
    assert!(!state.early.contains_key(&(PEER, EventId(0))));
}
