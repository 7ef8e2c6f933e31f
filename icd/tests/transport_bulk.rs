//! Bulk transfers: credit, chunks in any order on any lane, early ends, and completions that wait
//! for bytes.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway::config::Carrier;
use causeway::transport::{HostRegion, Session};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use common::upper::{Upper, command, completed};
use common::{FakeNode, FakeWorker, Faults, PATIENCE};

const EVENT: EventId = EventId(77);

struct Bulk {
    fake: FakeNode,
    upper: Arc<Upper>,
    session: Arc<Session>,
    worker: FakeWorker,
    // Keeps the node's session.
    _node: Arc<causeway::transport::Node>,
}

impl Bulk {
    fn new(faults: Faults) -> Bulk {
        let fake = FakeNode::start(faults);
        let upper = Upper::new();
        let (node, session, worker) = fake.open(Carrier::Direct, &upper);
        Bulk {
            fake,
            upper,
            session,
            worker,
            _node: node,
        }
    }

    fn lanes(&self) -> [TcpStream; 2] {
        [self.fake.lane(), self.fake.lane()]
    }

    // The same, with everything that arrives on either in one queue.
    fn lanes_read(&self) -> ([TcpStream; 2], Arrivals) {
        let lanes = self.lanes();
        let (sender, arrivals) = mpsc::channel();
        for lane in &lanes {
            let (mut lane, sender) = (lane.try_clone().unwrap(), sender.clone());
            lane.set_read_timeout(None).unwrap();
            std::thread::spawn(move || {
                while let Some(chunk) = read_chunk(&mut lane) {
                    let _ = sender.send(chunk);
                }
            });
        }
        (lanes, Arrivals(arrivals))
    }

    fn upload(&self, bytes: &Arc<Vec<u8>>, region: Region) {
        // SAFETY: `bytes` is kept by the session and by the test's own Arc.
        let source = unsafe { HostRegion::new(bytes.as_ptr().cast_mut(), region) };
        self.session
            .upload(EVENT, source, bytes.clone(), None)
            .unwrap();
    }

    fn download(&self, bytes: &mut [u8], region: Region) {
        assert!(region.end() <= bytes.len() as u64);
        // SAFETY: the test keeps `bytes` until the completion.
        let target = unsafe { HostRegion::new(bytes.as_mut_ptr(), region) };
        self.session.download(EVENT, target).unwrap();
    }
}

fn say(lane: &mut TcpStream, kind: Kind, offset: u64) {
    lane.write_all(
        &Header {
            kind,
            transfer: EVENT,
            offset,
            length: 0,
        }
        .encode(),
    )
    .unwrap();
}

fn send(lane: &mut TcpStream, bytes: &[u8], from: usize, to: usize) {
    let header = Header {
        kind: Kind::Data,
        transfer: EVENT,
        offset: from as u64,
        length: (to - from) as u32,
    };
    lane.write_all(&header.encode()).unwrap();
    lane.write_all(&bytes[from..to]).unwrap();
}

// A chunk: whose, where, what.
type Chunk = (EventId, usize, Vec<u8>);

// The next chunk on a lane, until it closes.
fn read_chunk(lane: &mut TcpStream) -> Option<Chunk> {
    let mut header = [0; HEADER];
    lane.read_exact(&mut header).ok()?;
    let header = Header::decode(&header).unwrap();
    assert_eq!(header.kind, Kind::Data);
    let mut bytes = vec![0; header.length as usize];
    lane.read_exact(&mut bytes).ok()?;
    Some((header.transfer, header.offset as usize, bytes))
}

struct Arrivals(mpsc::Receiver<Chunk>);

impl Arrivals {
    fn next(&self) -> Chunk {
        self.0.recv_timeout(PATIENCE).expect("a chunk")
    }

