//! Lists longer than one command takes: several commands stand for the one, and its event is the last one's.
//!
//! A worker takes lists of [`MAX_LIST`] entries and ends the session over a longer one; an application's may have any
//! length. Invariant: what is sent besides has the command's own wait list and is waited for by the command.

use std::sync::Arc;

use causeway_proto::limits::MAX_LIST;
use cl_headers::types::CL_COMMAND_MARKER;

use super::{Queue, Submission};
use crate::error::ClResult;
use crate::stub::{Buffer, Event, Hold, Work};

impl Queue {
    /// The submission with lists that a command takes; what else there was to do has been enqueued.
    ///
    /// # Errors
    /// As [`Queue::submit`].
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
                    // A command that is not seen cannot be waited for.
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

    // A wait list is waited for by markers, which are waited for in its place.
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
