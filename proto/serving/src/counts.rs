//! Counters by reason, for metrics.
//!
//! This module knows no reason: each server has its own. Invariant: every reason is reported from the start, with 0,
//! so that monitoring sees the first increment.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Counters by reason. See the module.
#[derive(Debug)]
pub struct Reasons(Mutex<BTreeMap<&'static str, u64>>);

impl Reasons {
    /// Makes counters for these reasons, all 0.
    #[must_use]
    pub fn new(reasons: &[&'static str]) -> Reasons {
        let none = reasons.iter().map(|reason| (*reason, 0));
        Reasons(Mutex::new(none.collect()))
    }

    /// Increments the counter of a reason.
    pub fn count(&self, reason: &'static str) {
        *self.0.lock().entry(reason).or_default() += 1;
    }

    /// Returns all counters.
    #[must_use]
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }
}
