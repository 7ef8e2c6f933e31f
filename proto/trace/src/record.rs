//! What the library reports of a program, as it happens.
//!
//! All moments are nanoseconds of the client's host clock. This module decides nothing.

use std::borrow::Cow;

/// A moment in nanoseconds.
pub type Moment = u64;

/// A report.
#[derive(Clone, Debug)]
pub enum Record {
    /// A node, before anything else names it.
    Node {
        /// The number by which records name the node.
        node: u32,
        /// The name for people.
        name: String,
    },
    /// A command queue, before a command names it.
    Queue {
        /// The queue's id.
        queue: u64,
        /// The node of its device.
        node: u32,
        /// The device's name.
        device: String,
    },
    /// A thread, before a call names it.
    Thread {
        /// The system's id of the thread.
        thread: u32,
        /// The thread's name.
        name: String,
    },
    /// A command was enqueued.
    Enqueued(Enqueued),
    /// A command that was enqueued was never sent.
    Discarded {
        /// The command's event.
        event: u64,
    },
    /// A command has ended.
    Ended(Ended),
    /// A thread has called OpenCL.
    Call(Call),
    /// A thread has waited for a node, inside of a call that is reported later.
    Wait {
        /// The thread.
        thread: u32,
        /// When the wait began and ended.
        span: [Moment; 2],
    },
    /// A batch of commands was sent.
    Batch(Batch),
    /// A node has reported that it applied all commands up to this number.
    Applied {
        /// The node.
        node: u32,
        /// The number of the last applied command.
        number: u64,
        /// When the report arrived.
        at: Moment,
    },
    /// Bytes of a command have crossed a bulk connection.
    Moved(Moved),
    /// A node has built, compiled or linked a program.
    Build {
        /// The node.
        node: u32,
        /// The kind of build.
        name: &'static str,
        /// When the request was sent and answered.
        span: [Moment; 2],
    },
}

/// Where a command is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePlace {
    /// A command of the application, on its queue.
    Queue(u64),
    /// A transfer that a context of several nodes needs, at this node.
    Transfers(u32),
}

/// A command that was enqueued.
#[derive(Clone, Debug)]
pub struct Enqueued {
    /// The command's event.
    pub event: u64,
    /// Where the command is shown.
    pub place: TracePlace,
    /// The kernel's name, or the kind of the command.
    pub name: Cow<'static, str>,
    /// Number of bytes that the command moves or writes.
    pub bytes: Option<u64>,
    /// The wait list.
    pub waits: Vec<u64>,
    /// The thread, if a call of the application enqueued the command.
    pub thread: Option<u32>,
}

/// A command that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The command's event.
    pub event: u64,
    /// 0, or the negative error code.
    pub status: i32,
    /// When the client noticed the end. It counts only without times.
    pub at: Moment,
    /// Queued, submitted, started, ended and completed, as `clGetEventProfilingInfo` returns them.
    pub times: Option<[Moment; 5]>,
}

/// A call of the application.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The thread.
    pub thread: u32,
    /// The function's name.
    pub name: &'static str,
    /// When the call began and ended.
    pub span: [Moment; 2],
    /// 0, or the error code.
    pub status: i32,
}

/// A batch of commands.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The node.
    pub node: u32,
    /// The number of its first command.
    pub first: u64,
    /// The number of its last command.
    pub last: u64,
    /// The batch's size.
    pub bytes: u64,
    /// When the client began and ended to write the batch.
    pub span: [Moment; 2],
}

/// Bytes that have crossed a bulk connection.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// The node.
    pub node: u32,
    /// The event of their command.
    pub event: u64,
    /// Whether the bytes went to the node.
    pub is_out: bool,
    /// Number of bytes.
    pub bytes: u64,
    /// When the first and the last byte crossed.
    pub span: [Moment; 2],
}
