//! Tests of writes of one chunk that are sent without credit: by the waiting thread or the next flush, never more
//! than the standing credit. A completion that overtakes the bytes waits for them.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;

use causeway::config::Carrier;
use causeway::transport::{HostRegion, Node, Session};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::limits::{BULK_CHUNK, EAGER_BYTES};
use causeway_proto::region::Region;

use crate::frames::fake_node;
use crate::frames::fake_node::bulk::wait_for;
use crate::frames::fake_node::upper::{Upper, command, completed};
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults};

struct Eager {
    fake: FakeNode,
    upper: Arc<Upper>,
    session: Arc<Session>,
    worker: FakeWorker,
    bytes: Arc<Vec<u8>>,
    // Kept, because the session ends with its node.
    _node: Arc<Node>,
}

impl Eager {
    fn new() -> Eager {
        Eager::with(Faults::default())
    }

    fn with(faults: Faults) -> Eager {
        let fake = FakeNode::start(faults);
        let upper = Upper::new();
        let (node, session, worker) = fake.open(Carrier::Direct, &upper);
        Eager {
            fake,
            upper,
            session,
            worker,
            bytes: Arc::new((0..BULK_CHUNK).map(|i| (i * 7 + i / 251) as u8).collect()),
            _node: node,
        }
    }

    // Registers an upload of `length` bytes and sends a command after it, as a queue does.
    fn write(&self, event: u64, length: usize) -> bool {
        let Some(grant) = self.session.eager_grant(length as u64) else {
            return false;
        };
        let region = Region::linear(0, length as u64).unwrap();
        // SAFETY: kept by the session and by the test.
        let source = unsafe { HostRegion::new(self.bytes.as_ptr().cast_mut(), region) };
        self.session
            .upload(EventId(event), source, self.bytes.clone(), Some(grant))
            .unwrap();
        self.session.send(&command(event)).unwrap();
        true
    }

    fn receive(&self, lane: &mut TcpStream, event: u64, length: usize) {
        let mut header = [0; HEADER];
        lane.read_exact(&mut header).unwrap();
        let header = Header::decode(&header).unwrap();
        let expected = Header {
            kind: Kind::Eager,
            transfer: EventId(event),
            offset: 0,
            length: length as u32,
        };
        assert_eq!(header, expected);
        let mut got = vec![0; length];
        lane.read_exact(&mut got).unwrap();
        assert!(got == self.bytes[..length]);
    }
}

// Returns the only lane, so the test knows where the bytes arrive.
fn only_lane(eager: &Eager) -> TcpStream {
    let lane = eager.fake.lane();
    let _second = eager.fake.lane();
    lane
}

#[test]
fn who_waits_sends_and_hears_the_end() {
    let mut eager = Eager::new();
    // This write opens the lanes.
    assert!(eager.write(1, 100_000));
    eager.session.flush().unwrap();
    let (mut a, mut b) = (eager.fake.lane(), eager.fake.lane());
    let lane = first_readable(&mut a, &mut b);
    eager.receive(lane, 1, 100_000);
    eager.worker.send(completed(1, 0));
    assert_eq!(eager.upper.completion(1).status, 0);

    assert!(eager.write(2, BULK_CHUNK));
    let (session, upper) = (eager.session.clone(), eager.upper.clone());
    let waiter =
        std::thread::spawn(move || session.wait_for(EventId(2), &|| upper.has_completed(2)));
    let lane = first_readable(&mut a, &mut b);
    eager.receive(lane, 2, BULK_CHUNK);
    eager.worker.send(completed(2, 0));
    waiter.join().unwrap().unwrap();
    assert_eq!(
        Arc::strong_count(&eager.bytes),
        1,
        "an upload keeps its memory"
    );
}

#[test]
fn standing_credit_is_used_up_and_comes_back_with_the_completions() {
    let mut eager = Eager::new();
    let most = EAGER_BYTES / BULK_CHUNK as u64;
    for event in 1..=most {
        assert!(eager.write(event, BULK_CHUNK));
    }
    assert!(!eager.write(most + 1, 1));
    assert!(eager.session.eager_grant(EAGER_BYTES).is_none(), "no chunk");
    eager.session.flush().unwrap();
    let (mut a, mut b) = (eager.fake.lane(), eager.fake.lane());
    let mut seen = Vec::new();
    for _ in 0..most {
        let lane = first_readable(&mut a, &mut b);
        let mut header = [0; HEADER];
        lane.read_exact(&mut header).unwrap();
        seen.push(Header::decode(&header).unwrap().transfer.0);
        lane.read_exact(&mut vec![0; BULK_CHUNK]).unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=most).collect::<Vec<_>>());
    assert!(eager.session.eager_grant(1).is_none(), "sent is not done");
    eager.worker.send(completed(1, 0));
    assert_eq!(eager.upper.completion(1).status, 0);
    assert!(eager.write(most + 1, BULK_CHUNK));
}

#[test]
fn a_completion_waits_until_the_bytes_are_sent() {
    let mut eager = Eager::new();
    assert!(eager.write(1, 1000));
    // A failure that needs no bytes. The worker still expects them.
    eager.worker.send(completed(1, -14));
    eager.session.flush().unwrap();
    let (mut a, mut b) = (eager.fake.lane(), eager.fake.lane());
    let lane = first_readable(&mut a, &mut b);
    eager.receive(lane, 1, 1000);
    assert_eq!(eager.upper.completion(1).status, -14);
}

#[test]
fn a_lost_session_lets_go_of_an_upload() {
    let eager = Eager::new();
    assert!(eager.write(1, 1000));
    let _lane = only_lane(&eager);
    eager.worker.die();
    eager.upper.loss();
    // A lane that has sent the bytes lets go of them a moment after it has left them.
    wait_for(|| Arc::strong_count(&eager.bytes) == 1);
}

#[test]
fn a_session_that_is_not_resumed_lets_go_of_what_it_could_have_sent_again() {
    let eager = Eager::with(Faults {
        resume_ms: 60_000,
        ..Faults::default()
    });
    assert!(eager.write(1, 1000));
    let (mut a, mut b) = (eager.fake.lane(), eager.fake.lane());
    let lane = first_readable(&mut a, &mut b);
    eager.receive(lane, 1, 1000);
    assert_eq!(Arc::strong_count(&eager.bytes), 2);
    eager.fake.forget_session("it has ended");
    eager.worker.die();
    eager.upper.loss();
    assert_eq!(Arc::strong_count(&eager.bytes), 1);
}

fn first_readable<'a>(a: &'a mut TcpStream, b: &'a mut TcpStream) -> &'a mut TcpStream {
    use rustix::event::{PollFd, PollFlags, poll};
    let limit = fake_node::PATIENCE.try_into().unwrap();
    let ready = {
        let mut fds = [PollFd::new(a, PollFlags::IN), PollFd::new(b, PollFlags::IN)];
        assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "no chunk");
        fds[0].revents().contains(PollFlags::IN)
    };
    if ready { a } else { b }
}
