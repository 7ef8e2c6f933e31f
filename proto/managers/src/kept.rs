//! Connections to managers that stand by, so that a search asks them again without dialling.
//!
//! While nobody leads, all nodes and waiting clients of a cluster ask all managers a few times a second. A new connection
//! for each question would cost both sides more than the question. But standbys serve few connections of strangers, so none
//! is kept for long. Invariants: a connection is used by one question at a time. None is used or kept later than
//! [`AT_FIRST`] after the first one was.

use std::time::Instant;

use parking_lot::Mutex;

use crate::search::AT_FIRST;

/// The connections of one search, by the managers' numbers.
#[derive(Debug)]
pub struct Kept<C>(Mutex<State<C>>);

#[derive(Debug)]
struct State<C> {
    of: Vec<Option<C>>,
    /// When the first connection was kept.
    since: Option<Instant>,
}

impl<C> State<C> {
    fn clear(&mut self) {
        self.of.fill_with(|| None);
    }

    fn is_late(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now >= since + AT_FIRST)
    }
}

impl<C> Kept<C> {
    /// No connection to any of `count` managers.
    #[must_use]
    pub fn new(count: usize) -> Kept<C> {
        Kept(Mutex::new(State {
            of: (0..count).map(|_| None).collect(),
            since: None,
        }))
    }

    /// Takes the connection to a manager, if there is one. When it is late, all are closed.
    pub fn take(&self, number: usize, now: Instant) -> Option<C> {
        let mut state = self.0.lock();
        if state.is_late(now) {
            state.clear();
        }
        state.of.get_mut(number)?.take()
    }

    /// Keeps a connection over which a manager has answered that it stands by, unless it is late.
    pub fn put(&self, number: usize, connection: C, now: Instant) {
        let mut state = self.0.lock();
        state.since.get_or_insert(now);
        if state.is_late(now) {
            return;
        }
        if let Some(kept) = state.of.get_mut(number) {
            *kept = Some(connection);
        }
    }

    /// Closes all connections, because a manager leads. The next search keeps its own.
    pub fn clear(&self) {
        let mut state = self.0.lock();
        state.clear();
        state.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_connection_is_used_by_one_question_at_a_time() {
        let (kept, now) = (Kept::new(2), Instant::now());
        kept.put(1, "standby", now);
        // A search never asks a manager that it does not know.
        kept.put(2, "unknown", now);
        assert_eq!((kept.take(0, now), kept.take(2, now)), (None, None));
        let twice = (kept.take(1, now), kept.take(1, now));
        assert_eq!(twice, (Some("standby"), None));
    }

    #[test]
    fn no_connection_is_kept_for_long_or_after_a_leader_has_answered() {
        let (kept, begin) = (Kept::new(2), Instant::now());
        let (soon, late) = (
            begin + AT_FIRST - Duration::from_millis(1),
            begin + AT_FIRST,
        );
        kept.put(0, "first", begin);
        kept.put(1, "second", soon);
        assert_eq!(kept.take(1, soon), Some("second"));
        // Each question puts the connection back, which does not make it last longer.
        kept.put(1, "second", soon);
        assert_eq!((kept.take(1, late), kept.take(0, soon)), (None, None));
        kept.put(0, "late", late);
        assert_eq!(kept.take(0, late), None);
        kept.clear();
        kept.put(0, "next search", late);
        kept.clear();
        assert_eq!(kept.take(0, late), None);
        kept.put(0, "next search", late);
        assert_eq!(kept.take(0, late), Some("next search"));
    }
}
