//! Tests of connections for further files: both ends in one process, over real sockets.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_links::{FarNode, dial_with};
use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{PREAMBLE, Preamble, Purpose};
use causeway_security::{Line, SessionCertificate};
use tonic::Code;

use super::super::super::contents::Contents;
use super::super::super::workers::{ContentsFiles, Progress};
use super::super::name::LeaseId;
use super::further::{Head, MOST_CHUNK};
use super::send_file::{Connections, File, NoWay};
use super::take_file::{Transferring, Transfers};
use crate::config::ManagerAddress;

const LEASE: LeaseId = LeaseId([1; 16]);
const LIMIT: Duration = Duration::from_secs(30);

/// A transfer under way, and a port that passes connections to it.
pub(super) struct Scene {
    transfers: Transfers,
    pub(super) underway: Transferring,
    at: SocketAddr,
}

impl Scene {
    pub(super) fn new(room: u64, certificate: Option<SessionCertificate>) -> Scene {
        let transfers = Transfers::default();
        let files = ContentsFiles::default();
        let underway = transfers.begin(LEASE, room, certificate, files).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let passing = transfers.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let (mut socket, mut bytes) = (socket.unwrap(), [0; PREAMBLE]);
                socket.read_exact(&mut bytes).unwrap();
                let preamble = Preamble::decode(&bytes).unwrap();
                // A connection that is refused is closed.
                let _ = passing.pass(&preamble, bytes, socket.into());
            }
        });
        Scene {
            transfers,
            underway,
            at,
        }
    }

    /// The sender's end.
    pub(super) fn connections(&self) -> Connections {
        let (connections, way) = (Connections::default(), self.underway.transfer.way());
        connections.found(&way, self.address(), false).unwrap();
        connections
    }

    fn address(&self) -> ManagerAddress {
        ManagerAddress {
            host: "127.0.0.1".to_owned(),
            port: self.at.port(),
            name: None,
        }
    }

    /// Connects for a file of a session.
    fn connect(&self, session: u64, number: u8) -> Line {
        let way = self.underway.transfer.way();
        let far = FarNode {
            id: SessionId(way.id[..].try_into().unwrap()),
            secret: SessionSecret(way.secret[..].try_into().unwrap()),
            fingerprint: None,
            addresses: Vec::new(),
        };
        let preamble = Preamble {
            purpose: Purpose::Contents,
            lane: number,
            session: far.id,
            link: session,
        };
        dial_with(&far, self.at, &preamble, Instant::now() + LIMIT).unwrap()
    }

    fn fault(&self) -> Code {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let failed = async { tokio::time::timeout(LIMIT, self.underway.transfer.failed()).await };
        runtime.block_on(failed).expect("a fault").code()
    }

    fn has_fault(&self) -> bool {
        let failed = std::pin::pin!(self.underway.transfer.failed());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        failed.poll(&mut context).is_ready()
    }
}

fn write(mut line: &Line, head: Head, bytes: &[u8]) {
    line.write_all(&head.encode()).unwrap();
    line.write_all(bytes).unwrap();
}

fn taken(mut line: &Line) -> u64 {
    let mut taken = [0; 8];
    line.read_exact(&mut taken).unwrap();
    u64::from_le_bytes(taken)
}

