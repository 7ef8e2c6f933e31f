//! Failures that `clFinish` will report: pure.
//!
//! A failure is noted when its command ends, and removed when the command's own blocking call returns it.
//! Invariant: while a noted failure has not been returned to the application, [`Unreported::take`] returns a
//! failure. Beyond [`MOST`] failures are not kept separately: such a failure may be reported twice, but
//! never not at all.

use causeway_proto::id::EventId;

use crate::error::Status;

/// Number of failures that are kept separately. `clFinish` reports only one; the others matter only when
/// blocking calls of several threads return their own.
const MOST: usize = 16;

/// The failures of one queue that were not returned yet; see the module.
#[derive(Debug, Default)]
pub(super) struct Unreported {
    // Kept separately, oldest first.
    apart: Vec<(EventId, Status)>,
    // The first failure that found no room in `apart`.
    beyond: Option<Status>,
}

impl Unreported {
    /// Notes that a command has failed.
    pub(super) fn note(&mut self, event: EventId, status: Status) {
        if self.apart.len() < MOST {
            self.apart.push((event, status));
        } else {
            self.beyond.get_or_insert(status);
        }
    }

    /// Removes a failure, because the command's own blocking call returns it.
    pub(super) fn strike_out(&mut self, event: EventId) {
        self.apart.retain(|(of, _)| *of != event);
    }

    /// Returns the oldest failure, and clears all of them.
    pub(super) fn take(&mut self) -> Option<Status> {
        let Unreported { apart, beyond } = std::mem::take(self);
        apart.first().map(|(_, status)| *status).or(beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_nobody_was_told_of_is_told_once() {
        let mut unreported = Unreported::default();
        for (event, status) in [(1, -5), (2, -6), (3, -14)] {
            unreported.note(EventId(event), Status(status));
        }
        unreported.strike_out(EventId(1));
        assert_eq!(unreported.take(), Some(Status(-6)));
        assert_eq!(unreported.take(), None);
    }

    #[test]
    fn more_failing_blocking_calls_than_are_kept_apart_hide_no_failure() {
        let mut unreported = Unreported::default();
        for event in 0..MOST as u64 {
            unreported.note(EventId(event), Status(-5));
        }
        unreported.note(EventId(100), Status(-61));
        for event in 0..MOST as u64 {
            unreported.strike_out(EventId(event));
        }
        assert_eq!(unreported.take(), Some(Status(-61)));
        assert_eq!(unreported.take(), None);
    }
}
