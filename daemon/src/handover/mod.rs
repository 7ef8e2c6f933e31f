//! What supervisor and worker say to each other, over the Unix socket that is the worker's
//! descriptor 0.
//!
//! The socket keeps message boundaries (`SOCK_SEQPACKET`); a message is at most [`MAX_MESSAGE`] bytes
//! and carries at most one descriptor. Both ends are the same binary, so there is no version here.
//! When either side closes, the other is to end: a worker never outlives its supervisor.
//!
//! Invariant: a passed connection arrives with exactly the preamble that the supervisor has read from
//! it, nothing more was read.
#![forbid(unsafe_code)]

mod assignment;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use causeway_proto::preamble::PREAMBLE;
use prost::Message;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::build_cache::Key;

use self::assignment::Encoded;
pub use self::assignment::{Assignment, Leased, MAX_LEASED, MAX_USER, Owner};

/// Bytes of the longest message.
pub const MAX_MESSAGE: usize = 4096;
/// Bytes of the reason of an end that are told; the rest is cut.
pub const MAX_REASON: usize = 1024;

const ASSIGN: u8 = 1;
const CONNECTION: u8 = 2;
const READY: u8 = 3;
const CACHED: u8 = 4;
const LOOK_UP: u8 = 5;
const LEARN: u8 = 6;
const REFUSED: u8 = 7;
const OUTDATED: u8 = 8;
const END: u8 = 9;
const CLIENT: u8 = 10;

/// From the supervisor.
#[derive(Debug)]
pub enum ToWorker {
    /// Comes once, first.
    Assign {
        /// What.
        assignment: Box<Assignment>,
        /// Where it counts what it uses ([`accounting`](crate::accounting)).
        page: OwnedFd,
    },
    /// A connection that named this session.
    Connection {
        /// The 32 bytes that were read from it.
        preamble: [u8; PREAMBLE],
        /// The rest of it.
        socket: OwnedFd,
    },
    /// The session is to end, and its client to be told why. The end of the channel, which follows, is the same
    /// without a reason.
    End {
        /// For people; at most [`MAX_REASON`] bytes.
        reason: String,
    },
    /// The answer to [`ToSupervisor::LookUp`].
    Cached {
        /// Which question.
        ticket: u64,
        /// The entry, open for reading, if there is one.
        entry: Option<OwnedFd>,
    },
}

/// From the worker.
#[derive(Debug)]
pub enum ToSupervisor {
    /// OpenCL is loaded and listed.
    Ready,
    /// The client has proved the session's secret on this connection, whose end is the session's end. Of the connection
    /// for commands it is sent before the first command is applied, so before a kernel of the session could send another
    /// in its place; of the pulse connection when that comes.
    Client {
        /// Which connection.
        line: Line,
        /// A duplicate of its socket; none where either process is short of descriptors.
        socket: Option<OwnedFd>,
    },
    /// Is this build in the cache?
    LookUp {
        /// Comes back with the answer.
        ticket: u64,
        /// Which build.
        key: Key,
    },
    /// This build was made and is not in the cache.
    Learn {
        /// Which build; a hint that saves doing the same twice.
        key: Key,
        /// A file with the encoded [`Job`](crate::build_cache::Job).
        job: OwnedFd,
    },
    /// The driver, or the checksum, did not accept this build's entry.
    Refused {
        /// Which build.
        key: Key,
    },
    /// This build's entry was made by a compiler that is not there any more.
    Outdated {
        /// Which build.
        key: Key,
    },
}

/// A connection whose end is its session's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Line {
    /// Commands and events, by either carrier.
    Commands = 0,
    /// Heartbeats.
    Pulse = 1,
}

/// The other side sent what this build never sends.
#[derive(Debug, thiserror::Error)]
#[error("a message between supervisor and worker makes no sense")]
pub struct Nonsense;

/// Makes the two ends: the supervisor's, which never blocks, and the worker's, which does.
///
/// # Errors
/// What the system says.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (supervisor, worker) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::io::ioctl_fionbio(&supervisor, true)?;
    Ok((supervisor, worker))
}

