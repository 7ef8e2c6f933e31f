//! Splits lists that are longer than one command may carry: several commands stand for one, and the event
//! is the last one's.
//!
//! A worker accepts lists of [`MAX_LIST`] entries and ends the session over a longer one; the application
//! may use any length. Invariant: each additional command has the wait list of the original, and the
//! original waits for it.

use std::sync::Arc;

use causeway_proto::limits::MAX_LIST;
use cl_headers::types::CL_COMMAND_MARKER;

use super::{Queue, Submission};
use crate::error::ClResult;
use crate::stub::{Buffer, Event, Hold, Work};

impl Queue {
    /// Returns the submission with lists that fit into one command. The rest has been enqueued as
    /// additional commands.
    ///
    /// # Errors
    /// Those of [`Queue::submit`].
    pub(super) fn shortened(self: &Arc<Self>, mut submission: Submission) -> ClResult<Submission> {
        if let Work::Migrate { buffers, flags } = &mut submission.work
            && buffers.len() > MAX_LIST
        {
            submission.wait = self.fold(submission.wait)?;
            let rest = buffers.split_off(MAX_LIST);
            let command = submission.command;
            let part = |buffers: &[Arc<Buffer>]| {
                let part = Submission {
                    work: Work::Migrate {
                        buffers: buffers.to_vec(),
                        flags: *flags,
                    },
                    command,
                    wait: submission.wait.clone(),
                    hold: Hold::from(buffers),
                    finisher: None,
                    // The last command waits for these parts, and nothing can wait for an unobserved
                    // command.
                    visible: true,
                };
                self.submit(part, |_| Ok(()))
            };
            let parts = rest.chunks(MAX_LIST).map(part);
            let parts = parts.collect::<ClResult<Vec<_>>>()?;
            submission.wait.extend(parts);
        }
        submission.wait = self.fold(submission.wait)?;
        Ok(submission)
    }

    // Replaces a long wait list by markers, each of which waits for a part of it.
    fn fold(self: &Arc<Self>, wait: Vec<Arc<Event>>) -> ClResult<Vec<Arc<Event>>> {
        if wait.len() <= MAX_LIST {
            return Ok(wait);
        }
        let marker = |part: &[Arc<Event>]| {
            let submission = Submission {
                work: Work::Marker,
                command: CL_COMMAND_MARKER,
                wait: part.to_vec(),
                hold: Hold::new(),
                finisher: None,
                visible: false,
            };
            self.submit(submission, |_| Ok(()))
        };
        wait.chunks(MAX_LIST).map(marker).collect()
    }
}
