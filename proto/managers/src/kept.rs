//! Connections to managers that stand by, so that a search asks them again without dialling.
//!
//! While nobody leads, all nodes and waiting clients of a cluster ask all managers a few times a second. A new connection
//! for each question would cost both sides more than the question. But standbys serve few connections of strangers, so none
//! is kept for long. Invariants: a connection is used by one question at a time. None is used or kept later than
//! [`AT_FIRST`] after the first one was.

use std::time::Instant;

use parking_lot::Mutex;

use crate::probe::Probed;
use crate::search::AT_FIRST;

/// What a manager that does not lead has done, as far as its connection is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The manager stands by, and answers again over the same connection.
    StandsBy,
    /// The connection broke before the answer.
    Broke,
    /// Anything else. The connection is of no use, and a new one would be of none either.
    Otherwise,
}

impl From<&Probed> for Answered {
    fn from(probed: &Probed) -> Answered {
        match probed {
            Probed::NotLeading(_) => Answered::StandsBy,
            Probed::Broken(_) => Answered::Broke,
            Probed::Disbelieved(_) => Answered::Otherwise,
        }
    }
}

/// The connections of one search, by the managers' numbers.
#[derive(Debug)]
pub struct Kept<C>(Mutex<KeptState<C>>);

#[derive(Debug)]
struct KeptState<C> {
    of: Vec<Option<C>>,
    /// When the first connection was kept.
    since: Option<Instant>,
}

impl<C> KeptState<C> {
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
        Kept(Mutex::new(KeptState {
            of: (0..count).map(|_| None).collect(),
            since: None,
        }))
    }

    /// Asks a manager whether it leads: over its kept connection, or over a new one if there is none or it broke. Returns
    /// the connection to a leader, and keeps the one to a standby. `ask` gives the connection back with the answer.
    ///
    /// # Errors
    /// That of `dial` or of `ask`.
    pub async fn ask<E, D, A>(
        &self,
        number: usize,
        dial: impl FnOnce() -> D,
        ask: impl Fn(C) -> A,
        answered: impl Fn(&E) -> Answered,
    ) -> Result<C, E>
    where
        D: Future<Output = Result<C, E>>,
        A: Future<Output = (C, Result<(), E>)>,
    {
        let mut asked = None;
        if let Some(connection) = self.take(number, Instant::now()) {
            let (connection, leads) = ask(connection).await;
            // The manager may lead by now, and has closed the connections of its time as a standby. A silent manager would
            // be silent over a new connection, too, so the search learns of that without delay.
            let broke = leads.as_ref().err().map(&answered) == Some(Answered::Broke);
            asked = (!broke).then_some((connection, leads));
        }
        let (connection, leads) = match asked {
            Some(asked) => asked,
            None => ask(dial().await?).await,
        };
        let Err(error) = leads else {
            return Ok(connection);
        };
        if answered(&error) == Answered::StandsBy {
            self.put(number, connection, Instant::now());
        }
        Err(error)
    }

    /// Takes the connection to a manager, if there is one. When it is late, all are closed.
    fn take(&self, number: usize, now: Instant) -> Option<C> {
        let mut state = self.0.lock();
        if state.is_late(now) {
            state.clear();
        }
        state.of.get_mut(number)?.take()
    }

    /// Keeps a connection over which a manager has answered that it stands by, unless it is late.
    fn put(&self, number: usize, connection: C, now: Instant) {
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

    /// Asks the manager at place 0, whose connections and answers are numbers and these. Returns the result, and how many
    /// connections were dialled.
    async fn asked(
        kept: &Kept<u32>,
        answers: &[Result<(), Answered>],
    ) -> (Result<u32, Answered>, usize) {
        let (dialled, next) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
        let dial = || async {
            dialled.set(dialled.get() + 1);
            Ok(7)
        };
        let ask = |connection| {
            let answer = answers[next.replace(next.get() + 1)];
            async move { (connection, answer) }
        };
        let result = kept.ask(0, dial, ask, |of| *of).await;
        assert_eq!(next.get(), answers.len());
        (result, dialled.get())
    }

    #[tokio::test]
    async fn only_a_standby_is_asked_again_over_its_connection_and_a_broken_one_is_dialled_anew() {
        use Answered::{Broke, Otherwise, StandsBy};
        let kept = Kept::new(1);
        assert_eq!(asked(&kept, &[Err(Broke)]).await, (Err(Broke), 1));
        assert_eq!(asked(&kept, &[Err(StandsBy)]).await, (Err(StandsBy), 1));
        assert_eq!(asked(&kept, &[Err(StandsBy)]).await, (Err(StandsBy), 0));
        assert_eq!(asked(&kept, &[Err(Broke), Ok(())]).await, (Ok(7), 1));
        assert_eq!(asked(&kept, &[Err(StandsBy)]).await, (Err(StandsBy), 1));
        assert_eq!(asked(&kept, &[Err(Otherwise)]).await, (Err(Otherwise), 0));
        assert_eq!(asked(&kept, &[Ok(())]).await, (Ok(7), 1));
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
