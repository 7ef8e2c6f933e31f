//! A client's side of bulk transfers, over lanes that its session opened.

use std::io::Read;
use std::net::TcpStream;

use causeway_proto::bulk::{Header, Kind as Bulk};
use causeway_proto::limits::BULK_CHUNK;

use super::{Daemon, Session, bulk_data, bulk_header};

/// The environment of a worker that behaves as on a discrete GPU whose driver calls back late.
pub const STAGED: &[(&str, &str)] = &[("CAUSEWAYD_STAGING", "1"), ("CAUSEWAYD_WATCHING", "1")];

/// Runs the test on a device with direct memory, and on one without.
pub fn both_ways(test: impl Fn(&Daemon)) {
    for environment in [&[][..], STAGED] {
        test(&Daemon::with(environment));
    }
}

/// Opens a session with a lane, a context and a profiling queue.
pub fn open_with_lane(daemon: &Daemon) -> (Session, TcpStream, u64, u64) {
    let mut session = daemon.session();
    let lane = session.lane(0);
    let context = session.context();
    let queue = session.queue(context, 2);
    (session, lane, context, queue)
}

/// Returns bytes of which no two chunks are equal.
pub fn pattern(length: usize) -> Vec<u8> {
    // The period is a prime number.
    let period: Vec<u8> = (0..65_521).map(|i| (i * 7 + i / 256) as u8).collect();
    let mut bytes = period.repeat(length / period.len() + 1);
    bytes.truncate(length);
    bytes
}

/// Sends `bytes` as credit allows. Chunks go to the lanes in turn, and the later half of the granted bytes goes
/// first. With `odd`, chunks have odd sizes that straddle the worker's own.
pub fn upload(lanes: &mut [TcpStream], transfer: u64, bytes: &[u8], odd: bool) {
    let mut sent = 0;
    let mut turn = 0;
    while sent < bytes.len() {
        // Headers come on any lane, because the worker spreads them. So this looks for the lane that has one.
        let header = next_word(lanes);
        if header.kind == Bulk::Ack {
            // Only in sessions that outlive their connections.
            continue;
        }
        assert_eq!(header.kind, Bulk::Credit);
        if header.transfer.0 != transfer {
            // The last credit of a finished transfer, overtaken by a header on another lane.
            continue;
        }
        // Headers on different lanes may overtake each other. Credit never shrinks.
        let credit = sent.max(header.offset as usize);
        let size = if odd { 700_001 } else { BULK_CHUNK };
        let mut pieces: Vec<_> = (sent..credit)
            .step_by(size)
            .map(|o| (o, (o + size).min(credit)))
            .collect();
        pieces.reverse();
        for (from, to) in pieces {
            bulk_data(&mut lanes[turn], transfer, from as u64, &bytes[from..to]);
            turn = (turn + 1) % lanes.len();
        }
        sent = credit;
    }
}

/// Returns the next header of any lane.
pub fn next_word(lanes: &mut [TcpStream]) -> Header {
    next_header(lanes).0
}

/// Returns the next header, and the number of its lane.
pub fn next_header(lanes: &mut [TcpStream]) -> (Header, usize) {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut fds: Vec<_> = lanes
        .iter()
        .map(|l| PollFd::new(l, PollFlags::IN))
        .collect();
    let limit = super::LIMIT.try_into().unwrap();
    assert!(
        poll(&mut fds, Some(&limit)).unwrap() > 0,
        "nothing from the worker"
    );
    let ready = fds.iter().position(|f| !f.revents().is_empty()).unwrap();
    (bulk_header(&mut lanes[ready]), ready)
}

/// Receives the bytes of a read.
pub fn download(lanes: &mut [TcpStream], transfer: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut missing = length;
    while missing > 0 {
        let (header, ready) = next_header(lanes);
        if header.kind == Bulk::Credit {
            // The last credit of an earlier upload, overtaken by a header on another lane.
            continue;
        }
        assert_eq!((header.kind, header.transfer.0), (Bulk::Data, transfer));
        let from = header.offset as usize;
        let to = from + header.length as usize;
        lanes[ready].read_exact(&mut bytes[from..to]).unwrap();
        missing -= header.length as usize;
    }
    bytes
}
