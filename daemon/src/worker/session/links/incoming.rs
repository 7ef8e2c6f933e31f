//! One attempt of the other end to connect a link: a seat for each of its connections.
//!
//! The [`link`](super::link) decides whether to accept an attempt. Invariant: only connections of one
//! attempt come together. A late connection of an earlier attempt finds no seat.
#![forbid(unsafe_code)]

use std::io;
use std::net::{SocketAddr, TcpStream};

use causeway_proto::limits::LINK_LANES;
use causeway_proto::preamble::{EVENT_LANE, Verdict};
use causeway_security::Line;
use rustix::net::RecvFlags;

/// An attempt of the other end.
#[derive(Default)]
pub(super) struct Incoming {
    pub(super) attempt: u64,
    /// The other end's name of the attempt.
    generation: u64,
    events: Seat,
    lanes: [Seat; LINK_LANES as usize],
}

#[derive(Default)]
pub(super) enum Seat {
    #[default]
    Free,
    /// The connection has proved the secret and is about to be handed over.
    Promised,
    Taken(Line),
}

/// All connections of a link, authenticated and with their socket options set.
pub(super) struct Connections {
    pub(super) events: Line,
    pub(super) lanes: Vec<Line>,
    /// The other end's address, if this end has dialled.
    pub(super) at: Option<SocketAddr>,
    /// Names these connections, at both ends.
    pub(super) generation: u64,
}

impl Connections {
    /// Returns handles with which to shut all connections down.
    pub(super) fn handles(&self) -> io::Result<Vec<TcpStream>> {
        let all = std::iter::once(&self.events).chain(&self.lanes);
        all.map(|line| line.socket().try_clone()).collect()
    }
}

impl Incoming {
    /// Abandons the attempt: its connections close, and its late ones find no seat.
    pub(super) fn begin(&mut self) {
        *self = Incoming {
            attempt: self.attempt + 1,
            ..Incoming::default()
        };
    }

    /// Reserves a seat. Returns the number of the attempt that the seat belongs to.
    pub(super) fn claim(&mut self, lane: u8, generation: u64) -> Result<u64, Verdict> {
        if lane == EVENT_LANE {
            if self.is_alive() {
                return Err(Verdict::TooMany);
            }
            self.begin();
            self.generation = generation;
        } else if matches!(self.events, Seat::Free) || self.generation != generation {
            // The lanes come after the connection for events, and from the same attempt.
            return Err(Verdict::TooMany);
        }
        match self.seat(lane) {
            Some(seat @ Seat::Free) => *seat = Seat::Promised,
            Some(_) => return Err(Verdict::TooMany),
            None => return Err(Verdict::Malformed),
        }
        Ok(self.attempt)
    }

    pub(super) fn seat(&mut self, lane: u8) -> Option<&mut Seat> {
        if lane == EVENT_LANE {
            Some(&mut self.events)
        } else {
            self.lanes.get_mut(usize::from(lane))
        }
    }

    /// Whether an attempt is in progress.
    pub(super) fn is_alive(&self) -> bool {
        match &self.events {
            Seat::Free => false,
            Seat::Promised => true,
            Seat::Taken(line) => is_open(line.socket()),
        }
    }

    /// Whether the attempt of this name is in progress.
    pub(super) fn is_alive_as(&self, generation: u64) -> bool {
        self.generation == generation && self.is_alive()
    }

    /// Returns the connections once all have arrived.
    pub(super) fn complete(&mut self) -> Option<Connections> {
        let seats = std::iter::once(&self.events).chain(&self.lanes);
        if !seats.into_iter().all(|s| matches!(s, Seat::Taken(_))) {
            return None;
        }
        let attempt = std::mem::take(self);
        self.attempt = attempt.attempt + 1;
        let lanes = attempt.lanes.into_iter().filter_map(Seat::line);
        Some(Connections {
            lanes: lanes.collect(),
            events: attempt.events.line()?,
            at: None,
            generation: attempt.generation,
        })
    }
}

impl Seat {
    fn line(self) -> Option<Line> {
        match self {
            Seat::Taken(line) => Some(line),
            Seat::Free | Seat::Promised => None,
        }
    }
}

/// Whether the peer still keeps its end open, on a connection where it is not expected to send yet.
fn is_open(socket: &TcpStream) -> bool {
    let looked = rustix::net::recv(socket, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    match looked {
        Ok((length, _)) => length > 0,
        Err(error) => matches!(error, rustix::io::Errno::AGAIN | rustix::io::Errno::INTR),
    }
}
