//! The messages between supervisor and worker, over the Unix socket that is the worker's descriptor 0.
//!
//! The socket preserves message boundaries (`SOCK_SEQPACKET`). A message has at most [`MAX_MESSAGE`] bytes
//! and carries at most one descriptor, or the files of a parked session. Both ends are the same binary, so the format has no version. When
//! one side closes the socket, the other must end; a worker never outlives its supervisor.
//!
//! Invariant: a connection is passed together with exactly the preamble bytes that the supervisor has read
//! from it. The supervisor has read nothing else.
#![forbid(unsafe_code)]

mod assignment;
mod cards;
pub mod found;
mod link;
#[cfg(test)]
mod tests;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use causeway_proto::id::{DeviceIndex, PlatformIndex};
use causeway_proto::preamble::PREAMBLE;
use prost::Message;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::build_cache::Key;

pub use self::assignment::{Assignment, AwayTimes, Leased, MAX_LEASED, MAX_USER, Owner, Restores};
pub use self::cards::{CARD_BYTES, CardFigures, CardUuid, MOST_CARDS, question};
pub use self::link::{LinkOrder, LinkOutcome, LinkRole, ToLinkEnd, most_addresses};

/// Maximum length of a message, in bytes.
pub const MAX_MESSAGE: usize = 4096;
/// Maximum number of files with the contents of a session.
pub const MOST_FILES: usize = 5;
/// Maximum length of the reason for an end, in bytes. Longer reasons are truncated.
pub const MAX_REASON: usize = 1024;

const ASSIGN: u8 = 1;
const CONNECTION: u8 = 2;
const READY: u8 = 3;
const CACHED: u8 = 4;
const LOOK_UP: u8 = 5;
const STORE: u8 = 6;
const REFUSED: u8 = 7;
const END: u8 = 8;
const CLIENT: u8 = 9;
const HOST: u8 = 10;
const SESSION: u8 = 11;
const RELEASED: u8 = 12;
const BUILDING: u8 = 13;
const WARM: u8 = 14;
const WARMED: u8 = 15;
const WAITING: u8 = 16;
const SPOILED: u8 = 17;
const LEAVING: u8 = 18;
const AWAY: u8 = 19;
const RESTORE: u8 = 20;
const PARK: u8 = 21;
const PARKED: u8 = 22;
const NOT_PARKED: u8 = 23;
const CHECKPOINT: u8 = 24;
const LEAVES_HOST: u8 = 25;

/// Messages from the supervisor.
#[derive(Debug)]
pub enum ToWorker {
    /// Assigns a session. This is the first message, and it is sent once.
    Assign {
        /// The session.
        assignment: Box<Assignment>,
        /// The page in which the worker counts its usage ([`accounting`](crate::accounting)).
        page: OwnedFd,
    },
    /// Makes the worker a host, which serves several sessions. This is the first message, in place of
    /// [`ToWorker::Assign`]. The channel then carries no other messages than this and [`ToWorker::Session`].
    /// The host ends when the supervisor closes it.
    Host {
        /// Whether memory that goes from one session to another is filled with zeros.
        clears: bool,
    },
    /// Has a spare worker make contexts, each on one of these devices, and keep them for its first sessions. This
    /// is sent at most once, before [`ToWorker::Assign`] or [`ToWorker::Host`].
    Warm {
        /// The devices, at most [`MAX_WARM`](crate::config::MAX_WARM).
        devices: Vec<(PlatformIndex, DeviceIndex)>,
    },
    /// A further session of a host.
    Session {
        /// The session's own channel to the supervisor. It begins with [`ToWorker::Assign`]. The host closes it
        /// when it has released everything that the session has made. `None` if the host has no free descriptor.
        channel: Option<OwnedFd>,
    },
    /// A connection that named this session.
    Connection {
        /// The 32 bytes that the supervisor has read from the connection.
        preamble: [u8; PREAMBLE],
        /// The connection; its further bytes are unread. `None` if the worker has no free descriptor. The connection is
        /// closed then.
        socket: Option<OwnedFd>,
    },
    /// The contents of a session that was parked. This follows [`ToWorker::Assign`] at once.
    Restore {
        /// The files that the worker before has written, at least one and at most [`MOST_FILES`].
        contents: Vec<OwnedFd>,
    },
    /// Asks the worker to park the session, because the daemon ends.
    Park {
        /// Empty files for the contents, at least one and at most [`MOST_FILES`]. The worker need not use all of them.
        contents: Vec<OwnedFd>,
    },
    /// Asks the worker to end the session and to report the reason to its client. The supervisor closes the
    /// channel after this message. Closing it without this message ends the session without a reason.
    End {
        /// Reason for people; at most [`MAX_REASON`] bytes.
        reason: String,
    },
    /// The answer to [`ToSupervisor::LookUp`].
    Cached {
        /// Ticket of the lookup.
        ticket: u64,
        /// The entry, open for reading, if there is one.
        entry: Option<OwnedFd>,
    },
}

