//! What a command does, with the objects that it needs.
//!
//! A task can go to its native queue at any later time: it keeps its objects alive. An error that the
//! client could not know of is the task's status.
#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use causeway_proto::id::{EventId, LinkId};
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::arguments::Arguments;
use super::command::Command;
use super::{Kernel, Memory, Queue};
use crate::runtime::kernel::Shape;

/// A command that may run now or later.
pub(crate) struct Task {
    pub(crate) command: Arc<Command>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) waits: Vec<Arc<Command>>,
    pub(crate) operation: Result<Operation, Status>,
    /// Bytes of memory that the task costs while it is held back.
    pub(crate) bytes: usize,
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

/// The operation of a task.
pub(crate) enum Operation {
    /// A launch, with its arguments as of its place in the stream.
    NdRange {
        kernel: Arc<Kernel>,
        arguments: Arc<Arguments>,
        /// Kept alive until the launch is enqueued.
        _memory: Vec<Arc<Memory>>,
        /// `None` if the launch has no work-items.
        shape: Option<Shape>,
    },
    /// A write whose bytes came with the command.
    Write {
        memory: Arc<Memory>,
        region: Region,
        contents: Bytes,
    },
    /// A read whose bytes are sent in the completion.
    Read { memory: Arc<Memory>, region: Region },
    /// A write whose bytes come over bulk connections.
    BulkWrite { memory: Arc<Memory>, region: Region },
    /// A read whose bytes are sent over bulk connections.
    BulkRead { memory: Arc<Memory>, region: Region },
    /// A read whose bytes are sent to another worker.
    Send { memory: Arc<Memory>, region: Region },
    /// A write whose bytes come from another worker.
    Receive { memory: Arc<Memory>, region: Region },
    /// A copy on the device.
    Copy {
        source: (Arc<Memory>, Region),
        destination: (Arc<Memory>, Region),
    },
    /// A fill.
    Fill {
        memory: Arc<Memory>,
        pattern: Bytes,
        offset: u64,
        size: u64,
    },
    /// A fill with a colour.
    FillImage {
        memory: Arc<Memory>,
        region: Region,
        colour: [u8; 16],
    },
    /// A migration to the queue's device.
    Migrate {
        memory: Vec<Arc<Memory>>,
        flags: u64,
    },
    /// All commands that a command buffer had recorded at this place in the stream.
    Replay {
        commands: Arc<Vec<Arc<Recorded>>>,
        /// Kept alive until the commands are enqueued.
        _memory: Vec<Arc<Memory>>,
    },
    /// A marker, or an operation that touches no byte.
    Marker,
    /// A barrier.
    Barrier,
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

/// A command buffer: recorded commands, which each replay enqueues anew.
#[derive(Default)]
pub(crate) struct CommandBuffer {
    /// Shared with the replays that were applied meanwhile.
    pub(crate) commands: Mutex<Arc<Vec<Arc<Recorded>>>>,
}

/// A recorded command.
pub(crate) struct Recorded {
    pub(crate) operation: Result<Operation, Status>,
    /// Indices of the earlier commands that this one comes after.
    pub(crate) after: Box<[u32]>,
}

impl Recorded {
    /// The number of objects that the command counts as, against the session's limit.
    pub(crate) fn weight(&self) -> usize {
        1 + self.after.len()
    }

    /// Whether the command reads and writes no memory.
    pub(crate) fn touches_nothing(&self) -> bool {
        let operation = self.operation.as_ref();
        operation.is_ok_and(|of| {
            matches!(
                of,
                Operation::Marker | Operation::NdRange { shape: None, .. }
            )
        })
    }
}
