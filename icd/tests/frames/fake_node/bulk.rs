//! A session whose bulk lanes the test reads and writes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use causeway::config::Carrier;
use causeway::transport::{HostRegion, Session};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::region::Region;

use super::upper::Upper;
use super::{FakeNode, FakeWorker, Faults, PATIENCE};

pub const EVENT: EventId = EventId(77);

pub struct Bulk {
    pub fake: FakeNode,
    pub upper: Arc<Upper>,
    pub session: Arc<Session>,
    pub worker: FakeWorker,
    // Kept, because the session ends with its node.
    pub _node: Arc<causeway::transport::Node>,
}

impl Bulk {
    pub fn new(faults: Faults) -> Bulk {
        let fake = FakeNode::start(faults);
        let upper = Upper::new();
        let (node, session, worker) = fake.open(Carrier::Direct, &upper);
        Bulk {
            fake,
            upper,
            session,
            worker,
            _node: node,
        }
    }

    pub fn lanes(&self) -> [TcpStream; 2] {
        [self.fake.lane(), self.fake.lane()]
    }

    // Returns the lanes, and one queue of everything that arrives on them.
    pub fn lanes_read(&self) -> ([TcpStream; 2], Arrivals) {
        let lanes = self.lanes();
        let (sender, arrivals) = mpsc::channel();
        for lane in &lanes {
            let (mut lane, sender) = (lane.try_clone().unwrap(), sender.clone());
            lane.set_read_timeout(None).unwrap();
            std::thread::spawn(move || {
                while let Some(chunk) = read_chunk(&mut lane) {
                    let _ = sender.send(chunk);
                }
            });
        }
        (lanes, Arrivals(arrivals))
    }

    pub fn upload(&self, bytes: &Arc<Vec<u8>>, region: Region) {
        // SAFETY: `bytes` is kept by the session and by the test's own Arc.
        let source = unsafe { HostRegion::new(bytes.as_ptr().cast_mut(), region) };
        self.session
            .upload(EVENT, source, bytes.clone(), None)
            .unwrap();
    }

    pub fn download(&self, bytes: &mut [u8], region: Region) {
        assert!(region.end() <= bytes.len() as u64);
        // SAFETY: the test keeps `bytes` until the completion.
        let target = unsafe { HostRegion::new(bytes.as_mut_ptr(), region) };
        self.session.download(EVENT, target).unwrap();
    }
}

pub fn say(lane: &mut TcpStream, kind: Kind, offset: u64) {
    lane.write_all(
        &Header {
            kind,
            transfer: EVENT,
            offset,
            length: 0,
        }
        .encode(),
    )
    .unwrap();
}

pub fn send(lane: &mut TcpStream, bytes: &[u8], from: usize, to: usize) {
    let header = Header {
        kind: Kind::Data,
        transfer: EVENT,
        offset: from as u64,
        length: (to - from) as u32,
    };
    lane.write_all(&header.encode()).unwrap();
    lane.write_all(&bytes[from..to]).unwrap();
}

// A chunk: its event, its offset and its bytes.
pub type Chunk = (EventId, usize, Vec<u8>);

// The next chunk on a lane, until it closes.
pub fn read_chunk(lane: &mut TcpStream) -> Option<Chunk> {
    let mut header = [0; HEADER];
    lane.read_exact(&mut header).ok()?;
    let header = Header::decode(&header).unwrap();
    assert_eq!(header.kind, Kind::Data);
    let mut bytes = vec![0; header.length as usize];
    lane.read_exact(&mut bytes).ok()?;
    Some((header.transfer, header.offset as usize, bytes))
}

pub struct Arrivals(pub mpsc::Receiver<Chunk>);

impl Arrivals {
    pub fn next(&self) -> Chunk {
        self.0.recv_timeout(PATIENCE).expect("a chunk")
    }

    // Puts chunks of the one transfer into place until `count` bytes have come.
    pub fn fill(&self, into: &mut [u8], count: usize) {
        let mut got = 0;
        while got < count {
            let (event, from, bytes) = self.next();
            assert_eq!(event, EVENT);
            into[from..from + bytes.len()].copy_from_slice(&bytes);
            got += bytes.len();
        }
        assert_eq!(got, count);
    }

    // Whether no frame comes soon. A slow machine can make this true too often, but never false by mistake.
    pub fn is_silent(&self) -> bool {
        self.0.recv_timeout(Duration::from_millis(20)).is_err()
    }
}

pub fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

pub fn packed(bytes: &[u8], region: &Region) -> Vec<u8> {
    let segments = region.segments(0, region.packed_length());
    segments
        .flat_map(|s| bytes[s.offset as usize..][..s.length as usize].to_vec())
        .collect()
}

// Looks at memory that a lane writes.
pub fn memory_is(memory: &[u8], at: usize, value: u8) -> bool {
    // SAFETY: in bounds; volatile since another thread writes.
    unsafe { memory.as_ptr().add(at).read_volatile() == value }
}

pub fn wait_for(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time");
        std::thread::yield_now();
    }
}