/// Messages from the worker.
#[derive(Debug)]
pub enum ToSupervisor {
    /// OpenCL is loaded and its devices are listed.
    Ready,
    /// The contexts that [`ToWorker::Warm`] asked for are made, or cannot be made.
    Warmed {
        /// Number of the contexts that are ready.
        contexts: u32,
    },
    /// The client has proved the session's secret on this connection. Its end is also the session's end, unless the
    /// session outlives its connections. Then the newest connection of each kind counts.
    /// For the command connection, the worker sends this before it applies the first command. No kernel of
    /// the session can therefore report another connection first. For the heartbeat connection, the worker
    /// sends this when it arrives.
    Client {
        /// Kind of the connection.
        line: SessionLine,
        /// A duplicate of the connection's socket; `None` if one of the processes has no free descriptor.
        socket: Option<WorkerFile>,
    },
    /// The session is parked: its contents are written, and its client has stopped.
    Parked(Restores),
    /// A checkpoint of the session is whole. The session goes on.
    Checkpoint {
        /// How far the session was.
        restores: Restores,
        /// What the session consisted of: a sealed memory file.
        contents: WorkerFile,
    },
    /// The session cannot be parked, and goes on.
    NotParked {
        /// Reason for people; at most [`MAX_REASON`] bytes.
        reason: String,
    },
    /// The session waits for its client, which is away.
    Away {
        /// It waits for [`AwayTimes::KILLED`] at most. The program was probably killed.
        soon: bool,
    },
    /// A session that outlives its connections begins to end.
    Leaving {
        /// Reason for people; at most [`MAX_REASON`] bytes.
        reason: String,
    },
    /// The session has ended, and nothing of it is left in its host. This is the last message.
    Released,
    /// The session ends, and its host may wait for a compiler, or for commands of a neighbour that are not older than the
    /// session's end.
    Building,
    /// The session ends, and a neighbour's commands on the host's devices are older than its own.
    Waiting,
    /// A native context of the host is of no further use. So the host should get no further session.
    Spoiled,
    /// A session cannot go on in its host, and its client has not heard of a failure. Another worker can execute the session's
    /// commands again.
    LeavesHost,
    /// Asks whether a build is in the cache.
    LookUp {
        /// Number that the answer repeats.
        ticket: u64,
        /// Key of the build.
        key: Key,
    },
    /// Passes a build for the cache. It is stored for the session's user.
    Store {
        /// Key of the build.
        key: Key,
        /// A [`MemoryFile`](crate::build_cache::MemoryFile) with the encoded entry.
        entry: WorkerFile,
    },
    /// Reports that an entry is of no use: the driver or the checksum has rejected it, or its compiler has
    /// changed since.
    Refused {
        /// Key of the build.
        key: Key,
    },
}

/// A connection whose end is also the end of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionLine {
    /// Commands and events, by gRPC or by the direct carrier.
    Commands = 0,
    /// Heartbeats.
    Heartbeat = 1,
}

/// The peer sent a message that this binary never sends.
#[derive(Debug, thiserror::Error)]
#[error("invalid message between supervisor and worker")]
pub struct Nonsense;

/// Makes a pair of connected sockets: the supervisor's, which is non-blocking, and the worker's, which
/// blocks.
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
/// `WouldBlock` if the worker has many unread messages. Any other error means that the worker has ended.
pub fn send_to_worker(end: impl AsFd, message: &ToWorker) -> io::Result<()> {
    match message {
        ToWorker::Assign { assignment, page } => {
            let mut bytes = vec![ASSIGN];
            bytes.extend_from_slice(&assignment.to_bytes());
            send(end, &bytes, Some(page.as_fd()))
        }
        ToWorker::Connection { preamble, socket } => {
            let mut bytes = vec![CONNECTION];
            bytes.extend_from_slice(preamble);
            send(end, &bytes, socket.as_ref().map(AsFd::as_fd))
        }
        ToWorker::Host { clears } => send(end, &[HOST, u8::from(*clears)], None),
        ToWorker::Warm { devices } => {
            let mut bytes = vec![WARM];
            for (platform, device) in devices {
                bytes.extend_from_slice(&platform.0.to_le_bytes());
                bytes.extend_from_slice(&device.0.to_le_bytes());
            }
            send(end, &bytes, None)
        }
        ToWorker::Session { channel } => send(end, &[SESSION], channel.as_ref().map(AsFd::as_fd)),
        ToWorker::Restore { contents } => send_all(end, &[RESTORE], contents.iter()),
        ToWorker::Park { contents } => send_all(end, &[PARK], contents.iter()),
        ToWorker::End { reason } => send(end, &with_reason(END, reason), None),
        ToWorker::Cached { ticket, entry } => {
            let mut bytes = vec![CACHED];
            bytes.extend_from_slice(&ticket.to_le_bytes());
            send(end, &bytes, entry.as_ref().map(AsFd::as_fd))
        }
    }
}

