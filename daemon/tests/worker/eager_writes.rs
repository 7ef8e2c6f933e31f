//! Tests of writes of one chunk whose bytes come without credit: before or after their command, withheld, failed.
//! Also tests clients that send more than they may. On devices with direct memory, and on those without.

use std::io::{Read, Write};
use std::net::TcpStream;

use causeway_proto::bulk::{Header, Kind as Bulk};
use causeway_proto::command::{WriteBuffer, enqueue::Operation};
use causeway_proto::id::EventId;
use causeway_proto::limits::{BULK_CHUNK, EAGER_BYTES};
use causeway_proto::region::Region;

use crate::common::bulk::{STAGED, both_ways, open_with_lane, pattern};
use crate::common::spin::{Spin, TWO_THREADS};
use crate::common::{Daemon, bulk_piece, linear};

fn eager_write(buffer: u64, region: Region) -> Operation {
    Operation::WriteBuffer(WriteBuffer {
        buffer,
        region: Some(region.to_wire()),
        contents: Vec::new().into(),
        bulk: true,
        eager: true,
    })
}

fn send(lane: &mut TcpStream, transfer: u64, offset: u64, bytes: &[u8]) {
    bulk_piece(lane, Bulk::Eager, transfer, offset, bytes);
}

#[test]
fn bytes_may_come_before_their_command_or_after_it() {
    both_ways(|daemon| {
        let (mut session, mut lane, context, queue) = open_with_lane(daemon);
        let bytes = pattern(BULK_CHUNK);
        let buffer = session.buffer(context, BULK_CHUNK as u64, &[]);
        for length in [70_001, BULK_CHUNK, 40_000] {
            for early in [true, false] {
                let part = &bytes[BULK_CHUNK - length..];
                let zero = vec![0; 32_000];
                let clear = session.write(queue, &[], buffer, 0, &zero);
                let put = session.new_id();
                if early {
                    send(&mut lane, put, 0, part);
                }
                let operation = eager_write(buffer, linear(0, length as u64));
                session.enqueue_as(put, queue, &[clear], operation);
                let patch = session.write(queue, &[], buffer, 5, b"patched");
                if !early {
                    send(&mut lane, put, 0, part);
                }
                for event in [put, patch] {
                    let done = session.wait(event);
                    assert_eq!(done.status, 0, "{}", done.message);
                }
                let mut expected = part[..32_000].to_vec();
                expected[5..12].copy_from_slice(b"patched");
                assert!(session.bytes(queue, buffer, 0, 32_000)[..] == expected[..]);
            }
        }
    });
}

#[test]
fn rectangles_land_where_they_belong() {
    both_ways(|daemon| {
        let (mut session, mut lane, context, queue) = open_with_lane(daemon);
        let region = Region::rect(3, [300, 200, 1], 310, 0).unwrap();
        let buffer = session.buffer(context, region.end(), &[]);
        let packed = pattern(region.packed_length() as usize);
        let put = session.enqueue(queue, &[], eager_write(buffer, region));
        send(&mut lane, put, 0, &packed);
        assert_eq!(session.wait(put).status, 0);
        let got = session.bytes(queue, buffer, 3 + 310 * 50, 300);
        assert!(got[..] == packed[300 * 50..][..300]);
    });
}

#[test]
fn a_held_write_keeps_its_bytes_and_one_that_fails_throws_them_away() {
    both_ways(|daemon| {
        let (mut session, mut lane, context, queue) = open_with_lane(daemon);
        let bytes = pattern(100_000);
        let buffer = session.buffer(context, 100_000, &[]);
        let other = session.queue(context, 2);
        let user_event = session.user_event();
        let operation = eager_write(buffer, linear(0, 100_000));
        let held = session.enqueue(queue, &[user_event], operation);
        send(&mut lane, held, 0, &bytes);
        // Other commands go on meanwhile.
        let free = session.write(other, &[], buffer, 0, b"free");
        assert_eq!(session.wait(free).status, 0);
        assert!(!session.heard.completions.contains_key(&held));
        session.set(user_event, 0);
        assert_eq!(session.wait(held).status, 0);
        assert!(session.bytes(queue, buffer, 0, 10)[..] == bytes[..10]);

        // The sum exceeds the standing credit, so discarded bytes must become free again.
        for round in 0..2 * EAGER_BYTES / 100_000 {
            let user_event = session.user_event();
            let operation = eager_write(buffer, linear(0, 100_000));
            let doomed = session.enqueue(queue, &[user_event], operation);
            if round % 2 == 0 {
                send(&mut lane, doomed, 0, &bytes);
            }
            session.set(user_event, -1);
            assert_eq!(session.wait(doomed).status, -14);
            if round % 2 == 1 {
                send(&mut lane, doomed, 0, &bytes);
            }
        }
        let put = session.enqueue(queue, &[], eager_write(buffer, linear(0, 100_000)));
        send(&mut lane, put, 0, &bytes);
        assert_eq!(session.wait(put).status, 0);
    });
}

