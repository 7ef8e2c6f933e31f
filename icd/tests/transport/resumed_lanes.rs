//! Tests of bulk lanes whose connections break while the node has granted a time for resuming.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::preamble::Verdict;
use causeway_proto::region::Region;

use crate::frames::fake_node::Faults;
use crate::frames::fake_node::bulk::{Bulk, EVENT, pattern, say};
use crate::frames::fake_node::upper::completed;

fn bulk() -> Bulk {
    Bulk::new(Faults {
        bulk_connections: 1,
        resume_ms: 60_000,
        ..Faults::default()
    })
}

fn all(length: usize) -> Region {
    Region::linear(0, length as u64).unwrap()
}

// The messages that carry these bytes.
fn messages(bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (at, chunk) in bytes.chunks(BULK_CHUNK).enumerate() {
        let header = Header {
            kind: Kind::Data,
            transfer: EVENT,
            offset: (at * BULK_CHUNK) as u64,
            length: chunk.len() as u32,
        };
        stream.extend(header.encode());
        stream.extend(chunk);
    }
    stream
}

fn exactly(lane: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut got = vec![0; length];
    lane.read_exact(&mut got).unwrap();
    got
}

#[test]
fn a_download_goes_on_from_the_byte_where_its_connection_broke() {
    let mut bulk = bulk();
    let bytes = pattern(BULK_CHUNK + 1000);
    let mut memory = vec![0; bytes.len()];
    bulk.download(&mut memory, all(bytes.len()));
    let (stream, mut done) = (messages(&bytes), 0);
    let mut lane = bulk.fake.lane();
    for cut in [
        0,
        5,
        HEADER,
        HEADER + 700,
        BULK_CHUNK,
        BULK_CHUNK + HEADER + 20,
    ] {
        lane.write_all(&stream[done..cut]).unwrap();
        lane.shutdown(Shutdown::Both).unwrap();
        lane = bulk.fake.lane();
        assert_eq!(bulk.fake.claimed(0), cut as u64);
        done = cut;
    }
    lane.write_all(&stream[done..]).unwrap();
    bulk.worker.send(completed(EVENT.0, 0));
    assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
    assert!(memory == bytes);
}

#[test]
fn a_lane_that_cannot_be_opened_ends_the_session_after_the_granted_time() {
    for is_first in [true, false] {
        let faults = Faults {
            bulk_connections: 1,
            resume_ms: 300,
            closed_lanes: if is_first { usize::MAX } else { 0 },
            ..Faults::default()
        };
        let bulk = Bulk::new(faults);
        let mut memory = vec![0; 10];
        bulk.download(&mut memory, all(10));
        if !is_first {
            let lane = bulk.fake.lane();
            bulk.fake.set_verdict(Verdict::TooMany);
            lane.shutdown(Shutdown::Both).unwrap();
        }
        let error = bulk.upper.loss().to_string();
        assert!(error.contains("cannot open a bulk connection"), "{error}");
    }
}

#[test]
fn received_bytes_are_acknowledged_after_each_mebibyte_and_at_the_end_of_a_read() {
    let bulk = bulk();
    let bytes = pattern(BULK_CHUNK + 1000);
    let mut memory = vec![0; bytes.len()];
    bulk.download(&mut memory, all(bytes.len()));
    let stream = messages(&bytes);
    let mut lane = bulk.fake.lane();
    lane.write_all(&stream).unwrap();
    for position in [BULK_CHUNK + HEADER, stream.len()] {
        let header = exactly(&mut lane, HEADER).try_into().unwrap();
        let ack = Header::ack(0, position as u64);
        assert_eq!(Header::decode(&header), Ok(ack));
    }
}

#[test]
fn an_upload_is_sent_again_from_the_byte_that_the_node_names() {
    let mut bulk = bulk();
    let bytes = Arc::new(pattern(2 * BULK_CHUNK + 500));
    bulk.upload(&bytes, all(bytes.len()));
    let (stream, mut done) = (messages(&bytes), 0);
    let mut lane = bulk.fake.lane();
    say(&mut lane, Kind::Credit, u64::MAX);
    let mut got = Vec::new();
    for cut in [7, HEADER, 900_000, BULK_CHUNK + HEADER + 9, 2 * BULK_CHUNK] {
        got.extend(exactly(&mut lane, cut - done));
        bulk.fake.received(0, cut as u64);
        // Bytes that the node has not read are lost.
        drop(lane);
        lane = bulk.fake.lane();
        done = cut;
    }
    got.extend(exactly(&mut lane, stream.len() - done));
    assert!(got == stream);
    bulk.worker.send(completed(EVENT.0, 0));
    assert_eq!(bulk.upper.completion(EVENT.0).status, 0);
}

#[test]
fn an_upload_that_is_over_is_made_up_to_its_length_without_its_memory() {
    let mut bulk = bulk();
    let bytes = Arc::new(pattern(100_000));
    bulk.upload(&bytes, all(bytes.len()));
    let mut lane = bulk.fake.lane();
    say(&mut lane, Kind::Credit, u64::MAX);
    let got = exactly(&mut lane, 5000);
    assert!(got == messages(&bytes)[..5000]);
    bulk.worker.send(completed(EVENT.0, -5));
    assert_eq!(bulk.upper.completion(EVENT.0).status, -5);
    bulk.fake.received(0, 5000);
    drop(lane);
    let mut lane = bulk.fake.lane();
    let rest = exactly(&mut lane, HEADER + bytes.len() - 5000);
    assert!(rest.iter().all(|byte| *byte == 0));
    drop(bulk.session);
}

#[test]
fn acknowledged_bytes_cannot_be_asked_for_again() {
    let bulk = bulk();
    let bytes = Arc::new(pattern(50_000));
    bulk.upload(&bytes, all(bytes.len()));
    let mut lane = bulk.fake.lane();
    say(&mut lane, Kind::Credit, u64::MAX);
    exactly(&mut lane, HEADER + bytes.len());
    let ack = Header::ack(0, 40_000);
    lane.write_all(&ack.encode()).unwrap();
    // The client handles this after the acknowledgement.
    say(&mut lane, Kind::Credit, u64::MAX);
    lane.shutdown(Shutdown::Write).unwrap();
    bulk.fake.received(0, 39_999);
    let _lane = bulk.fake.lane();
    assert!(bulk.upper.loss().to_string().contains("acknowledged"));
}

#[test]
fn more_than_was_sent_cannot_be_acknowledged() {
    let bulk = bulk();
    bulk.upload(&Arc::new(pattern(50_000)), all(50_000));
    let mut lane = bulk.fake.lane();
    lane.write_all(&Header::ack(0, 1).encode()).unwrap();
    assert!(bulk.upper.loss().to_string().contains("were sent"));
    assert_ne!(EVENT, EventId(0));
}