/// Sends a message to a worker.
///
/// # Errors
/// `WouldBlock` when the worker has not taken many earlier ones; anything else: it is gone.
pub fn send_to_worker(end: impl AsFd, message: &ToWorker) -> io::Result<()> {
    match message {
        ToWorker::Assign { assignment, page } => {
            let mut bytes = vec![ASSIGN];
            bytes.extend_from_slice(&Encoded::from(&**assignment).encode_to_vec());
            send(end, &bytes, Some(page.as_fd()))
        }
        ToWorker::Connection { preamble, socket } => {
            let mut bytes = vec![CONNECTION];
            bytes.extend_from_slice(preamble);
            send(end, &bytes, Some(socket.as_fd()))
        }
        ToWorker::End { reason } => {
            let mut cut = reason.len().min(MAX_REASON);
            while !reason.is_char_boundary(cut) {
                cut -= 1;
            }
            send(end, &[&[END], &reason.as_bytes()[..cut]].concat(), None)
        }
        ToWorker::Cached { ticket, entry } => {
            let mut bytes = vec![CACHED];
            bytes.extend_from_slice(&ticket.to_le_bytes());
            send(end, &bytes, entry.as_ref().map(AsFd::as_fd))
        }
    }
}

/// Sends a message to the supervisor.
///
/// # Errors
/// What the system says; the supervisor is gone.
pub fn send_to_supervisor(end: impl AsFd, message: &ToSupervisor) -> io::Result<()> {
    let named = |kind: u8, key: &Key| [&[kind], &key.0[..]].concat();
    match message {
        ToSupervisor::Ready => send(end, &[READY], None),
        ToSupervisor::Client { line, socket } => {
            let socket = socket.as_ref().map(AsFd::as_fd);
            send(end, &[CLIENT, *line as u8], socket)
        }
        ToSupervisor::LookUp { ticket, key } => {
            let mut bytes = named(LOOK_UP, key);
            bytes.extend_from_slice(&ticket.to_le_bytes());
            send(end, &bytes, None)
        }
        ToSupervisor::Learn { key, job } => send(end, &named(LEARN, key), Some(job.as_fd())),
        ToSupervisor::Refused { key } => send(end, &named(REFUSED, key), None),
        ToSupervisor::Outdated { key } => send(end, &named(OUTDATED, key), None),
    }
}

/// The worker's next message; `None` once the supervisor has closed its end.
///
/// # Errors
/// What the system says, or [`Nonsense`] inside.
pub fn receive_in_worker(end: impl AsFd) -> io::Result<Option<ToWorker>> {
    let Some((bytes, descriptor)) = receive(end)? else {
        return Ok(None);
    };
    match (bytes.split_first(), descriptor) {
        (Some((&ASSIGN, rest)), Some(page)) => Encoded::decode(rest)
            .ok()
            .and_then(|encoded| encoded.assignment())
            .map(|assignment| {
                Some(ToWorker::Assign {
                    assignment: Box::new(assignment),
                    page,
                })
            })
            .ok_or_else(nonsense),
        (Some((&CONNECTION, rest)), Some(socket)) => Ok(Some(ToWorker::Connection {
            preamble: rest.try_into().map_err(|_| nonsense())?,
            socket,
        })),
        (Some((&END, reason)), None) => Ok(Some(ToWorker::End {
            reason: String::from_utf8(reason.to_vec()).map_err(|_| nonsense())?,
        })),
        (Some((&CACHED, rest)), entry) => Ok(Some(ToWorker::Cached {
            ticket: u64::from_le_bytes(rest.try_into().map_err(|_| nonsense())?),
            entry,
        })),
        _ => Err(nonsense()),
    }
}

