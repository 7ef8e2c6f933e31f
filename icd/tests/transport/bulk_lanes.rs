//! Tests of bulk lanes: when they open, what they must not carry, and the cost of a lost lane.

use std::io::Write;
use std::sync::Arc;

use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::region::Region;

use crate::frames::fake_node::Faults;
use crate::frames::fake_node::bulk::{Bulk, EVENT, memory_is, pattern, say, wait_for};
use crate::frames::fake_node::upper::command;

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
        assert!(bulk.upper.loss().to_string().contains("outside of"));
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
    // Nobody writes here any more. A sanitizer would see a write, and the memory belongs to the test again.
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
    // One lane is tried nevertheless. Without it, the transfer would wait forever.
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
    wait_for(|| bulk.fake.lanes_asked() >= 1);
    let bytes = Arc::new(pattern(1000));
    bulk.upload(&bytes, Region::linear(0, 1000).unwrap());
    let ([mut a, _b], arrivals) = bulk.lanes_read();
    say(&mut a, Kind::Credit, 1000);
    let mut got = vec![0; 1000];
    arrivals.fill(&mut got, 1000);
    assert!(got == *bytes);
    assert!(bulk.session.is_lost().is_none());
}
