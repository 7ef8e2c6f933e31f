//! One bulk connection: a thread that reads it and one that writes it.
//!
//! Invariant: the reading thread waits for nothing that needs more bytes from the wire, because none was
//! granted that has no place yet; so what is there can always be taken off. Besides its stream it waits for
//! locks that are held for a moment, and for the driver where it gives that the last byte of a write (an
//! enqueue and its flush, which by OpenCL's rules wait for no other command).
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_lane::{Pace, Packer, Stream, Unpacker};
use causeway_proto::bulk::{BadHeader, HEADER, Header, Kind};
use causeway_proto::id::EventId;
use causeway_proto::socket::stays_inside;

use super::OWN;
use super::claims::Refused;
use super::eager::Unasked;
use super::memory::send_bytes;
use super::outgoing::{Item, Outgoing};
use super::outlet::Outlet;
use super::path::Path;
use super::peers::{Foreign, Origin};
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
    Unasked(#[from] Unasked),
    #[error(transparent)]
    Foreign(#[from] Foreign),
    #[error("an event was told among data")]
    Event,
    #[error("another worker said how to send")]
    Pace,
    #[error("another worker sent a compressed chunk")]
    Packed,
}

/// A connection: who is at its other end, and from which queue it sends.
pub(super) struct Lane {
    pub(super) number: u8,
    /// `None`: the client.
    pub(super) path: Option<(Arc<Path>, u64)>,
    /// So many bytes a second may be sent on it; 0: as many as there is room for. The client says so.
    pub(super) most: AtomicU64,
    /// Whether what is sent on it may be compressed. The client says so.
    pub(super) compress: AtomicBool,
}

impl Lane {
    fn origin(&self) -> Origin {
        match &self.path {
            Some((path, _)) => Origin::Peer(path.id()),
            None => Origin::Client,
        }
    }

    /// What its bytes count as; `None`: they do not leave the worker.
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

    // Commands of the client, which are to come through beside bulk, share no link with other workers.
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
pub(super) fn start(shared: &Arc<Shared>, lane: Lane, outlet: Arc<Outlet>) {
    let both = Arc::new((lane, outlet));
    spawn(&both.0.name("in"), {
        let (shared, both) = (Arc::clone(shared), Arc::clone(&both));
        move || {
            let (lane, outlet) = &*both;
            let ended = read(&shared, lane, outlet);
            end(&shared, lane, outlet, ended);
        }
    });
    let shared = Arc::clone(shared);
    spawn(&both.0.name("out"), move || {
        let (lane, outlet) = &*both;
        let ended = write(&shared, lane, outlet);
        end(&shared, lane, outlet, ended);
    });
}

fn end(shared: &Arc<Shared>, lane: &Lane, outlet: &Outlet, ended: Result<(), LaneError>) {
    if outlet.end() {
        return;
    }
    outlet.stream().shut_down();
    shared.bulk.outlets.remove(outlet);
    lane.outgoing(shared).look();
    if let Some((path, incarnation)) = &lane.path {
        if path.is_present(*incarnation) {
            if path.id() == OWN {
                broken("the worker's path to itself broke");
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
            tracing::warn!(lane, %error, "a bulk connection is closed for what came on it")
        }
    }
}

fn read(shared: &Arc<Shared>, lane: &Lane, outlet: &Outlet) -> Result<(), LaneError> {
    let mut stream = outlet.stream();
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
                    outlet.leave_to_thread();
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

// Takes what a header says; its bytes are on the stream.
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

/// Reads bytes that nobody wants any more.
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

fn write(shared: &Arc<Shared>, lane: &Lane, outlet: &Outlet) -> Result<(), LaneError> {
    let mut scratch = Vec::new();
    let mut packer = Packer::default();
    let outgoing = lane.outgoing(shared);
    let mut pace = lane.pace(outlet.stream());
    while let Some(item) = outgoing.next(|| outlet.look()) {
        let most = lane.most.load(Ordering::Relaxed);
        pace.set_most((most > 0).then_some(most));
        pace.before_chunk(outlet.stream(), &shared.bulk.beside);
        let packer = lane.compress.load(Ordering::Relaxed).then_some(&mut packer);
        match item {
            Item::Own => outlet.in_turn(|_| Ok(()))?,
            Item::Word(header) => {
                outlet.in_turn(|mut stream| stream.write_all(&header.encode()))?;
            }
            Item::Mapped(chunk) => {
                let header = data(chunk.transfer(), chunk.offset(), chunk.length());
                let (window, from) = (chunk.window(), chunk.offset());
                let length = chunk.length().into();
                let put = |stream: &Stream, header: &[u8]| {
                    window.send(stream, header, from, length, &mut scratch)
                };
                outlet.in_turn(|stream| send(stream, packer, &header, put))?;
                lane.count_sent(shared, header.length);
                chunk.sent();
            }
            Item::Whole(read) => {
                let header = read.header();
                let put = |stream: &Stream, header: &[u8]| send_bytes(stream, header, &read.bytes);
                outlet.in_turn(|stream| send(stream, packer, &header, put))?;
                lane.count_sent(shared, header.length);
            }
            Item::Staged(chunk) if !chunk.is_wanted() => {}
            Item::Staged(chunk) => {
                let header = data(chunk.transfer(), chunk.offset(), chunk.length());
                let (window, length) = (chunk.window(), chunk.length().into());
                let put = |stream: &Stream, header: &[u8]| {
                    window.send(stream, header, 0, length, &mut scratch)
                };
                outlet.in_turn(|stream| send(stream, packer, &header, put))?;
                lane.count_sent(shared, header.length);
                chunk.sent();
            }
        }
    }
    Ok(())
}

// Sends a chunk: `put` writes what it is given, and the chunk's bytes behind it.
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

/// The header of so many bytes.
pub(super) fn data(transfer: EventId, offset: u64, length: u32) -> Header {
    Header {
        kind: Kind::Data,
        transfer,
        offset,
        length,
    }
}
