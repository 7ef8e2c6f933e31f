//! Tests that a bulk transfer needs no memory beyond the application's own.
//!
//! The test has a process of its own, because it measures the whole process, the fake node included.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use causeway::config::Carrier;
use causeway::transport::HostRegion;
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;

use crate::frames::fake_node::bulk::wait_for;
use crate::frames::fake_node::upper::{Upper, completed};
use crate::frames::fake_node::{FakeNode, Faults};

const SIZE: usize = 256 << 20;
const ALLOWED: usize = 64 << 20;

fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        << 10
}

fn swallow(mut lane: TcpStream) {
    let mut chunk = vec![0; BULK_CHUNK];
    let mut header = [0; HEADER];
    while lane.read_exact(&mut header).is_ok() {
        let header = Header::decode(&header).unwrap();
        lane.read_exact(&mut chunk[..header.length as usize])
            .unwrap();
    }
}

#[test]
fn a_quarter_gibibyte_each_way_stays_in_its_buffer() {
    own_process!();
    let fake = FakeNode::start(Faults::default());
    let upper = Upper::new();
    let (node, session, mut worker) = fake.open(Carrier::Direct, &upper);
    let mut memory = vec![1u8; SIZE];
    let region = Region::linear(0, SIZE as u64).unwrap();
    let before = peak();

    // SAFETY: `memory` outlives the session's use of it, here and below.
    let target = unsafe { HostRegion::new(memory.as_mut_ptr(), region) };
    session.download(EventId(1), target).unwrap();
    let mut lanes = [fake.lane(), fake.lane()];
    let chunk = vec![2u8; BULK_CHUNK];
    for (number, offset) in (0..SIZE).step_by(BULK_CHUNK).enumerate() {
        let lane = &mut lanes[number % 2];
        let header = Header {
            kind: Kind::Data,
            transfer: EventId(1),
            offset: offset as u64,
            length: BULK_CHUNK as u32,
        };
        lane.write_all(&header.encode()).unwrap();
        lane.write_all(&chunk).unwrap();
    }
    worker.send(completed(1, 0));
    upper.completion(1);
    assert!(memory.iter().all(|byte| *byte == 2));

    // SAFETY: as above.
    let source = unsafe { HostRegion::new(memory.as_mut_ptr(), region) };
    let keep = Arc::new(());
    let kept = Arc::downgrade(&keep);
    session.upload(EventId(2), source, keep, None).unwrap();
    let credit = Header {
        kind: Kind::Credit,
        transfer: EventId(2),
        offset: SIZE as u64,
        length: 0,
    };
    lanes[0].write_all(&credit.encode()).unwrap();
    let readers = lanes.map(|lane| std::thread::spawn(move || swallow(lane)));
    wait_for(|| kept.strong_count() == 0);
    let grown = peak() - before;
    assert!(grown < ALLOWED, "{} MiB more", grown >> 20);
    drop((node, session));
    for reader in readers {
        reader.join().unwrap();
    }
}
