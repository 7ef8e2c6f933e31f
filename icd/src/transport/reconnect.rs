//! Resumes a session whose connections broke: dials the node again, and goes on where both sides are.
//!
//! Runs on the session's heartbeat thread. What is written again, and what the other side already has, is decided by
//! [`Core::go_on`]. An attempt has one address, the first that answers. A round tries all addresses without a pause, and
//! each attempt has a time limit, so an address that accepts connections and is silent does not keep the others away.
//! Invariant: an attempt either replaces both connections or changes nothing.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::preamble::Purpose;
use causeway_security::Line;

use super::control;
use super::core::{Break, Core};
use super::local::Peer;
use super::outbox::NotResumed;
use super::patience::Patience;
use super::rails::Rail;
use super::socket::{Dialer, Fault, NotOpened};
use crate::config::ServerSettings;

/// A session that is away for longer is reported in the log.
const REPORTED: Duration = Duration::from_secs(1);
/// Time limit for asking the node why the session has ended.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// How often a pause looks whether the session has failed meanwhile.
const LOOKS_UP_EVERY: Duration = Duration::from_millis(50);

/// What is needed to dial a session's node again.
pub(super) struct Redialer {
    pub(super) dialer: Dialer,
    pub(super) server: ServerSettings,
    /// The purpose of the session's command connection.
    pub(super) commands: Purpose,
    /// How long the program waits.
    pub(super) limit: Duration,
}

/// Why an attempt did not resume the session.
#[derive(Debug, PartialEq, Eq)]
enum Failed {
    /// Another attempt may help.
    ForNow(String),
    /// The session cannot be resumed any more.
    ForGood(String),
    /// The node has ended the session, for this reason.
    Ended(String),
}

impl Failed {
    fn why(&self) -> &str {
        match self {
            Failed::ForNow(why) | Failed::ForGood(why) | Failed::Ended(why) => why,
        }
    }
}

/// Tries of all addresses, each once.
#[derive(Default)]
struct Round {
    tried: Vec<Peer>,
    failures: Vec<Failed>,
}

impl Round {
    /// Ends the round, because no further address answers. Returns what its failures and `more` mean together: the
    /// first that is final, else the first.
    fn end(&mut self, more: Vec<Failed>) -> Failed {
        self.tried.clear();
        let mut failures = std::mem::take(&mut self.failures);
        failures.extend(more);
        let is_final = |failed: &Failed| !matches!(failed, Failed::ForNow(_));
        let most = failures.iter().position(is_final).unwrap_or(0);
        match most < failures.len() {
            true => failures.swap_remove(most),
            false => Failed::ForNow("no address answered".to_owned()),
        }
    }

    /// Whether addresses may be left to try.
    fn goes_on(&self) -> bool {
        !self.tried.is_empty()
    }
}

impl Redialer {
    /// Resumes a session that is away. Returns the new heartbeat connection; `None` if the session has failed.
    pub(super) fn resume(&self, core: &Core) -> Option<Arc<Line>> {
        let (mut patience, mut round) = (Patience::new(self.limit), Round::default());
        let mut reported = false;
        loop {
            let Break { reason, since } = core.the_break()?;
            if core.is_failed() {
                return None;
            }
            let (planned, begun) = (patience.attempt(), Instant::now());
            let last = match self.attempt(core, &mut round, begun + planned) {
                Ok((line, again)) => {
                    if reported {
                        self.report_resumed(since, again);
                    }
                    return Some(line);
                }
                Err(Failed::ForGood(why)) => {
                    let away = since.elapsed().as_secs_f64();
                    core.fail(format!("{reason}; after {away:.1} s: {why}"));
                    return None;
                }
                Err(Failed::Ended(reason)) => {
                    core.told(reason);
                    return None;
                }
                Err(Failed::ForNow(why)) => why,
            };
            patience.count(planned, begun.elapsed());
            if !reported && since.elapsed() >= REPORTED {
                reported = true;
                tracing::warn!(
                    address = self.dialer.address,
                    reason,
                    last,
                    "the session has no connection; the program waits until the node answers"
                );
            }
            if round.goes_on() && patience.has_time() {
                continue;
            }
            let Some(pause) = patience.pause() else {
                let away = since.elapsed().as_secs_f64();
                core.fail(format!(
                    "{reason}; the session was not resumed within {away:.1} s: {last}"
                ));
                return None;
            };
            let begun = Instant::now();
            while begun.elapsed() < pause {
                if core.is_failed() {
                    return None;
                }
                std::thread::sleep(LOOKS_UP_EVERY.min(pause));
            }
            patience.count(pause, begun.elapsed());
        }
    }

