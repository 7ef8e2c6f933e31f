//! Why sessions have ended, for clients that come back and no longer find theirs.
//!
//! This module has no clock. Invariant: a reason is told only to a caller that knows the session's secret.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use causeway_proto::id::{SessionId, SessionSecret};
use subtle::ConstantTimeEq;

use super::managed::{Epoch, LeaseId};

/// Time for which a reason is kept.
const KEPT: Duration = Duration::from_secs(3600);
/// Most sessions that are remembered. The oldest are forgotten first.
const MOST: usize = 1024;

/// How a session has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionEnd {
    pub(super) reason: String,
    /// Whether the node has ended the session's lease by itself.
    pub(super) lease_lost: bool,
    /// The node's grant of the session's lease, if it had one.
    pub(super) grant: Option<(LeaseId, Epoch)>,
}

impl SessionEnd {
    /// Whether the end forbids to open the session again under this grant. The manager may have given the node a lease again
    /// that the node has lost, or that it has ended meanwhile.
    pub(super) fn forbids(&self, grant: Option<(LeaseId, Epoch)>) -> bool {
        !self.lease_lost && self.grant.is_none_or(|of| grant == Some(of))
    }
}

impl From<String> for SessionEnd {
    fn from(reason: String) -> SessionEnd {
        SessionEnd {
            reason,
            lease_lost: false,
            grant: None,
        }
    }
}

/// The sessions that have ended last.
#[derive(Default)]
pub(super) struct EndedSessions(VecDeque<EndedSession>);

struct EndedSession {
    at: Instant,
    id: SessionId,
    secret: SessionSecret,
    end: SessionEnd,
}

impl EndedSessions {
    /// Remembers a session that has ended.
    pub(super) fn add(
        &mut self,
        id: SessionId,
        secret: SessionSecret,
        end: SessionEnd,
        now: Instant,
    ) {
        self.forget(now);
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(EndedSession {
            at: now,
            id,
            secret,
            end,
        });
    }

    /// Returns how a session has ended, to a caller that knows its secret.
    pub(super) fn end(
        &mut self,
        id: &SessionId,
        secret: &SessionSecret,
        now: Instant,
    ) -> Option<SessionEnd> {
        self.forget(now);
        // A session that was opened again may have ended twice.
        let ended = self.0.iter().rev().find(|of| of.id == *id)?;
        bool::from(ended.secret.0.ct_eq(&secret.0)).then(|| ended.end.clone())
    }

    fn forget(&mut self, now: Instant) {
        let is_old = |of: &EndedSession| now.saturating_duration_since(of.at) >= KEPT;
        while self.0.front().is_some_and(is_old) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: u16) -> (SessionId, SessionSecret) {
        let [low, high] = number.to_le_bytes();
        let mut id = [0; 16];
        (id[0], id[1]) = (low, high);
        (SessionId(id), SessionSecret([low; 32]))
    }

    #[test]
    fn reasons_are_told_to_their_clients_for_an_hour() {
        let now = Instant::now();
        let mut ended = EndedSessions::default();
        let (id, secret) = session(1);
        ended.add(id, secret.clone(), "why".to_owned().into(), now);
        let end = ended.end(&id, &secret, now).unwrap();
        assert!(end.reason == "why" && !end.lease_lost);
        assert_eq!(ended.end(&id, &session(2).1, now), None);
        assert_eq!(ended.end(&session(2).0, &secret, now), None);
        assert_eq!(ended.end(&id, &secret, now + KEPT), None);
    }

    #[test]
    fn of_several_ends_of_a_session_the_last_counts() {
        let (mut ended, now) = (EndedSessions::default(), Instant::now());
        let (id, secret) = session(1);
        for lease_lost in [true, false, true] {
            let reason = String::new();
            let end = SessionEnd {
                reason,
                lease_lost,
                grant: None,
            };
            ended.add(id, secret.clone(), end.clone(), now);
            assert_eq!(ended.end(&id, &secret, now), Some(end));
        }
    }

    #[test]
    fn an_end_forbids_nothing_under_a_later_grant_of_the_lease() {
        let grant = |epoch| Some((LeaseId([1; 16]), Epoch(epoch)));
        let end = |lease_lost, grant| SessionEnd {
            reason: String::new(),
            lease_lost,
            grant,
        };
        assert!(end(false, grant(1)).forbids(grant(1)));
        assert!(!end(false, grant(1)).forbids(grant(2)));
        assert!(!end(true, grant(1)).forbids(grant(2)));
        assert!(end(false, None).forbids(None) && end(false, None).forbids(grant(1)));
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let now = Instant::now();
        let mut ended = EndedSessions::default();
        for number in 0..=MOST as u16 {
            let (id, secret) = session(number);
            ended.add(id, secret, number.to_string().into(), now);
        }
        let (first, secret) = session(0);
        assert_eq!(ended.end(&first, &secret, now), None);
        let (second, secret) = session(1);
        assert_eq!(ended.end(&second, &secret, now).unwrap().reason, "1");
    }
}