#[test]
fn more_than_the_standing_credit_twice_in_parts_and_few_close_the_lane_only() {
    let daemon = Daemon::start();
    let chunk = pattern(BULK_CHUNK);
    let full = EAGER_BYTES / BULK_CHUNK as u64;
    let sent: [&(dyn Fn(&mut TcpStream) + Sync); 4] = [
        &|lane| (0..=full).for_each(|transfer| send(lane, 1000 + transfer, 0, &chunk)),
        &|lane| (0..2).for_each(|_| send(lane, 1000, 0, &chunk[..40_000])),
        &|lane| send(lane, 1000, 1, &chunk[..40_000]),
        &|lane| send(lane, 1000, 0, b"few"),
    ];
    for send in sent {
        let (mut session, mut lane, ..) = open_with_lane(&daemon);
        // Bytes after the offence may meet a closed connection.
        let mut sending = lane.try_clone().unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| send(&mut sending)))
            });
            assert_eq!(lane.read(&mut [0; 1]).unwrap_or(0), 0);
            let _ = sender.join();
        });
        session.ping();
    }
}

#[test]
fn bytes_of_a_cancelled_write_that_still_arrive_take_no_credit() {
    let daemon = Daemon::start();
    let (mut session, mut lane, context, queue) = open_with_lane(&daemon);
    let mut other = session.lane(1);
    let bytes = pattern(BULK_CHUNK);
    let buffer = session.buffer(context, BULK_CHUNK as u64, &[]);
    let full = EAGER_BYTES / BULK_CHUNK as u64;
    let whole = || eager_write(buffer, linear(0, BULK_CHUNK as u64));

    let user_event = session.user_event();
    let doomed: Vec<u64> = (0..full)
        .map(|_| session.enqueue(queue, &[user_event], whole()))
        .collect();
    // The last transfer stops before its last byte.
    let (last, first) = doomed.split_last().unwrap();
    first
        .iter()
        .for_each(|put| send(&mut lane, *put, 0, &bytes));
    let header = Header {
        kind: Bulk::Eager,
        transfer: EventId(*last),
        offset: 0,
        length: BULK_CHUNK as u32,
    };
    lane.write_all(&header.encode()).unwrap();
    lane.write_all(&bytes[1..]).unwrap();
    for _ in 0..10 {
        session.ping();
    }
    session.set(user_event, -1);
    for put in &doomed {
        assert_eq!(session.wait(*put).status, -14);
    }

    let user_event = session.user_event();
    let held: Vec<u64> = (0..full)
        .map(|_| session.enqueue(queue, &[user_event], whole()))
        .collect();
    held.iter()
        .for_each(|put| send(&mut other, *put, 0, &bytes));
    lane.write_all(&bytes[..1]).unwrap();
    session.set(user_event, 0);
    for put in held {
        assert_eq!(session.wait(put).status, 0);
    }
    let put = session.enqueue(queue, &[], whole());
    send(&mut lane, put, 0, &bytes);
    assert_eq!(session.wait(put).status, 0);
}

#[test]
fn more_writes_behind_a_kernel_than_there_is_pinned_memory_carry_their_bytes() {
    const WRITES: usize = 20;
    let daemon = Daemon::with(&[STAGED, TWO_THREADS].concat());
    let (mut session, mut lane, context, queue) = open_with_lane(&daemon);
    let bytes = pattern(BULK_CHUNK + WRITES);
    let spin = Spin::start(&mut session, context, queue);
    let puts: Vec<(u64, u64)> = (0..WRITES)
        .map(|n| {
            let buffer = session.buffer(context, BULK_CHUNK as u64, &[]);
            let whole = eager_write(buffer, linear(0, BULK_CHUNK as u64));
            let put = session.enqueue(queue, &[], whole);
            // Bytes that come after their command go into its native write at once, and count no more when the next
            // ones come. Bytes that come before it may fill the standing credit at most.
            session.ping();
            send(&mut lane, put, 0, &bytes[n..][..BULK_CHUNK]);
            (buffer, put)
        })
        .collect();
    spin.stop(&mut session);
    for (n, (buffer, put)) in puts.into_iter().enumerate() {
        assert_eq!(session.wait(put).status, 0);
        assert!(session.bytes(queue, buffer, 1000, 30_000)[..] == bytes[n + 1000..][..30_000]);
    }
}
