//! A forwarder between programs and a node, which breaks connections on purpose.
//!
//! - [`Forwarder`]: listens on loopback and forwards to a node. Its methods cut, hold and refuse connections.
//! - [`Plan`]: cuts that the forwarder makes by itself, after a number of bytes or of milliseconds.
//! - [`Random`]: numbers that depend on a seed only.
//!
//! The forwarder knows only the first bytes of a connection, from which it takes the [`Purpose`]. It changes no byte.
//! Invariant: bytes arrive in order and without gaps until the connection is cut.
#![forbid(unsafe_code)]

mod connection;
mod forwarder;
mod random;
mod socket;

pub use connection::Purpose;
pub use forwarder::{Counts, Forwarder, Plan};
pub use random::Random;

use std::net::SocketAddr;
use std::path::PathBuf;

/// The node behind a forwarder.
#[derive(Clone, Debug)]
pub enum Target {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Both ends get a reset. Bytes under way are lost.
    Reset,
    /// Both ends get an orderly close.
    Close,
}

/// A direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the node.
    Up,
    /// From the node.
    Down,
}

/// The directions and connections that are held, that is, silent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// No bytes pass to the node, and no connection is made.
    pub up: bool,
    /// No bytes pass from the node.
    pub down: bool,
    /// Only connections between nodes are held.
    pub only_links: bool,
}

impl Hold {
    /// Everything is held.
    pub const ALL: Hold = Hold {
        up: true,
        down: true,
        only_links: false,
    };

    fn holds(self, direction: Direction, purpose: Option<Purpose>) -> bool {
        let held = match direction {
            Direction::Up => self.up,
            Direction::Down => self.down,
        };
        held && (!self.only_links || purpose == Some(Purpose::Link))
    }
}
