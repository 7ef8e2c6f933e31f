//! Tests of transfers between two workers without a path. Their messages and bytes pass through the client, in any
//! order, within bounds, and end with either session.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use causeway::config::Carrier;
use causeway::transport::{Node, Session, WireError, relayed_bytes};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;

use crate::frames::fake_node::upper::Upper;
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults, PATIENCE};

const TRANSFER: EventId = EventId(77);
// Credit that is granted at once or not yet, because concurrent tests share the room.
const SMALL: usize = BULK_CHUNK;
const WINDOW: usize = 16 << 20;
const ROOM: usize = 64 << 20;
// Maximum number of bytes of one unread lane that the kernel buffers.
const IN_SOCKETS: usize = 24 << 20;

/// One of the two workers, with the client's session on it.
struct End {
    session: Arc<Session>,
    upper: Arc<Upper>,
    worker: FakeWorker,
    fake: FakeNode,
    lanes: Vec<TcpStream>,
    _node: Arc<Node>,
}

impl End {
    fn open(uuid: u8) -> End {
        let fake = FakeNode::start(Faults {
            uuid: [uuid; 16],
            bulk_connections: 2,
            ..Faults::default()
        });
        let upper = Upper::new();
        let (node, session, worker) = fake.open(Carrier::Direct, &upper);
        End {
            session,
            upper,
            worker,
            fake,
            lanes: Vec::new(),
            _node: node,
        }
    }

    // Waits for all lanes.
    fn with_lanes(mut self) -> End {
        self.lanes = vec![self.fake.lane(), self.fake.lane()];
        self
    }

    fn say(&mut self, word: Header) {
        self.lanes[0].write_all(&word.encode()).unwrap();
    }

    fn data(&mut self, lane: usize, transfer: EventId, from: usize, bytes: &[u8]) {
        let header = Header {
            length: bytes.len() as u32,
            ..word(Kind::Data, transfer, from)
        };
        self.lanes[lane].write_all(&header.encode()).unwrap();
        self.lanes[lane].write_all(bytes).unwrap();
    }

    // Receives everything from all lanes from now on.
    fn listen(&self) -> Heard {
        let (sender, heard) = mpsc::channel();
        for lane in &self.lanes {
            let (mut lane, sender) = (lane.try_clone().unwrap(), sender.clone());
            lane.set_read_timeout(None).unwrap();
            std::thread::spawn(move || {
                while let Some(said) = read(&mut lane) {
                    let _ = sender.send(said);
                }
            });
        }
        Heard(heard)
    }

    fn is_well(&self) -> bool {
        self.session.is_lost().is_none()
    }
}

type Said = (Header, Vec<u8>);

fn read(lane: &mut TcpStream) -> Option<Said> {
    let mut header = [0; HEADER];
    lane.read_exact(&mut header).ok()?;
    let header = Header::decode(&header).unwrap();
    let mut bytes = vec![0; header.length as usize];
    lane.read_exact(&mut bytes).ok()?;
    Some((header, bytes))
}

struct Heard(mpsc::Receiver<Said>);

impl Heard {
    fn next(&self) -> Said {
        self.0.recv_timeout(PATIENCE).expect("a message")
    }

    fn word(&self) -> Header {
        let (word, bytes) = self.next();
        assert!(bytes.is_empty(), "{word:?}");
        word
    }

    // Returns the next message if one comes soon. A slow machine can miss a message, but never invent one.
    fn soon(&self) -> Option<Said> {
        self.0.recv_timeout(Duration::from_millis(50)).ok()
    }