fn with_reason(kind: u8, reason: &str) -> Vec<u8> {
    let mut cut = reason.len().min(MAX_REASON);
    // The receiver rejects text that is not valid UTF-8.
    while !reason.is_char_boundary(cut) {
        cut -= 1;
    }
    [&[kind], &reason.as_bytes()[..cut]].concat()
}

/// Sends a message to the supervisor.
///
/// # Errors
/// The system's error, which means that the supervisor has ended.
pub fn send_to_supervisor(end: impl AsFd, message: &ToSupervisor) -> io::Result<()> {
    let named = |kind: u8, key: &Key| [&[kind], &key.0[..]].concat();
    match message {
        ToSupervisor::Ready => send(end, &[READY], None),
        ToSupervisor::Warmed { contexts } => send(
            end,
            &[&[WARMED], &contexts.to_le_bytes()[..]].concat(),
            None,
        ),
        ToSupervisor::Leaving { reason } => send(end, &with_reason(LEAVING, reason), None),
        ToSupervisor::Released => send(end, &[RELEASED], None),
        ToSupervisor::Building => send(end, &[BUILDING], None),
        ToSupervisor::Waiting => send(end, &[WAITING], None),
        ToSupervisor::Spoiled => send(end, &[SPOILED], None),
        ToSupervisor::LeavesHost => send(end, &[LEAVES_HOST], None),
        ToSupervisor::Away { soon } => send(end, &[AWAY, u8::from(*soon)], None),
        ToSupervisor::Parked(restores) => {
            let mut bytes = vec![PARKED];
            bytes.extend_from_slice(&restores.encode_to_vec());
            send(end, &bytes, None)
        }
        ToSupervisor::Checkpoint { restores, contents } => {
            let mut bytes = vec![CHECKPOINT];
            bytes.extend_from_slice(&restores.encode_to_vec());
            send(end, &bytes, Some(contents.as_fd()))
        }
        ToSupervisor::NotParked { reason } => send(end, &with_reason(NOT_PARKED, reason), None),
        ToSupervisor::Client { line, socket } => {
            let socket = socket.as_ref().map(AsFd::as_fd);
            send(end, &[CLIENT, *line as u8], socket)
        }
        ToSupervisor::LookUp { ticket, key } => {
            let mut bytes = named(LOOK_UP, key);
            bytes.extend_from_slice(&ticket.to_le_bytes());
            send(end, &bytes, None)
        }
        ToSupervisor::Store { key, entry } => send(end, &named(STORE, key), Some(entry.as_fd())),
        ToSupervisor::Refused { key } => send(end, &named(REFUSED, key), None),
    }
}

