//! Waiting requests keep their order, if their clients return in time.
//!
//! A request that was listed before another one is never listed behind it later. Exempt is a request whose client
//! was away for longer than a place is kept. The time without a leader does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::history::{History, Span};

/// A client that was away for longer may have lost its place. The policy keeps it for 30 s, and a manager may
/// notice the break earlier than the client.
const KEPT: Duration = Duration::from_secs(18);
/// Without an answer to the observer for this time, no manager leads.
const LEADERLESS: Duration = Duration::from_secs(3);

pub(super) fn violations(history: &History) -> Vec<String> {
    let exempt = exempt(history);
    // When the first request was first listed before the second.
    let mut order: BTreeMap<(&str, &str), Duration> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for listing in &history.listings {
        let (span, queue) = (listing.queue.span, &listing.queue.value);
        for (position, first) in queue.iter().enumerate() {
            for second in &queue[position + 1..] {
                let earlier = order.get(&(second.as_str(), first.as_str()));
                if earlier.is_some_and(|end| *end < span.begin) && !exempt.contains(second.as_str())
                {
                    found.entry((second, first)).or_insert(span);
                }
                order.entry((first, second)).or_insert(span.end);
            }
        }
    }
    let told = found.into_iter().map(|((second, first), span)| {
        format!(
            "request {second} has lost its place: it waited before {first}, and behind it at {span:?}"
        )
    });
    told.collect()
}

/// Requests whose clients may have returned too late.
fn exempt(history: &History) -> BTreeSet<&str> {
    let leaderless = leaderless(history);
    let away = |span: &Span| {
        let without = leaderless.iter().filter_map(|of| span.common(*of));
        (span.end - span.begin).saturating_sub(without.sum())
    };
    let runs = history.runs.iter();
    let late = runs.filter(|run| run.away.iter().any(|span| away(span) > KEPT));
    late.filter_map(|run| run.lease.as_deref()).collect()
}

/// Times without an answer to the observer.
fn leaderless(history: &History) -> Vec<Span> {
    let pairs = history.listings.windows(2);
    let gaps = pairs.map(|pair| Span {
        begin: pair[0].queue.span.end,
        end: pair[1].leases.span.begin.max(pair[0].queue.span.end),
    });
    gaps.filter(|gap| gap.end - gap.begin > LEADERLESS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::examples::{listing, run, span};
    use super::*;

    fn queues(queues: &[(u64, &[&str])]) -> History {
        let listings = queues.iter();
        History {
            listings: listings
                .map(|(at, queue)| listing(*at, &[], queue))
                .collect(),
            ..History::default()
        }
    }

    #[test]
    fn requests_that_come_and_go_in_order_are_right() {
        let history = queues(&[(0, &["a", "b"]), (2, &["b", "c"]), (4, &["a", "b", "c"])]);
        assert_eq!(violations(&history), [""; 0]);
    }

    #[test]
    fn a_request_that_is_overtaken_is_found() {
        let history = queues(&[
            (0, &["a", "b"]),
            (2, &["b"]),
            (4, &["b", "a"]),
            (6, &["b", "a"]),
        ]);
        let found = violations(&history);
        assert!(
            found[0].starts_with("request a has lost its place"),
            "{found:?}"
        );
    }

    #[test]
    fn a_client_that_was_away_for_too_long_has_lost_its_place() {
        let mut history = queues(&[(0, &["a", "b"]), (2, &["b"]), (44, &["b", "a"])]);
        history.runs = vec![run("a", "x", 90, 91)];
        history.runs[0].away = vec![span(1, 40)];
        // The observer had no answer between 3 s and 44 s, so there was no leader, and the client was in time.
        assert_eq!(violations(&history).len(), 1);
        let more = (3..44).map(|at| listing(at, &[], &["b"]));
        history.listings.splice(2..2, more);
        assert_eq!(violations(&history), [""; 0]);
    }
}
