//! The carriers, which transport batches of commands and events: one small trait with two
//! implementations.

pub(super) mod direct;
pub(super) mod grpc;

use std::io;
use std::time::Duration;

use causeway_security::Line;

use self::direct::Readable;

/// The sending half of a carrier. The receiving half is a thread of the gRPC carrier, or the reader
/// (`reader`) of the direct one.
pub(super) trait Carrier: Send + Sync {
    /// Sends one batch: [`causeway_proto::frame::PREFIX`] bytes of room, then an encoded
    /// `CommandBatch`. Blocks while the connection has no room.
    ///
    /// # Errors
    /// When the connection is gone.
    fn write(&self, batch: &mut [u8]) -> io::Result<()>;

    /// Sends the last batch at the end of the process, like [`Carrier::write`], but blocks no longer than
    /// `limit`.
    ///
    /// # Errors
    /// When the connection is gone or accepts nothing.
    fn write_last(&self, batch: &mut [u8], limit: Duration) -> io::Result<()>;

    /// Sends over another connection from now on, which has this generation. Nothing may be written meanwhile. Returns
    /// the reading half, if the carrier's own thread does not read.
    ///
    /// # Errors
    /// Errors of the system.
    fn replace(&self, line: Line, generation: u64) -> io::Result<Option<Readable>>;

    /// Shuts the connection down in both directions, which wakes threads that are blocked in it. May be
    /// called again.
    fn shut_down(&self);
}
