//! One bulk connection, with one thread that reads it and one that writes it.
//!
//! Invariant: the reading thread waits for nothing that needs more bytes from the network. Credit is
//! granted only for bytes that have a place, so the bytes on the stream can always be read. Besides the
//! stream, the thread waits for short-held locks, and for the driver when the last byte of a write arrives.
//! That driver call is an enqueue with its flush, which by OpenCL's rules waits for no other command.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_lane::{Pace, Packer, Stream, Unpacker};
use causeway_proto::bulk::{BadHeader, HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::socket::stays_inside;

use super::OWN;
use super::eager::UploadError;
use super::memory::send_bytes;
use super::outgoing::{Item, Outgoing};
use super::path::Path;
use super::peers::{Foreign, Origin};
use super::received_ranges::Refused;
use super::writer::LaneWriter;
use crate::accounting::Counter;
use crate::worker::session::{Shared, broken, spawn};

/// Why a lane ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaneError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Header(#[from] BadHeader),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    UploadError(#[from] UploadError),
    #[error(transparent)]
    Foreign(#[from] Foreign),
    #[error("the other end sent an event message on a data connection")]
    Event,
    #[error("the other worker sent a setting that only clients may send")]
    Pace,
    #[error("another worker sent a compressed chunk")]
    Packed,
}

/// A connection: its peer, and the settings for sending on it.
pub(super) struct Lane {
    pub(super) number: u8,
    /// The link's path and incarnation; `None` for the client.
    pub(super) path: Option<(Arc<Path>, u64)>,
    /// Send rate limit in bytes a second, set by the client. 0 means no limit.
    pub(super) most: AtomicU64,
    /// Whether bytes sent on this lane may be compressed, set by the client.
    pub(super) compress: AtomicBool,
}

impl Lane {
    fn origin(&self) -> Origin {
        match &self.path {
            Some((path, _)) => Origin::Peer(path.id()),
            None => Origin::Client,
        }
    }

    /// The counters for bytes received and sent; `None` if the bytes do not leave the worker.
    fn counters(&self) -> Option<(Counter, Counter)> {
        match &self.path {
            None => Some((Counter::FromClient, Counter::ToClient)),
            Some((path, _)) if path.id() == OWN => None,
            Some(_) => Some((Counter::FromNodes, Counter::ToNodes)),
        }
    }

    fn count_received(&self, shared: &Shared, length: u32) {
        if let Some((received, _)) = self.counters() {
            shared.account.add(received, length.into());
        }
    }

    fn count_sent(&self, shared: &Shared, length: u32) {
        if let Some((_, sent)) = self.counters() {
            shared.account.add(sent, length.into());
        }
    }

    fn outgoing<'a>(&'a self, shared: &'a Shared) -> &'a Outgoing {
        match &self.path {
            Some((path, _)) => path.own(),
            None => &shared.bulk.outgoing,
        }
    }

    // Pacing keeps the network free for the client's commands. Lanes to other workers share no network
    // link with those commands, so they are not paced.
    fn pace(&self, stream: &Stream) -> Pace {
        let leaves = stream.socket().is_some_and(|socket| !stays_inside(socket));
        Pace::new(leaves && self.path.is_none())
    }

    fn name(&self, direction: &str) -> String {
        match &self.path {
            Some((path, _)) => format!("link{}-{direction}-{}", path.id().0, self.number),
            None => format!("bulk-{direction}-{}", self.number),
        }
    }
}

/// Starts the two threads of a lane.
pub(super) fn start(shared: &Arc<Shared>, lane: Lane, writer: Arc<LaneWriter>) {
    let both = Arc::new((lane, writer));
    spawn(&both.0.name("in"), {
        let (shared, both) = (Arc::clone(shared), Arc::clone(&both));
        move || {
            let (lane, writer) = &*both;
            let ended = read(&shared, lane, writer);
            end(&shared, lane, writer, ended);
        }
    });
    let shared = Arc::clone(shared);
    spawn(&both.0.name("out"), move || {
        let (lane, writer) = &*both;
        let ended = write(&shared, lane, writer);
        end(&shared, lane, writer, ended);
    });
}

// Both threads call this; the first of them closes the lane.
fn end(shared: &Arc<Shared>, lane: &Lane, writer: &LaneWriter, ended: Result<(), LaneError>) {
    if writer.end() {
        return;
    }
    writer.stream().shut_down();
    shared.bulk.writers.remove(writer);
    // Wakes the writing thread, which may be waiting for the queue.
    lane.outgoing(shared).look();
    if let Some((path, incarnation)) = &lane.path {
        if path.is_present(*incarnation) {
            if path.id() == OWN {
                broken("the worker's connection to itself broke");
            }
            let reason = match ended {
                Ok(()) => "the other end closed a connection".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::debug!(link = ?path.id(), reason, "a link's connection ended");
            shared
                .links
                .lane_broke(shared, path.id(), *incarnation, reason);
        }
        return;
    }
    let lane = lane.number;
    match ended {
        Ok(()) => tracing::debug!(lane, "a bulk connection was closed"),
        Err(LaneError::Io(error)) => tracing::info!(lane, %error, "a bulk connection broke"),
        Err(error) => {
            tracing::warn!(
                lane,
                %error,
                "the worker closes a bulk connection, because the client violated the protocol"
            )
        }
    }
}

fn read(shared: &Arc<Shared>, lane: &Lane, writer: &LaneWriter) -> Result<(), LaneError> {
    let mut stream = writer.stream();
    let mut scratch = Vec::new();
    let mut unpacker = Unpacker::default();
    loop {
        let mut bytes = [0; HEADER];
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            got => stream.read_exact(&mut bytes[got..])?,
        }
        match Header::decode_packed(&bytes)? {
            (header, None) => {
                take(shared, lane, stream, &header, &mut scratch)?;
                if matches!(header.kind, Kind::Pace | Kind::Compress) {
                    writer.leave_to_thread();
                }
            }
            (_, Some(_)) if lane.origin() != Origin::Client => return Err(LaneError::Packed),
            (header, Some(packed)) => {
                let stream = unpacker.receive(stream, packed, header.length)?;
                take(shared, lane, stream, &header, &mut scratch)?;
            }
        }
    }
}

// Handles a header; its payload is still on the stream.
fn take(
    shared: &Arc<Shared>,
    lane: &Lane,
    stream: &Stream,
    header: &Header,
    scratch: &mut Vec<u8>,
) -> Result<(), LaneError> {
    let (bulk, from) = (&shared.bulk, lane.origin());
    if matches!(header.kind, Kind::Data | Kind::Eager) {
        lane.count_received(shared, header.length);
    }
    match header.kind {
        Kind::Data => match bulk.incoming(header.transfer) {
            Some(incoming) => {
                incoming.from(from)?;
                incoming.receive(stream, header.offset, header.length, scratch)?;
            }
            None => discard(stream, header.length, scratch)?,
        },
        Kind::Eager if from == Origin::Client => {
            bulk.eager.receive(shared, stream, header, scratch)?;
        }
        Kind::Eager => return Err(Foreign(header.transfer).into()),
        Kind::Credit | Kind::Offer => {
            if let Some(answer) = bulk.peers.word(from, header)? {
                lane.outgoing(shared).push(answer);
            }
        }
        Kind::Cancel => match bulk.incoming(header.transfer) {
            Some(incoming) if from == Origin::Client && incoming.is_of_client() => {
                incoming.cancelled();
            }
            _ => bulk.peers.cancel(from, header)?,
        },
        Kind::Pace if from == Origin::Client => {
            lane.most.store(header.offset, Ordering::Relaxed);
        }
        Kind::Compress if from == Origin::Client => {
            lane.compress.store(true, Ordering::Relaxed);
        }
        Kind::Pace | Kind::Compress => return Err(LaneError::Pace),
        Kind::Event => return Err(LaneError::Event),
    }
    Ok(())
}

/// Reads and drops bytes that no transfer wants any more.
pub(super) fn discard(mut stream: &Stream, length: u32, scratch: &mut Vec<u8>) -> io::Result<()> {
    const PIECE: usize = 64 << 10;
    let mut left = length as usize;
    while left > 0 {
        let piece = left.min(PIECE);
        scratch.resize(piece, 0);
        stream.read_exact(scratch)?;
        left -= piece;
    }
    Ok(())
}

fn write(shared: &Arc<Shared>, lane: &Lane, writer: &LaneWriter) -> Result<(), LaneError> {
    let mut scratch = Vec::new();
    let mut packer = Packer::default();
    let outgoing = lane.outgoing(shared);
    let mut pace = lane.pace(writer.stream());
    while let Some(item) = outgoing.next(|| writer.look()) {
        let most = lane.most.load(Ordering::Relaxed);
        pace.set_most((most > 0).then_some(most));
        pace.before_chunk(writer.stream(), &shared.bulk.beside);
        let packer = lane.compress.load(Ordering::Relaxed).then_some(&mut packer);
        match item {
            Item::Own => writer.in_turn(|_| Ok(()))?,
            Item::Header(header) => {
                writer.in_turn(|mut stream| stream.write_all(&header.encode()))?;
            }
            Item::Mapped(chunk) => {
                let header = data(chunk.transfer(), chunk.offset(), chunk.length());
                let (window, from) = (chunk.window(), chunk.offset());
                let length = chunk.length().into();
                let put = |stream: &Stream, header: &[u8]| {
                    window.send(stream, header, from, length, &mut scratch)
                };
                writer.in_turn(|stream| send(stream, packer, &header, put))?;
                lane.count_sent(shared, header.length);
                chunk.sent();
            }
            Item::Whole(read) => {
                let header = read.header();
                let put = |stream: &Stream, header: &[u8]| send_bytes(stream, header, &read.bytes);
                writer.in_turn(|stream| send(stream, packer, &header, put))?;
                lane.count_sent(shared, header.length);
            }
            Item::Staged(chunk) if !chunk.is_wanted() => {}
            Item::Staged(chunk) => {
                let header = data(chunk.transfer(), chunk.offset(), chunk.length());
                let (window, length) = (chunk.window(), chunk.length().into());
                let put = |stream: &Stream, header: &[u8]| {
                    window.send(stream, header, 0, length, &mut scratch)
                };
                writer.in_turn(|stream| send(stream, packer, &header, put))?;
                lane.count_sent(shared, header.length);
                chunk.sent();
            }
        }
    }
    Ok(())
}

// Sends a chunk. `put` writes the bytes it is given, then the chunk's bytes.
fn send(
    stream: &Stream,
    packer: Option<&mut Packer>,
    header: &Header,
    put: impl FnOnce(&Stream, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let length = header.length.into();
    let packer =
        packer.and_then(|packer| packer.wants(header.transfer.0, length).then_some(packer));
    match packer {
        Some(packer) => packer.send(
            stream,
            |packed| header.encode_packed(packed),
            |raw| put(raw, &[]),
        ),
        None => put(stream, &header.encode()),
    }
}

/// Returns the header of a data chunk of `length` bytes.
pub(super) fn data(transfer: EventId, offset: u64, length: u32) -> Header {
    Header {
        kind: Kind::Data,
        transfer,
        offset,
        length,
    }
}
