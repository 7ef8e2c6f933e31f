//! Splits lists that are longer than one command may carry: several commands stand for one, and the event
//! is the last one's.
//!
//! A worker accepts lists of [`MAX_LIST`] entries and ends the session over a longer one; the application
//! may use any length. Invariant: each additional command has the wait list of the original, and the
//! original waits for it.

use std::sync::Arc;

use causeway_proto::limits::MAX_LIST;
use cl_headers::types::CL_COMMAND_MARKER;

use super::Queue;
use crate::error::ClResult;
use crate::stub::event::EventSpec;
use crate::stub::queue::command::{Enqueue, NodeCommand};
use crate::stub::{Buffer, Command, Event, Hold};

impl Queue {
    /// Returns the command with a list of objects that fits into one. The rest of a long migration has been
    /// enqueued as additional commands.
    ///
    /// # Errors
    /// Those of [`Queue::enqueue`].
    pub(super) fn split_migration(self: &Arc<Self>, mut enqueue: Enqueue) -> ClResult<Enqueue> {
        let Command::Node(NodeCommand::Migrate { buffers, flags }) = &mut enqueue.command else {
            return Ok(enqueue);
        };
        if buffers.len() <= MAX_LIST {
            return Ok(enqueue);
        }
        enqueue.event.wait = self.fold(enqueue.event.wait)?;
        let rest = buffers.split_off(MAX_LIST);
        let part = |buffers: &[Arc<Buffer>]| {
            let part = Enqueue {
                command: Command::Node(NodeCommand::Migrate {
                    buffers: buffers.to_vec(),
                    flags: *flags,
                }),
                event: EventSpec {
                    event_type: enqueue.event.event_type,
                    wait: enqueue.event.wait.clone(),
                    hold: Hold::from(buffers),
                    finisher: None,
                    // The last command waits for these parts, and nothing can wait for an unobserved
                    // command.
                    visible: true,
                    note: None,
                },
            };
            Ok(self.enqueue(part)?.event)
        };
        let parts = rest.chunks(MAX_LIST).map(part);
        let parts = parts.collect::<ClResult<Vec<_>>>()?;
        enqueue.event.wait.extend(parts);
        Ok(enqueue)
    }

    /// Replaces a wait list that is too long for one command by markers, each of which waits for a part of
    /// it.
    ///
    /// # Errors
    /// Those of [`Queue::enqueue`].
    pub(super) fn fold(self: &Arc<Self>, wait: Vec<Arc<Event>>) -> ClResult<Vec<Arc<Event>>> {
        if wait.len() <= MAX_LIST {
            return Ok(wait);
        }
        let marker = |part: &[Arc<Event>]| {
            let marker = Enqueue {
                command: Command::Node(NodeCommand::Marker),
                event: EventSpec {
                    event_type: CL_COMMAND_MARKER,
                    wait: part.to_vec(),
                    hold: Hold::new(),
                    finisher: None,
                    visible: false,
                    note: None,
                },
            };
            Ok(self.enqueue(marker)?.event)
        };
        wait.chunks(MAX_LIST).map(marker).collect()
    }
}
