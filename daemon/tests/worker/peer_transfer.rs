//! Tests of transfers between workers over the real protocol, with whole daemons and PoCL. Each runs with mapped
//! memory, and staged in chunks.

use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;

use crate::common::bulk::{download, pattern};
use crate::common::site::{OUT_OF_ORDER, STAGED, Site, linked, site, transfer};
use crate::common::{Daemon, linear, read};

fn both_ways(test: impl Fn(&Daemon)) {
    for environment in [&[][..], STAGED] {
        test(&Daemon::with(environment));
    }
}

#[test]
fn every_byte_goes_from_node_to_node() {
    linked(|mut a, mut b, link| {
        for size in [1, 100_000, 64 << 20] {
            let bytes = pattern(size);
            let (from, put) = a.filled(&bytes);
            a.ended(put);
            let to = b.buffer(size);
            let (sent, received) = transfer((&mut a, from, &[]), (&mut b, to), size, link);
            b.ended(received);
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
            // The bytes go back into a rectangle.
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
        assert!(site.contents(to, bytes.len(), &[received]) == bytes);
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
        // Commands are sent from the last to the first, as far as the workers accept unknown ids.
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

/// A copy of some bytes on one of the nodes, with the event that commands on it must wait for.
struct Copy {
    buffer: u64,
    contents: usize,
    written: u64,
    read: Vec<u64>,
}

#[test]
fn any_order_of_transfers_that_the_client_may_plan_comes_to_its_end() {
    // More chunks than a ring has, so that every node must pass them on.
    const SIZE: usize = 18 * BULK_CHUNK;
    const COPIES: usize = 3;
    let daemons = [0; 3].map(|_| Daemon::with(STAGED));
    let mut sites = daemons.each_ref().map(site);
    let mut links = [[0; 3]; 3];
    for (i, j) in [(0, 1), (0, 2), (1, 2)] {
        let [a, b] = sites.get_disjoint_mut([i, j]).unwrap();
        let link = a.session.link(&mut b.session, &daemons[j].address);
        (links[i][j], links[j][i]) = (link, link);
    }
    let whole = linear(0, SIZE as u64);
    let bytes: Vec<Vec<u8>> = (0..3 * COPIES).map(|i| vec![i as u8 + 1; SIZE]).collect();
    let mut copies: Vec<Vec<Copy>> = Vec::new();
    for (i, site) in sites.iter_mut().enumerate() {
        let fill = |k: usize| {
            let contents = i * COPIES + k;
            let (buffer, written) = site.filled(&bytes[contents]);
            Copy {
                buffer,
                contents,
                written,
                read: Vec::new(),
            }
        };
        copies.push((0..COPIES).map(fill).collect());
    }
    let mut random = 12_345_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    for _ in 0..60 {
        let from = (next(3), next(COPIES));
        let to = ((from.0 + 1 + next(2)) % 3, next(COPIES));
        let [a, b] = sites.get_disjoint_mut([from.0, to.0]).unwrap();
        let link = links[from.0][to.0];
        let (source, target) = (&copies[from.0][from.1], &copies[to.0][to.1]);
        let (contents, received) = (source.contents, b.session.new_id());
        let mut free = target.read.clone();
        free.push(target.written);
        let (queue, target) = (b.queue, (target.buffer, whole));
        let mut receive = || {
            b.session.receive_as(received, queue, &free, target, link);
        };
        let receiver_first = next(2) == 0;
        if receiver_first {
            receive();
        }
        let (source, ready) = ((source.buffer, whole), [source.written]);
        let sent = a
            .session
            .send_region(a.queue, &ready, source, received, link);
        if !receiver_first {
            receive();
        }
        copies[from.0][from.1].read.push(sent);
        let target = &mut copies[to.0][to.1];
        (target.contents, target.written) = (contents, received);
        target.read.clear();
    }
    for (site, copies) in sites.iter_mut().zip(copies) {
        for copy in copies {
            let got = site.contents(copy.buffer, SIZE, &[copy.written]);
            assert!(got == bytes[copy.contents]);
        }
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
        // The receiver comes first. Its wait delays nothing else.
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
        // The sender comes first, with an id that is still unknown to the receiver.
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
        let user_event = b.session.user_event();
        let mirror = a.session.mirror_of(user_event, &mut b.session, link);
        let (sent, received) = transfer((&mut a, from, &[put, mirror]), (&mut b, to), size, link);
        a.session.ping();
        b.session.ping();
        assert!(!b.session.heard.completions.contains_key(&received));
        b.session.set(user_event, 0);
        b.ended(received);
        a.ended(sent);
        assert!(b.contents(to, size, &[]) == bytes);
    });
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

/// Returns the high-water mark of the resident memory of a site's worker, in MiB.
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
