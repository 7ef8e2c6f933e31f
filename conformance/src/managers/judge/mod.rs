//! Judges the history of a proof: what clients, nodes, an observer and administrators saw, on one clock.
//!
//! - [`units`]: no unit has two leases at a time, and quotas are kept;
//! - [`leases`]: no lease is lost, and nothing that was confirmed is undone;
//! - [`places`]: waiting requests keep their order;
//! - [`terms`]: no answer comes from a lower term than an earlier answer;
//! - [`names`]: users, tokens and quotas are linearizable.
//!
//! Pure. Only what the history shows is judged: the daemons over PoCL do not report what they serve, so their
//! devices are judged by their clients' uses alone. Invariant: the judgement depends on the history alone.

mod leases;
mod names;
mod places;
mod terms;
mod units;

use super::history::History;

/// The violations of a history, for people.
pub(super) fn violations(history: &History) -> Vec<String> {
    let mut found = units::violations(history);
    found.extend(leases::violations(history));
    found.extend(places::violations(history));
    found.extend(terms::violations(history));
    found.extend(names::violations(history));
    found
}

#[cfg(test)]
mod examples {
    //! Parts of histories for the tests. Times are in seconds.

    use std::time::Duration;

    use super::super::history::{Answer, Listed, Listing, Run, Served, Span};

    pub(super) fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    pub(super) fn span(begin: u64, end: u64) -> Span {
        Span {
            begin: at(begin),
            end: at(end),
        }
    }

    /// A run of the user `u` that is granted when its use begins, and released when it ends.
    pub(super) fn run(lease: &str, unit: &str, begin: u64, end: u64) -> Run {
        Run {
            name: format!("run of {lease}"),
            user: "u".to_owned(),
            lease: Some(lease.to_owned()),
            units: vec![unit.to_owned()],
            granted: Some(at(begin)),
            used: Some(span(begin, end)),
            released: Some(at(end)),
            ..Run::default()
        }
    }

    pub(super) fn served(lease: &str, unit: &str, begin: u64, end: u64) -> Served {
        Served {
            unit: unit.to_owned(),
            lease: lease.to_owned(),
            user: "u".to_owned(),
            epoch: begin,
            span: span(begin, end),
        }
    }

    /// A listing that takes the second from `begin` on.
    pub(super) fn listing(begin: u64, leases: &[&str], queue: &[&str]) -> Listing {
        let listed = |lease: &&str| Listed {
            lease: (*lease).to_owned(),
            user: "u".to_owned(),
            is_ending: false,
        };
        Listing {
            leases: Answer {
                span: span(begin, begin + 1),
                term: 1,
                value: leases.iter().map(listed).collect(),
            },
            queue: Answer {
                span: span(begin, begin + 1),
                term: 1,
                value: queue.iter().map(|lease| (*lease).to_owned()).collect(),
            },
        }
    }
}
