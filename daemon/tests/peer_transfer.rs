//! Transfers between workers over the real wire: whole daemons, PoCL behind them. Each by both ways through
//! memory: mapped, and staged in chunks.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use causeway_proto::bulk::Kind;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use common::bulk::{download, pattern, upload};
use common::{Daemon, Session, linear, read, write};
use rustix::event::{PollFd, PollFlags, poll};

const OUT_OF_ORDER: u64 = 1;
// As on a discrete GPU whose driver calls back late.
const STAGED: &[(&str, &str)] = &[("CAUSEWAYD_STAGING", "1"), ("CAUSEWAYD_WATCHING", "1")];

/// A session on a node, with what a site has.
struct Site {
    session: Session,
    lanes: Vec<TcpStream>,
    context: u64,
    queue: u64,
}

fn site(daemon: &Daemon) -> Site {
    site_on(daemon.session(), 0)
}

fn site_on(mut session: Session, platform: u32) -> Site {
    let lanes = vec![session.lane(0), session.lane(1)];
    let context = session.context_on(platform);
    let queue = session.queue(context, OUT_OF_ORDER);
    Site {
        session,
        lanes,
        context,
        queue,
    }
}

impl Site {
    fn buffer(&mut self, size: usize) -> u64 {
        self.session.buffer(self.context, size as u64, &[])
    }

    /// A new buffer with these bytes, and the event of their coming.
    fn filled(&mut self, bytes: &[u8]) -> (u64, u64) {
        let buffer = self.buffer(bytes.len());
        let whole = linear(0, bytes.len() as u64);
        let put = self
            .session
            .enqueue(self.queue, &[], write(buffer, whole, None));
        upload(&mut self.lanes, put, bytes, false);
        (buffer, put)
    }

    fn contents(&mut self, buffer: u64, size: usize, wait: &[u64]) -> Vec<u8> {
        let whole = linear(0, size as u64);
        let get = self
            .session
            .enqueue(self.queue, wait, read(buffer, whole, true));
        let bytes = download(&mut self.lanes, get, size);
        assert_eq!(self.session.wait(get).status, 0);
        bytes
    }

    fn ended(&mut self, event: u64) {
        let done = self.session.wait(event);
        assert_eq!(done.status, 0, "{}", done.message);
    }
}

fn both_ways(test: impl Fn(&Daemon)) {
    for environment in [&[][..], STAGED] {
        test(&Daemon::with(environment));
    }
}

/// Two sites of two nodes with a link between them.
fn linked(test: impl Fn(Site, Site, u64)) {
    // The second mix has a mapped sender and a staged receiver.
    for (ours, theirs) in [(&[][..], &[][..]), (STAGED, STAGED), (&[], STAGED)] {
        let daemons = (Daemon::with(ours), Daemon::with(theirs));
        let (mut a, mut b) = (site(&daemons.0), site(&daemons.1));
        let link = a.session.link(&mut b.session, &daemons.1.address);
        test(a, b, link);
    }
}

/// Enqueues both ends of a transfer of whole buffers; the events: sent, received.
fn transfer(
    (a, from, wait): (&mut Site, u64, &[u64]),
    (b, to): (&mut Site, u64),
    size: usize,
    link: u64,
) -> (u64, u64) {
    let whole = linear(0, size as u64);
    let received = b.session.receive(b.queue, &[], (to, whole), link);
    let sent = a
        .session
        .send_region(a.queue, wait, (from, whole), received, link);
    (sent, received)
}

#[test]
fn every_byte_goes_from_node_to_node() {
    linked(|mut a, mut b, link| {
        for size in [1, 100_000, 64 << 20] {
            let bytes = pattern(size);
            let (from, put) = a.filled(&bytes);
            a.ended(put);
            let to = b.buffer(size);
            b.session.ping();
            let begun = Instant::now();
            let (sent, received) = transfer((&mut a, from, &[]), (&mut b, to), size, link);
            b.ended(received);
            println!("{size} bytes in {:?}", begun.elapsed());
            a.ended(sent);
            assert!(b.contents(to, size, &[]) == bytes);
        }
    });
}

