//! Runs a search for the leader: asks the managers when the search says so, and awaits their answers
//! together.
//!
//! This module knows neither connections nor errors: the caller's function asks one manager. Invariant: an
//! attempt that was begun goes on until it ends, until another manager leads, or until the search is dropped.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::search::{Refusal, Search};

/// The outcome of asking a manager that does not lead.
#[derive(Debug)]
pub struct NotLeader<E> {
    /// What the search makes of it.
    pub refusal: Refusal,
    /// The reason, for people.
    pub reason: E,
}

/// How long a search goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Until a leader is found.
    Forever,
    /// Until every manager was asked and none has answered.
    WhileAnswered,
    /// As `WhileAnswered`, and at most for this time: the leader may be a manager that is not among those asked.
    Brief(Duration),
}

/// A search for the leader, with the last reason of each manager.
#[derive(Debug)]
pub struct Finder<E> {
    search: Search,
    began: Instant,
    patience: Patience,
    reasons: Vec<Option<E>>,
}

impl<E> Finder<E> {
    /// Begins a search among `count` managers, with the one that probably leads.
    #[must_use]
    pub fn new(count: usize, hinted: Option<usize>, patience: Patience) -> Finder<E> {
        Finder {
            search: Search::new(count, hinted),
            began: Instant::now(),
            patience,
            reasons: (0..count).map(|_| None).collect(),
        }
    }

    /// As [`Search::after_loss_of`].
    #[must_use]
    pub fn after_loss_of(self, number: Option<usize>) -> Finder<E> {
        let search = match number {
            Some(number) => self.search.after_loss_of(number),
            None => self.search,
        };
        Finder { search, ..self }
    }

    /// Asks until a manager leads. Returns its number and what `ask` has returned. `None`: no manager
    /// answers, and the search is not patient.
    pub async fn find<T, F>(&mut self, ask: impl Fn(usize) -> F) -> Option<(usize, T)>
    where
        F: Future<Output = Result<T, NotLeader<E>>>,
    {
        let mut asked: Vec<(usize, Pin<Box<F>>)> = Vec::new();
        loop {
            while let Some(number) = self.search.next(self.began.elapsed()) {
                asked.push((number, Box::pin(ask(number))));
            }
            if self.is_hopeless() {
                return None;
            }
            let next_at = self.search.next_at().map(|at| self.began + at);
            let due = async {
                match next_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                (number, answer) = first(&mut asked) => match answer {
                    Ok(leader) => {
                        self.search.found(self.began.elapsed(), number);
                        return Some((number, leader));
                    }
                    Err(not) => self.refused(number, not),
                },
                () = due => {}
            }
        }
    }

    /// Notes that a manager does not lead, although it was found.
    pub fn refused(&mut self, number: usize, not: NotLeader<E>) {
        let (now, spread) = (self.began.elapsed(), rand::random_range(0.5..1.0));
        self.search.refused(now, number, not.refusal, spread);
        self.reasons[number] = Some(not.reason);
    }

    /// The last reason of each manager that has failed, with the manager's number.
    pub fn reasons(&self) -> impl Iterator<Item = (usize, &E)> {
        let reasons = self.reasons.iter().enumerate();
        reasons.filter_map(|(number, reason)| Some((number, reason.as_ref()?)))
    }

    /// The search.
    #[must_use]
    pub fn search(&self) -> &Search {
        &self.search
    }

    fn is_hopeless(&self) -> bool {
        let is_over = match self.patience {
            Patience::Forever => false,
            Patience::WhileAnswered => !self.search.is_answered(),
            Patience::Brief(limit) => !self.search.is_answered() || self.began.elapsed() >= limit,
        };
        is_over && self.search.is_leaderless()
    }
}

