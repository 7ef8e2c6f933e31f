//! Tests of shared-memory lanes: every byte arrives, unsuitable memory is refused, and they exist over a Unix socket
//! only.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use causeway_lane::{Stream, offer};
use causeway_proto::bulk::{HEADER, Header, Kind as Bulk};
use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::preamble::{Purpose, Verdict};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::common::bulk::pattern;
use crate::common::{Daemon, LIMIT, Session, linear, read, write};

const LENGTH: usize = 9 * BULK_CHUNK + 12_345;

fn shared_lane(session: &Session) -> Arc<Stream> {
    let socket = session.connect(Purpose::SharedBulk, 0, true).unwrap();
    let shared = offer(OwnedFd::from(socket), Instant::now() + LIMIT).unwrap();
    Arc::new(Stream::Shared(shared))
}

// Runs `talk` with a time limit, because a stream through shared memory has none.
fn within_limit<T: Send + 'static>(
    lane: &Arc<Stream>,
    talk: impl FnOnce(&Stream) -> T + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    let talking = Arc::clone(lane);
    std::thread::spawn(move || sender.send(talk(&talking)));
    receiver.recv_timeout(LIMIT).expect("the worker goes on")
}

fn header(mut lane: &Stream) -> Header {
    let mut bytes = [0; HEADER];
    lane.read_exact(&mut bytes).unwrap();
    Header::decode(&bytes).unwrap()
}

fn upload(mut lane: &Stream, transfer: u64, bytes: &[u8]) {
    let mut sent = 0;
    while sent < bytes.len() {
        let word = header(lane);
        assert_eq!((word.kind, word.transfer.0), (Bulk::Credit, transfer));
        let credit = word.offset as usize;
        for from in (sent..credit).step_by(BULK_CHUNK) {
            let piece = &bytes[from..(from + BULK_CHUNK).min(credit)];
            let data = Header {
                kind: Bulk::Data,
                transfer: EventId(transfer),
                offset: from as u64,
                length: piece.len() as u32,
            };
            lane.write_all(&data.encode()).unwrap();
            lane.write_all(piece).unwrap();
        }
        sent = credit.max(sent);
    }
}

fn download(mut lane: &Stream, transfer: u64) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    let mut missing = LENGTH;
    while missing > 0 {
        let data = header(lane);
        assert_eq!((data.kind, data.transfer.0), (Bulk::Data, transfer));
        let from = data.offset as usize;
        let to = from + data.length as usize;
        lane.read_exact(&mut bytes[from..to]).unwrap();
        missing -= data.length as usize;
    }
    bytes
}

#[test]
fn bytes_go_both_ways_through_memory() {
    for environment in [&[][..], &[("CAUSEWAYD_STAGING", "1")]] {
        let daemon = Daemon::with(environment);
        let mut session = daemon.session();
        let lane = shared_lane(&session);
        let context = session.context();
        let queue = session.queue(context, 0);
        let buffer = session.buffer(context, LENGTH as u64, &[]);
        let region = linear(0, LENGTH as u64);
        let put = session.enqueue(queue, &[], write(buffer, region, None));
        within_limit(&lane, move |lane| upload(lane, put, &pattern(LENGTH)));
        assert_eq!(session.wait(put).status, 0);
        let get = session.enqueue(queue, &[], read(buffer, region, true));
        let got = within_limit(&lane, move |lane| download(lane, get));
        assert_eq!(session.wait(get).status, 0);
        assert!(got == pattern(LENGTH));
    }
}

#[test]
fn memory_goes_over_unix_sockets_alone() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let refused = session.connect(Purpose::SharedBulk, 1, false).unwrap_err();
    assert_eq!(refused, Verdict::Malformed);
    session.ping();
}

fn memory(length: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = rustix::fs::memfd_create("hostile", flags).unwrap();
    rustix::fs::ftruncate(&made, length).unwrap();
    rustix::fs::fcntl_add_seals(&made, seals).unwrap();
    made
}

fn hand(socket: &TcpStream, descriptors: &[&OwnedFd]) {
    let descriptors: Vec<_> = descriptors.iter().map(|one| one.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let bytes = [IoSlice::new(b"M")];
    rustix::net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn unfit_memory_is_refused_and_the_session_goes_on() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let fit = 2 * (4096 + (2 << 20));
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let notifier = OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0);
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    let unsealed = memory(fit, SealFlags::empty());
    let (small, none) = (memory(fit - 4096, sealed), memory(0, sealed));
    let good = memory(fit, sealed);
    for descriptors in [
        &[&unsealed, &notifier][..],
        &[&small, &notifier],
        &[&none, &notifier],
        &[&file, &notifier],
        &[&notifier, &good],
        &[&good, &file],
        &[&good],
        &[],
        &[
            &notifier, &notifier, &notifier, &notifier, &notifier, &notifier, &notifier, &notifier,
        ],
    ] {
        let socket = session.connect(Purpose::SharedBulk, 0, true).unwrap();
        hand(&socket, descriptors);
        // The connection is closed, with or without an error.
        assert!(matches!((&socket).read(&mut [0]), Ok(0) | Err(_)));
        session.ping();
    }
    // Its place is free again, and a peer that changes the shared words breaks its own lane at most.
    let socket = session.connect(Purpose::SharedBulk, 0, true).unwrap();
    hand(&socket, &[&good, &notifier]);
    let mut answer = [0];
    (&socket).read_exact(&mut answer).unwrap();
    (&socket).write_all(b"G").unwrap();
    rustix::io::pwrite(&good, &[0xff; 4096], 0).unwrap();
    (&socket).write_all(&[0]).unwrap();
    assert!(matches!((&socket).read(&mut answer), Ok(0) | Err(_)));
    session.ping();
}

// Tests a client that gives up while the worker takes its memory, and goes on over TCP.
#[test]
fn memory_that_is_given_up_half_way_takes_nothing_with_it() {
    let daemon = Daemon::start();
    let mut session = daemon.session();
    let fit = memory(2 * (4096 + (2 << 20)), SealFlags::SHRINK | SealFlags::GROW);
    let context = session.context();
    let queue = session.queue(context, 0);
    let buffer = session.buffer(context, LENGTH as u64, &[]);
    let half_way = |session: &Session| {
        let notifier = OwnedFd::from(std::os::unix::net::UnixStream::pair().unwrap().0);
        let socket = session.connect(Purpose::SharedBulk, 0, true).unwrap();
        hand(&socket, &[&fit, &notifier]);
        (&socket).read_exact(&mut [0]).unwrap();
        socket
    };
    // The first connection ends, and its place is free again. The second one stays silent while the transfer runs.
    let ended = half_way(&session);
    ended.shutdown(Shutdown::Write).unwrap();
    assert_eq!((&ended).read(&mut [0]).unwrap(), 0);
    let silent = half_way(&session);
    let put = session.enqueue(queue, &[], write(buffer, linear(0, LENGTH as u64), None));
    let socket = session.connect(Purpose::Bulk, 0, false).unwrap();
    let lane = Arc::new(Stream::Tcp(socket));
    within_limit(&lane, move |lane| upload(lane, put, &pattern(LENGTH)));
    assert_eq!(session.wait(put).status, 0);
    drop(silent);
    session.ping();
}