#[test]
fn rectangles_change_their_shape_on_the_way() {
    linked(|mut a, mut b, link| {
        for (row, rows) in [(1000u64, 700u64), (40_000, 50)] {
            let region =
                Region::rect(77, [row, rows, 2], row + 24, (row + 24) * (rows + 3)).unwrap();
            let size = region.end() as usize;
            let bytes = pattern(size);
            let (from, put) = a.filled(&bytes);
            let packed = linear(9, region.packed_length());
            let to = b.buffer(packed.end() as usize);
            let received = b.session.receive(b.queue, &[], (to, packed), link);
            let sent = a
                .session
                .send_region(a.queue, &[put], (from, region), received, link);
            let got = b.contents(to, packed.end() as usize, &[received]);
            let segments = region.segments(0, u64::MAX);
            let expected: Vec<u8> = segments
                .flat_map(|s| &bytes[s.offset as usize..(s.offset + s.length) as usize])
                .copied()
                .collect();
            assert!(got[9..] == expected, "row {row}");
            a.ended(sent);
            // And back into a rectangle.
            let back = a.session.receive(a.queue, &[sent], (from, region), link);
            b.session
                .send_region(b.queue, &[received], (to, packed), back, link);
            assert!(a.contents(from, size, &[back]) == bytes, "row {row}");
        }
    });
}

#[test]
fn within_one_worker() {
    both_ways(|daemon| {
        let mut site = site(daemon);
        let bytes = pattern(20 * BULK_CHUNK + 12_345);
        let (from, put) = site.filled(&bytes);
        let to = site.buffer(bytes.len());
        let (queue, whole) = (site.queue, linear(0, bytes.len() as u64));
        let session = &mut site.session;
        let received = session.receive(queue, &[], (to, whole), 0);
        let sent = session.send_region(queue, &[put], (from, whole), received, 0);
        let started = Instant::now();
        assert!(site.contents(to, bytes.len(), &[received]) == bytes);
        println!("{:?}", started.elapsed());
        site.ended(sent);
        site.ended(received);
    });
}

#[test]
fn both_directions_at_once_and_many_together() {
    const SIZE: usize = 3 * BULK_CHUNK + 17;
    linked(|mut a, mut b, link| {
        let (ours, theirs) = (pattern(SIZE), vec![0x5a; SIZE]);
        let (from_a, put_a) = a.filled(&ours);
        let (from_b, put_b) = b.filled(&theirs);
        let there: Vec<u64> = (0..12).map(|_| b.buffer(SIZE)).collect();
        let back: Vec<u64> = (0..12).map(|_| a.buffer(SIZE)).collect();
        let mut ends = Vec::new();
        for (to_b, to_a) in there.iter().zip(&back) {
            let one = transfer((&mut a, from_a, &[put_a]), (&mut b, *to_b), SIZE, link);
            let other = transfer((&mut b, from_b, &[put_b]), (&mut a, *to_a), SIZE, link);
            ends.push((one, other));
        }
        for (one, other) in ends {
            a.ended(one.0);
            b.ended(one.1);
            b.ended(other.0);
            a.ended(other.1);
        }
        for (to_b, to_a) in there.into_iter().zip(back) {
            assert!(b.contents(to_b, SIZE, &[]) == ours);
            assert!(a.contents(to_a, SIZE, &[]) == theirs);
        }
    });
}

