//! A leader that its nodes do not reach, while they reach a standby: what the standby counts, and when the leader steps
//! aside.
//!
//! Only nodes count that do not reach the leader, as they say. A leader that refuses nodes would have a successor that
//! refuses them likewise.
//!
//! Pure: time comes in. Invariants: a node counts once, however often it asks. Within one reign a leader wants to step
//! aside once, unless another has done so a short while ago. Then it waits, so that two managers do not take turns.
//! That while doubles as long as stepping aside does not help ([`quiet_after`]).

use std::collections::HashMap;

use crate::time::{Span, Time};

/// How long a node counts after its last question. A node that finds managers by their name asks again after 17 s at most:
/// a pause (10 s), a search (1 s), a question that nobody answers (5 s), and the pause between two questions. Others ask
/// again after a second.
const COUNTS_FOR: Span = Span::seconds(20);
/// Nodes that are counted at most, because anybody can claim to be a node.
const MOST: usize = 16_384;
/// Shortest pause between two changes of the published count.
const PUBLISHED_EVERY: Span = Span::seconds(1);
/// Time that nodes have to find a new leader.
const SETTLES: Span = Span::seconds(10);
/// For how long most nodes must be missing. Longer than [`COUNTS_FOR`], so that nodes count no more which have joined.
const LASTS: Span = Span::seconds(22);
/// For how long no other manager steps aside for this reason, at first. etcd keeps the mark for that time.
pub const QUIET: Span = Span::seconds(300);
/// The longest such time.
const LONGEST_QUIET: Span = Span::seconds(86_400);
/// How many times as long the length of such a time is remembered.
pub const REMEMBERED: u64 = 4;
/// Pause before a leader that may not step aside tries again.
const AGAIN: Span = Span::seconds(60);

/// For how long no other manager steps aside, after one has. `before` is that time after the last one, if it is still
/// remembered: then stepping aside did not help.
#[must_use]
pub fn quiet_after(before: Option<Span>) -> Span {
    before.map_or(QUIET, |before| {
        Span(before.0.saturating_mul(2))
            .max(QUIET)
            .min(LONGEST_QUIET)
    })
}

/// The nodes that a standby has turned away lately.
#[derive(Debug, Default)]
pub struct TurnedAway {
    asked: HashMap<[u8; 16], Time>,
    forgot_at: Time,
    published: u32,
    published_at: Time,
}

impl TurnedAway {
    /// A node has asked this standby.
    pub fn note(&mut self, now: Time, node: [u8; 16]) {
        // Once a second at most: strangers may ask often, and each of these goes through all nodes.
        if self.asked.len() >= MOST && now.since(self.forgot_at) >= PUBLISHED_EVERY {
            self.forget(now);
        }
        if self.asked.len() < MOST || self.asked.contains_key(&node) {
            self.asked.insert(node, now);
        }
    }

    fn forget(&mut self, now: Time) {
        self.forgot_at = now;
        self.asked.retain(|_, at| now.since(*at) < COUNTS_FOR);
    }

    /// The number to publish: the nodes of the last seconds, or fewer. It follows quick changes after a while, and never
    /// rises by a small part.
    pub fn published(&mut self, now: Time) -> u32 {
        if now.since(self.published_at) < PUBLISHED_EVERY {
            return self.published;
        }
        self.forget(now);
        let count = u32::try_from(self.asked.len()).unwrap_or(u32::MAX);
        let rises = count.saturating_sub(self.published) > self.published / 8;
        if rises || count < self.published {
            (self.published, self.published_at) = (count, now);
        }
        self.published
    }
}

/// What a leader knows about its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Nodes that are connected.
    pub connected: u32,
    /// Known nodes that are not.
    pub lost: u32,
}

impl Reached {
    /// Whether more than half of the nodes are lost.
    #[must_use]
    pub fn lacks_most(&self) -> bool {
        self.lost > self.connected
    }
}

/// When the leader of a reign steps aside. See the module.
#[derive(Clone, Copy, Debug)]
pub struct StepsAside {
    /// The earliest time.
    from: Time,
    /// Since when most nodes are missing.
    since: Option<Time>,
    is_done: bool,
}

impl StepsAside {
    /// For a reign that begins now.
    #[must_use]
    pub fn new(now: Time) -> StepsAside {
        StepsAside {
            from: now.after(SETTLES),
            since: None,
            is_done: false,
        }
    }

