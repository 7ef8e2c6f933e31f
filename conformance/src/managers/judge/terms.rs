//! No answer comes from a lower term than an answer that had arrived before its question was sent.

use std::time::Duration;

use super::super::history::{History, Span};

pub(super) fn violations(history: &History) -> Vec<String> {
    let answers = answers(history);
    // By time: the highest term of all answers that had arrived.
    let mut arrived: Vec<(Duration, u64)> = Vec::new();
    let mut by_end = answers.clone();
    by_end.sort_by_key(|(span, _)| span.end);
    for (span, term) in by_end {
        let highest = arrived.last().map_or(0, |(_, term)| *term);
        arrived.push((span.end, highest.max(term)));
    }
    let late = answers.into_iter().filter_map(|(span, term)| {
        let before = arrived.partition_point(|(end, _)| *end < span.begin);
        let (_, known) = arrived[..before].last()?;
        (*known > term).then(|| {
            format!("an answer of term {term} at {span:?}, after one of term {known} had arrived")
        })
    });
    late.collect()
}

fn answers(history: &History) -> Vec<(Span, u64)> {
    let listings = history.listings.iter();
    let listings = listings.flat_map(|of| {
        let leases = (of.leases.span, of.leases.term);
        [leases, (of.queue.span, of.queue.term)]
    });
    let calls = history.calls.iter();
    let calls = calls.filter_map(|call| Some((call.span, call.outcome.as_ref()?.1)));
    listings.chain(calls).collect()
}

#[cfg(test)]
mod tests {
    use super::super::examples::listing;
    use super::*;

    fn history(terms: &[(u64, u64)]) -> History {
        let listings = terms.iter().map(|(at, term)| {
            let mut listing = listing(*at, &[], &[]);
            (listing.leases.term, listing.queue.term) = (*term, *term);
            listing
        });
        History {
            listings: listings.collect(),
            ..History::default()
        }
    }

    #[test]
    fn growing_terms_and_answers_that_crossed_are_right() {
        assert_eq!(
            violations(&history(&[(0, 1), (2, 2), (2, 1), (4, 2)])),
            [""; 0]
        );
    }

    #[test]
    fn an_answer_of_a_deposed_leader_is_found() {
        let found = violations(&history(&[(0, 1), (2, 2), (4, 1)]));
        // Both halves of the listing are answers.
        assert!(found.len() == 2 && found[0].contains("term 1"), "{found:?}");
    }
}