#[test]
fn a_chain_of_nodes_passes_on_what_it_gets() {
    const SIZE: usize = 5 * BULK_CHUNK;
    for environment in [&[][..], STAGED] {
        let daemons = [0; 3].map(|_| Daemon::with(environment));
        let [mut a, mut b, mut c] = [0, 1, 2].map(|i| site(&daemons[i]));
        let ab = a.session.link(&mut b.session, &daemons[1].address);
        let bc = b.session.link(&mut c.session, &daemons[2].address);
        let bytes = pattern(SIZE);
        let (from, put) = a.filled(&bytes);
        let (between, to) = (b.buffer(SIZE), c.buffer(SIZE));
        let whole = linear(0, SIZE as u64);
        // Everything is told from the end backwards, as far as the workers let names be unknown.
        let at_c = c.session.receive(c.queue, &[], (to, whole), bc);
        let at_b = b.session.receive(b.queue, &[], (between, whole), ab);
        let on = b
            .session
            .send_region(b.queue, &[at_b], (between, whole), at_c, bc);
        let sent = a
            .session
            .send_region(a.queue, &[put], (from, whole), at_b, ab);
        assert!(c.contents(to, SIZE, &[at_c]) == bytes);
        a.ended(sent);
        b.ended(on);
    }
}

#[test]
fn one_end_may_come_long_before_the_other() {
    const SIZE: usize = 40 * BULK_CHUNK;
    linked(|mut a, mut b, link| {
        let bytes = pattern(SIZE);
        let (from, put) = a.filled(&bytes);
        a.ended(put);
        let to = b.buffer(SIZE);
        let whole = linear(0, SIZE as u64);
        // The receiver first; what it waits for stands in the way of nothing else.
        let received = b.session.receive(b.queue, &[], (to, whole), link);
        b.session.ping();
        let (other, put) = b.filled(&bytes);
        assert!(b.contents(other, SIZE, &[put]) == bytes);
        assert!(!b.session.heard.completions.contains_key(&received));
        let sent = a
            .session
            .send_region(a.queue, &[], (from, whole), received, link);
        b.ended(received);
        a.ended(sent);
        // The sender first, by a name that the receiver has not heard yet.
        let named = b.session.new_id();
        let sent = a
            .session
            .send_region(a.queue, &[], (from, whole), named, link);
        a.session.ping();
        assert!(a.contents(from, SIZE, &[]) == bytes);
        assert!(!a.session.heard.completions.contains_key(&sent));
        let target = (to, whole);
        b.session.receive_as(named, b.queue, &[], target, link);
        b.ended(named);
        a.ended(sent);
        assert!(b.contents(to, SIZE, &[]) == bytes);
    });
}

#[test]
fn a_transfer_behind_a_mirror_waits_for_it() {
    linked(|mut a, mut b, link| {
        let size = BULK_CHUNK;
        let bytes = pattern(size);
        let (from, put) = a.filled(&bytes);
        let to = b.buffer(size);
        let gate = b.session.user_event();
        let mirror = a.session.mirror_of(gate, &mut b.session, link);
        let (sent, received) = transfer((&mut a, from, &[put, mirror]), (&mut b, to), size, link);
        a.session.ping();
        b.session.ping();
        assert!(!b.session.heard.completions.contains_key(&received));
        b.session.set(gate, 0);
        b.ended(received);
        a.ended(sent);
        assert!(b.contents(to, size, &[]) == bytes);
    });
}

