//! One bulk connection, with one thread that reads it and one that writes it.
//!
//! Invariant: the reading thread waits for nothing that needs more bytes from the network. Credit is
//! granted only for bytes that have a place, so the bytes on the stream can always be read. Besides the
//! stream, the thread waits for short-held locks, and for the driver when the last byte of a write arrives.
//! That driver call is an enqueue with its flush, which by OpenCL's rules waits for no other command.
#![forbid(unsafe_code)]

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_lane::{Pace, Packer, Stream, Unpacker};
use causeway_proto::bulk::{HEADER, Header, Kind};
use causeway_proto::socket::stays_inside;

use super::engine::Engine;
use super::incoming::{LaneError, discard};
use super::outgoing::{Item, Outgoing};
use super::path::Path;
use super::peers::{Foreign, OWN, Origin, Why};
use super::writer::LaneWriter;
use crate::accounting::Counter;

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

    fn count_received(&self, engine: &Engine, length: u32) {
        if let Some((received, _)) = self.counters() {
            engine.account.add(received, length.into());
        }
    }

    fn count_sent(&self, engine: &Engine, length: u32) {
        if let Some((_, sent)) = self.counters() {
            engine.account.add(sent, length.into());
        }
    }

    fn outgoing<'a>(&'a self, engine: &'a Engine) -> &'a Outgoing {
        match &self.path {
            Some((path, _)) => path.own(),
            None => &engine.outgoing,
        }
    }

    // Pacing keeps the network free for the client's commands. Lanes to other workers share no network
    // link with those commands, so they are not paced.
    fn pace(&self, stream: &Stream) -> Pace {
        Pace::new(leaves(stream) && self.path.is_none())
    }

    fn name(&self, direction: &str) -> String {
        match &self.path {
            Some((path, _)) => format!("link{}-{direction}-{}", path.id().0, self.number),
            None => format!("bulk-{direction}-{}", self.number),
        }
    }
}

/// Starts the two threads of a lane.
pub(super) fn start(engine: &Arc<Engine>, lane: Lane, writer: Arc<LaneWriter>) {
    let both = Arc::new((lane, writer));
    engine.scope.spawn(&both.0.name("in"), {
        let (engine, both) = (Arc::clone(engine), Arc::clone(&both));
        move || {
            let (lane, writer) = &*both;
            let ended = read(&engine, lane, writer);
            end(&engine, lane, writer, ended);
        }
    });
    let scope = engine.scope.clone();
    let engine = Arc::clone(engine);
    scope.spawn(&both.0.name("out"), move || {
        let (lane, writer) = &*both;
        let ended = write(&engine, lane, writer);
        end(&engine, lane, writer, ended);
    });
}

// Both threads call this; the first of them closes the lane.
fn end(engine: &Arc<Engine>, lane: &Lane, writer: &LaneWriter, ended: Result<(), LaneError>) {
    if writer.end() {
        return;
    }
    writer.stream().shut_down();
    match &lane.path {
        Some((path, _)) => path.writers().remove(writer),
        None => engine.writers.remove(writer),
    }
    writer.forget();
    // Wakes the writing thread, which may be waiting for the queue.
    lane.outgoing(engine).look();
    if let Some((path, incarnation)) = &lane.path {
        if path.is_present(*incarnation) {
            if path.id() == OWN {
                engine
                    .scope
                    .broken("the worker's connection to itself broke");
            }
            let reason = match ended {
                Ok(()) => "the other end closed a connection".to_owned(),
                Err(error) => error.to_string(),
            };
            tracing::debug!(link = ?path.id(), reason, "a link's connection ended");
            engine.report(|session| session.lane_broke(path.id(), *incarnation, reason));
        }
        return;
    }
    let lane = lane.number;
    match ended {
        Ok(()) => tracing::debug!(lane, "a bulk connection was closed"),
        Err(LaneError::Io(error)) => tracing::info!(lane, %error, "a bulk connection broke"),
        // The client would open the connection again and again.
        Err(error) if writer.stream().resumed().is_some() => {
            engine.report(|session| session.violated(format!("bulk connection {lane}: {error}")));
        }
        Err(error) => tracing::warn!(
            lane,
            %error,
            "the worker closes a bulk connection, because the client violated the protocol"
        ),
    }
}

