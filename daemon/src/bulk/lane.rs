//! One bulk connection: a thread that reads it and one that writes it.
//!
//! Invariant: the reading thread never waits for anything but its socket, because no byte was granted
//! that has no place yet; so what is on the wire can always be taken off it.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_proto::bulk::{BadHeader, HEADER, Header, Kind};

use super::claims::Refused;
use super::outgoing::Item;
use crate::worker::session::{Shared, spawn};

/// Why a lane ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaneError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Header(#[from] BadHeader),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("a client grants no credit")]
    Credit,
    #[error("a client tells of events in its commands")]
    Event,
}

/// Starts the two threads of a lane.
pub(super) fn start(shared: &Arc<Shared>, lane: u8, socket: TcpStream) {
    let socket = Arc::new(socket);
    let gone = Arc::new(AtomicBool::new(false));
    spawn(&format!("bulk-in-{lane}"), {
        let (shared, socket, gone) = (Arc::clone(shared), Arc::clone(&socket), Arc::clone(&gone));
        move || {
            let ended = read(&shared, &socket);
            end(&shared, lane, &socket, &gone, ended);
        }
    });
    spawn(&format!("bulk-out-{lane}"), {
        let shared = Arc::clone(shared);
        move || {
            let ended = write(&shared, &socket, &gone);
            end(&shared, lane, &socket, &gone, ended);
        }
    });
}

fn end(
    shared: &Shared,
    lane: u8,
    socket: &TcpStream,
    gone: &AtomicBool,
    ended: Result<(), LaneError>,
) {
    if gone.swap(true, Ordering::AcqRel) {
        return;
    }
    match ended {
        Ok(()) => tracing::debug!(lane, "a bulk connection was closed"),
        Err(LaneError::Io(error)) => tracing::info!(lane, %error, "a bulk connection broke"),
        Err(error) => {
            tracing::warn!(lane, %error, "a bulk connection is closed for what came on it")
        }
    }
    let _ = socket.shutdown(Shutdown::Both);
    shared.bulk.outgoing().look();
}

fn read(shared: &Arc<Shared>, mut socket: &TcpStream) -> Result<(), LaneError> {
    let mut scratch = Vec::new();
    loop {
        let mut bytes = [0; HEADER];
        match socket.read(&mut bytes)? {
            0 => return Ok(()),
            got => socket.read_exact(&mut bytes[got..])?,
        }
        let header = Header::decode(&bytes)?;
        let incoming = shared.bulk.incoming(header.transfer);
        match (header.kind, incoming) {
            (Kind::Data, Some(incoming)) => {
                incoming.receive(socket, header.offset, header.length, &mut scratch)?;
            }
            (Kind::Data, None) => discard(socket, header.length, &mut scratch)?,
            (Kind::Cancel, Some(incoming)) => incoming.cancelled(),
            (Kind::Cancel, None) => {}
            (Kind::Credit, _) => return Err(LaneError::Credit),
            (Kind::Offer, _) => {}
            (Kind::Event, _) => return Err(LaneError::Event),
        }
    }
}

/// Reads bytes that nobody wants any more.
pub(super) fn discard(
    mut socket: &TcpStream,
    length: u32,
    scratch: &mut Vec<u8>,
) -> io::Result<()> {
    const PIECE: usize = 64 << 10;
    let mut left = length as usize;
    while left > 0 {
        let piece = left.min(PIECE);
        scratch.resize(piece, 0);
        socket.read_exact(scratch)?;
        left -= piece;
    }
    Ok(())
}

fn write(shared: &Arc<Shared>, mut socket: &TcpStream, gone: &AtomicBool) -> Result<(), LaneError> {
    let mut scratch = Vec::new();
    let outgoing = shared.bulk.outgoing();
    while let Some(item) = outgoing.next(|| gone.load(Ordering::Acquire)) {
        match item {
            Item::Word(header) => socket.write_all(&header.encode())?,
            Item::Mapped(read, offset, length) => {
                let header = data(read.transfer(), offset, length);
                read.window()
                    .send(socket, &header, offset, length.into(), &mut scratch)?;
                read.sent(length.into());
            }
            Item::Staged(chunk) => {
                let header = data(chunk.transfer(), chunk.offset(), chunk.length());
                let length = chunk.length().into();
                chunk
                    .window()
                    .send(socket, &header, 0, length, &mut scratch)?;
                chunk.sent();
            }
        }
    }
    Ok(())
}

fn data(transfer: causeway_proto::id::EventId, offset: u64, length: u32) -> [u8; HEADER] {
    Header {
        kind: Kind::Data,
        transfer,
        offset,
        length,
    }
    .encode()
}
