//! A command as the bulk engine sees it: without its operation, which only the session knows.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::id::{EventId, LinkId};

use super::Queue;
use super::command::Command;

/// A command that may run now or later.
pub(crate) struct Task {
    pub(crate) command: Arc<Command>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) waits: Vec<Arc<Command>>,
    /// How the client sends the task's bytes.
    pub(crate) expects: Expects,
    /// The other end of a transfer with another worker.
    pub(crate) far: Option<Far>,
}

/// How the client sends data for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expects {
    /// The client sends nothing besides the command.
    Nothing,
    /// The client sends a bulk write's bytes as it gets credit.
    ByCredit,
    /// The client sends a bulk write's bytes in one chunk, without a request.
    Eagerly,
}

/// The direction of a transfer with another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Direction {
    /// This worker reads the buffer and sends.
    Send,
    /// This worker receives and writes the buffer.
    Receive,
}

/// A transfer with another worker, as this worker names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Far {
    pub(crate) transfer: EventId,
    pub(crate) direction: Direction,
    /// The link to the other worker.
    pub(crate) link: LinkId,
}
