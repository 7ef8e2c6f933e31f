//! Whether the client of a session is there, and until when a session waits for a client that is away.
//!
//! This module has no clock and no sockets. A session is away from the end of one of its client's connections until
//! the client has all of them again. Invariant: a session that is away has a deadline. Only the end of a connection that
//! looks like a killed program brings it forward, so a client whose attempts to come back fail loses no time by them.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crate::handover::{AwayTimes, SessionLine};

/// How a connection of the client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The other end closed or reset the connection.
    Closed,
    /// The network reported nothing for too long.
    Silent,
}

/// The state of the client's connections.
#[derive(Debug, Default)]
pub(super) struct Presence {
    granted: AwayTimes,
    /// Time without a sign of life after which a connection is silent.
    silence: Duration,
    commands: Connected,
    heartbeat: Connected,
    away: Option<Away>,
    /// Whether the client has said that it closes its connections and comes back.
    comes_back: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Connected {
    /// No connection was there yet.
    #[default]
    Never,
    /// A connection is there. If it is direct, nothing forwards it.
    Here { is_direct: bool, since: Instant },
    /// The last connection has ended.
    Gone,
}

/// A session that waits for its client.
#[derive(Clone, Copy, Debug)]
struct Away {
    since: Instant,
    until: Instant,
}

/// What a changed presence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// The session is away from now on, until another time if it was away before. With `alone`, only the connection
    /// that has ended is shut down, otherwise the other one, too.
    Leaves {
        alone: bool,
    },
    /// The client is back after this time.
    Returns(Duration),
}

impl Presence {
    pub(super) fn new(granted: AwayTimes, silence: Duration) -> Presence {
        Presence {
            granted,
            silence,
            ..Presence::default()
        }
    }

    /// Returns whether the session outlives its connections.
    pub(super) fn resumes(&self) -> bool {
        !self.granted.resume.is_zero()
    }

    /// Handles a connection that has proved the secret, and that replaces the one before.
    pub(super) fn came(&mut self, line: SessionLine, is_direct: bool, now: Instant) -> Change {
        *self.line(line) = Connected::Here {
            is_direct,
            since: now,
        };
        let Some(away) = &mut self.away else {
            self.comes_back = false;
            return Change::Nothing;
        };
        if self.commands == Connected::Gone || self.heartbeat == Connected::Gone {
            // The client is there, and has this time for its other connection.
            away.until = away.until.max(now + self.granted.resume);
            return Change::Nothing;
        }
        let since = away.since;
        (self.away, self.comes_back) = (None, false);
        Change::Returns(now.saturating_duration_since(since))
    }

    /// Handles that the client closes its connections because one of them broke, as it says on one of them.
    pub(super) fn comes_back(&mut self, now: Instant) {
        self.comes_back = true;
        if let Some(away) = &mut self.away {
            away.until = away.until.max(now + self.granted.resume);
        }
    }

    /// Handles the end of the newest connection.
    pub(super) fn ended(&mut self, line: SessionLine, how: How, now: Instant) -> Change {
        let before = std::mem::replace(self.line(line), Connected::Gone);
        let latest = |limit| {
            let until = now + limit;
            self.away.map_or(until, |away| away.until.max(until))
        };
        let until = match (before, how) {
            (Connected::Gone, _) => return Change::Nothing,
            (
                Connected::Here {
                    is_direct: true, ..
                },
                How::Closed,
            ) if !self.comes_back => now + AwayTimes::KILLED.min(self.granted.resume),
            (_, How::Closed) => latest(self.granted.resume),
            (_, How::Silent) => latest(self.granted.keep),
        };
        let since = self.away.map_or(now, |away| away.since);
        self.away = Some(Away { since, until });
        // A connection from before the silence is dead, too. Its end would come later, and say less. One that came
        // since then belongs to a client that is on its way back.
        let silence = self.silence;
        let other = match line {
            SessionLine::Commands => &mut self.heartbeat,
            SessionLine::Heartbeat => &mut self.commands,
        };
        let is_old = matches!(*other, Connected::Here { since, .. } if since + silence <= now);
        let alone = how == How::Closed || !is_old;
        if !alone {
            *other = Connected::Gone;
        }
        Change::Leaves { alone }
    }

