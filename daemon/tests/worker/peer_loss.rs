//! Tests of failing transfers between workers: given up at either end, cut, without a path.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use causeway_proto::bulk::{Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use rustix::event::{PollFd, PollFlags, poll};

use crate::common::bulk::pattern;
use crate::common::cutter::Cutter;
use crate::common::site::{STAGED, Site, linked, site, transfer};
use crate::common::{Daemon, linear};

#[test]
fn who_gives_a_transfer_up_tells_the_other_end() {
    const SIZE: usize = 3 * BULK_CHUNK;
    linked(|mut a, mut b, link| {
        let (from, put) = a.filled(&pattern(SIZE));
        a.ended(put);
        let to = b.buffer(SIZE);
        let whole = linear(0, SIZE as u64);
        for send_first in [true, false] {
            // The sender's wait list fails, so the receiver and its dependants fail.
            let user_event = a.session.user_event();
            let named = b.session.new_id();
            let target = (to, whole);
            let receive = |b: &mut Site| b.session.receive_as(named, b.queue, &[], target, link);
            if !send_first {
                receive(&mut b);
            }
            let sent = a
                .session
                .send_region(a.queue, &[user_event], (from, whole), named, link);
            a.session.set(user_event, -7);
            assert_eq!(a.session.wait(sent).status, -14);
            if send_first {
                receive(&mut b);
            }
            let next = b.session.read(b.queue, &[named], to, 0, 4);
            let done = b.session.wait(named);
            assert_eq!(done.status, -14, "{}", done.message);
            assert_eq!(b.session.wait(next).status, -14);
            // The receiver's wait list fails. The sender reads no more, so nothing fails there.
            let user_event = b.session.user_event();
            let received = b.session.receive(b.queue, &[user_event], (to, whole), link);
            let send = |a: &mut Site| {
                a.session
                    .send_region(a.queue, &[], (from, whole), received, link)
            };
            let early = send_first.then(|| send(&mut a));
            b.session.set(user_event, -7);
            assert_eq!(b.session.wait(received).status, -14);
            let sent = early.unwrap_or_else(|| send(&mut a));
            let next = a.session.write(a.queue, &[sent], from, 0, b"over");
            a.ended(sent);
            a.ended(next);
        }
        // The link still works.
        let (sent, received) = transfer((&mut a, from, &[]), (&mut b, to), SIZE, link);
        a.ended(sent);
        b.ended(received);
    });
}

#[test]
fn ends_of_different_lengths_both_end() {
    linked(|mut a, mut b, link| {
        let (from, put) = a.filled(&pattern(BULK_CHUNK));
        let to = b.buffer(2 * BULK_CHUNK);
        for (sends, receives) in [(1000, 2000), (2000, 1000)] {
            let received = b
                .session
                .receive(b.queue, &[], (to, linear(0, receives)), link);
            let source = (from, linear(0, sends));
            let sent = a
                .session
                .send_region(a.queue, &[put], source, received, link);
            // A shorter receiver may have all its bytes before it learns that there are more.
            let status = b.session.wait(received).status;
            assert!(status == -59 || status == 0 && receives < sends, "{status}");
            a.ended(sent);
        }
    });
}

#[test]
fn a_broken_end_is_a_status_and_an_unknown_link_ends_the_session() {
    linked(|mut a, mut b, link| {
        let (from, put) = a.filled(&pattern(1000));
        let to = b.buffer(1000);
        // A region outside of the buffer.
        let received = b.session.receive(b.queue, &[], (to, linear(0, 1000)), link);
        let outside = (from, linear(1, 1000));
        let sent = a
            .session
            .send_region(a.queue, &[put], outside, received, link);
        assert_eq!(a.session.wait(sent).status, -30);
        assert_eq!(b.session.wait(received).status, -30);
        // A region without bytes.
        let received = b.session.receive(b.queue, &[], (to, linear(5, 0)), link);
        let nothing = (from, linear(7, 0));
        let sent = a
            .session
            .send_region(a.queue, &[put], nothing, received, link);
        a.ended(sent);
        b.ended(received);
        a.session
            .send_region(a.queue, &[], (from, linear(0, 8)), 999, link + 1);
        a.session.ends();
    });
}