    // Puts chunks of the one transfer into place until `count` bytes have come.
    fn fill(&self, into: &mut [u8], count: usize) {
        let mut got = 0;
        while got < count {
            let (event, from, bytes) = self.next();
            assert_eq!(event, EVENT);
            into[from..from + bytes.len()].copy_from_slice(&bytes);
            got += bytes.len();
        }
        assert_eq!(got, count);
    }

    // Whether nothing comes. A slow machine can make this true too often, never wrongly false.
    fn is_silent(&self) -> bool {
        self.0.recv_timeout(Duration::from_millis(20)).is_err()
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn packed(bytes: &[u8], region: &Region) -> Vec<u8> {
    let segments = region.segments(0, region.packed_length());
    segments
        .flat_map(|s| bytes[s.offset as usize..][..s.length as usize].to_vec())
        .collect()
}

#[test]
fn an_upload_sends_what_credit_allows_and_says_when_all_is_sent() {
    let mut bulk = Bulk::new(Faults::default());
    let bytes = Arc::new(pattern(5 * BULK_CHUNK + 123));
    let kept = Arc::downgrade(&bytes);
    bulk.upload(&bytes, Region::linear(0, bytes.len() as u64).unwrap());
    let ([mut a, mut b], arrivals) = bulk.lanes_read();
    assert!(arrivals.is_silent(), "nothing without credit");

    let mut got = vec![0; bytes.len()];
    say(&mut a, Kind::Credit, 1000);
    arrivals.fill(&mut got, 1000);
    assert!(arrivals.is_silent(), "nothing beyond the credit");
    assert_eq!(bulk.upper.heard().uploaded, []);

    // More than the whole is the whole; less than before changes nothing.
    say(&mut b, Kind::Credit, u64::MAX);
    say(&mut b, Kind::Credit, 5);
    arrivals.fill(&mut got, bytes.len() - 1000);
    assert!(arrivals.is_silent(), "nothing twice");
    assert!(got == *bytes);
    assert_eq!(
        bulk.upper.wait(|heard| !heard.uploaded.is_empty()).uploaded,
        [EVENT]
    );
    drop(bytes);
    assert!(kept.upgrade().is_none(), "what was kept is let go");
    bulk.worker.send(completed(EVENT.0, 0));
    assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
}

#[test]
fn rows_long_and_short_travel_packed_both_ways() {
    for (row, gap) in [(1, 3), (100, 28), (5000, 120), (300_000, 1)] {
        let (rows, slices) = (if row < 1000 { 900 } else { 7 }, 3);
        let (row_pitch, slice_pitch) = (row + gap, (row + gap) * rows + 11);
        let region = Region::rect(17, [row, rows, slices], row_pitch, slice_pitch).unwrap();
        let total = region.packed_length() as usize;

        let bulk = Bulk::new(Faults {
            bulk_connections: 1,
            ..Faults::default()
        });
        let bytes = Arc::new(pattern(region.end() as usize));
        bulk.upload(&bytes, region);
        let mut lane = bulk.fake.lane();
        say(&mut lane, Kind::Credit, total as u64);
        let (mut got, mut count) = (vec![0; total], 0);
        while count < total {
            let (_, from, chunk) = read_chunk(&mut lane).unwrap();
            got[from..from + chunk.len()].copy_from_slice(&chunk);
            count += chunk.len();
        }
        assert!(got == packed(&bytes, &region), "up, rows of {row}");

        let mut bulk = Bulk::new(Faults {
            bulk_connections: 1,
            ..Faults::default()
        });
        let mut memory = vec![0xee; region.end() as usize + 9];
        bulk.download(&mut memory, region);
        let mut lane = bulk.fake.lane();
        // Chunks that cut through rows, the last first.
        let sent = pattern(total);
        let cuts: Vec<usize> = (0..total)
            .step_by(total.div_ceil(5))
            .chain([total])
            .collect();
        for pair in cuts.windows(2).rev() {
            for from in (pair[0]..pair[1]).step_by(BULK_CHUNK) {
                send(&mut lane, &sent, from, pair[1].min(from + BULK_CHUNK));
            }
        }
        bulk.worker.send(completed(EVENT.0, 0));
        assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
        assert!(packed(&memory, &region) == sent, "down, rows of {row}");
        let mut gaps = memory.clone();
        for segment in region.segments(0, total as u64) {
            gaps[segment.offset as usize..][..segment.length as usize].fill(0xee);
        }
        assert!(
            gaps.iter().all(|byte| *byte == 0xee),
            "the gaps are not touched"
        );
    }
}

#[test]
fn a_read_completes_when_completion_and_all_bytes_are_there() {
    for completion_first in [true, false] {
        let mut bulk = Bulk::new(Faults::default());
        let sent = pattern(2 * BULK_CHUNK);
        let mut memory = vec![0; sent.len()];
        bulk.download(&mut memory, Region::linear(0, sent.len() as u64).unwrap());
        let [mut a, mut b] = bulk.lanes();
        send(&mut b, &sent, BULK_CHUNK, 2 * BULK_CHUNK);
        if completion_first {
            bulk.worker.send(completed(EVENT.0, 0));
        }
        // An unrelated event after it shows that the completion has been seen.
        bulk.worker.send(completed(1, 0));
        bulk.upper.completion(1);
        assert!(!bulk.upper.has_completed(EVENT.0));
        send(&mut a, &sent, 0, BULK_CHUNK);
        if !completion_first {
            bulk.worker.send(completed(EVENT.0, 0));
        }
        bulk.session
            .wait_until(&|| bulk.upper.has_completed(EVENT.0))
            .unwrap();
        assert!(memory == sent);
    }
}

#[test]
fn a_failed_read_completes_at_once_and_late_bytes_go_nowhere() {
    let mut bulk = Bulk::new(Faults::default());
    let mut memory = vec![0xee; 1000];
    bulk.download(&mut memory, Region::linear(0, 1000).unwrap());
    let [mut a, _b] = bulk.lanes();
    bulk.worker.send(completed(EVENT.0, -5));
    assert_eq!(bulk.upper.completion(EVENT.0).status, -5);
    // Late: of this transfer, in the wrong place even. Then a transfer that is well.
    send(&mut a, &pattern(4000), 3000, 4000);
    let next = EventId(78);
    let mut second = vec![0; 10];
    // SAFETY: kept until the completion below.
    let target = unsafe { HostRegion::new(second.as_mut_ptr(), Region::linear(0, 10).unwrap()) };
    bulk.session.download(next, target).unwrap();
    a.write_all(
        &Header {
            kind: Kind::Data,
            transfer: next,
            offset: 0,
            length: 10,
        }
        .encode(),
    )
    .unwrap();
    a.write_all(&[7; 10]).unwrap();
    bulk.worker.send(completed(next.0, 0));
    bulk.upper.completion(next.0);
    assert_eq!(second, [7; 10]);
    assert!(memory.iter().all(|byte| *byte == 0xee));
    assert_eq!(bulk.session.is_lost(), None);
}

#[test]
fn a_failed_read_waits_for_the_lane_that_is_in_its_memory() {
    let mut bulk = Bulk::new(Faults::default());
    let mut memory = vec![0; 1000];
    bulk.download(&mut memory, Region::linear(0, 1000).unwrap());
    let [mut a, _b] = bulk.lanes();
    // A chunk of which one byte is missing.
    a.write_all(
        &Header {
            kind: Kind::Data,
            transfer: EVENT,
            offset: 0,
            length: 100,
        }
        .encode(),
    )
    .unwrap();
    a.write_all(&[1; 99]).unwrap();
    wait_for(|| memory_is(&memory, 98, 1));
    bulk.worker.send(completed(EVENT.0, -5));
    bulk.worker.send(completed(1, 0));
    bulk.upper.completion(1);
    assert!(
        !bulk.upper.has_completed(EVENT.0),
        "the lane may still write"
    );
    a.write_all(&[1]).unwrap();
    assert_eq!(bulk.upper.completion(EVENT.0).status, -5);
}

// Looks at memory that a lane writes.
fn memory_is(memory: &[u8], at: usize, value: u8) -> bool {
    // SAFETY: in bounds; volatile since another thread writes.
    unsafe { memory.as_ptr().add(at).read_volatile() == value }
}

fn wait_for(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time");
        std::thread::yield_now();
    }
}

#[test]
fn a_cancelled_upload_stops_and_lets_go() {
    let mut bulk = Bulk::new(Faults::default());
    let bytes = Arc::new(pattern(3 * BULK_CHUNK));
    let kept: Weak<Vec<u8>> = Arc::downgrade(&bytes);
    bulk.upload(&bytes, Region::linear(0, bytes.len() as u64).unwrap());
    let ([mut a, _b], arrivals) = bulk.lanes_read();
    say(&mut a, Kind::Credit, 10);
    arrivals.fill(&mut [0; 10], 10);
    say(&mut a, Kind::Cancel, 0);
    drop(bytes);
    wait_for(|| kept.upgrade().is_none());
    // Too late.
    say(&mut a, Kind::Credit, 3 * BULK_CHUNK as u64);
    assert!(arrivals.is_silent());
    bulk.worker.send(completed(EVENT.0, -14));
    assert_eq!(bulk.upper.completion(EVENT.0).status, -14);
    assert_eq!(bulk.upper.heard().uploaded, []);
}

#[test]
fn several_uploads_share_the_lanes_without_blocking_each_other() {
    let bulk = Bulk::new(Faults::default());
    let bytes = Arc::new(pattern(BULK_CHUNK));
    for event in 1..=20 {
        // SAFETY: kept by the session and this test.
        let source = unsafe {
            HostRegion::new(
                bytes.as_ptr().cast_mut(),
                Region::linear(0, bytes.len() as u64).unwrap(),
            )
        };
        bulk.session
            .upload(EventId(event), source, bytes.clone(), None)
            .unwrap();
    }
    let ([mut credit, _], arrivals) = bulk.lanes_read();
    // The last first; the others never get credit.
    for event in [20, 7] {
        let header = Header {
            kind: Kind::Credit,
            transfer: EventId(event),
            offset: BULK_CHUNK as u64,
            length: 0,
        };
        credit.write_all(&header.encode()).unwrap();
    }
    let mut events = [arrivals.next().0.0, arrivals.next().0.0];
    events.sort_unstable();
    assert_eq!(events, [7, 20]);
    assert!(arrivals.is_silent());
}

#[test]
fn bytes_that_are_no_part_of_a_transfer_end_the_session() {
    for (offset, length) in [(990, 20), (u64::MAX / 2, 20), (0, 1001)] {
        let bulk = Bulk::new(Faults::default());
        let mut memory = vec![0xee; 1000];
        bulk.download(&mut memory, Region::linear(0, 1000).unwrap());
        let [mut a, _b] = bulk.lanes();
        a.write_all(
            &Header {
                kind: Kind::Data,
                transfer: EVENT,
                offset,
                length,
            }
            .encode(),
        )
        .unwrap();
        assert!(bulk.upper.loss().to_string().contains("no part of"));
        assert!(memory.iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn a_header_of_nonsense_ends_the_session() {
    let bulk = Bulk::new(Faults::default());
    bulk.download(&mut [0; 10], Region::linear(0, 10).unwrap());
    let [mut a, _b] = bulk.lanes();
    a.write_all(&[0xaa; HEADER]).unwrap();
    assert!(bulk.upper.loss().to_string().contains("magic"));
}

#[test]
fn a_lane_lost_within_a_chunk_loses_the_session_after_the_memory_is_left() {
    let bulk = Bulk::new(Faults::default());
    let mut memory = vec![0; 1000];
    bulk.download(&mut memory, Region::linear(0, 1000).unwrap());
    let [mut a, b] = bulk.lanes();
    a.write_all(
        &Header {
            kind: Kind::Data,
            transfer: EVENT,
            offset: 0,
            length: 100,
        }
        .encode(),
    )
    .unwrap();
    a.write_all(&[1; 50]).unwrap();
    wait_for(|| memory_is(&memory, 49, 1));
    drop(b);
    bulk.upper.loss();
    // Nobody writes here any more: this would be seen by a sanitizer, and is our own again.
    memory.fill(3);
    let _ = a.write_all(&[1; 50]);
    assert!(memory.iter().all(|byte| *byte == 3));
    assert!(!bulk.upper.has_completed(EVENT.0));
}

#[test]
fn a_node_without_bulk_loses_the_session_not_the_program() {
    let mut bulk = Bulk::new(Faults {
        bulk_connections: 0,
        ..Faults::default()
    });
    bulk.download(&mut [0; 10], Region::linear(0, 10).unwrap());
    // One lane is tried even so; without it the transfer would wait for ever.
    let lane = bulk.fake.lane();
    drop(lane);
    bulk.upper.loss();
    assert!(bulk.worker.try_receive().is_none());
}

#[test]
fn expected_lanes_come_before_the_first_transfer() {
    let bulk = Bulk::new(Faults::default());
    bulk.session.expect_transfers();
    bulk.session.send(&command(1)).unwrap();
    let ([mut a, _b], arrivals) = bulk.lanes_read();
    let bytes = Arc::new(pattern(1000));
    bulk.upload(&bytes, Region::linear(0, 1000).unwrap());
    say(&mut a, Kind::Credit, 1000);
    let mut got = vec![0; 1000];
    arrivals.fill(&mut got, 1000);
    assert!(got == *bytes);
}

#[test]
fn expected_lanes_that_do_not_open_are_tried_again_when_needed() {
    let bulk = Bulk::new(Faults {
        closed_lanes: 1,
        ..Faults::default()
    });
    bulk.session.expect_transfers();
    bulk.session.send(&command(1)).unwrap();
    wait_for(|| bulk.fake.lanes_asked() == 1);
    let bytes = Arc::new(pattern(1000));
    bulk.upload(&bytes, Region::linear(0, 1000).unwrap());
    let ([mut a, _b], arrivals) = bulk.lanes_read();
    say(&mut a, Kind::Credit, 1000);
    let mut got = vec![0; 1000];
    arrivals.fill(&mut got, 1000);
    assert!(got == *bytes);
    assert!(bulk.session.is_lost().is_none());
}

#[test]
fn what_is_sent_beside_a_transfer_leaves_without_being_flushed() {
    let mut bulk = Bulk::new(Faults::default());
    let bytes = Arc::new(pattern(3 * BULK_CHUNK));
    // Without credit it stays under way; meanwhile the flusher sleeps after its first idle tick.
    bulk.upload(&bytes, Region::linear(0, bytes.len() as u64).unwrap());
    let _lanes = bulk.lanes();
    let mut next = 1;
    for round in 0..100 {
        bulk.session.send(&command(next)).unwrap();
        if round % 2 == 1 {
            // Who flushes by itself takes no wake away from others.
            bulk.session.send_now(&command(next + 1)).unwrap();
            bulk.session.send(&command(next + 2)).unwrap();
        }
        let last = next + 2 * (round % 2);
        while next <= last {
            next += bulk.worker.receive().commands.len() as u64;
        }
    }
}

#[test]
fn a_withdrawn_transfer_is_forgotten() {
    let mut bulk = Bulk::new(Faults::default());
    let bytes = Arc::new(vec![1; 10]);
    let kept = Arc::downgrade(&bytes);
    bulk.upload(&bytes, Region::linear(0, 10).unwrap());
    drop(bytes);
    bulk.session.withdraw(EVENT);
    assert!(kept.upgrade().is_none());
    bulk.worker.send(completed(EVENT.0, 0));
    assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
}