    fn report_resumed(&self, since: Instant, again: usize) {
        let away_ms = since.elapsed().as_millis() as u64;
        tracing::warn!(
            address = self.dialer.address,
            away_ms,
            bytes_again = again,
            "the session is resumed"
        );
    }

    // Tries the first address that answers, of those that were not tried in this round.
    fn attempt(
        &self,
        core: &Core,
        round: &mut Round,
        deadline: Instant,
    ) -> Result<(Arc<Line>, usize), Failed> {
        let rails = &self.dialer.rails;
        let limit = deadline.saturating_duration_since(Instant::now());
        // A refusal where the session had its connections is final. Elsewhere no daemon may ever have listened.
        let left = rails.peer(rails.current());
        let candidates = rails.candidates();
        let (stream, rail) = match self.dialer.connect_first(candidates, &round.tried, limit) {
            Ok(connected) => connected,
            Err(errors) => {
                let failures = errors.into_iter().map(|not_opened| {
                    let is_final = not_opened.peer.is_some() && not_opened.peer == left;
                    self.failed(not_opened, is_final)
                });
                return Err(round.end(failures.collect()));
            }
        };
        round.tried.push(rail.peer.clone());
        match self.attempt_over(core, stream, &rail, deadline) {
            Ok(done) => {
                rails.set_current(rail);
                Ok(done)
            }
            Err(ended @ Failed::Ended(_)) => Err(ended),
            Err(failed) => {
                let why = failed.why().to_owned();
                round.failures.push(failed);
                Err(Failed::ForNow(why))
            }
        }
    }

    fn attempt_over(
        &self,
        core: &Core,
        stream: TcpStream,
        rail: &Rail,
        deadline: Instant,
    ) -> Result<(Arc<Line>, usize), Failed> {
        let dialer = self.dialer.on_rail(rail.number);
        let open = |stream, purpose, position| {
            let opened = dialer.open_over(stream, purpose, 0, position, deadline);
            opened.map_err(|not_opened| self.failed(not_opened, true))
        };
        let (heartbeat, _) = open(stream, Purpose::Heartbeat, 0)?;
        let stream = dialer.connect_to(&rail.peer, deadline);
        let stream = stream.map_err(|not_opened| self.failed(not_opened, true))?;
        let (commands, position) = open(stream, self.commands, core.handled())?;
        let heartbeat = Arc::new(heartbeat);
        match core.go_on(commands, Arc::clone(&heartbeat), position) {
            Ok(again) => Ok((heartbeat, again)),
            Err(NotResumed::Io(error)) => {
                let reason = super::socket::plain(&error);
                core.break_off(core.generation(), reason.clone());
                Err(Failed::ForNow(reason))
            }
            Err(error @ NotResumed::Impossible(_)) => Err(Failed::ForGood(error.to_string())),
        }
    }

    // What an error means. Whether the lack of a daemon `is_final` depends on the address.
    fn failed(&self, not_opened: NotOpened, is_final: bool) -> Failed {
        let why = not_opened.error.to_string();
        match not_opened.fault {
            Fault::UnknownSession => match self.end() {
                Some(reason) => Failed::Ended(reason),
                None => Failed::ForGood(why),
            },
            Fault::NoDaemon if is_final => Failed::ForGood(why),
            Fault::NoDaemon | Fault::Other => Failed::ForNow(why),
        }
    }

    // Asks the node why the session has ended.
    fn end(&self) -> Option<String> {
        let (server, session) = (self.server.clone(), self.dialer.session);
        let secret = self.dialer.secret.clone();
        control::converse(move || async move {
            let ask = async {
                let mut supervisor = control::Supervisor::reach(&server, ASK_LIMIT, 0).await?;
                supervisor.session_end(session, secret).await
            };
            control::within(ASK_LIMIT, &server.address, ask).await
        })
        .ok()?
        .ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn for_now(why: &str) -> Failed {
        Failed::ForNow(why.to_owned())
    }

    #[test]
    fn a_final_failure_of_a_round_counts_more_than_the_others() {
        let mut round = Round::default();
        assert!(!round.goes_on());
        round.tried.push(Peer::Tcp(([127, 0, 0, 1], 1).into()));
        round.failures.push(for_now("a"));
        assert!(round.goes_on());
        let gone = || Failed::ForGood("b".to_owned());
        assert_eq!(round.end(vec![for_now("c"), gone()]), gone());
        assert!(!round.goes_on());
        assert_eq!(round.end(vec![for_now("c"), for_now("d")]), for_now("c"));
        assert_eq!(round.end(Vec::new()), for_now("no address answered"));
    }
}
