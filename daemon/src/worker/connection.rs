//! What passes between the connection service and the session.
//!
//! The service speaks greeting and proof, so whoever holds a [`Connection`] holds one whose peer has
//! proved the session's secret. Sockets are blocking, with `TCP_NODELAY` and keep-alive set.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::command::EventBatch;
use causeway_proto::id::SessionId;
use causeway_security::Line;

use crate::accounting::Slot;
use crate::build_cache::Client;
pub use crate::config::SessionLimits;
use crate::handover::Leased;

/// A proved connection, by what it is for.
#[derive(Debug)]
pub enum Connection {
    /// Command and event batches as frames: the direct carrier.
    Commands(Line),
    /// The same over HTTP/2, which follows.
    CommandsGrpc(Line),
    /// Bulk data; handed to the session as it is.
    Bulk {
        /// Which of the session's bulk connections.
        lane: u8,
        /// Nothing read from it yet past the proof.
        stream: Stream,
    },
    /// Heartbeats.
    Pulse(Line),
}

/// What a session is told when it begins.
#[derive(Clone, Debug)]
pub struct SessionStart {
    /// For the log.
    pub id: SessionId,
    /// What the supervisor allows it.
    pub limits: SessionLimits,
    /// The devices that it may use; `None`: all.
    pub leased: Option<Vec<Leased>>,
    /// Where it counts what it uses.
    pub account: Slot,
    /// The way to the daemon's build cache, if it may be used.
    pub builds: Option<Arc<Client>>,
}

/// Where a session puts what it has to say to its client; made by the carrier.
pub trait EventSink: Send + Sync + 'static {
    /// Takes a batch; batches reach the client in the order of the calls.
    ///
    /// Never blocks on the network (what the socket does not take at once waits in memory, and the
    /// carrier stops reading commands while much waits), so a driver's callback thread may call it.
    /// After the connection is lost it takes batches and drops them: the process is about to end.
    fn send(&self, batch: EventBatch);
}
