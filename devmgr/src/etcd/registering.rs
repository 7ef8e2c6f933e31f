//! When a manager's registration is written to etcd: whenever it has changed, and again after a failure.
//!
//! Pure: times and outcomes come in. Invariant: one call is under way at most, so that an earlier registration
//! never replaces a later one.

use super::keys::Registration;
use crate::leadership::EtcdLease;
use crate::time::{Span, Time};

/// Pause after a call that failed.
const RETRY: Span = Span::seconds(1);

/// A registration, and the etcd lease on which it hangs.
pub(super) type Hanging = (EtcdLease, Registration);

/// The state of a registration. See the module.
#[derive(Debug, Default)]
pub(super) struct Registering {
    /// What etcd has, as far as this manager knows.
    done: Option<Hanging>,
    /// What is being written.
    trying: Option<Hanging>,
    retry_at: Time,
}

impl Registering {
    /// Whether this is to be written now. The caller writes it, and reports the outcome.
    pub(super) fn begin(&mut self, now: Time, wanted: &Hanging) -> bool {
        let is_due = self.trying.is_none() && now >= self.retry_at;
        let begins = is_due && self.done.as_ref() != Some(wanted);
        if begins {
            self.trying = Some(wanted.clone());
        }
        begins
    }

    /// The call has ended.
    pub(super) fn end(&mut self, now: Time, is_done: bool) {
        let tried = self.trying.take();
        match is_done {
            true => self.done = tried,
            false => self.retry_at = now.after(RETRY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(lease: i64, problem: &str) -> Hanging {
        let registration = Registration {
            address: "m1:7078".to_owned(),
            version: "1".to_owned(),
            schema: 2,
            since_unix_ms: 0,
            problem: problem.to_owned(),
            dashboard: String::new(),
            turned_away: 0,
        };
        (EtcdLease(lease), registration)
    }

    #[test]
    fn a_registration_is_written_once_and_again_after_a_failure() {
        let mut registering = Registering::default();
        let first = wanted(1, "");
        assert!(registering.begin(Time(0), &first));
        registering.end(Time(10), false);
        assert!(!registering.begin(Time(11), &first));
        assert!(registering.begin(Time(1_010), &first));
        registering.end(Time(1_020), true);
        assert!(!registering.begin(Time(9_000), &first));
        // The earlier lease is gone, and the key with it.
        assert!(registering.begin(Time(9_000), &wanted(2, "")));
    }

    #[test]
    fn a_change_waits_for_the_call_that_is_under_way() {
        let mut registering = Registering::default();
        assert!(registering.begin(Time(0), &wanted(1, "")));
        let later = wanted(1, "no space");
        assert!(!registering.begin(Time(5), &later));
        registering.end(Time(10), true);
        assert!(registering.begin(Time(10), &later));
    }
}
