//! Which of several device managers is asked next, and when.
//!
//! All managers are asked, one after the other, without waiting for the answers of those before. The one
//! that led last is first. If it has closed its connections, it comes last: another one probably leads. A manager that does
//! not lead is asked again after a pause.
//!
//! Pure: times are durations since any fixed moment, and the caller supplies chance. Invariants: a manager
//! is not asked while its answer is awaited. Two managers are asked [`STAGGER`] apart at least, except after
//! an answer. While any manager answers, no pause is longer than [`LONGEST_WHILE_ANSWERED`].

use std::time::Duration;

/// Time between asking two managers.
pub const STAGGER: Duration = Duration::from_millis(50);
/// Longest pause before a manager is asked again while any manager answers.
pub const LONGEST_WHILE_ANSWERED: Duration = Duration::from_secs(1);
/// The same within [`AT_FIRST`]. A part of it is a part of each failover.
pub const LONGEST_AT_FIRST: Duration = Duration::from_millis(500);
/// The time after the first standby's answer in which a leader is expected. Within it, questions cost little, because
/// connections to standbys are [`kept`](crate::kept).
pub const AT_FIRST: Duration = Duration::from_secs(5);
/// Longest pause while none answers.
pub const LONGEST: Duration = Duration::from_secs(10);
/// First pause of a manager; doubled for each further one.
const FIRST: Duration = Duration::from_millis(200);

/// Why a manager is not the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The manager answers that it does not lead. It may name the leader, by its number in the list.
    NotLeading(Option<usize>),
    /// The manager does not answer, or not as a manager of this cluster.
    Failed,
}

/// A search for the leader. See the module.
#[derive(Clone, Debug)]
pub struct Search {
    candidates: Vec<Candidate>,
    /// The manager that probably leads: the first of those that are due at the same time.
    hinted: Option<usize>,
    /// The earliest time at which the next manager is asked.
    next_at: Duration,
    /// When a standby answered first, since a manager last led.
    answered_at: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Candidate {
    /// When to ask; `None` while the answer is awaited.
    due: Option<Duration>,
    /// The next pause.
    pause: Duration,
    last: Option<Refusal>,
}

impl Search {
    /// Begins a search among `count` managers, with the one that probably leads.
    #[must_use]
    pub fn new(count: usize, hinted: Option<usize>) -> Search {
        let candidate = Candidate {
            due: Some(Duration::ZERO),
            pause: FIRST,
            last: None,
        };
        Search {
            candidates: vec![candidate; count],
            hinted,
            next_at: Duration::ZERO,
            answered_at: None,
        }
    }

    /// The same search, for a caller whose connection to the manager that led has ended. The others are asked before it,
    /// and one of them may name it all the same.
    #[must_use]
    pub fn after_loss_of(mut self, number: usize) -> Search {
        if self.candidates.len() > 1
            && let Some(of) = self.candidates.get_mut(number)
        {
            of.due = Some(FIRST);
        }
        self
    }

    /// When the next manager is to be asked; `None` while all answers are awaited.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        let due = self.candidates.iter().filter_map(|of| of.due).min();
        due.map(|due| due.max(self.next_at))
    }

    /// The manager to ask now, if any. The caller asks it.
    pub fn next(&mut self, now: Duration) -> Option<usize> {
        if now < self.next_at {
            return None;
        }
        let due = self.candidates.iter().enumerate();
        let due = due.filter(|(_, of)| of.due.is_some_and(|due| due <= now));
        let (number, _) = due.min_by_key(|(number, of)| (of.due, self.hinted != Some(*number)))?;
        self.candidates[number].due = None;
        self.next_at = now + STAGGER;
        Some(number)
    }

    /// Notes that a manager does not lead. `spread`, from 0.5 to 1, varies the pause before it is asked
    /// again, so that all who have lost a leader do not return together.
    pub fn refused(&mut self, now: Duration, number: usize, refusal: Refusal, spread: f64) {
        let of = &mut self.candidates[number];
        of.last = Some(refusal);
        let pause = of.pause;
        of.pause = (pause * 2).min(LONGEST);
        of.due = Some(now + pause.mul_f64(spread));
        self.next_at = now;
        if self.is_answered() {
            self.limit_pauses(now);
        }
        if let Refusal::NotLeading(Some(leader)) = refusal
            && leader != number
            && let Some(of) = self.candidates.get_mut(leader)
        {
            self.hinted = Some(leader);
            // Two managers may name each other. Others get their turns all the same.
            let soon = match of.last {
                Some(Refusal::NotLeading(_)) => now + STAGGER,
                Some(Refusal::Failed) => now,
                // Before all that are due.
                None => Duration::ZERO,
            };
            // While its answer is awaited, the leader is not asked again.
            of.due = of.due.map(|due| due.min(soon));
        }
    }