/// The supervisor's next message from a worker; `None` once the worker is gone.
///
/// # Errors
/// `WouldBlock` when there is none yet; else as [`receive_in_worker`].
pub fn receive_in_supervisor(end: impl AsFd) -> io::Result<Option<ToSupervisor>> {
    let Some((bytes, descriptor)) = receive(end)? else {
        return Ok(None);
    };
    let (kind, rest) = bytes.split_first().ok_or_else(nonsense)?;
    let key = || -> io::Result<(Key, &[u8])> {
        let (key, rest) = rest.split_first_chunk().ok_or_else(nonsense)?;
        Ok((Key(*key), rest))
    };
    Ok(Some(match (*kind, descriptor) {
        (READY, None) if rest.is_empty() => ToSupervisor::Ready,
        (CLIENT, socket) => {
            let line = match rest {
                [0] => Line::Commands,
                [1] => Line::Pulse,
                _ => return Err(nonsense()),
            };
            ToSupervisor::Client { line, socket }
        }
        (LOOK_UP, None) => {
            let (key, ticket) = key()?;
            let ticket = u64::from_le_bytes(ticket.try_into().map_err(|_| nonsense())?);
            ToSupervisor::LookUp { ticket, key }
        }
        (LEARN, Some(job)) => ToSupervisor::Learn { key: key()?.0, job },
        (REFUSED, None) => ToSupervisor::Refused { key: key()?.0 },
        (OUTDATED, None) => ToSupervisor::Outdated { key: key()?.0 },
        _ => return Err(nonsense()),
    }))
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Nonsense)
}