/// The first of the futures that ends; it is removed. Pending for ever without any.
async fn first<F: Future>(asked: &mut Vec<(usize, Pin<Box<F>>)>) -> (usize, F::Output) {
    poll_fn(|context| {
        for position in 0..asked.len() {
            if let Poll::Ready(answer) = asked[position].1.as_mut().poll(context) {
                let (number, _) = asked.swap_remove(position);
                return Poll::Ready((number, answer));
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use tokio::sync::Notify;

    #[derive(Clone, Copy)]
    enum Plays {
        Leads,
        StandsBy(Option<usize>),
        Refuses,
        Hangs,
    }

    /// Lets managers play these parts. Returns the leader, and the order in which they were asked.
    fn run(parts: &[Plays], hinted: Option<usize>) -> (Option<usize>, Vec<usize>) {
        run_with(parts, hinted, Patience::WhileAnswered)
    }

    fn run_with(
        parts: &[Plays],
        hinted: Option<usize>,
        patience: Patience,
    ) -> (Option<usize>, Vec<usize>) {
        let asked = RefCell::new(Vec::new());
        let ask = |number: usize| {
            asked.borrow_mut().push(number);
            let part = parts[number];
            async move {
                let refusal = match part {
                    Plays::Leads => return Ok(()),
                    Plays::Hangs => pending().await,
                    Plays::StandsBy(leader) => Refusal::NotLeading(leader),
                    Plays::Refuses => Refusal::Failed,
                };
                let reason = "played";
                Err(NotLeader { refusal, reason })
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let mut finder = Finder::new(parts.len(), hinted, patience);
        let found = runtime.block_on(finder.find(ask));
        (found.map(|(number, ())| number), asked.into_inner())
    }

    #[test]
    fn a_manager_that_hangs_does_not_keep_the_others_from_being_asked() {
        let (found, asked) = run(&[Plays::Hangs, Plays::Hangs, Plays::Leads], Some(1));
        assert_eq!((found, asked), (Some(2), vec![1, 0, 2]));
    }

    /// The leader that was found may be lost before it has served, for example.
    #[test]
    fn a_manager_whose_answer_was_not_awaited_is_asked_again() {
        let asked = RefCell::new(Vec::new());
        let (second, answered) = (Cell::new(false), Notify::new());
        let ask = |number: usize| {
            asked.borrow_mut().push(number);
            let (second, answered) = (&second, &answered);
            async move {
                match (number, second.get()) {
                    // The other one is asked before this one answers.
                    (0, false) => answered.notified().await,
                    (0, true) => pending().await,
                    (_, false) => {
                        answered.notify_one();
                        pending().await
                    }
                    (_, true) => {}
                }
                Ok::<(), NotLeader<&str>>(())
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let mut finder = Finder::new(2, None, Patience::Forever);
        assert_eq!(runtime.block_on(finder.find(&ask)), Some((0, ())));
        second.set(true);
        let (refusal, reason) = (Refusal::Failed, "lost");
        finder.refused(0, NotLeader { refusal, reason });
        assert_eq!(runtime.block_on(finder.find(&ask)), Some((1, ())));
        assert_eq!(asked.into_inner(), [0, 1, 1]);
    }

    #[test]
    fn the_leader_that_a_standby_names_is_asked_next() {
        let parts = [Plays::StandsBy(Some(2)), Plays::Hangs, Plays::Leads];
        assert_eq!(run(&parts, None), (Some(2), vec![0, 2]));
    }

    #[test]
    fn a_brief_search_ends_although_standbys_answer() {
        let brief = Patience::Brief(Duration::from_millis(300));
        let parts = [Plays::StandsBy(None), Plays::StandsBy(Some(0))];
        let (found, asked) = run_with(&parts, None, brief);
        assert_eq!(found, None);
        assert!(asked.len() > 2, "standbys are asked again: {asked:?}");
        let (found, _) = run_with(&[Plays::StandsBy(Some(1)), Plays::Leads], None, brief);
        assert_eq!(found, Some(1));
    }

    #[test]
    fn a_search_in_which_nobody_answers_ends() {
        let (found, asked) = run(&[Plays::Refuses, Plays::Refuses], None);
        assert_eq!((found, asked), (None, vec![0, 1]));
    }
}
