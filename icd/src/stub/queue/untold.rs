//! Failures that `clFinish` will tell: pure.
//!
//! A failure is noted when its command ends, and struck out when the command's own blocking call tells it.
//! Invariant: as long as one that nobody was told of has been noted, [`Untold::take`] returns a failure. Beyond
//! [`MOST`] they are not kept apart: one of those may then be told twice, but none is passed over in silence.

use causeway_proto::id::EventId;

use crate::error::Status;

/// Failures that are kept apart: one is told, the others only matter where blocking calls of several threads
/// tell theirs.
const MOST: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Untold {
    // Oldest first.
    apart: Vec<(EventId, Status)>,
    // The first of those for which there was no room.
    beyond: Option<Status>,
}

impl Untold {
    /// A command has failed.
    pub(super) fn note(&mut self, event: EventId, status: Status) {
        if self.apart.len() < MOST {
            self.apart.push((event, status));
        } else {
            self.beyond.get_or_insert(status);
        }
    }

    /// Its blocking call returns with its failure.
    pub(super) fn strike_out(&mut self, event: EventId) {
        self.apart.retain(|(of, _)| *of != event);
    }

    /// The oldest failure; all of them count as told from here on.
    pub(super) fn take(&mut self) -> Option<Status> {
        let Untold { apart, beyond } = std::mem::take(self);
        apart.first().map(|(_, status)| *status).or(beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_nobody_was_told_of_is_told_once() {
        let mut untold = Untold::default();
        for (event, status) in [(1, -5), (2, -6), (3, -14)] {
            untold.note(EventId(event), Status(status));
        }
        untold.strike_out(EventId(1));
        assert_eq!(untold.take(), Some(Status(-6)));
        assert_eq!(untold.take(), None);
    }

    #[test]
    fn more_failing_blocking_calls_than_are_kept_apart_hide_no_failure() {
        let mut untold = Untold::default();
        for event in 0..MOST as u64 {
            untold.note(EventId(event), Status(-5));
        }
        untold.note(EventId(100), Status(-61));
        for event in 0..MOST as u64 {
            untold.strike_out(EventId(event));
        }
        assert_eq!(untold.take(), Some(Status(-61)));
        assert_eq!(untold.take(), None);
    }
}
