//! Tests of bulk writes and reads over the real protocol: credit, chunks on several lanes, rectangles, order in the
//! queue, cancellation, and the worker's memory. Each runs mapped, and staged in chunks.

use std::io::{Read, Write};
use std::net::TcpStream;

use causeway_proto::bulk::{HEADER, Header, Kind as Bulk};
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;

use crate::common::bulk::{STAGED, both_ways, download, next_header, next_word, pattern, upload};
use crate::common::spin::{Spin, TWO_THREADS};
use crate::common::{Daemon, Session, bulk_data, launch, linear, memory, read, write};

fn open(daemon: &Daemon) -> (Session, Vec<TcpStream>, u64, u64) {
    let mut session = daemon.session();
    let lanes = vec![session.lane(0), session.lane(1)];
    let context = session.context();
    let queue = session.queue(context, 2);
    (session, lanes, context, queue)
}

#[test]
fn large_writes_and_reads_carry_every_byte_in_queue_order() {
    both_ways(|daemon| {
        let (mut session, mut lanes, context, queue) = open(daemon);
        let length = 20 * BULK_CHUNK + 12_345;
        let bytes = pattern(length);
        let buffer = session.buffer(context, length as u64, &[]);
        let put = session.enqueue(queue, &[], write(buffer, linear(0, length as u64), None));
        // This write is behind the transfer in the same queue. It must see the transfer's bytes, and must not
        // overtake it.
        let patch = session.write(queue, &[], buffer, 5, b"patched");
        let get = session.enqueue(queue, &[], read(buffer, linear(0, length as u64), true));
        upload(&mut lanes, put, &bytes, true);
        let got = download(&mut lanes, get, length);
        for event in [put, patch, get] {
            let done = session.wait(event);
            assert_eq!(done.status, 0, "{}", done.message);
            assert!(done.queued <= done.started && done.started <= done.ended && done.ended > 0);
        }
        let mut expected = bytes;
        expected[5..12].copy_from_slice(b"patched");
        assert!(got == expected);
    });
}

#[test]
fn rectangles_land_where_they_belong() {
    both_ways(|daemon| {
        let (mut session, mut lanes, context, queue) = open(daemon);
        // Short rows (gathered) and long rows (sent directly).
        for (row, rows) in [(1000u64, 700u64), (40_000, 50)] {
            let region =
                Region::rect(77, [row, rows, 2], row + 24, (row + 24) * (rows + 3)).unwrap();
            let size = region.end() + 100;
            let buffer = session.buffer(context, size, &[]);
            let zero = session.enqueue(
                queue,
                &[],
                causeway_proto::command::enqueue::Operation::FillBuffer(
                    causeway_proto::command::FillBuffer {
                        buffer,
                        pattern: vec![0xee].into(),
                        offset: 0,
                        size,
                    },
                ),
            );
            let packed = pattern(region.packed_length() as usize);
            let put = session.enqueue(queue, &[zero], write(buffer, region, None));
            upload(&mut lanes, put, &packed, false);
            let all = session.enqueue(queue, &[put], read(buffer, linear(0, size), true));
            let got = download(&mut lanes, all, size as usize);
            let mut expected = vec![0xee; size as usize];
            for s in region.segments(0, u64::MAX) {
                expected[s.offset as usize..(s.offset + s.length) as usize]
                    .copy_from_slice(&packed[s.packed as usize..(s.packed + s.length) as usize]);
            }
            assert!(got == expected, "row {row}");
            let back = session.enqueue(queue, &[], read(buffer, region, true));
            assert!(
                download(&mut lanes, back, packed.len()) == packed,
                "row {row}"
            );
            assert_eq!(session.wait(back).status, 0);
        }
    });
}

#[test]
fn a_write_behind_a_user_event_gets_no_credit_and_blocks_no_other() {
    both_ways(|daemon| {
        let (mut session, mut lanes, context, queue) = open(daemon);
        let other = session.queue(context, 0);
        let length = 40 * BULK_CHUNK;
        let bytes = pattern(length);
        let gated = session.buffer(context, length as u64, &[]);
        let free = session.buffer(context, length as u64, &[]);
        let user_event = session.user_event();
        let late = session.enqueue(
            queue,
            &[user_event],
            write(gated, linear(0, length as u64), None),
        );
        let early = session.enqueue(other, &[], write(free, linear(0, length as u64), None));
        upload(&mut lanes, early, &bytes, false);
        assert_eq!(session.wait(early).status, 0);
        assert!(!session.heard.completions.contains_key(&late));
        session.set(user_event, 0);
        upload(&mut lanes, late, &bytes, false);
        assert_eq!(session.wait(late).status, 0);
    });
}

