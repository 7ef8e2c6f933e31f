//! What moves command and event batches: one small trait, two carriers.

pub(super) mod direct;
pub(super) mod grpc;

use std::io;
use std::time::Duration;

/// The sending half of a carrier. The receiving half is a thread that the carrier starts.
pub(super) trait Carrier: Send + Sync {
    /// Sends one batch: [`causeway_proto::frame::PREFIX`] bytes of room, then an encoded
    /// `CommandBatch`. Blocks while the connection has no room.
    ///
    /// # Errors
    /// When the connection is gone.
    fn write(&self, batch: &mut [u8]) -> io::Result<()>;

    /// The last write, as the process ends: the same, but blocks no longer than `limit`.
    ///
    /// # Errors
    /// When the connection is gone or takes nothing.
    fn write_last(&self, batch: &mut [u8], limit: Duration) -> io::Result<()>;

    /// Ends the connection, both ways; wakes whoever is blocked in it. May be called again.
    fn shut_down(&self);
}
