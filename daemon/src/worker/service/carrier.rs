//! What the two carriers of commands and events have in common.
//!
//! A carrier outlives its connections if the session does. [`Carrier::switch`] gives it a new one. Events go over the
//! new connection at once. The `session` thread reads from it when the old one ends, or when it comes back from the
//! driver.
#![forbid(unsafe_code)]

use causeway_security::Line;

use super::ending::{Ending, Endings};
use super::window::BadNumber;

/// With more event bytes than this that wait or are not acknowledged, no further commands are read.
pub(super) const HIGH: usize = 64 << 20;
/// With fewer such bytes than this, commands are read again.
pub(super) const LOW: usize = 32 << 20;
/// With more such bytes than this, the client is given up. The commands that it sent still produce events.
pub(super) const GIVE_UP: usize = 512 << 20;
/// The same in a host, where the bytes would be taken from the neighbours.
pub(super) const GIVE_UP_IN_HOST: usize = 128 << 20;

/// A command connection that has its place.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) line: Line,
    /// Number of the connection in its place. A later connection has a greater number.
    pub(super) number: u64,
    /// Number of the last event batch that the client has handled.
    pub(super) position: u64,
}

/// The way of a session's events and commands.
pub(super) trait Carrier: Send + Sync {
    /// Goes on over a new connection. Does nothing if a later one has arrived meanwhile. Never waits for the session.
    fn switch(&self, arrived: Arrived);

    /// Handles that the client has handled all event batches up to `number`.
    fn acknowledge(&self, number: u64) -> Result<(), BadNumber>;

    /// Whether a session with this carrier can be parked.
    fn can_park(&self) -> bool {
        false
    }

    /// The number of the last event batch, if the client has handled it.
    fn heard(&self) -> Option<u64> {
        None
    }

    /// The number of the last event batch.
    fn last(&self) -> u64 {
        0
    }

    /// Ends the waits of all threads, because the session ends and its host goes on.
    fn close(&self);
}

/// Where a carrier reports the end of a connection. Called without a lock of the carrier.
pub(super) trait Losses: Send + Sync {
    /// The connection with this number has ended. The session ends too, unless it outlives its connections.
    fn lost(&self, number: u64, ending: Ending);

    /// The session must end.
    fn end(&self, ending: Ending);
}

impl Losses for Endings {
    fn lost(&self, _: u64, ending: Ending) {
        Endings::end(self, ending);
    }

    fn end(&self, ending: Ending) {
        Endings::end(self, ending);
    }
}