#[test]
fn a_cancelled_write_is_called_off_and_its_late_bytes_are_thrown_away() {
    both_ways(|daemon| {
        let (mut session, mut lanes, context, queue) = open(daemon);
        let length = 3 * BULK_CHUNK;
        let buffer = session.buffer(context, length as u64, &[]);
        let user_event = session.user_event();
        let doomed = session.enqueue(
            queue,
            &[user_event],
            write(buffer, linear(0, length as u64), None),
        );
        session.set(user_event, -1);
        assert_eq!(session.wait(doomed).status, -14);
        let header = next_word(&mut lanes);
        assert_eq!((header.kind, header.transfer.0), (Bulk::Cancel, doomed));
        bulk_data(&mut lanes[0], doomed, 0, &[0; 1000]);
        // The lanes still work.
        let bytes = pattern(length);
        let put = session.enqueue(queue, &[], write(buffer, linear(0, length as u64), None));
        upload(&mut lanes, put, &bytes, false);
        let get = session.enqueue(queue, &[], read(buffer, linear(0, length as u64), true));
        assert!(download(&mut lanes, get, length) == bytes);
    });
}

#[test]
fn the_client_may_give_a_write_up() {
    both_ways(|daemon| {
        let (mut session, mut lanes, context, queue) = open(daemon);
        let length = 3 * BULK_CHUNK;
        let buffer = session.buffer(context, length as u64, &[]);
        let put = session.enqueue(queue, &[], write(buffer, linear(0, length as u64), None));
        let header = next_word(&mut lanes);
        assert_eq!((header.kind, header.transfer.0), (Bulk::Credit, put));
        use std::io::Write;
        let word = causeway_proto::bulk::Header {
            kind: Bulk::Cancel,
            offset: 0,
            length: 0,
            ..header
        };
        lanes[0].write_all(&word.encode()).unwrap();
        assert_eq!(session.wait(put).status, -5);
        // Later commands of the queue go on.
        let after = session.write(queue, &[], buffer, 0, b"on");
        assert_eq!(session.wait(after).status, 0);
        assert_eq!(&session.bytes(queue, buffer, 0, 2)[..], b"on");
    });
}

#[test]
fn bytes_beyond_the_credit_close_the_lane_only() {
    let daemon = Daemon::start();
    let (mut session, mut lanes, context, queue) = open(&daemon);
    let length = 3 * BULK_CHUNK;
    let buffer = session.buffer(context, length as u64, &[]);
    let put = session.enqueue(queue, &[], write(buffer, linear(0, length as u64), None));
    next_word(&mut lanes);
    bulk_data(&mut lanes[0], put, length as u64 - 8, &[0; 16]);
    assert_eq!(lanes[0].read(&mut [0; 1]).unwrap_or(0), 0);
    session.ping();
}

#[test]
fn a_launch_sees_what_a_bulk_write_brought() {
    both_ways(|daemon| {
        let (mut session, mut lanes, context, queue) = open(daemon);
        let length = 4 * BULK_CHUNK;
        let bytes = pattern(length);
        let buffer = session.buffer(context, length as u64, &[]);
        let (program, answer) = session.build(
            context,
            "kernel void inc(global uchar *x) { x[get_global_id(0)] += 1; }",
            "",
        );
        assert_eq!(answer.status, 0);
        let kernel = session.kernel(program, "inc");
        let put = session.enqueue(queue, &[], write(buffer, linear(0, length as u64), None));
        let run = launch(kernel, vec![memory(buffer)], &[length as u64], &[]);
        session.enqueue(queue, &[], run);
        let get = session.enqueue(queue, &[], read(buffer, linear(0, length as u64), true));
        upload(&mut lanes, put, &bytes, false);
        let got = download(&mut lanes, get, length);
        assert!(got.iter().zip(&bytes).all(|(g, b)| *g == b.wrapping_add(1)));
    });
}

#[test]
fn a_read_behind_a_kernel_holds_up_none_of_another_queue() {
    let daemon = Daemon::with(&[STAGED, TWO_THREADS].concat());
    let (mut session, mut lanes, context, queue) = open(&daemon);
    let other = session.queue(context, 0);
    let bytes = pattern(5 * BULK_CHUNK);
    let length = bytes.len() as u64;
    let buffer = session.buffer(context, length, &[]);
    let put = session.enqueue(queue, &[], write(buffer, linear(0, length), None));
    upload(&mut lanes, put, &bytes, false);
    assert_eq!(session.wait(put).status, 0);

    let spin = Spin::start(&mut session, context, queue);
    let held = session.enqueue(queue, &[], read(buffer, linear(0, length), true));
    let free = session.enqueue(other, &[], read(buffer, linear(0, length), true));
    assert!(download(&mut lanes, free, bytes.len()) == bytes);
    assert_eq!(session.wait(free).status, 0);
    spin.stop(&mut session);
    assert!(download(&mut lanes, held, bytes.len()) == bytes);
    assert_eq!(session.wait(held).status, 0);
}

