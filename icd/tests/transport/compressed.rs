//! Tests of compressed chunks on the client's side: which chunks it compresses, which it accepts, and invalid blocks.

use std::io::{Read, Write};
use std::sync::Arc;

use causeway::config::{Compression, ServerSettings};
use causeway::transport::{HostRegion, Node, Session, discover};
use causeway_lane::{Packer, Stream, Unpacker};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;

use crate::frames::fake_node::upper::{Upper, completed};
use crate::frames::fake_node::{FakeNode, FakeWorker, Faults};

const EVENT: EventId = EventId(77);

struct Compressed {
    fake: FakeNode,
    upper: Arc<Upper>,
    session: Arc<Session>,
    worker: FakeWorker,
    // Kept, because the session ends with its node.
    _node: Arc<Node>,
}

fn open(compression: Compression, pacing: Option<u64>) -> Compressed {
    let fake = FakeNode::start(Faults {
        bulk_connections: 1,
        ..Faults::default()
    });
    let upper = Upper::new();
    let settings = ServerSettings {
        compression,
        pacing,
        ..fake.settings()
    };
    let found = discover(&[settings]).pop().unwrap();
    found.inventory.unwrap();
    let session = found.node.session(upper.clone()).unwrap();
    let worker = fake.worker();
    Compressed {
        fake,
        upper,
        session,
        worker,
        _node: found.node,
    }
}

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i / 1000) as u8).collect()
}

fn noise(length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|i| ((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8 ^ ((i * i) >> 7) as u8)
        .collect()
}

fn next(stream: &Stream) -> (Header, Option<u32>) {
    let mut stream = stream;
    let mut bytes = [0; HEADER];
    stream.read_exact(&mut bytes).unwrap();
    Header::decode_packed(&bytes).unwrap()
}

// Uploads `bytes`. Returns the arrived bytes, and the number of compressed chunks.
fn uploaded(compression: Compression, bytes: Vec<u8>) -> (Vec<u8>, usize) {
    let mut opened = open(compression, None);
    let bytes = Arc::new(bytes);
    let region = Region::linear(0, bytes.len() as u64).unwrap();
    // SAFETY: `bytes` is kept by the session and by this function.
    let source = unsafe { HostRegion::new(bytes.as_ptr().cast_mut(), region) };
    let (session, keep) = (&opened.session, bytes.clone());
    session.upload(EVENT, source, keep, None).unwrap();
    let stream = Stream::Tcp(opened.fake.lane());
    if compression == Compression::Lz4 {
        assert_eq!(
            next(&stream).0,
            Header::compress(),
            "the worker may as well"
        );
    }
    let credit = Header {
        kind: Kind::Credit,
        transfer: EVENT,
        offset: bytes.len() as u64,
        length: 0,
    };
    (&stream).write_all(&credit.encode()).unwrap();
    let (mut got, mut count, mut smaller) = (vec![0; bytes.len()], 0, 0);
    let mut unpacker = Unpacker::default();
    while count < bytes.len() {
        let (header, less) = next(&stream);
        assert_eq!((header.kind, header.transfer), (Kind::Data, EVENT));
        let place = &mut got[header.offset as usize..][..header.length as usize];
        match less {
            Some(less) => {
                smaller += 1;
                let mut raw = unpacker.receive(&stream, less, header.length).unwrap();
                raw.read_exact(place).unwrap();
            }
            None => (&stream).read_exact(place).unwrap(),
        }
        count += header.length as usize;
    }
    opened.worker.send(completed(EVENT.0, 0));
    assert_eq!(opened.upper.completion(EVENT.0).status, 0);
    (got, smaller)
}

#[test]
fn an_upload_that_compresses_is_sent_so_and_arrives_as_it_was() {
    let bytes = text(5 * BULK_CHUNK + 123);
    let (got, smaller) = uploaded(Compression::Lz4, bytes.clone());
    assert!(got == bytes);
    assert!(smaller >= 5, "{smaller}");
}

#[test]
fn noise_and_what_is_not_set_to_be_compressed_are_sent_as_they_are() {
    for (compression, bytes) in [
        (Compression::Lz4, noise(3 * BULK_CHUNK)),
        (Compression::Off, text(3 * BULK_CHUNK)),
    ] {
        let (got, smaller) = uploaded(compression, bytes.clone());
        assert!(got == bytes);
        assert_eq!(smaller, 0);
    }
}

fn downloading(opened: &Compressed, memory: &mut [u8]) {
    let region = Region::linear(0, memory.len() as u64).unwrap();
    // SAFETY: the test keeps `memory` until the completion or the session's end.
    let target = unsafe { HostRegion::new(memory.as_mut_ptr(), region) };
    opened.session.download(EVENT, target).unwrap();
}

#[test]
fn a_download_that_comes_compressed_lands_as_it_was() {
    let mut opened = open(Compression::Lz4, Some(1_000_000_000));
    let bytes = text(BULK_CHUNK);
    let mut memory = vec![0; bytes.len()];
    downloading(&opened, &mut memory);
    let lane = opened.fake.lane();
    let mut packer = Packer::default();
    let stream = Stream::Tcp(lane);
    assert_eq!(next(&stream).0, Header::pace(1_000_000_000));
    assert_eq!(next(&stream).0, Header::compress());
    let header = Header {
        kind: Kind::Data,
        transfer: EVENT,
        offset: 0,
        length: bytes.len() as u32,
    };
    let pack = |less: Option<u32>| {
        assert!(less.is_some());
        header.encode_packed(less)
    };
    let put = |mut raw: &Stream| raw.write_all(&bytes);
    packer.send(&stream, pack, put).unwrap();
    opened.worker.send(completed(EVENT.0, 0));
    assert_eq!(opened.upper.completion(EVENT.0).status, 0);
    assert!(memory == bytes);
}

#[test]
fn a_block_that_is_none_is_the_sessions_end_and_touches_nothing() {
    let opened = open(Compression::Lz4, None);
    let mut memory = vec![0xee; 100_000];
    downloading(&opened, &mut memory);
    let mut lane = opened.fake.lane();
    let header = Header {
        kind: Kind::Data,
        transfer: EVENT,
        offset: 0,
        length: 100_000,
    };
    lane.write_all(&header.encode_packed(Some(5000))).unwrap();
    lane.write_all(&[0xa5; 5000]).unwrap();
    opened.upper.wait(|heard| !heard.lost.is_empty());
    assert!(memory.iter().all(|byte| *byte == 0xee));
}
