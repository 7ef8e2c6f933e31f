//! Sessions that were not opened, by reason, for the supervisor's metrics.
//!
//! This module refuses nothing. Invariant: a call counts once.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use causeway_serving::counts::Reasons;
use tonic::{Code, Status};

/// Path of the call that opens a session.
const OPEN_SESSION: &str = "/causeway.control.v1.Node/OpenSession";
/// Labels of the reasons for which sessions are not opened.
const REFUSALS: [&str; 6] = [
    "unauthenticated",
    "no_lease",
    "full",
    "unavailable",
    "outdated",
    "other",
];

/// Sessions that were not opened, by reason.
#[derive(Debug)]
pub(super) struct Refusals(Reasons);

impl Refusals {
    pub(super) fn new() -> Refusals {
        Refusals(Reasons::new(&REFUSALS))
    }

    /// Counts a refused request for a session.
    pub(super) fn count(&self, status: &Status) {
        self.0.count(reason(status.code()));
    }

    /// Counts a call that was refused before it reached the service, if it is a request for a session.
    pub(super) fn count_call(&self, path: &str, status: &Status) {
        if path == OPEN_SESSION {
            self.count(status);
        }
    }

    /// Returns all counters.
    pub(super) fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.all()
    }
}

/// Returns the label under which a refusal is counted, one of [`REFUSALS`].
fn reason(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => "unauthenticated",
        Code::PermissionDenied => "no_lease",
        Code::ResourceExhausted => "full",
        Code::Unavailable => "unavailable",
        Code::FailedPrecondition => "outdated",
        _ => "other",
    }
}