    // Stores chunks until `count` bytes have come.
    fn fill(&self, into: &mut [u8], count: usize) {
        let mut got = 0;
        while got < count {
            let (header, bytes) = self.next();
            assert_eq!((header.kind, header.transfer), (Kind::Data, TRANSFER));
            into[header.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            got += bytes.len();
        }
        assert_eq!(got, count);
    }
}

fn word(kind: Kind, transfer: EventId, offset: usize) -> Header {
    Header {
        kind,
        transfer,
        offset: offset as u64,
        length: 0,
    }
}

fn offer(total: usize) -> Header {
    word(Kind::Offer, TRANSFER, total)
}

fn credit(to: usize) -> Header {
    word(Kind::Credit, TRANSFER, to)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

// Makes sender and receiver of one relayed transfer.
fn pair(total: usize) -> (End, End) {
    let (from, to) = (End::open(1), End::open(2));
    from.session
        .relay_transfer(&to.session, TRANSFER, total as u64)
        .unwrap();
    (from.with_lanes(), to.with_lanes())
}

#[test]
fn bytes_pass_in_any_order_over_any_lanes() {
    let total = SMALL - 123;
    let (mut from, mut to) = pair(total);
    let (at_from, at_to) = (from.listen(), to.listen());
    let before = relayed_bytes();

    // Credit may come before the offer, and a question at any time.
    to.say(credit(0));
    assert_eq!(at_from.word(), credit(0));
    to.say(credit(1000));
    assert_eq!(at_from.soon(), None, "credit was granted before the offer");
    from.say(offer(total));
    assert_eq!(at_to.word(), offer(total));
    assert_eq!(at_from.word(), credit(1000));
    from.say(offer(total));
    to.say(credit(total));
    assert_eq!(at_from.word(), credit(total));

    let bytes = pattern(total);
    let mut got = vec![0; total];
    let mut cuts: Vec<usize> = (0..total).step_by(77_777).chain([total]).collect();
    cuts.insert(1, 3);
    for (turn, cut) in cuts.windows(2).rev().enumerate() {
        from.data(turn % 2, TRANSFER, cut[0], &bytes[cut[0]..cut[1]]);
    }
    at_to.fill(&mut got, total);
    assert!(got == bytes);
    assert_eq!(at_to.soon(), None);
    assert!(relayed_bytes() - before >= total as u64);

    // With everything sent, there is nothing to give up.
    from.session.end_transfer(TRANSFER);
    assert_eq!(at_from.soon(), None);
}

#[test]
fn a_slow_receiver_bounds_what_lies_here() {
    let total = 128 << 20;
    let (mut from, mut to) = pair(total);
    let at_from = from.listen();
    from.say(offer(total));
    to.say(credit(total));
    // Nobody reads at the receiver: what is granted fills its sockets and the window.
    let bytes = pattern(BULK_CHUNK);
    let (mut sent, mut granted) = (0, 0);
    while let Some(word) = match sent {
        0..WINDOW => Some(at_from.word()),
        _ => at_from.soon().map(|said| said.0),
    } {
        assert_eq!(word.kind, Kind::Credit);
        // Two lanes may overtake each other.
        granted = granted.max(word.offset);
        while sent + BULK_CHUNK <= granted as usize {
            from.data(sent / BULK_CHUNK % 2, TRANSFER, sent, &bytes);
            sent += BULK_CHUNK;
        }
    }
    assert!(granted as usize <= WINDOW + 2 * IN_SOCKETS, "{granted}");

    // The receiver reads, so the transfer goes on to the end.
    let at_to = to.listen();
    let begin = Instant::now();
    let mut received = 0;
    while received < total {
        while let Ok((word, _)) = at_from.0.try_recv() {
            granted = granted.max(word.offset);
        }
        while sent + BULK_CHUNK <= granted as usize {
            from.data(sent / BULK_CHUNK % 2, TRANSFER, sent, &bytes);
            sent += BULK_CHUNK;
        }
        // The next message may be credit, which comes to the other end.
        let Some((header, chunk)) = at_to.soon() else {
            assert!(begin.elapsed() < PATIENCE, "{received} bytes have come");
            continue;
        };
        assert!(header == offer(total) || chunk == bytes);
        received += chunk.len();
    }
}

#[test]
fn many_transfers_share_the_room_and_all_end() {
    const EACH: usize = 24 << 20;
    let transfers: Vec<EventId> = (1..=6).map(EventId).collect();
    let (from, to) = (End::open(1), End::open(2));
    for transfer in &transfers {
        from.session
            .relay_transfer(&to.session, *transfer, EACH as u64)
            .unwrap();
    }
    let (mut from, mut to) = (from.with_lanes(), to.with_lanes());
    let (at_from, at_to) = (from.listen(), to.listen());
    for transfer in &transfers {
        from.say(word(Kind::Offer, *transfer, EACH));
        to.say(word(Kind::Credit, *transfer, EACH));
        assert_eq!(at_to.word().kind, Kind::Offer);
    }
    // Nobody sends, so the granted bytes are the available room.
    let mut granted = vec![0; 1 + transfers.len()];
    while let Some((word, _)) = at_from.soon() {
        granted[word.transfer.0 as usize] = word.offset as usize;
    }
    assert!(granted.iter().sum::<usize>() <= ROOM, "{granted:?}");
    assert!(granted.iter().all(|granted| *granted <= WINDOW));

    let bytes = pattern(BULK_CHUNK);
    let (mut sent, mut received) = (vec![0; granted.len()], 0);
    while received < EACH * transfers.len() {
        while let Ok((word, _)) = at_from.0.try_recv() {
            let granted = &mut granted[word.transfer.0 as usize];
            *granted = (*granted).max(word.offset as usize);
        }
        for transfer in &transfers {
            let at = transfer.0 as usize;
            while sent[at] + BULK_CHUNK <= granted[at] {
                from.data(at % 2, *transfer, sent[at], &bytes);
                sent[at] += BULK_CHUNK;
            }
        }
        received += at_to.next().1.len();
    }
}

#[test]
fn either_end_gives_up_and_the_other_hears_why() {
    let total = SMALL;
    for sender_first in [true, false] {
        let (mut from, mut to) = pair(total);
        let (at_from, at_to) = (from.listen(), to.listen());
        from.say(offer(total));
        to.say(credit(total));
        assert_eq!(at_to.word(), offer(total));
        assert_eq!(at_from.word(), credit(total));
        let cancel = Header::cancel(TRANSFER, -14);
        if sender_first {
            from.say(cancel);
            assert_eq!(at_to.word(), cancel);
            to.say(cancel);
            to.say(credit(total));
            assert_eq!(
                at_from.soon(),
                None,
                "no further message about the transfer"
            );
        } else {
            to.say(cancel);
            assert_eq!(at_from.word(), cancel);
            from.data(0, TRANSFER, 0, &pattern(total));
            assert_eq!(at_to.soon(), None, "late bytes go nowhere");
            // A worker that offers the transfer again must not wait.
            from.say(offer(total));
            assert_eq!(at_from.word(), Header::cancel(TRANSFER, -2));
        }
        assert!(from.is_well() && to.is_well());
    }
}

#[test]
fn a_lost_end_ends_the_transfer_for_the_other() {
    for lost_is_sender in [true, false] {
        let (mut from, mut to) = pair(BULK_CHUNK);
        let (at_from, at_to) = (from.listen(), to.listen());
        from.say(offer(BULK_CHUNK));
        to.say(credit(BULK_CHUNK));
        at_to.word();
        at_from.word();
        let (lost, left, heard) = if lost_is_sender {
            (from, to, at_to)
        } else {
            (to, from, at_from)
        };
        lost.worker.die();
        assert_eq!(heard.word(), Header::cancel(TRANSFER, -2));
        lost.upper.loss();
        assert!(left.is_well());
        // A relay that would begin now does not.
        let begun = left.session.relay_transfer(&lost.session, EventId(78), 1);
        assert!(matches!(begun, Err(WireError::Lost { .. })), "{begun:?}");
    }
}

#[test]
fn a_receive_that_has_ended_needs_no_more_of_the_sender() {
    let (mut from, mut to) = pair(2 * BULK_CHUNK);
    let (at_from, at_to) = (from.listen(), to.listen());
    from.say(offer(2 * BULK_CHUNK));
    to.say(credit(BULK_CHUNK));
    at_to.word();
    at_from.word();
    from.session.end_transfer(TRANSFER);
    assert_eq!(at_from.word(), Header::cancel(TRANSFER, -2));
    assert_eq!(at_to.soon(), None);
}

#[test]
fn who_was_not_asked_loses_its_own_session_only() {
    let cases: [fn(&mut End, &mut End); 4] = [
        |from, _| from.data(0, TRANSFER, BULK_CHUNK - 1, &[0; 2]),
        |from, _| {
            from.data(0, TRANSFER, 0, &[0; 2]);
            from.data(0, TRANSFER, 1, &[0; 2]);
        },
        |from, _| from.say(credit(1)),
        |_, to| to.data(0, TRANSFER, 0, &[0; 2]),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (mut from, mut to) = pair(2 * BULK_CHUNK);
        let at_from = from.listen();
        from.say(offer(2 * BULK_CHUNK));
        to.say(credit(BULK_CHUNK));
        at_from.word();
        case(&mut from, &mut to);
        let (bad, good) = if number < 3 { (from, to) } else { (to, from) };
        bad.upper.loss();
        assert!(good.is_well(), "case {number}");
    }
}