/// Whether the other end closes the connection.
fn is_closed(mut line: &Line) -> bool {
    line.socket().set_read_timeout(Some(LIMIT)).unwrap();
    match line.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

pub(super) fn memory() -> Contents {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("test", flags).unwrap();
    std::fs::File::from(file).into()
}

#[test]
fn the_files_of_several_connections_belong_to_one_session() {
    let scene = Scene::new(1000, None);
    let transfer = &scene.underway.transfer;
    transfer.begin_session();
    let (second, first) = (scene.connect(1, 2), scene.connect(1, 1));
    write(&second, Head::Chunk(2), b"cd");
    write(&first, Head::Chunk(1), b"a");
    write(&first, Head::Chunk(0), b"");
    write(&first, Head::Chunk(1), b"b");
    for line in [&second, &first] {
        write(line, Head::Ended, b"");
        assert_eq!(taken(line), 2);
    }
    let files = transfer.end_session().unwrap();
    let bytes = files.iter().map(|file| file.read_at(0, 9).unwrap());
    assert_eq!(bytes.collect::<Vec<_>>(), [b"ab", b"cd"]);
    // ---- a connection for the next session waits for it
    let next = scene.connect(2, 1);
    write(&next, Head::Chunk(1), b"e");
    transfer.begin_session();
    write(&next, Head::Ended, b"");
    assert_eq!(taken(&next), 1);
    assert_eq!(transfer.end_session().unwrap().len(), 1);
    // ---- and one for a session that was, or a file that cannot be, brings nothing
    transfer.begin_session();
    for (session, number) in [(2, 1), (3, 0), (3, 200)] {
        assert!(is_closed(&scene.connect(session, number)));
    }
    assert!(!scene.has_fault());
}

#[test]
fn a_session_whose_file_is_not_whole_does_not_arrive() {
    let scene = Scene::new(1000, None);
    scene.underway.transfer.begin_session();
    // The second file comes, and the first does not.
    let second = scene.connect(1, 2);
    write(&second, Head::Ended, b"");
    assert_eq!(taken(&second), 0);
    let missing = scene.underway.transfer.end_session().unwrap_err();
    assert_eq!(missing.code(), Code::InvalidArgument);
}

#[test]
fn all_connections_together_have_no_more_than_the_room() {
    let scene = Scene::new(10, None);
    let transfer = &scene.underway.transfer;
    transfer.begin_session();
    transfer.take_room(4).unwrap();
    let (first, second) = (scene.connect(1, 1), scene.connect(1, 2));
    write(&first, Head::Chunk(6), b"abcdef");
    write(&first, Head::Ended, b"");
    assert_eq!(taken(&first), 6);
    assert!(transfer.take_room(1).is_err());
    // ---- the room of a session that has ended is free again
    transfer.forget_session();
    transfer.begin_session();
    transfer.take_room(9).unwrap();
    let third = scene.connect(2, 1);
    write(&third, Head::Chunk(2), b"gh");
    assert_eq!(scene.fault(), Code::ResourceExhausted);
    assert!(is_closed(&third));
    drop(second);
}

#[test]
fn a_connection_that_breaks_is_a_fault_and_one_that_is_given_up_is_none() {
    let scene = Scene::new(1000, None);
    scene.underway.transfer.begin_session();
    let given_up = scene.connect(1, 1);
    write(&given_up, Head::Chunk(1), b"a");
    write(&given_up, Head::GivenUp, b"");
    assert!(is_closed(&given_up));
    assert!(!scene.has_fault());
    let breaks = scene.connect(1, 2);
    write(&breaks, Head::Chunk(5), b"ab");
    drop(breaks);
    assert_eq!(scene.fault(), Code::Unavailable);
}

#[test]
fn a_session_that_is_given_up_ends_its_connections_and_no_others() {
    let scene = Scene::new(10, None);
    let transfer = &scene.underway.transfer;
    transfer.begin_session();
    let (whole, partial) = (scene.connect(1, 1), scene.connect(1, 2));
    write(&whole, Head::Chunk(2), b"ab");
    write(&whole, Head::Ended, b"");
    assert_eq!(taken(&whole), 2);
    write(&partial, Head::Chunk(4), b"c");
    let next = scene.connect(2, 1);
    transfer.forget_session();
    assert!(is_closed(&partial));
    transfer.begin_session();
    // The room of the whole file is back.
    write(&next, Head::Chunk(6), b"defghi");
    write(&next, Head::Ended, b"");
    assert_eq!(taken(&next), 6);
    assert_eq!(transfer.end_session().unwrap().len(), 1);
    assert!(!scene.has_fault());
}

#[test]
fn a_later_transfer_of_a_lease_ends_the_earlier_one() {
    let scene = Scene::new(1000, None);
    scene.underway.transfer.begin_session();
    let line = scene.connect(1, 1);
    write(&line, Head::Chunk(5), b"ab");
    let begin = |lease| {
        let files = ContentsFiles::default();
        scene.transfers.begin(lease, 10, None, files).unwrap()
    };
    let _another = begin(LeaseId([2; 16]));
    assert!(!scene.has_fault());
    let later = begin(LEASE);
    assert_eq!(scene.fault(), Code::Aborted);
    assert!(is_closed(&line));
    assert!(later.transfer.take_room(10).is_ok());
}

#[test]
fn a_sender_that_uses_tls_refuses_a_way_without() {
    let scene = Scene::new(1000, None);
    let (connections, way) = (Connections::default(), scene.underway.transfer.way());
    let refused = connections.found(&way, scene.address(), true);
    assert!(matches!(refused, Err(NoWay::Clear)), "{refused:?}");
}

#[test]
fn connections_end_with_their_transfer() {
    let scene = Scene::new(1000, None);
    scene.underway.transfer.begin_session();
    let line = scene.connect(1, 1);
    write(&line, Head::Chunk(5), b"ab");
    drop(scene);
    assert!(is_closed(&line));
}

/// Sends a file that grows meanwhile, and returns what has arrived.
fn sent_while_written(certificate: Option<SessionCertificate>) {
    let scene = Scene::new(u64::MAX, certificate);
    let transfer = &scene.underway.transfer;
    let connections = scene.connections();
    transfer.begin_session();
    let bytes: Vec<u8> = (0..MOST_CHUNK as usize * 2 + 77)
        .map(|at| (at / 5) as u8)
        .collect();
    let (contents, is_whole) = (memory(), AtomicBool::new(false));
    let progress = || match is_whole.load(Ordering::SeqCst) {
        true => Progress::Parked(Box::default()),
        false => Progress::Parks,
    };
    let file = File {
        session: 1,
        number: 1,
        contents: &contents,
    };
    std::thread::scope(|scope| {
        let sends = scope.spawn(|| connections.send(&file, &progress));
        for (piece, at) in bytes.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
            contents.write_at(piece, at).unwrap();
        }
        is_whole.store(true, Ordering::SeqCst);
        sends.join().unwrap().unwrap();
    });
    let files = transfer.end_session().unwrap();
    assert!(files[0].read_at(0, bytes.len() + 1).unwrap() == bytes);
}

#[test]
fn a_file_is_sent_while_it_is_written() {
    sent_while_written(None);
}

#[test]
fn a_file_is_sent_over_tls() {
    sent_while_written(Some(SessionCertificate::generate().unwrap()));
}
