//! No lease ends that nobody ended, and nothing that was confirmed is undone.
//!
//! A lease that a client got is in every list until the client gives it back or an administrator ends it. After
//! a manager has confirmed either, no list has the lease as one that goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::history::{Answer, History, Listed, Run};

pub(super) fn violations(history: &History) -> Vec<String> {
    let runs = history.runs.iter();
    let lost = runs.filter_map(|run| lost(history, run));
    lost.chain(undone(history)).collect()
}

/// Whether a client has lost its lease or its place without an order.
fn lost(history: &History, run: &Run) -> Option<String> {
    let revoked = run.lease.as_deref().and_then(|of| history.revoked(of));
    if revoked.is_some() {
        return None;
    }
    let (name, lease) = (&run.name, run.lease.as_deref().unwrap_or("no lease"));
    if let Some((at, reason)) = &run.over {
        return Some(format!(
            "{name}: lease {lease} was over at {at:?}, and nobody ended it: {reason}"
        ));
    }
    let failure = run.failure.as_ref()?;
    Some(format!("{name} ({lease}) has failed: {failure}"))
}

/// The time for which a lease has to be listed, and the time from which it must not be.
#[derive(Clone, Copy)]
struct Fate {
    granted: Option<Duration>,
    last_used: Option<Duration>,
    ended: Option<Duration>,
}

fn undone(history: &History) -> Vec<String> {
    let fates = fates(history);
    let mut found = Vec::new();
    for listing in &history.listings {
        found.extend(missing(&fates, &listing.leases));
        for listed in listing.leases.value.iter().filter(|of| !of.is_ending) {
            if has_ended(&fates, &listed.lease, listing.leases.span.begin) {
                let (lease, span) = (&listed.lease, listing.leases.span);
                found.push(format!(
                    "lease {lease} had ended, and is listed at {span:?}"
                ));
            }
        }
        for lease in &listing.queue.value {
            if has_ended(&fates, lease, listing.queue.span.begin) {
                let span = listing.queue.span;
                found.push(format!("lease {lease} had ended, and waits at {span:?}"));
            }
        }
    }
    found
}

fn fates(history: &History) -> BTreeMap<&str, Fate> {
    let mut fates = BTreeMap::new();
    for run in &history.runs {
        let Some(lease) = run.lease.as_deref() else {
            continue;
        };
        let used = history.use_of(run);
        let fate = Fate {
            granted: run.granted,
            last_used: used.map(|used| used.end),
            ended: run.released,
        };
        fates.insert(lease, fate);
    }
    for of in history.revocations.iter().filter(|of| of.is_done) {
        let nothing = Fate {
            granted: None,
            last_used: None,
            ended: None,
        };
        let fate = fates.entry(of.lease.as_str()).or_insert(nothing);
        let ended = fate.ended.unwrap_or(of.span.end);
        fate.ended = Some(ended.min(of.span.end));
    }
    fates
}

/// Leases that a listing lacks, although their clients used them the whole time.
fn missing<'a>(
    fates: &'a BTreeMap<&str, Fate>,
    listing: &'a Answer<Vec<Listed>>,
) -> impl Iterator<Item = String> + 'a {
    let (span, leases) = (listing.span, &listing.value);
    let due = fates.iter().filter(move |(_, fate)| {
        let begun = fate.granted.is_some_and(|at| at < span.begin);
        begun && fate.last_used.is_some_and(|at| at > span.end)
    });
    let absent = due.filter(|(lease, _)| leases.iter().all(|of| of.lease != **lease));
    absent.map(move |(lease, _)| format!("lease {lease} was in use, and is not listed at {span:?}"))
}

fn has_ended(fates: &BTreeMap<&str, Fate>, lease: &str, before: Duration) -> bool {
    let ended = fates.get(lease).and_then(|fate| fate.ended);
    ended.is_some_and(|at| at < before)
}

#[cfg(test)]
mod tests {
    use super::super::super::history::Revocation;
    use super::super::examples::{at, listing, run, span};
    use super::*;

    fn revocation(lease: &str, begin: u64, is_done: bool) -> Revocation {
        Revocation {
            lease: lease.to_owned(),
            span: span(begin, begin + 1),
            is_done,
        }
    }

    #[test]
    fn a_lease_is_listed_from_its_grant_to_its_end() {
        let history = History {
            runs: vec![run("a", "x", 2, 9)],
            listings: vec![
                listing(0, &[], &["a"]),
                listing(3, &["a"], &[]),
                listing(8, &[], &[]),
                listing(10, &[], &[]),
            ],
            ..History::default()
        };
        assert_eq!(violations(&history), [""; 0]);
    }

    #[test]
    fn a_lease_that_is_in_use_and_not_listed_is_found() {
        let history = History {
            runs: vec![run("a", "x", 2, 9)],
            listings: vec![listing(4, &[], &[])],
            ..History::default()
        };
        let found = violations(&history);
        assert!(
            found.len() == 1 && found[0].contains("not listed"),
            "{found:?}"
        );
    }

    #[test]
    fn a_lease_that_was_given_back_and_goes_on_or_waits_is_found() {
        for (leases, queue) in [(&["a"][..], &[][..]), (&[], &["a"])] {
            let history = History {
                runs: vec![run("a", "x", 0, 2)],
                listings: vec![listing(4, leases, queue)],
                ..History::default()
            };
            assert_eq!(violations(&history).len(), 1);
        }
    }

    #[test]
    fn a_lease_that_is_still_being_withdrawn_is_right() {
        let mut ending = listing(4, &["a"], &[]);
        ending.leases.value[0].is_ending = true;
        let history = History {
            runs: vec![run("a", "x", 0, 2)],
            listings: vec![ending],
            ..History::default()
        };
        assert_eq!(violations(&history), [""; 0]);
    }

    #[test]
    fn a_revocation_that_was_confirmed_and_undone_is_found() {
        let mut run = run("a", "x", 0, 9);
        run.released = None;
        let mut history = History {
            runs: vec![run],
            listings: vec![listing(5, &["a"], &[])],
            revocations: vec![revocation("a", 2, true)],
            ..History::default()
        };
        assert_eq!(violations(&history).len(), 1);
        // Without a confirmation, it may not have happened.
        history.revocations[0].is_done = false;
        assert_eq!(violations(&history), [""; 0]);
    }

    #[test]
    fn an_end_and_a_failure_that_nobody_ordered_are_found() {
        let mut over = run("a", "x", 0, 9);
        over.over = Some((at(3), "no such lease".to_owned()));
        let mut failed = run("b", "y", 0, 9);
        failed.failure = Some("exit code 125".to_owned());
        let mut history = History {
            runs: vec![over, failed],
            ..History::default()
        };
        let found = violations(&history);
        assert!(
            found.len() == 2 && found[0].contains("no such lease"),
            "{found:?}"
        );
        history.revocations = vec![revocation("a", 2, false), revocation("b", 2, true)];
        assert_eq!(violations(&history), [""; 0]);
    }
}