/// Receives the worker's next message; `None` once the supervisor has closed its end.
///
/// # Errors
/// The system's error, or an `InvalidData` error that contains [`Nonsense`].
pub fn receive_in_worker(end: impl AsFd) -> io::Result<Option<ToWorker>> {
    let Some((bytes, descriptors)) = receive_all(end, MOST_FILES)? else {
        return Ok(None);
    };
    if let (&[kind @ (RESTORE | PARK)], false) = (&bytes[..], descriptors.is_empty()) {
        let contents = descriptors;
        return Ok(Some(match kind {
            RESTORE => ToWorker::Restore { contents },
            _ => ToWorker::Park { contents },
        }));
    }
    match (bytes.split_first(), descriptors.into_iter().next()) {
        (Some((&ASSIGN, rest)), Some(page)) => Assignment::from_bytes(rest)
            .map(|assignment| {
                Some(ToWorker::Assign {
                    assignment: Box::new(assignment),
                    page,
                })
            })
            .ok_or_else(nonsense),
        (Some((&CONNECTION, rest)), socket) => Ok(Some(ToWorker::Connection {
            preamble: rest.try_into().map_err(|_| nonsense())?,
            socket,
        })),
        (Some((&HOST, [clears])), None) => Ok(Some(ToWorker::Host {
            clears: *clears != 0,
        })),
        (Some((&WARM, rest)), None) => Ok(Some(ToWorker::Warm {
            devices: warm_devices(rest).ok_or_else(nonsense)?,
        })),
        (Some((&SESSION, [])), channel) => Ok(Some(ToWorker::Session { channel })),
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

fn warm_devices(bytes: &[u8]) -> Option<Vec<(PlatformIndex, DeviceIndex)>> {
    let (pairs, rest) = bytes.as_chunks::<8>();
    let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
    let pair = |pair: &[u8; 8]| {
        let (platform, device) = pair.split_at(4);
        Some((
            PlatformIndex(number(platform)?),
            DeviceIndex(number(device)?),
        ))
    };
    rest.is_empty()
        .then(|| pairs.iter().map(pair).collect())
        .flatten()
}

/// Receives the supervisor's next message from a worker; `None` once the worker has ended.
///
/// # Errors
/// `WouldBlock` if there is no message yet; otherwise as [`receive_in_worker`].
pub fn receive_in_supervisor(end: impl AsFd) -> io::Result<Option<ToSupervisor>> {
    let Some((bytes, descriptor)) = receive(end)? else {
        return Ok(None);
    };
    let descriptor = descriptor.map(WorkerFile::from);
    let (kind, rest) = bytes.split_first().ok_or_else(nonsense)?;
    let key = || -> io::Result<(Key, &[u8])> {
        let (key, rest) = rest.split_first_chunk().ok_or_else(nonsense)?;
        Ok((Key(*key), rest))
    };
    Ok(Some(match (*kind, descriptor) {
        (READY, None) if rest.is_empty() => ToSupervisor::Ready,
        (WARMED, None) => ToSupervisor::Warmed {
            contexts: u32::from_le_bytes(rest.try_into().map_err(|_| nonsense())?),
        },
        (LEAVING, None) => ToSupervisor::Leaving {
            reason: String::from_utf8(rest.to_vec()).map_err(|_| nonsense())?,
        },
        (RELEASED, None) if rest.is_empty() => ToSupervisor::Released,
        (BUILDING, None) if rest.is_empty() => ToSupervisor::Building,
        (WAITING, None) if rest.is_empty() => ToSupervisor::Waiting,
        (SPOILED, None) if rest.is_empty() => ToSupervisor::Spoiled,
        (LEAVES_HOST, None) if rest.is_empty() => ToSupervisor::LeavesHost,
        (AWAY, None) => ToSupervisor::Away {
            soon: match rest {
                [0] => false,
                [1] => true,
                _ => return Err(nonsense()),
            },
        },
        (PARKED, None) => ToSupervisor::Parked(Restores::decode(rest).map_err(|_| nonsense())?),
        (CHECKPOINT, Some(contents)) => ToSupervisor::Checkpoint {
            restores: Restores::decode(rest).map_err(|_| nonsense())?,
            contents,
        },
        (NOT_PARKED, None) => ToSupervisor::NotParked {
            reason: String::from_utf8(rest.to_vec()).map_err(|_| nonsense())?,
        },
        (CLIENT, socket) => {
            let line = match rest {
                [0] => SessionLine::Commands,
                [1] => SessionLine::Heartbeat,
                _ => return Err(nonsense()),
            };
            ToSupervisor::Client { line, socket }
        }
        (LOOK_UP, None) => {
            let (key, ticket) = key()?;
            let ticket = u64::from_le_bytes(ticket.try_into().map_err(|_| nonsense())?);
            ToSupervisor::LookUp { ticket, key }
        }
        (STORE, Some(entry)) => ToSupervisor::Store {
            key: key()?.0,
            entry,
        },
        (REFUSED, None) => ToSupervisor::Refused { key: key()?.0 },
        _ => return Err(nonsense()),
    }))
}

/// A descriptor that a worker has passed. A hostile worker may pass a socket whose close waits for its peer
/// (`SO_LINGER`), so that is switched off before the close.
#[derive(Debug)]
pub struct WorkerFile(OwnedFd);

impl From<OwnedFd> for WorkerFile {
    fn from(descriptor: OwnedFd) -> WorkerFile {
        WorkerFile(descriptor)
    }
}

impl AsFd for WorkerFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for WorkerFile {
    fn drop(&mut self) {
        // Fails for all other files, whose close does not wait.
        let _ = rustix::net::sockopt::set_socket_linger(&self.0, None);
    }
}

fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Nonsense)
}

fn send(end: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_all(end, bytes, descriptor.iter())
}

fn send_all<'a>(
    end: impl AsFd,
    bytes: &[u8],
    descriptors: impl Iterator<Item = &'a (impl AsFd + 'a)>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = descriptors.map(AsFd::as_fd).collect();
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
    let received = receive_all(end, 1)?;
    Ok(received.map(|(bytes, descriptors)| (bytes, descriptors.into_iter().next())))
}

// Receives up to `most` descriptors with the message. The kernel drops the others.
fn receive_all(end: impl AsFd, most: usize) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(most))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&end, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            // The peer has closed its end before it had read everything. What it sent before is still to be read.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    if received.bytes == 0 {
        // Empty messages are never sent, so 0 bytes mean that the channel is closed.
        return Ok(None);
    }
    // If this process has no free descriptor, the kernel drops the passed one (`CTRUNC`), and the message
    // arrives without it.
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(nonsense());
    }
    bytes.truncate(received.bytes);
    Ok(Some((bytes, descriptors)))
}
