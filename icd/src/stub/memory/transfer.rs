//! Helpers of commands that involve host memory: bytes that came with a completion, and commands that only
//! take their place in the order.
//!
//! How bytes travel is decided where commands are sent (`queue/send.rs`, `distributed/transfers.rs`).
//!
//! Invariant: host memory is read or written only between the enqueue and the end of the command.

use std::sync::Arc;

use crate::error::{ClResult, Status};
use crate::stub::event::{EventSpec, Finisher};
use crate::stub::queue::command::{Enqueue, NodeCommand};
use crate::stub::{Command, Event, Hold, Queue};
use crate::transport::HostRegion;

/// Copies the bytes that came inside a completion to host memory.
pub(in crate::stub) fn land(host: &HostRegion, status: Status, contents: &[u8]) {
    if !status.is_error() && !host.copy_in(contents) {
        tracing::error!(
            "the node returned {} bytes for a read of {} bytes (protocol error); the read's memory is unchanged",
            contents.len(),
            host.length()
        );
    }
}

/// Returns a finisher that drops `keep`.
#[must_use]
pub fn dropping(keep: impl Send + 'static) -> Option<Finisher> {
    Some(Box::new(move |_, _| drop(keep)))
}

/// Enqueues a command that moves no bytes. The command takes its place in the order, waits for its wait
/// list, and ends after `finisher`. `visible`: whether the application can observe the end.
///
/// # Errors
/// Those of [`Queue::enqueue`].
pub fn nothing(
    queue: &Arc<Queue>,
    event_type: u32,
    wait: Vec<Arc<Event>>,
    hold: Hold,
    finisher: Option<Finisher>,
    visible: bool,
) -> ClResult<Arc<Event>> {
    let event = EventSpec {
        event_type,
        wait,
        hold,
        finisher,
        visible,
        note: None,
    };
    let command = Command::Node(NodeCommand::Nothing);
    Ok(queue.enqueue(Enqueue { command, event })?.event)
}
