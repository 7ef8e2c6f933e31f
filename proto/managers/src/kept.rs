//! Connections to managers that stand by, so that a search asks them again without dialling.
//!
//! While nobody leads, all nodes and waiting clients of a cluster ask all managers a few times a second. A new connection
//! for each question would cost both sides more than the question. Invariant: a connection is used by one question at a
//! time.

use parking_lot::Mutex;

/// The connections of one search, by the managers' numbers.
#[derive(Debug)]
pub struct Kept<C>(Mutex<Vec<Option<C>>>);

impl<C> Kept<C> {
    /// No connection to any of `count` managers.
    #[must_use]
    pub fn new(count: usize) -> Kept<C> {
        Kept(Mutex::new((0..count).map(|_| None).collect()))
    }

    /// Takes the connection to a manager, if there is one.
    pub fn take(&self, number: usize) -> Option<C> {
        self.0.lock().get_mut(number)?.take()
    }

    /// Keeps a connection over which a manager has answered that it stands by.
    pub fn put(&self, number: usize, connection: C) {
        if let Some(kept) = self.0.lock().get_mut(number) {
            *kept = Some(connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_used_by_one_question_at_a_time() {
        let kept = Kept::new(2);
        kept.put(1, "standby");
        // A search never asks a manager that it does not know.
        kept.put(2, "unknown");
        assert_eq!((kept.take(0), kept.take(2)), (None, None));
        assert_eq!((kept.take(1), kept.take(1)), (Some("standby"), None));
    }
}
