//! One session: its tables, its commands, its events.
//!
//! What it is not: it does not know what carries its commands. Invariant: commands are applied once
//! each, in the order of their numbers.

use std::net::TcpStream;
use std::sync::Arc;

use causeway_proto::command::CommandBatch;

use super::connection::{EventSink, SessionStart};

/// The node's OpenCL, loaded and listed, before it is known whose session it will serve.
///
/// A spare worker makes one and waits. No context is made for it.
#[derive(Debug)]
pub struct Preloaded(crate::runtime::node::Node);

impl Preloaded {
    /// Loads the OpenCL library, lists platforms and devices in the inventory's order.
    #[must_use]
    pub fn load() -> Preloaded {
        Preloaded(crate::runtime::node::Node::load())
    }
}

/// The client broke the protocol; its session ends.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A command that no session takes.
    #[error("{0}")]
    Refused(&'static str),
}

/// A session in its worker.
pub struct Session(());

impl Session {
    /// Begins: captures the process's standard output for kernels' `printf` (until then it is
    /// `/dev/null`), starts the session's threads.
    #[must_use]
    pub fn start(_start: SessionStart, _node: Preloaded, _events: Arc<dyn EventSink>) -> Session {
        Session(())
    }

    /// Applies a batch. Called by one thread at a time, in the order of arrival.
    ///
    /// # Errors
    /// [`Violation`] ends the session: the service logs it and the process exits.
    pub fn apply(&self, _batch: CommandBatch) -> Result<(), Violation> {
        Err(Violation::Refused("this build serves no commands yet"))
    }

    /// Takes a further bulk connection; the session reads and writes it from threads of its own.
    pub fn attach_bulk(&self, _lane: u8, _socket: TcpStream) {}

    /// The client is gone or said goodbye: stop what can be stopped, within `limit`. The process exits
    /// afterwards in any case, without running destructors.
    pub fn end(&self, _limit: std::time::Duration) {}
}
