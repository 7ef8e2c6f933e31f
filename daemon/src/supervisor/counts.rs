//! Counters by reason, for the supervisor's metrics.
//!
//! Invariant: every reason is reported from the start, with 0, so that monitoring sees the first increment.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use parking_lot::Mutex;

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