    /// Notes that a manager leads. The answers of the others are not awaited any more, so these are due again if the
    /// search goes on.
    pub fn found(&mut self, now: Duration, number: usize) {
        self.answered_at = None;
        let others = self.candidates.iter_mut().enumerate();
        for (_, of) in others.filter(|(other, _)| *other != number) {
            of.due = of.due.or(Some(now));
        }
    }

    fn limit_pauses(&mut self, now: Duration) {
        let first = *self.answered_at.get_or_insert(now);
        let longest = match now < first + AT_FIRST {
            true => LONGEST_AT_FIRST,
            false => LONGEST_WHILE_ANSWERED,
        };
        for of in &mut self.candidates {
            of.pause = of.pause.min(longest);
            of.due = of.due.map(|due| due.min(now + longest));
        }
    }

    /// Whether the last outcome of any manager is an answer.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        let mut lasts = self.candidates.iter().map(|of| of.last);
        lasts.any(|last| matches!(last, Some(Refusal::NotLeading(_))))
    }

    /// Whether every manager was asked, no answer is awaited, and none leads.
    #[must_use]
    pub fn is_leaderless(&self) -> bool {
        let mut all = self.candidates.iter();
        all.all(|of| of.due.is_some() && of.last.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_hinted_manager_is_first_and_the_others_follow_apart() {
        let mut search = Search::new(3, Some(1));
        assert_eq!(search.next(Duration::ZERO), Some(1));
        assert_eq!(search.next(49 * MS), None);
        assert_eq!(search.next_at(), Some(STAGGER));
        assert_eq!(search.next(50 * MS), Some(0));
        assert_eq!(search.next(100 * MS), Some(2));
        assert_eq!(search.next_at(), None);
    }

    #[test]
    fn a_manager_that_was_lost_is_asked_after_the_others_unless_one_names_it() {
        let mut search = Search::new(3, None).after_loss_of(0);
        assert_eq!(search.next(Duration::ZERO), Some(1));
        assert_eq!(search.next(STAGGER), Some(2));
        assert_eq!(search.next_at(), Some(FIRST));
        assert_eq!(search.next(FIRST), Some(0));
        let mut search = Search::new(3, None).after_loss_of(0);
        assert_eq!(search.next(Duration::ZERO), Some(1));
        search.refused(MS, 1, Refusal::NotLeading(Some(0)), 1.0);
        assert_eq!(search.next(MS), Some(0));
        let mut only = Search::new(1, None).after_loss_of(0);
        assert_eq!(only.next(Duration::ZERO), Some(0));
    }

    #[test]
    fn an_answer_makes_the_next_one_come_at_once_and_the_named_leader_first() {
        let mut search = Search::new(3, None);
        assert_eq!(search.next(Duration::ZERO), Some(0));
        search.refused(MS, 0, Refusal::NotLeading(Some(2)), 1.0);
        assert_eq!(search.next(MS), Some(2));
        search.refused(2 * MS, 2, Refusal::Failed, 1.0);
        assert_eq!(search.next(2 * MS), Some(1));
        assert!(!search.is_leaderless());
        search.refused(3 * MS, 1, Refusal::Failed, 1.0);
        assert!(search.is_leaderless() && search.is_answered());
    }

    #[test]
    fn two_that_name_each_other_keep_no_other_from_being_asked() {
        let mut search = Search::new(3, Some(1));
        let mut asked = Vec::new();
        for step in 0..200 {
            let now = MS * step;
            while let Some(number) = search.next(now) {
                asked.push(number);
                let other = match number {
                    1 => 2,
                    2 => 1,
                    _ => continue,
                };
                search.refused(now, number, Refusal::NotLeading(Some(other)), 0.5);
            }
        }
        assert_eq!(asked[..3], [1, 2, 0]);
        assert!((5..12).contains(&asked.len()), "{asked:?}");
    }

    #[test]
    fn a_standby_that_answers_keeps_the_pauses_of_all_short() {
        let mut search = Search::new(2, None);
        let mut now = Duration::ZERO;
        for _ in 0..10 {
            for number in [0, 1] {
                now = search.next_at().unwrap();
                assert!(search.next(now).is_some());
                search.refused(now, number, Refusal::Failed, 1.0);
            }
        }
        assert!(search.next_at().unwrap() > now + LONGEST_WHILE_ANSWERED);
        let asked = search.next_at().unwrap();
        let number = search.next(asked).unwrap();
        search.refused(asked, number, Refusal::NotLeading(None), 1.0);
        let other = search.next(asked + LONGEST_WHILE_ANSWERED);
        assert!(other.is_some(), "the silent manager is asked too");
    }

    #[test]
    fn pauses_are_shorter_at_first_and_again_after_each_leader() {
        let stands_by = Refusal::NotLeading(None);
        let mut search = Search::new(1, None);
        let mut now = Duration::ZERO;
        let mut ask = |search: &mut Search, until: Duration| {
            let begin = now;
            let mut pauses = Vec::new();
            while now < begin + until {
                let at = search.next_at().unwrap();
                pauses.push(at - now);
                now = at;
                assert_eq!(search.next(now), Some(0));
                search.refused(now, 0, stands_by, 1.0);
            }
            (now, *pauses.iter().max().unwrap(), *pauses.last().unwrap())
        };
        let (_, most, _) = ask(&mut search, AT_FIRST);
        assert_eq!(most, LONGEST_AT_FIRST);
        let (now, _, last) = ask(&mut search, AT_FIRST);
        assert_eq!(last, LONGEST_WHILE_ANSWERED);
        search.found(now, 0);
        ask(&mut search, MS);
        let (_, most, _) = ask(&mut search, AT_FIRST / 2);
        assert_eq!(most, LONGEST_AT_FIRST);
    }

    #[test]
    fn after_a_leader_was_found_the_others_are_asked_again() {
        let mut search = Search::new(3, None);
        assert_eq!(search.next(Duration::ZERO), Some(0));
        assert_eq!(search.next(STAGGER), Some(1));
        search.found(60 * MS, 0);
        search.refused(70 * MS, 0, Refusal::Failed, 1.0);
        assert_eq!(search.next(70 * MS), Some(2));
        assert_eq!(search.next(70 * MS + STAGGER), Some(1));
    }

    /// What a manager does in a generated run.
    fn behaviour() -> impl Strategy<Value = (Option<Refusal>, u32)> {
        let refusal = prop_oneof![
            Just(None),
            Just(Some(Refusal::Failed)),
            proptest::option::of(0..4usize).prop_map(|leader| Some(Refusal::NotLeading(leader))),
        ];
        (refusal, 0..400u32)
    }

    proptest! {
        #[test]
        fn all_are_asked_in_time_and_none_twice_at_once(
            hinted in proptest::option::of(0..4usize),
            behaviours in proptest::collection::vec(behaviour(), 4..=4),
            spread in 0.5..1.0f64,
        ) {
            let mut search = Search::new(4, hinted);
            let mut awaited: [Option<(Duration, Refusal)>; 4] = [None; 4];
            let mut silent = [false; 4];
            let mut asked_at: [Option<Duration>; 4] = [None; 4];
            let (mut last_ask, mut last_answer) = (None::<Duration>, None::<Duration>);
            let mut first = None;
            for step in 0..5_000u32 {
                let now = MS * step;
                for (number, awaited) in awaited.iter_mut().enumerate() {
                    if let Some((_, refusal)) = awaited.take_if(|(at, _)| *at <= now) {
                        search.refused(now, number, refusal, spread);
                        last_answer = Some(now);
                    }
                }
                while let Some(number) = search.next(now) {
                    prop_assert!(awaited[number].is_none() && !silent[number], "asked twice at once");
                    let apart = last_ask.is_none_or(|ask| now >= ask + STAGGER);
                    prop_assert!(apart || last_answer >= last_ask, "too close");
                    first = first.or(Some(number));
                    (last_ask, asked_at[number]) = (Some(now), Some(now));
                    let (refusal, takes) = behaviours[number];
                    match refusal {
                        Some(refusal) => awaited[number] = Some((now + MS * takes, refusal)),
                        None => silent[number] = true,
                    }
                }
            }
            prop_assert_eq!(first, Some(hinted.unwrap_or(0)));
            prop_assert!(asked_at.iter().all(Option::is_some), "all are asked");
            let end = MS * 5_000;
            if behaviours.iter().any(|(refusal, _)| matches!(refusal, Some(Refusal::NotLeading(_)))) {
                for number in 0..4 {
                    let recent = asked_at[number] >= Some(end - LONGEST_WHILE_ANSWERED - 5 * STAGGER - MS * 400);
                    prop_assert!(silent[number] || recent, "manager {} is asked again", number);
                }
            }
        }
    }
}