/// Returns the high-water mark of the resident memory of `session`'s worker, in MiB.
fn peak_memory(session: &Session) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", session.worker())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

#[test]
fn a_large_transfer_takes_no_memory_beyond_its_buffer() {
    const SIZE: usize = 256 << 20;
    both_ways(|daemon| {
        let (mut session, mut lanes, context, queue) = open(daemon);
        let buffer = session.buffer(context, SIZE as u64, &[]);
        session.ping();
        let before = peak_memory(&session);
        let bytes = pattern(SIZE);
        let put = session.enqueue(queue, &[], write(buffer, linear(0, SIZE as u64), None));
        upload(&mut lanes, put, &bytes, false);
        assert_eq!(session.wait(put).status, 0);
        let get = session.enqueue(queue, &[], read(buffer, linear(0, SIZE as u64), true));
        assert!(download(&mut lanes, get, SIZE) == bytes);
        assert_eq!(session.wait(get).status, 0);
        let grown = peak_memory(&session) - before;
        assert!(grown < (SIZE as u64 >> 20) + 64, "grew by {grown} MiB");
    });
}

#[test]
fn short_reads_that_nobody_takes_pile_up_in_no_memory() {
    const READS: u64 = 192;
    both_ways(|daemon| {
        let (mut session, mut lanes, context, queue) = open(daemon);
        // In an out-of-order queue, only missing memory delays a read.
        let many = session.queue(context, 3);
        let buffer = session.buffer(context, BULK_CHUNK as u64, &[]);
        let bytes = pattern(BULK_CHUNK);
        let put = session.enqueue(
            queue,
            &[],
            write(buffer, linear(0, BULK_CHUNK as u64), None),
        );
        upload(&mut lanes, put, &bytes, false);
        assert_eq!(session.wait(put).status, 0);
        let before = peak_memory(&session);
        let gets: Vec<u64> = (0..READS)
            .map(|_| {
                let all = read(buffer, linear(0, BULK_CHUNK as u64), true);
                session.enqueue(many, &[], all)
            })
            .collect();
        // The device has executed the reads that it was given.
        for _ in 0..10 {
            let behind = session.write(queue, &[], buffer, 0, &bytes[..4]);
            assert_eq!(session.wait(behind).status, 0);
        }
        let mut missing: std::collections::HashSet<u64> = gets.iter().copied().collect();
        let mut got = vec![0; BULK_CHUNK];
        while !missing.is_empty() {
            let (header, lane) = next_header(&mut lanes);
            if header.kind == Bulk::Credit {
                continue;
            }
            assert_eq!((header.kind, header.offset), (Bulk::Data, 0));
            assert!(missing.remove(&header.transfer.0));
            lanes[lane].read_exact(&mut got).unwrap();
            assert!(got == bytes);
        }
        for get in gets {
            assert_eq!(session.wait(get).status, 0);
        }
        let grown = peak_memory(&session) - before;
        assert!(grown < 64, "grew by {grown} MiB");
    });
}

#[test]
fn a_client_that_acknowledges_nothing_gets_little() {
    let daemon = Daemon::with(&[]);
    let mut session = Session::open_resuming(&daemon, 60_000);
    let mut lanes = vec![session.lane(0)];
    let context = session.context();
    let queue = session.queue(context, 2);
    const LENGTH: usize = 128 << 20;
    let buffer = session.buffer(context, LENGTH as u64, &[]);
    let get = session.enqueue(queue, &[], read(buffer, linear(0, LENGTH as u64), true));
    let (mut got, mut received, mut bytes) = (0, 0, vec![0; BULK_CHUNK]);
    let mut most: Option<usize> = None;
    while got < LENGTH {
        let header = next_word(&mut lanes);
        received += HEADER;
        if header.kind == Bulk::Ack {
            // Everything that the worker sends without acknowledgements came before this answer.
            most.get_or_insert(got);
        } else {
            assert_eq!((header.kind, header.transfer.0), (Bulk::Data, get));
            let length = header.length as usize;
            lanes[0].read_exact(&mut bytes[..length]).unwrap();
            got += length;
            received += length;
        }
        if got >= 32 << 20 && most.is_none() {
            lanes[0].write_all(&Header::ping().encode()).unwrap();
        }
        if most.is_some() {
            let ack = Header::ack(0, received as u64);
            lanes[0].write_all(&ack.encode()).unwrap();
        }
    }
    assert!(most.is_some_and(|most| most <= (32 << 20) + BULK_CHUNK));
    assert_eq!(session.wait(get).status, 0);
}