    /// Returns since when the session is away.
    pub(super) fn away_since(&self) -> Option<Instant> {
        self.away.map(|away| away.since)
    }

    /// Returns whether the session is away, and waits for longer than for a killed program.
    pub(super) fn is_patient(&self, now: Instant) -> bool {
        self.deadline()
            .is_some_and(|until| until > now + AwayTimes::KILLED)
    }

    /// Returns when a session that is away ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.away.map(|away| away.until)
    }

    fn line(&mut self, line: SessionLine) -> &mut Connected {
        match line {
            SessionLine::Commands => &mut self.commands,
            SessionLine::Heartbeat => &mut self.heartbeat,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRANTED: AwayTimes = AwayTimes {
        resume: Duration::from_secs(60),
        keep: Duration::from_secs(600),
    };
    const KILLED: Duration = AwayTimes::KILLED;
    const SILENCE: Duration = Duration::from_secs(4);
    const LINES: [SessionLine; 2] = [SessionLine::Commands, SessionLine::Heartbeat];

    fn connected(is_direct: bool, now: Instant) -> Presence {
        let mut presence = Presence::new(GRANTED, SILENCE);
        for line in LINES {
            assert_eq!(presence.came(line, is_direct, now), Change::Nothing);
        }
        presence
    }

    #[test]
    fn the_time_depends_on_how_and_where_the_connection_ended() {
        let now = Instant::now();
        for (is_direct, how, expected) in [
            (true, How::Closed, KILLED),
            (false, How::Closed, GRANTED.resume),
            (true, How::Silent, GRANTED.keep),
            (false, How::Silent, GRANTED.keep),
        ] {
            for line in LINES {
                let mut presence = connected(is_direct, now);
                assert_eq!(presence.deadline(), None);
                let alone = how == How::Closed;
                let now = now + SILENCE;
                assert_eq!(presence.ended(line, how, now), Change::Leaves { alone });
                assert_eq!(presence.deadline(), Some(now + expected));
            }
        }
    }

    #[test]
    fn a_client_that_asks_to_be_forgotten_soon_is_not_kept_for_longer() {
        let now = Instant::now();
        let keep = Duration::from_secs(3);
        let mut presence = Presence::new(AwayTimes { keep, ..GRANTED }, SILENCE);
        for line in LINES {
            let _ = presence.came(line, false, now);
        }
        let _ = presence.ended(SessionLine::Heartbeat, How::Silent, now);
        assert_eq!(presence.deadline(), Some(now + keep));
    }

    #[test]
    fn a_client_is_back_with_all_of_its_connections() {
        let now = Instant::now();
        let later = now + Duration::from_secs(2);
        let mut presence = connected(true, now);
        let alone = Change::Leaves { alone: true };
        assert_eq!(
            presence.ended(SessionLine::Heartbeat, How::Closed, now),
            alone
        );
        assert_eq!(presence.deadline(), Some(now + KILLED));
        assert_eq!(
            presence.ended(SessionLine::Commands, How::Closed, later),
            alone
        );
        assert_eq!(presence.deadline(), Some(later + KILLED));
        assert_eq!(
            presence.came(SessionLine::Commands, true, later),
            Change::Nothing
        );
        assert_eq!(presence.deadline(), Some(later + GRANTED.resume));
        let back = presence.came(SessionLine::Heartbeat, true, later);
        assert_eq!(back, Change::Returns(Duration::from_secs(2)));
        assert_eq!((presence.deadline(), presence.away_since()), (None, None));
    }

    #[test]
    fn a_client_that_closes_a_broken_connection_is_not_a_killed_one() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        for first in LINES {
            for is_said_before in [true, false] {
                let mut presence = connected(true, now);
                if is_said_before {
                    presence.comes_back(now);
                }
                let _ = presence.ended(first, How::Closed, now);
                if !is_said_before {
                    assert_eq!(presence.deadline(), Some(now + KILLED));
                    presence.comes_back(now);
                }
                assert_eq!(presence.deadline(), Some(now + GRANTED.resume));
                for line in LINES {
                    let _ = presence.ended(line, How::Closed, later);
                }
                assert_eq!(presence.deadline(), Some(later + GRANTED.resume));
                // The way back may fail, too.
                let _ = presence.came(first, true, later);
                let _ = presence.ended(first, How::Closed, later);
                assert_eq!(presence.deadline(), Some(later + GRANTED.resume));
                for line in LINES {
                    let _ = presence.came(line, true, later);
                }
                let _ = presence.ended(first, How::Closed, later);
                assert_eq!(presence.deadline(), Some(later + KILLED));
            }
        }
    }

    #[test]
    fn a_connection_that_came_during_the_silence_stays() {
        let now = Instant::now();
        let mut presence = connected(true, now);
        let later = now + SILENCE;
        presence.came(SessionLine::Commands, true, later);
        let change = presence.ended(SessionLine::Heartbeat, How::Silent, later);
        assert_eq!(change, Change::Leaves { alone: true });
        let back = presence.came(SessionLine::Heartbeat, true, later);
        assert_eq!(back, Change::Returns(Duration::ZERO));
    }

    #[test]
    fn an_attempt_that_fails_leaves_a_session_its_time() {
        let now = Instant::now();
        for line in LINES {
            let mut presence = connected(true, now);
            let _ = presence.ended(SessionLine::Heartbeat, How::Silent, now + SILENCE);
            let until = now + SILENCE + GRANTED.keep;
            // Through a tunnel, or with the client's word that it comes back.
            for is_direct in [false, true] {
                let _ = presence.came(line, is_direct, now + 2 * SILENCE);
                if is_direct {
                    presence.comes_back(now + 2 * SILENCE);
                }
                let _ = presence.ended(line, How::Closed, now + 2 * SILENCE);
                assert_eq!(presence.deadline(), Some(until));
            }
        }
    }

    #[test]
    fn a_client_that_is_killed_while_it_comes_back_is_not_waited_for() {
        let now = Instant::now();
        let mut presence = connected(true, now);
        presence.ended(SessionLine::Heartbeat, How::Silent, now);
        presence.came(SessionLine::Commands, true, now);
        presence.ended(SessionLine::Commands, How::Closed, now);
        assert_eq!(presence.deadline(), Some(now + KILLED));
    }

    proptest! {
        #[test]
        fn a_session_without_its_client_has_a_deadline(
            steps in prop::collection::vec((0..4u8, any::<bool>(), 0..20u64), 0..40),
        ) {
            let mut now = Instant::now();
            let mut presence = connected(false, now);
            for (kind, flag, seconds) in steps {
                now += Duration::from_secs(seconds);
                let line = if flag { SessionLine::Commands } else { SessionLine::Heartbeat };
                match kind {
                    0 | 1 => {
                        let _ = presence.came(line, kind == 0, now);
                    }
                    2 => {
                        let _ = presence.ended(line, How::Closed, now);
                    }
                    _ => {
                        let _ = presence.ended(line, How::Silent, now);
                    }
                }
                let is_here = |of| matches!(of, Connected::Here { .. });
                let is_complete = is_here(presence.commands) && is_here(presence.heartbeat);
                prop_assert_eq!(presence.deadline().is_none(), is_complete);
                prop_assert!(presence.deadline().is_none_or(|at| at <= now + GRANTED.keep));
            }
        }
    }
}