#[test]
fn a_node_that_dies_in_mid_transfer_ends_its_peers_transfers_at_once() {
    const SIZE: usize = 64 << 20;
    linked(|mut a, mut b, link| {
        let (from, put) = a.filled(&pattern(SIZE));
        a.ended(put);
        let to = b.buffer(SIZE);
        let (_, broken) = transfer((&mut a, from, &[]), (&mut b, to), SIZE, link);
        b.session.hears_of_link(link, true);
        kill(&a);
        b.session.hears_of_link(link, false);
        let done = b.session.wait(broken);
        if done.status != 0 {
            assert_eq!(done.status, -2);
            assert!(done.message.contains("link"), "{}", done.message);
        }
    });
}

#[test]
fn what_has_not_begun_when_a_link_breaks_waits_ten_seconds_for_the_clients_word() {
    let daemons = (Daemon::with(STAGED), Daemon::with(STAGED));
    let (a, mut b) = (site(&daemons.0), site(&daemons.1));
    let mut dialled = a;
    let link = dialled.session.link(&mut b.session, &daemons.1.address);
    let buffer = b.buffer(1000);
    let whole = linear(0, 1000);
    let received = b.session.receive(b.queue, &[], (buffer, whole), link);
    let unread = b.session.new_id();
    let source = (buffer, whole);
    let sent = b.session.send_region(b.queue, &[], source, unread, link);
    b.session.ping();
    b.session.hears_of_link(link, true);
    let died = Instant::now();
    kill(&dialled);
    b.session.hears_of_link(link, false);
    let done = b.session.wait(received);
    assert_eq!(done.status, -2);
    assert!(done.message.contains("link"), "{}", done.message);
    b.ended(sent);
    let took = died.elapsed().as_secs();
    assert!((9..20).contains(&took), "{took} s");
}