#[test]
fn who_gives_a_transfer_up_tells_the_other_end() {
    const SIZE: usize = 3 * BULK_CHUNK;
    linked(|mut a, mut b, link| {
        let (from, put) = a.filled(&pattern(SIZE));
        a.ended(put);
        let to = b.buffer(SIZE);
        let whole = linear(0, SIZE as u64);
        for send_first in [true, false] {
            // What the sender waits for fails, so the receiver and its dependants do.
            let gate = a.session.user_event();
            let named = b.session.new_id();
            let target = (to, whole);
            let receive = |b: &mut Site| b.session.receive_as(named, b.queue, &[], target, link);
            if !send_first {
                receive(&mut b);
            }
            let sent = a
                .session
                .send_region(a.queue, &[gate], (from, whole), named, link);
            a.session.set(gate, -7);
            assert_eq!(a.session.wait(sent).status, -14);
            if send_first {
                receive(&mut b);
            }
            let next = b.session.read(b.queue, &[named], to, 0, 4);
            let done = b.session.wait(named);
            assert_eq!(done.status, -14, "{}", done.message);
            assert_eq!(b.session.wait(next).status, -14);
            // What the receiver waits for fails: the sender no longer reads, so nobody there fails.
            let gate = b.session.user_event();
            let received = b.session.receive(b.queue, &[gate], (to, whole), link);
            let send = |a: &mut Site| {
                a.session
                    .send_region(a.queue, &[], (from, whole), received, link)
            };
            let early = send_first.then(|| send(&mut a));
            b.session.set(gate, -7);
            assert_eq!(b.session.wait(received).status, -14);
            let sent = early.unwrap_or_else(|| send(&mut a));
            let next = a.session.write(a.queue, &[sent], from, 0, b"over");
            a.ended(sent);
            a.ended(next);
        }
        // The link is as good as before.
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
            // A shorter one may have all it wants before it hears that there is more.
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
        // Outside of the buffer.
        let received = b.session.receive(b.queue, &[], (to, linear(0, 1000)), link);
        let outside = (from, linear(1, 1000));
        let sent = a
            .session
            .send_region(a.queue, &[put], outside, received, link);
        assert_eq!(a.session.wait(sent).status, -30);
        assert_eq!(b.session.wait(received).status, -30);
        // Without a byte.
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

/// A relay on the way to a daemon, which cuts everything after so many bytes.
struct Cutter {
    address: String,
    left: Arc<AtomicI64>,
}

impl Cutter {
    fn before(daemon: &Daemon) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (left, target) = (Arc::new(AtomicI64::new(i64::MAX)), daemon.address.clone());
        let shared = Arc::clone(&left);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let far = TcpStream::connect(&target).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let left = Arc::clone(&shared);
                    std::thread::spawn(move || pass(&from, &to, &left));
                }
            }
        });
        Cutter { address, left }
    }

    fn cut_after(&self, bytes: i64) {
        self.left.store(bytes, Ordering::SeqCst);
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, left: &AtomicI64) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(got @ 1..) = from.read(&mut bytes) {
        if left.fetch_sub(got as i64, Ordering::SeqCst) < got as i64
            || to.write_all(&bytes[..got]).is_err()
        {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
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
        // One that the receiver has begun, one that nobody has.
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
            // It had granted credit for all of it, which may have been used.
            assert_eq!(b.session.wait(early).status, -2);
        } else {
            b.ended(early);
            assert!(b.contents(to[0], SIZE, &[]) == bytes);
        }
        assert!(b.contents(to[2], SIZE, &[]) == bytes);
    }
}

#[test]
fn where_there_is_no_path_the_client_forwards() {
    const SIZE: usize = 20 * BULK_CHUNK + 5;
    for (ours, theirs) in [(&[][..], &[][..]), (STAGED, STAGED)] {
        let daemons = (Daemon::with(ours), Daemon::with(theirs));
        let (mut a, mut b) = (site(&daemons.0), site(&daemons.1));
        // Nobody listens there.
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
        // Also what comes later, and what is given up.
        let (sent, received) = transfer((&mut b, to, &[]), (&mut a, from), SIZE, link);
        forward(&mut b.lanes, &mut a.lanes, SIZE);
        a.ended(received);
        b.ended(sent);
        let gate = a.session.user_event();
        let (sent, received) = transfer((&mut a, from, &[gate]), (&mut b, to), SIZE, link);
        a.session.set(gate, -7);
        forward(&mut a.lanes, &mut b.lanes, SIZE);
        assert_eq!(a.session.wait(sent).status, -14);
        assert_eq!(b.session.wait(received).status, -14);
    }
}