fn send(end: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    rustix::net::sendmsg(
        end,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

fn receive(end: impl AsFd) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&end, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    if received.bytes == 0 {
        // An empty message is never sent, so this is the end.
        return Ok(None);
    }
    // A descriptor is lost where this process can have no more of them (`CTRUNC`): then the message comes without it.
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(nonsense());
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, descriptor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::time::Duration;

    use causeway_proto::id::{SessionId, SessionSecret};
    use causeway_security::{Secret, SessionCertificate};

    use crate::config::SessionLimits;

    fn assignment() -> Assignment {
        Assignment {
            id: SessionId([3; 16]),
            secret: SessionSecret([4; 32]),
            limits: SessionLimits {
                objects: 1,
                held_commands: 2,
                held_bytes: 3,
                device_memory: u64::MAX,
                host_memory: 5,
            },
            bulk_connections: 8,
            connect_limit: Duration::from_secs(10),
            load_limit: Duration::from_secs(60),
            heartbeat_interval: Duration::from_millis(500),
            heartbeat_limit: Duration::from_secs(4),
            build_cache: true,
            certificate: Some(SessionCertificate {
                certificate: vec![7; 400],
                key: Secret::new([8; 140]),
            }),
            leased: Some(vec![
                Leased {
                    platform: u32::MAX,
                    device: u32::MAX,
                    memory: u64::MAX,
                };
                MAX_LEASED
            ]),
            slot: u32::MAX,
            owner: Owner {
                lease: Some("5a".repeat(16)),
                user: Some("u".repeat(MAX_USER)),
            },
        }
    }

    fn assign() -> ToWorker {
        ToWorker::Assign {
            assignment: Box::new(assignment()),
            page: File::open("/dev/null").unwrap().into(),
        }
    }

    #[test]
    fn an_assignment_and_a_socket_arrive_whole() {
        let (supervisor, worker) = pair().unwrap();
        send_to_worker(&supervisor, &assign()).unwrap();
        let (mut kept, passed) = std::os::unix::net::UnixStream::pair().unwrap();
        let message = ToWorker::Connection {
            preamble: [9; PREAMBLE],
            socket: passed.into(),
        };
        send_to_worker(&supervisor, &message).unwrap();
        drop(message);

        match receive_in_worker(&worker).unwrap() {
            Some(ToWorker::Assign {
                assignment: got, ..
            }) => assert_eq!(*got, assignment()),
            other => panic!("{other:?}"),
        }
        match receive_in_worker(&worker).unwrap() {
            Some(ToWorker::Connection { preamble, socket }) => {
                assert_eq!(preamble, [9; PREAMBLE]);
                let mut socket = std::os::unix::net::UnixStream::from(socket);
                socket.write_all(b"x").unwrap();
                let mut byte = [0];
                kept.read_exact(&mut byte).unwrap();
                assert_eq!(&byte, b"x");
            }
            other => panic!("{other:?}"),
        }
        drop(supervisor);
        assert!(receive_in_worker(&worker).unwrap().is_none());
    }

    #[test]
    fn the_build_caches_messages_arrive_whole() {
        let (supervisor, worker) = pair().unwrap();
        let (key, ticket) = (Key([5; 32]), 6);
        let job = File::open("/dev/null").unwrap().into();
        for said in [
            ToSupervisor::LookUp { ticket, key },
            ToSupervisor::Learn { key, job },
            ToSupervisor::Refused { key },
        ] {
            send_to_supervisor(&worker, &said).unwrap();
            let heard = receive_in_supervisor(&supervisor).unwrap().unwrap();
            match (&said, &heard) {
                // The descriptor has another number.
                (ToSupervisor::Learn { key: k, .. }, ToSupervisor::Learn { key, .. }) => {
                    assert_eq!(k, key);
                }
                _ => assert_eq!(format!("{said:?}"), format!("{heard:?}")),
            }
        }
        for socket in [None, Some(File::open("/dev/null").unwrap().into())] {
            let is_there = socket.is_some();
            let line = Line::Commands;
            send_to_supervisor(&worker, &ToSupervisor::Client { line, socket }).unwrap();
            match receive_in_supervisor(&supervisor).unwrap() {
                Some(ToSupervisor::Client { line, socket }) => {
                    assert_eq!((line, socket.is_some()), (Line::Commands, is_there));
                }
                other => panic!("{other:?}"),
            }
        }
        for entry in [None, Some(File::open("/dev/null").unwrap().into())] {
            let is_there = entry.is_some();
            send_to_worker(&supervisor, &ToWorker::Cached { ticket, entry }).unwrap();
            match receive_in_worker(&worker).unwrap() {
                Some(ToWorker::Cached { ticket: 6, entry }) => {
                    assert_eq!(entry.is_some(), is_there);
                }
                other => panic!("{other:?}"),
            }
        }
        // What no worker sends is no message.
        for bytes in [&[LOOK_UP][..], &[REFUSED, 1], &[LEARN; 33], &[99]] {
            send(&worker, bytes, None).unwrap();
            assert!(receive_in_supervisor(&supervisor).is_err());
        }
    }

    #[test]
    fn the_reason_of_an_end_arrives_before_the_end_and_is_cut() {
        let (supervisor, worker) = pair().unwrap();
        for (said, heard) in [
            ("über", "über".to_owned()),
            (&"ü".repeat(MAX_MESSAGE), "ü".repeat(MAX_REASON / 2)),
        ] {
            let reason = said.to_owned();
            send_to_worker(&supervisor, &ToWorker::End { reason }).unwrap();
            match receive_in_worker(&worker).unwrap() {
                Some(ToWorker::End { reason }) => assert_eq!(reason, heard),
                other => panic!("{other:?}"),
            }
        }
        let reason = String::new();
        send_to_worker(&supervisor, &ToWorker::End { reason }).unwrap();
        // As the supervisor ends a channel.
        rustix::net::shutdown(&supervisor, rustix::net::Shutdown::Both).unwrap();
        let last = receive_in_worker(&worker).unwrap();
        assert!(matches!(last, Some(ToWorker::End { .. })));
        assert!(receive_in_worker(&worker).unwrap().is_none());
    }

    #[test]
    fn the_supervisor_never_blocks_on_a_worker() {
        let (supervisor, worker) = pair().unwrap();
        let error = receive_in_supervisor(&supervisor).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        send_to_supervisor(&worker, &ToSupervisor::Ready).unwrap();
        let heard = receive_in_supervisor(&supervisor).unwrap();
        assert!(matches!(heard, Some(ToSupervisor::Ready)));
        let full = (0..1 << 20).find_map(|_| send_to_worker(&supervisor, &assign()).err());
        assert_eq!(full.unwrap().kind(), io::ErrorKind::WouldBlock);
    }
}
