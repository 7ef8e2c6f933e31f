//! What the supervisor counts by reason.
//!
//! Invariant: every reason is told from the beginning, with 0, so that who watches sees the first.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Counts by reason.
#[derive(Debug)]
pub(super) struct Reasons(Mutex<BTreeMap<&'static str, u64>>);

impl Reasons {
    /// Of these, none yet.
    pub(super) fn new(reasons: &[&'static str]) -> Reasons {
        let none = reasons.iter().map(|reason| (*reason, 0));
        Reasons(Mutex::new(none.collect()))
    }

    /// One more.
    pub(super) fn count(&self, reason: &'static str) {
        *self.0.lock().entry(reason).or_default() += 1;
    }

    /// As they are.
    pub(super) fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }
}