    /// Whether the leader is to step aside now. `turned_away` is the highest number that a standby has published which can
    /// lead. The caller looks every few seconds.
    pub fn look(&mut self, now: Time, reached: Reached, turned_away: u32) -> bool {
        if self.is_done || now < self.from {
            return false;
        }
        if !reached.lacks_most() || turned_away <= reached.connected {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        self.is_done = now.since(since) >= LASTS;
        self.is_done
    }

    /// The leader may not step aside now, because another manager has done so a short while ago.
    pub fn refused(&mut self, now: Time) {
        (self.is_done, self.since) = (false, None);
        self.from = now.after(AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn node(number: u32) -> [u8; 16] {
        u128::from(number).to_be_bytes()
    }

    #[test]
    fn each_node_counts_once_and_for_a_while() {
        let mut away = TurnedAway::default();
        for second in 1..=3 {
            for number in 0..10 {
                away.note(Time(second * 1000), node(number));
            }
        }
        assert_eq!(away.published(Time(3_000)), 10);
        assert_eq!(away.published(Time(22_999)), 10);
        assert_eq!(away.published(Time(23_000)), 0);
    }

    #[test]
    fn strangers_that_claim_to_be_nodes_take_a_bounded_place() {
        let mut away = TurnedAway::default();
        for number in 0..100_000 {
            away.note(Time(1_000), node(number));
        }
        assert_eq!(away.asked.len(), MOST);
        // All nodes were looked through once, not for each further stranger.
        assert_eq!(away.forgot_at, Time(1_000));
        away.note(Time(1_999), node(MOST as u32));
        assert_eq!(away.forgot_at, Time(1_000));
        away.note(Time(22_000), node(7));
        assert_eq!(away.published(Time(22_000)), 1);
    }

    #[test]
    fn small_and_quick_changes_are_not_published() {
        let mut away = TurnedAway::default();
        let note = |away: &mut TurnedAway, now, count| {
            (0..count).for_each(|number| away.note(Time(now), node(number)));
        };
        note(&mut away, 1_000, 100);
        assert_eq!(away.published(Time(1_000)), 100);
        note(&mut away, 1_500, 200);
        assert_eq!(away.published(Time(1_500)), 100);
        assert_eq!(away.published(Time(2_000)), 200);
        note(&mut away, 3_000, 210);
        assert_eq!(away.published(Time(3_000)), 200);
        // What is published is never more than there are.
        note(&mut away, 21_000, 190);
        assert_eq!(away.published(Time(23_000)), 190);
    }

    #[test]
    fn steps_aside_that_do_not_help_become_rare() {
        let mut quiet = None;
        let mut all = Vec::new();
        for _ in 0..12 {
            quiet = Some(quiet_after(quiet));
            all.push(quiet.unwrap().0 / 1000);
        }
        assert_eq!(all[..4], [300, 600, 1_200, 2_400]);
        assert_eq!(all[9..], [86_400; 3]);
        // The next leader wants it a minute after the quiet time at the latest, so the length is still known then.
        const { assert!(QUIET.0 * REMEMBERED > QUIET.0 + AGAIN.0 + LASTS.0) };
    }

    /// What is seen of one moment.
    fn sight() -> impl Strategy<Value = (u64, u32, u32, u32)> {
        (500..12_000u64, 0..6u32, 0..6u32, 0..6u32)
    }

    proptest! {
        #[test]
        fn a_leader_steps_aside_for_good_reason_and_two_never_take_turns(
            sights in vec(sight(), 1..300),
        ) {
            let (mut now, mut reign) = (Time(0), Time(0));
            let mut aside = StepsAside::new(now);
            // etcd's mark, which the managers share.
            let mut marked: Option<Time> = None;
            let mut missing_since: Option<Time> = None;
            for (passes, connected, lost, turned_away) in sights {
                now = now.after(Span(passes));
                let reached = Reached { connected, lost };
                let is_missing = lost > connected && turned_away > connected;
                missing_since = is_missing.then(|| missing_since.unwrap_or(now));
                if !aside.look(now, reached, turned_away) {
                    continue;
                }
                prop_assert!(missing_since.is_some_and(|since| now.since(since) >= LASTS));
                prop_assert!(now.since(reign) >= SETTLES);
                if marked.is_some_and(|at| now.since(at) < QUIET) {
                    aside.refused(now);
                    prop_assert!(!aside.look(now.after(LASTS), reached, turned_away));
                    continue;
                }
                prop_assert!(!aside.look(now.after(QUIET), reached, turned_away), "twice in a term");
                // Another manager leads, and has the same nodes.
                (marked, reign) = (Some(now), now);
                aside = StepsAside::new(now);
            }
        }

        #[test]
        fn a_leader_that_most_nodes_do_not_reach_steps_aside(connected in 0..4u32, more in 1..4u32) {
            let mut aside = StepsAside::new(Time(0));
            let reached = Reached { connected, lost: connected + more };
            let looks = (0..20u64).map(|look| Time(look * 2_000));
            let wants: Vec<_> = looks.filter(|now| aside.look(*now, reached, connected + more)).collect();
            prop_assert_eq!(wants, vec![Time(32_000)]);
            let mut aside = StepsAside::new(Time(0));
            let mut looks = (0..12u64).map(|look| Time(look * 2_000));
            // The standbys do not reach them either.
            prop_assert!(!looks.any(|now| aside.look(now, reached, connected)));
        }
    }
}
