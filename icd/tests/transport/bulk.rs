//! Tests of bulk transfers: credit, chunks in any order on any lane, early ends, and completions that wait for bytes.

use std::io::Write;
use std::sync::{Arc, Weak};

use causeway::transport::HostRegion;
use causeway_proto::bulk::{Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;

use crate::frames::fake_node::Faults;
use crate::frames::fake_node::bulk::{
    Bulk, EVENT, memory_is, packed, pattern, read_chunk, say, send, wait_for,
};
use crate::frames::fake_node::upper::{command, completed};

#[test]
fn an_upload_sends_what_credit_allows_and_says_when_all_is_sent() {
    let mut bulk = Bulk::new(Faults::default());
    let bytes = Arc::new(pattern(5 * BULK_CHUNK + 123));
    bulk.upload(&bytes, Region::linear(0, bytes.len() as u64).unwrap());
    let ([mut a, mut b], arrivals) = bulk.lanes_read();
    assert!(arrivals.is_silent(), "a chunk was sent without credit");

    let mut got = vec![0; bytes.len()];
    say(&mut a, Kind::Credit, 1000);
    arrivals.fill(&mut got, 1000);
    assert!(arrivals.is_silent(), "a chunk was sent beyond the credit");
    assert_eq!(Arc::strong_count(&bytes), 2);

    // A credit beyond the whole means the whole. A smaller credit than before changes nothing.
    say(&mut b, Kind::Credit, u64::MAX);
    say(&mut b, Kind::Credit, 5);
    arrivals.fill(&mut got, bytes.len() - 1000);
    assert!(arrivals.is_silent(), "a chunk was sent twice");
    assert!(got == *bytes);
    wait_for(|| Arc::strong_count(&bytes) == 1);
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
        // Chunks that divide rows, the last one first.
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
        // An unrelated event afterwards shows that the completion has been processed.
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
    // A late chunk of this transfer, at a wrong place. Then a valid transfer.
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
    // A chunk that lacks one byte.
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
    // This credit comes too late.
    say(&mut a, Kind::Credit, 3 * BULK_CHUNK as u64);
    assert!(arrivals.is_silent());
    bulk.worker.send(completed(EVENT.0, -14));
    assert_eq!(bulk.upper.completion(EVENT.0).status, -14);
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
    // The last transfer goes first. The others never get credit.
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
fn what_is_sent_beside_a_transfer_leaves_without_being_flushed() {
    let mut bulk = Bulk::new(Faults::default());
    let bytes = Arc::new(pattern(3 * BULK_CHUNK));
    // Without credit the transfer stays incomplete. Meanwhile the flusher sleeps after its first idle tick.
    bulk.upload(&bytes, Region::linear(0, bytes.len() as u64).unwrap());
    let _lanes = bulk.lanes();
    let mut next = 1;
    for round in 0..100 {
        bulk.session.send(&command(next)).unwrap();
        if round % 2 == 1 {
            // A thread that flushes by itself takes no wake-up from others.
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