fn kill(site: &Site) {
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(site.session.worker() as i32).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[test]
fn a_cut_link_fails_what_is_in_progress_and_another_way_carries_the_rest() {
    const SIZE: usize = 32 << 20;
    for (theirs, again) in [(&[][..], false), (STAGED, false), (STAGED, true)] {
        let daemons = (Daemon::with(STAGED), Daemon::with(theirs));
        let (mut a, mut b) = (site(&daemons.0), site(&daemons.1));
        let cutter = Cutter::before(&daemons.1);
        let link = a.session.link(&mut b.session, &cutter.address);
        let bytes = pattern(SIZE);
        let (from, put) = a.filled(&bytes);
        a.ended(put);
        let to = [0; 3].map(|_| b.buffer(SIZE));
        a.session.hears_of_link(link, true);
        let whole = linear(0, SIZE as u64);
        let early = b.session.receive(b.queue, &[], (to[0], whole), link);
        b.session.ping();
        cutter.cut_after(8 << 20);
        let (sent, broken) = transfer((&mut a, from, &[]), (&mut b, to[1]), SIZE, link);
        for site in [&mut a, &mut b] {
            site.session.hears_of_link(link, false);
        }
        let done = b.session.wait(broken);
        assert_eq!(done.status, -2, "{}", done.message);
        assert!(done.message.contains("link"), "{}", done.message);
        a.ended(sent);
        // A transfer that the receiver has begun, and one that no end has begun.
        let late = a
            .session
            .send_region(a.queue, &[], (from, whole), early, link);
        let (sent, received) = transfer((&mut a, from, &[]), (&mut b, to[2]), SIZE, link);
        if again {
            cutter.cut_after(i64::MAX);
            a.session.dial(link);
            a.session.hears_of_link(link, true);
        } else {
            a.session.route_via_client(link);
            b.session.route_via_client(link);
            let expected = if theirs.is_empty() { SIZE } else { 2 * SIZE };
            forward_until(&mut a.lanes, &mut b.lanes, expected);
        }
        b.ended(received);
        a.ended(sent);
        a.ended(late);
        if theirs.is_empty() {
            // The receiver had granted credit for everything, which may have been used.
            assert_eq!(b.session.wait(early).status, -2);
        } else {
            b.ended(early);
            assert!(b.contents(to[0], SIZE, &[]) == bytes);
        }
        assert!(b.contents(to[2], SIZE, &[]) == bytes);
    }
}

#[test]
fn the_client_may_call_off_either_end() {
    linked(|mut a, mut b, link| {
        let buffers = (a.buffer(1000), b.buffer(1000));
        let whole = linear(0, 1000);
        a.session.hears_of_link(link, true);
        for known in [true, false] {
            let [received, unread] = [0; 2].map(|_| b.session.new_id());
            let receive = |b: &mut Site| {
                let target = (buffers.1, whole);
                b.session.receive_as(received, b.queue, &[], target, link);
            };
            let send = |a: &mut Site| {
                a.session
                    .send_region(a.queue, &[], (buffers.0, whole), unread, link)
            };
            let early = known.then(|| {
                receive(&mut b);
                b.session.ping();
                send(&mut a)
            });
            for (lane, transfer) in [(&mut b.lanes[0], received), (&mut a.lanes[0], unread)] {
                let word = Header::cancel(EventId(transfer), -2).encode();
                lane.write_all(&word).unwrap();
            }
            let sent = early.unwrap_or_else(|| {
                receive(&mut b);
                send(&mut a)
            });
            assert_eq!(b.session.wait(received).status, -2);
            a.ended(sent);
        }
    });
}

#[test]
fn where_there_is_no_path_the_client_forwards() {
    const SIZE: usize = 20 * BULK_CHUNK + 5;
    for (ours, theirs) in [(&[][..], &[][..]), (STAGED, STAGED)] {
        let daemons = (Daemon::with(ours), Daemon::with(theirs));
        let (mut a, mut b) = (site(&daemons.0), site(&daemons.1));
        // Nobody listens at this address.
        let link = a.session.link(&mut b.session, "127.0.0.1:9");
        let bytes = pattern(SIZE);
        let (from, put) = a.filled(&bytes);
        let to = b.buffer(SIZE);
        let (sent, received) = transfer((&mut a, from, &[put]), (&mut b, to), SIZE, link);
        let down = a.session.hears_of_link(link, false);
        assert!(!down.reason.is_empty());
        a.session.route_via_client(link);
        b.session.route_via_client(link);
        forward(&mut a.lanes, &mut b.lanes, SIZE);
        b.ended(received);
        a.ended(sent);
        assert!(b.contents(to, SIZE, &[]) == bytes);
        // Later transfers, and cancelled ones, behave alike.
        let (sent, received) = transfer((&mut b, to, &[]), (&mut a, from), SIZE, link);
        forward(&mut b.lanes, &mut a.lanes, SIZE);
        a.ended(received);
        b.ended(sent);
        let user_event = a.session.user_event();
        let (sent, received) = transfer((&mut a, from, &[user_event]), (&mut b, to), SIZE, link);
        a.session.set(user_event, -7);
        forward(&mut a.lanes, &mut b.lanes, SIZE);
        assert_eq!(a.session.wait(sent).status, -14);
        assert_eq!(b.session.wait(received).status, -14);
    }
}

/// Forwards messages between two workers, until this number of bytes went from the first to the second, or one of
/// them gave up.
fn forward(from: &mut [TcpStream], to: &mut [TcpStream], bytes: usize) {
    forward_to(from, to, bytes, true);
}

/// Forwards messages in the same way, whichever end gives up.
fn forward_until(from: &mut [TcpStream], to: &mut [TcpStream], bytes: usize) {
    forward_to(from, to, bytes, false);
}

fn forward_to(from: &mut [TcpStream], to: &mut [TcpStream], bytes: usize, all: bool) {
    // Bytes that the client buffers, not a multiple of anything.
    const WINDOW: u64 = 1_700_001;
    let mut accounts: HashMap<EventId, (u64, u64)> = HashMap::new();
    let mut left = bytes;
    while left > 0 {
        let mut fds: Vec<_> = from
            .iter()
            .chain(&*to)
            .map(|l| PollFd::new(l, PollFlags::IN))
            .collect();
        let limit = crate::common::LIMIT.try_into().unwrap();
        assert!(
            poll(&mut fds, Some(&limit)).unwrap() > 0,
            "neither worker sends"
        );
        let ready = fds.iter().position(|f| !f.revents().is_empty()).unwrap();
        let (source, sink) = match ready.checked_sub(from.len()) {
            None => (&mut from[ready], &mut to[left % to.len()]),
            Some(other) => (&mut to[other], &mut from[0]),
        };
        let header = crate::common::bulk_header(source);
        let mut contents = vec![0; header.length as usize];
        source.read_exact(&mut contents).unwrap();
        let (credit, passed) = accounts.entry(header.transfer).or_default();
        if header.kind == Kind::Credit {
            *credit = header.offset.max(*credit);
        } else {
            sink.write_all(&header.encode()).unwrap();
            sink.write_all(&contents).unwrap();
            *passed += contents.len() as u64;
            left -= contents.len();
        }
        if matches!(header.kind, Kind::Credit | Kind::Data) {
            let granted = Header {
                kind: Kind::Credit,
                offset: (*passed + WINDOW).min(*credit),
                length: 0,
                ..header
            };
            from[0].write_all(&granted.encode()).unwrap();
        }
        if all && header.kind == Kind::Cancel {
            return;
        }
    }
}