fn read(engine: &Arc<Engine>, lane: &Lane, writer: &LaneWriter) -> Result<(), LaneError> {
    let mut stream = writer.stream();
    let mut scratch = Vec::new();
    let mut unpacker = Unpacker::default();
    loop {
        let mut bytes = [0; HEADER];
        // The connection may end between two headers, but not inside one.
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            got => stream.read_exact(&mut bytes[got..])?,
        }
        let decoded = Header::decode_packed(&bytes)?;
        match decoded {
            (header, None) => {
                take(engine, lane, stream, &header, &mut scratch)?;
                if matches!(header.kind, Kind::Pace | Kind::Compress) {
                    writer.leave_to_thread();
                }
            }
            (_, Some(_)) if lane.origin() != Origin::Client => return Err(LaneError::Packed),
            (header, Some(packed)) => {
                let stream = unpacker.receive(stream, packed, header.length)?;
                take(engine, lane, stream, &header, &mut scratch)?;
            }
        }
        // The other worker releases the memory of a chunk when it has the acknowledgement.
        let ends_a_chunk = lane.path.is_some() && decoded.0.kind == Kind::Data;
        let at_once = ends_a_chunk || decoded.0.kind == Kind::Ping;
        if let Some(bytes) = stream.resumed().and_then(|resumed| resumed.due(at_once)) {
            let ack = Header::ack(lane.number, bytes);
            match &lane.path {
                Some((path, incarnation)) => {
                    if !path.acknowledge(*incarnation, ack) {
                        return Err(LaneError::Unread);
                    }
                }
                None => engine.tell_client(ack),
            }
        }
    }
}

// Handles a header; its payload is still on the stream.
fn take(
    engine: &Arc<Engine>,
    lane: &Lane,
    stream: &Stream,
    header: &Header,
    scratch: &mut Vec<u8>,
) -> Result<(), LaneError> {
    let from = lane.origin();
    if matches!(header.kind, Kind::Data | Kind::Eager) {
        lane.count_received(engine, header.length);
    }
    match header.kind {
        Kind::Data => match engine.incoming(header.transfer) {
            Some(incoming) => {
                incoming.takes_from(from, header.transfer)?;
                incoming.receive(stream, header.offset, header.length, scratch)?;
            }
            None => discard(stream, header.length, scratch)?,
        },
        Kind::Eager if from == Origin::Client => {
            engine
                .eager
                .receive(&engine.blocks, stream, header, scratch)?;
        }
        Kind::Eager => return Err(Foreign(header.transfer).into()),
        Kind::Credit | Kind::Offer => {
            if let Some(answer) = engine.peers.message(from, header)? {
                lane.outgoing(engine).push(answer);
            }
        }
        Kind::Cancel => match engine.incoming(header.transfer) {
            Some(incoming) if from == Origin::Client && incoming.far().is_none() => {
                incoming.stop(Why::client());
            }
            _ => engine.peers.cancel(from, header)?,
        },
        Kind::Pace if from == Origin::Client => {
            lane.most.store(header.offset, Ordering::Relaxed);
        }
        Kind::Compress if from == Origin::Client => {
            lane.compress.store(true, Ordering::Relaxed);
        }
        Kind::Ping if from == Origin::Client => {}
        Kind::Pace | Kind::Compress | Kind::Ping => return Err(LaneError::Pace),
        Kind::Ack => take_acknowledgement(engine, lane, header)?,
        Kind::Event => return Err(LaneError::Event),
    }
    Ok(())
}

// Here a header's `transfer` is the number of a lane. Nothing is kept for lanes that cannot be resumed.
fn take_acknowledgement(
    engine: &Arc<Engine>,
    lane: &Lane,
    header: &Header,
) -> Result<(), LaneError> {
    let number = u8::try_from(header.transfer.0).ok();
    let writers = match &lane.path {
        // These bytes were sent over a lane of the same number, which has ended.
        Some((path, incarnation)) if !path.is_present(*incarnation) => return Ok(()),
        Some((path, _)) => path.writers(),
        None => &engine.writers,
    };
    if let Some(writer) = number.and_then(|number| writers.resumed(number))
        && writer.acknowledged(header.offset)?
    {
        lane.outgoing(engine).look();
    }
    Ok(())
}

fn write(engine: &Arc<Engine>, lane: &Lane, writer: &LaneWriter) -> Result<(), LaneError> {
    let mut scratch = Vec::new();
    let mut packer = Packer::default();
    let outgoing = lane.outgoing(engine);
    let mut pace = lane.pace(writer.stream());
    let leaves = leaves(writer.stream());
    while let Some(item) = outgoing.next(|| writer.look()) {
        // The client may change limit and compression at any time, so both are read for each item.
        let most = lane.most.load(Ordering::Relaxed);
        pace.set_most((most > 0).then_some(most));
        pace.before_chunk(writer.stream(), &engine.beside);
        let packer = lane.compress.load(Ordering::Relaxed).then_some(&mut packer);
        match item {
            Item::Own => {
                if writer.catch_up(&mut scratch)? {
                    pace.forget_socket();
                }
            }
            Item::Header(header) => writer.send_header(header)?,
            Item::Chunk(chunk) if !chunk.is_wanted() => {}
            Item::Chunk(chunk) => {
                let length = chunk.header().length;
                writer.send_chunk(chunk, packer, leaves, &mut scratch)?;
                lane.count_sent(engine, length);
            }
        }
    }
    Ok(())
}

fn leaves(stream: &Stream) -> bool {
    stream
        .with_socket(|socket| !stays_inside(socket))
        .unwrap_or(false)
}
