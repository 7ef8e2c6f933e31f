//! No unit has two leases at overlapping times, and no user has more units than their quota.
//!
//! A client's use is a part of the time for which it has its lease. A node's report is the time for which the
//! node serves it. So an overlap of two leases on one unit, whoever reports them, is always a fault. For quotas a node's
//! time counts from when the client hears of the lease: before that, nobody can use it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::history::{History, Span};

/// A unit, or a quota's user, is taken by a lease.
#[derive(Clone)]
struct Taken<'a> {
    lease: &'a str,
    span: Span,
    by: &'static str,
}

pub(super) fn violations(history: &History) -> Vec<String> {
    let mut found = overlaps(history);
    found.extend(quotas(history));
    found
}

fn overlaps(history: &History) -> Vec<String> {
    let mut units: BTreeMap<&str, Vec<Taken<'_>>> = BTreeMap::new();
    for (unit, _, taken) in uses(history).chain(servings(history)) {
        units.entry(unit).or_default().push(taken);
    }
    let mut found = Vec::new();
    for (unit, mut taken) in units {
        taken.sort_by_key(|of| of.span.begin);
        for (position, one) in taken.iter().enumerate() {
            let later = taken[position + 1..].iter();
            let later = later.take_while(|other| other.span.begin < one.span.end);
            for other in later.filter(|other| other.lease != one.lease) {
                if let Some(both) = one.span.common(other.span) {
                    found.push(format!(
                        "unit {unit} had two leases for {both:?}: {} ({}, {:?}) and {} ({}, {:?})",
                        one.lease, one.by, one.span, other.lease, other.by, other.span
                    ));
                }
            }
        }
    }
    found
}

/// Each unit that a client uses, with its user.
fn uses(history: &History) -> impl Iterator<Item = (&str, &str, Taken<'_>)> {
    let runs = history.runs.iter();
    let used = runs.filter_map(|run| Some((run, history.use_of(run)?, run.lease.as_deref()?)));
    used.flat_map(|(run, span, lease)| {
        run.units.iter().map(move |unit| {
            let by = "used by its client";
            let taken = Taken { lease, span, by };
            (unit.as_str(), run.user.as_str(), taken)
        })
    })
}

/// Each unit that a node serves, with its user.
fn servings(history: &History) -> impl Iterator<Item = (&str, &str, Taken<'_>)> {
    history.served.iter().map(|of| {
        let taken = Taken {
            lease: &of.lease,
            span: of.span,
            by: "served by its node",
        };
        (of.unit.as_str(), of.user.as_str(), taken)
    })
}

/// Each unit that a node serves for a client that has heard of the lease, from then on.
fn known_servings(history: &History) -> impl Iterator<Item = (&str, &str, Taken<'_>)> {
    let heard: BTreeMap<&str, Duration> = history
        .runs
        .iter()
        .filter_map(|run| Some((run.lease.as_deref()?, run.granted?)))
        .collect();
    servings(history).filter_map(move |(unit, user, mut taken)| {
        taken.span.begin = taken.span.begin.max(*heard.get(taken.lease)?);
        (taken.span.begin < taken.span.end).then_some((unit, user, taken))
    })
}

fn quotas(history: &History) -> Vec<String> {
    let mut found = Vec::new();
    for (user, most) in &history.quotas {
        let of_user = |of: Vec<(&str, &str, Taken<'_>)>| {
            let of = of.into_iter().filter(|(_, who, _)| who == user);
            let spans = of.map(|(unit, _, taken)| (unit.to_owned(), taken.span));
            most_at_once(spans.collect())
        };
        let sides = [
            ("used by clients", of_user(uses(history).collect())),
            (
                "served by nodes",
                of_user(known_servings(history).collect()),
            ),
            ("listed", most_listed(history, user)),
        ];
        for (side, count) in sides {
            if count > *most {
                found.push(format!(
                    "user {user} had {count} units at a time ({side}), with a quota of {most}"
                ));
            }
        }
    }
    found
}

/// The most different units at one time.
fn most_at_once(spans: Vec<(String, Span)>) -> usize {
    let at_begin = |of: &(String, Span)| {
        let now = of.1.begin;
        let then = spans.iter();
        let then = then.filter(|(_, span)| span.begin <= now && now < span.end);
        then.map(|(unit, _)| unit).collect::<BTreeSet<_>>().len()
    };
    spans.iter().map(at_begin).max().unwrap_or(0)
}

fn most_listed(history: &History, user: &str) -> usize {
    let listings = history.listings.iter();
    let counts = listings.map(|of| {
        let leases = of.leases.value.iter();
        leases.filter(|of| of.user == user && !of.is_ending).count()
    });
    counts.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::super::history::Revocation;
    use super::super::examples::{listing, run, served, span};
    use super::*;

    #[test]
    fn leases_of_one_unit_one_after_the_other_are_right() {
        let history = History {
            runs: vec![
                run("a", "x", 1, 2),
                run("b", "x", 3, 4),
                run("c", "y", 0, 3),
            ],
            served: vec![served("a", "x", 0, 2), served("b", "x", 2, 5)],
            ..History::default()
        };
        assert_eq!(violations(&history), [""; 0]);
    }

    #[test]
    fn two_clients_on_one_unit_are_found() {
        let runs = vec![run("a", "x", 0, 2), run("b", "x", 1, 3)];
        let history = History {
            runs,
            ..History::default()
        };
        assert_eq!(violations(&history).len(), 1);
    }

    #[test]
    fn a_node_that_serves_two_leases_is_found() {
        let served = vec![served("a", "x", 0, 2), served("b", "x", 1, 3)];
        let history = History {
            served,
            ..History::default()
        };
        assert_eq!(violations(&history).len(), 1);
    }

    #[test]
    fn a_client_whose_node_serves_another_lease_is_found() {
        let history = History {
            runs: vec![run("a", "x", 0, 4)],
            served: vec![served("a", "x", 0, 2), served("b", "x", 2, 5)],
            ..History::default()
        };
        assert_eq!(violations(&history).len(), 1);
    }

    #[test]
    fn a_use_ends_when_an_administrator_ends_the_lease() {
        let history = History {
            runs: vec![run("a", "x", 0, 4), run("b", "x", 2, 5)],
            revocations: vec![Revocation {
                lease: "a".to_owned(),
                span: span(1, 2),
                is_done: true,
            }],
            ..History::default()
        };
        assert_eq!(violations(&history), [""; 0]);
    }

    #[test]
    fn more_units_than_the_quota_are_found() {
        let mut history = History {
            runs: vec![run("a", "x", 0, 2), run("b", "y", 2, 3)],
            served: vec![served("a", "x", 0, 2), served("b", "y", 2, 3)],
            listings: vec![listing(1, &["a"], &[])],
            ..History::default()
        };
        history.quotas.insert("u".to_owned(), 1);
        assert_eq!(violations(&history), [""; 0]);
        let mut clients = history.clone();
        clients.runs.push(run("c", "z", 1, 2));
        assert_eq!(violations(&clients).len(), 1);
        let mut nodes = history.clone();
        nodes.served.push(served("c", "z", 0, 3));
        assert_eq!(violations(&nodes), [""; 0], "no client has heard of it");
        let mut heard = run("c", "z", 1, 2);
        heard.used = None;
        nodes.runs.push(heard);
        assert_eq!(violations(&nodes).len(), 1);
        history.listings.push(listing(4, &["a", "b"], &[]));
        assert_eq!(violations(&history).len(), 1);
    }
}
