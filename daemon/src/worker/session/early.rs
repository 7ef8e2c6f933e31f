//! Messages about mirrors that are not here yet.
#![forbid(unsafe_code)]

use std::collections::{HashMap, VecDeque};

use causeway_proto::id::{EventId, LinkId};
use causeway_proto::status::Status;

/// Limit on messages for unknown mirrors. Most of these are late: the client has already ended and
/// released the mirror. To drop an early one costs only time, because the client's message comes as well.
const MAX_EARLY: usize = 1 << 16;

/// The newest messages for unknown mirrors.
#[derive(Default)]
pub(crate) struct Early {
    messages: HashMap<Name, Status>,
    order: VecDeque<Name>,
}

/// A mirror, and the link on which a message about it came; [`OWN`] for this worker.
type Name = (LinkId, EventId);

/// Stands for messages of this worker itself.
pub(super) const OWN: LinkId = LinkId(0);

impl Early {
    pub(crate) fn keep(&mut self, name: Name, status: Status) {
        if self.messages.insert(name, status).is_some() {
            return;
        }
        self.order.push_back(name);
        if self.order.len() > MAX_EARLY
            && let Some(oldest) = self.order.pop_front()
        {
            self.messages.remove(&oldest);
        }
    }

    /// Takes the message that a permitted party has sent about a mirror.
    pub(crate) fn take(&mut self, link: LinkId, mirror: EventId) -> Option<Status> {
        // The entry in `order` stays until it is the oldest. This is safe, because ids are not used twice.
        let by_link = self.messages.remove(&(link, mirror));
        by_link.or_else(|| self.messages.remove(&(OWN, mirror)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(3);

    #[test]
    fn the_newest_messages_are_kept_and_no_more() {
        let mut early = Early::default();
        let count = MAX_EARLY as u64 + 10;
        for n in 0..count {
            early.keep((LINK, EventId(n)), Status(-1));
            early.keep((LINK, EventId(n)), Status(0));
        }
        assert_eq!(early.take(LINK, EventId(9)), None);
        assert_eq!(early.take(LINK, EventId(10)), Some(Status(0)));
        assert_eq!(early.take(LINK, EventId(10)), None);
        assert_eq!(early.take(LINK, EventId(count - 1)), Some(Status(0)));
        assert_eq!(early.order.len(), MAX_EARLY);
        for n in 0..count {
            early.keep((OWN, EventId(count + n)), Status(0));
        }
        assert_eq!(
            (early.order.len(), early.messages.len()),
            (MAX_EARLY, MAX_EARLY)
        );
    }

    #[test]
    fn an_early_message_of_another_link_is_not_heard() {
        let mut early = Early::default();
        early.keep((LinkId(4), EventId(1)), Status(-1));
        assert_eq!(early.take(LINK, EventId(1)), None);
        early.keep((OWN, EventId(1)), Status(0));
        assert_eq!(early.take(LINK, EventId(1)), Some(Status(0)));
    }
}
