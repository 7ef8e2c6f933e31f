//! Counters by reason, for the supervisor's metrics.
//!
//! Invariant: every reason is reported from the start, with 0, so that monitoring sees the first increment.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tonic::{Code, Status};

#[derive(Debug)]
pub(super) struct Reasons(Mutex<BTreeMap<&'static str, u64>>);

impl Reasons {
    /// Makes counters for these reasons, all 0.
    pub(super) fn new(reasons: &[&'static str]) -> Reasons {
        let none = reasons.iter().map(|reason| (*reason, 0));
        Reasons(Mutex::new(none.collect()))
    }

    /// Increments the counter of a reason.
    pub(super) fn count(&self, reason: &'static str) {
        *self.0.lock().entry(reason).or_default() += 1;
    }

    /// Returns all counters.
    pub(super) fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }
}

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
