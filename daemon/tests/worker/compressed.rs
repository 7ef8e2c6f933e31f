//! Tests of compressed chunks: writes, reads if the client allows them, and invalid blocks. On devices with direct
//! memory, and on those without.

use std::io::{Read, Write};

use causeway_lane::{Packer, Stream, Unpacker};
use causeway_proto::bulk::{HEADER, Header, Kind as Bulk};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;

use crate::common::bulk::{both_ways, next_word, open_with_lane};
use crate::common::{Daemon, linear, read, write};

// Returns bytes that compress well, and of which no two chunks are equal.
fn text(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i / 1000) as u8).collect()
}

fn piece(transfer: u64, offset: usize, length: usize) -> Header {
    Header {
        kind: Bulk::Data,
        transfer: EventId(transfer),
        offset: offset as u64,
        length: length as u32,
    }
}

// Returns a chunk as a compressing client sends it. It must become smaller.
fn packed(header: &Header, bytes: &[u8]) -> Vec<u8> {
    let wire = Stream::Buffer(causeway_lane::Buffer::default());
    let pack = |less: Option<u32>| {
        assert!(less.is_some_and(|less| less < header.length));
        header.encode_packed(less)
    };
    Packer::default()
        .send(&wire, pack, |mut raw| raw.write_all(bytes))
        .unwrap();
    let mut sent = Vec::new();
    (&wire).read_to_end(&mut sent).unwrap();
    sent
}

#[test]
fn bytes_are_the_same_in_both_directions() {
    both_ways(|daemon| {
        let (mut session, mut lane, context, queue) = open_with_lane(daemon);
        lane.write_all(&Header::compress().encode()).unwrap();
        let bytes = text(5 * BULK_CHUNK + 12_345);
        let whole = linear(0, bytes.len() as u64);
        let buffer = session.buffer(context, bytes.len() as u64, &[]);
        let put = session.enqueue(queue, &[], write(buffer, whole, None));
        let mut sent = 0;
        while sent < bytes.len() {
            let credit = next_word(std::slice::from_mut(&mut lane));
            assert_eq!((credit.kind, credit.transfer.0), (Bulk::Credit, put));
            while sent < credit.offset as usize {
                let length = BULK_CHUNK.min(credit.offset as usize - sent);
                let header = piece(put, sent, length);
                let chunk = packed(&header, &bytes[sent..sent + length]);
                lane.write_all(&chunk).unwrap();
                sent += length;
            }
        }
        let done = session.wait(put);
        assert_eq!(done.status, 0, "{}", done.message);

        let get = session.enqueue(queue, &[], read(buffer, whole, true));
        let stream = Stream::Tcp(lane);
        let (mut unpacker, mut got, mut count) = (Unpacker::default(), vec![0; bytes.len()], 0);
        let mut smaller = 0;
        while count < bytes.len() {
            let mut head = [0; HEADER];
            (&stream).read_exact(&mut head).unwrap();
            let (header, less) = Header::decode_packed(&head).unwrap();
            if header.kind == Bulk::Credit {
                continue;
            }
            assert_eq!((header.kind, header.transfer.0), (Bulk::Data, get));
            let length = header.length as usize;
            let place = &mut got[header.offset as usize..][..length];
            match less {
                Some(less) => {
                    smaller += 1;
                    let mut raw = unpacker.receive(&stream, less, header.length).unwrap();
                    raw.read_exact(place).unwrap();
                }
                None => (&stream).read_exact(place).unwrap(),
            }
            count += length;
        }
        assert!(smaller > 3, "{smaller}");
        assert!(got == bytes);
        assert_eq!(session.wait(get).status, 0);
    });
}

// A read that is alone, and short enough to leave without a lane's thread.
#[test]
fn a_short_read_is_compressed_as_well() {
    both_ways(|daemon| {
        let (mut session, mut lane, context, queue) = open_with_lane(daemon);
        lane.write_all(&Header::compress().encode()).unwrap();
        let bytes = text(100_000);
        let whole = linear(0, bytes.len() as u64);
        let buffer = session.buffer(context, bytes.len() as u64, &[]);
        // When the worker has taken later messages, it knows the client's setting.
        let put = session.enqueue(queue, &[], write(buffer, whole, None));
        let credit = next_word(std::slice::from_mut(&mut lane));
        assert_eq!((credit.kind, credit.transfer.0), (Bulk::Credit, put));
        lane.write_all(&piece(put, 0, bytes.len()).encode())
            .unwrap();
        lane.write_all(&bytes).unwrap();
        assert_eq!(session.wait(put).status, 0);

        session.enqueue(queue, &[], read(buffer, whole, true));
        let mut head = [0; HEADER];
        loop {
            lane.read_exact(&mut head).unwrap();
            let (header, less) = Header::decode_packed(&head).unwrap();
            if header.kind == Bulk::Data {
                assert!(less.is_some_and(|less| less < header.length), "{header:?}");
                break;
            }
        }
    });
}

#[test]
fn what_the_client_has_not_allowed_is_not_compressed() {
    let daemon = Daemon::start();
    let (mut session, mut lane, context, queue) = open_with_lane(&daemon);
    let length = 2 * BULK_CHUNK;
    let buffer = session.buffer(context, length as u64, &[]);
    let get = session.enqueue(queue, &[], read(buffer, linear(0, length as u64), true));
    // `download` refuses a header of a compressed chunk.
    let got = crate::common::bulk::download(std::slice::from_mut(&mut lane), get, length);
    assert_eq!(got.len(), length);
}

#[test]
fn a_block_that_is_none_and_one_of_another_length_close_the_lane_only() {
    let daemon = Daemon::start();
    let header = piece(1000, 0, 100_000);
    let short = packed(&piece(1000, 0, 90_000), &text(90_000));
    let less = (short.len() - HEADER) as u32;
    let lying = [&header.encode_packed(Some(less))[..], &short[HEADER..]].concat();
    let noise = [&header.encode_packed(Some(5000))[..], &[0xa5; 5000]].concat();
    let longer = header.encode_packed(Some(100_000)).to_vec();
    for bytes in [lying, noise, longer] {
        let (mut session, mut lane, ..) = open_with_lane(&daemon);
        lane.write_all(&bytes).unwrap();
        assert_eq!(lane.read(&mut [0; 1]).unwrap_or(0), 0);
        session.ping();
    }
}

#[test]
fn a_connection_that_breaks_amid_a_block_writes_nothing_of_it() {
    let daemon = Daemon::start();
    let (mut session, mut lane, context, queue) = open_with_lane(&daemon);
    let mut other = session.lane(1);
    let buffer = session.buffer(context, BULK_CHUNK as u64, &[]);
    let whole = linear(0, BULK_CHUNK as u64);
    let put = session.enqueue(queue, &[], write(buffer, whole, None));
    let credit = crate::common::bulk::next_header(&mut [
        lane.try_clone().unwrap(),
        other.try_clone().unwrap(),
    ]);
    assert_eq!(credit.0.transfer.0, put);
    let bytes = text(BULK_CHUNK);
    let header = piece(put, 0, BULK_CHUNK);
    let chunk = packed(&header, &bytes);
    lane.write_all(&chunk[..chunk.len() / 2]).unwrap();
    drop(lane);
    // The half chunk was not counted: the same chunk is accepted from the other connection.
    other.write_all(&chunk).unwrap();
    assert_eq!(session.wait(put).status, 0);
    assert!(session.bytes(queue, buffer, 1000, 30_000)[..] == bytes[1000..31_000]);
}