/// Forwards what two workers say to each other, until so many bytes went from the first to the second, or
/// one of them gave up.
fn forward(from: &mut [TcpStream], to: &mut [TcpStream], bytes: usize) {
    forward_to(from, to, bytes, true);
}

/// The same whoever gives up.
fn forward_until(from: &mut [TcpStream], to: &mut [TcpStream], bytes: usize) {
    forward_to(from, to, bytes, false);
}

fn forward_to(from: &mut [TcpStream], to: &mut [TcpStream], bytes: usize, all: bool) {
    let mut left = bytes;
    while left > 0 {
        let mut fds: Vec<_> = from
            .iter()
            .chain(&*to)
            .map(|l| PollFd::new(l, PollFlags::IN))
            .collect();
        let limit = common::LIMIT.try_into().unwrap();
        assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "nobody speaks");
        let ready = fds.iter().position(|f| !f.revents().is_empty()).unwrap();
        let (source, sink) = match ready.checked_sub(from.len()) {
            None => (&mut from[ready], &mut to[left % to.len()]),
            Some(other) => (&mut to[other], &mut from[0]),
        };
        let header = common::bulk_header(source);
        let mut contents = vec![0; header.length as usize];
        source.read_exact(&mut contents).unwrap();
        sink.write_all(&header.encode()).unwrap();
        sink.write_all(&contents).unwrap();
        left -= contents.len();
        if all && header.kind == Kind::Cancel {
            return;
        }
    }
}

#[test]
fn between_two_platforms_of_one_node() {
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libfake_opencl.so");
    let vendors = tempfile::tempdir().unwrap();
    std::fs::write(vendors.path().join("fake.icd"), library.to_str().unwrap()).unwrap();
    let pocl = std::fs::read("/etc/OpenCL/vendors/pocl.icd").unwrap();
    std::fs::write(vendors.path().join("pocl.icd"), pocl).unwrap();
    let vendors = ("OCL_ICD_VENDORS", vendors.path().to_str().unwrap());
    for environment in [vec![vendors], [&[vendors][..], STAGED].concat()] {
        let daemon = Daemon::with(&environment);
        let mut one = site(&daemon);
        assert_eq!(daemon.inventory().platforms.len(), 2);
        let bytes = pattern(7 * BULK_CHUNK + 3);
        let (from, put) = one.filled(&bytes);
        let context = one.session.context_on(1);
        let queue = one.session.queue(context, OUT_OF_ORDER);
        let size = bytes.len() as u64;
        let to = one.session.buffer(context, size, &[]);
        let received = one.session.receive(queue, &[], (to, linear(0, size)), 0);
        let source = (from, linear(0, size));
        let sent = one
            .session
            .send_region(one.queue, &[put], source, received, 0);
        let get = one
            .session
            .enqueue(queue, &[received], read(to, linear(0, size), true));
        assert!(download(&mut one.lanes, get, bytes.len()) == bytes);
        one.ended(sent);
    }
}

/// High-water mark of the resident memory of the process that serves a site, MiB.
fn peak_memory(site: &Site) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", site.session.worker())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() / 1024
}

#[test]
fn neither_end_takes_memory_beyond_its_buffer() {
    const SIZE: usize = 192 << 20;
    linked(|mut a, mut b, link| {
        let (from, to) = (a.buffer(SIZE), b.buffer(SIZE));
        a.session.ping();
        b.session.ping();
        let before = (peak_memory(&a), peak_memory(&b));
        let (sent, received) = transfer((&mut a, from, &[]), (&mut b, to), SIZE, link);
        a.ended(sent);
        b.ended(received);
        for (site, before) in [(&a, before.0), (&b, before.1)] {
            let grown = peak_memory(site) - before;
            assert!(grown < (SIZE as u64 >> 20) + 64, "grew by {grown} MiB");
        }
    });
}
