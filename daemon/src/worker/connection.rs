//! The types that pass between the connection service and the session.
//!
//! The service makes a [`Connection`] only after the greeting and the proof. So the peer of
//! every [`Connection`] has proved that it knows the session's secret. Sockets are blocking,
//! with `TCP_NODELAY` and keep-alive set.
#![forbid(unsafe_code)]

use std::fs::File;
use std::sync::Arc;

use causeway_lane::Stream;
use causeway_proto::command::EventBatch;
use causeway_proto::id::SessionId;
use causeway_security::Line;

use crate::accounting::LedgerSlot;
use crate::build_cache::Client;
pub use crate::config::SessionLimits;
use crate::handover::{Leased, Restores};
use crate::worker::objects::commons::Commons;
use crate::worker::objects::warm::Warm;
use crate::worker::threads::Scope;

/// An authenticated connection, by its purpose.
#[derive(Debug)]
pub enum Connection {
    /// Command and event batches as frames: the direct carrier.
    Commands(Line),
    /// Command and event batches over gRPC; the HTTP/2 preface is the next thing on the stream.
    CommandsGrpc(Line),
    /// Bulk data. The session reads and writes the stream itself.
    Bulk {
        /// Number of the lane among the session's bulk connections.
        lane: u8,
        /// The stream; nothing after the proof has been read from it.
        stream: Stream,
    },
    /// Heartbeats.
    Heartbeat(Line),
}

/// Parameters of a session, which the supervisor sends to the worker when the session begins.
#[derive(Clone)]
pub struct SessionStart {
    /// The session's id, for the log.
    pub id: SessionId,
    /// The session's resource limits, set by the supervisor.
    pub limits: SessionLimits,
    /// The devices that the session may use; `None` means all.
    pub leased: Option<Vec<Leased>>,
    /// The shared-memory slot in which the session counts its usage.
    pub account: LedgerSlot,
    /// The client of the daemon's build cache, if the session may use the cache.
    pub builds: Option<Arc<Client>>,
    /// For how long the session waits for broken connections. 0: it does not outlive them.
    pub resume: std::time::Duration,
    /// Of a session that another worker had before: how far that one has come, and what it has left.
    pub restores: Option<(Restores, Source)>,
    /// Whether another worker may execute the session's commands again. New memory is then filled with zeros, so that its
    /// bytes are the same again.
    pub reexecutes: bool,
    /// Most bytes of a checkpoint.
    pub most_contents: u64,
    /// The threads of the session.
    pub(crate) scope: Scope,
    /// What the session shares with its neighbours; `None` outside of a host.
    pub(crate) commons: Option<Arc<Commons>>,
    /// The contexts that were made before the session.
    pub(crate) warm: Arc<Warm>,
}

/// What a session is put together from, beside the client's record.
#[derive(Clone, Debug)]
pub enum Source {
    /// What the worker before has written.
    Files(Arc<[File]>),
    /// Nothing: the client sends all of its commands again.
    Nothing,
}

/// Where a session puts batches for its client, and reports its violations. The carrier implements it.
pub trait EventSink: Send + Sync + 'static {
    /// Sends a batch. Batches reach the client in the order of the calls.
    ///
    /// Never blocks on the network, so a driver's callback thread may call it. Bytes that the socket does
    /// not take at once wait in memory. While many bytes wait, the carrier stops reading commands. After
    /// the connection is lost, batches are dropped: the process is about to end.
    fn send(&self, batch: EventBatch);

    /// Blocks while the client takes too few of the bytes that are to be sent. Returns at once otherwise, and when the session
    /// ends.
    fn wait_for_room(&self);

    /// Ends the session, because the client violated the protocol outside of its commands. Does not wait.
    fn violated(&self, what: String);
}
