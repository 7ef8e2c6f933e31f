//! Resumes a session whose connections broke: dials the node again, and goes on where both sides are.
//!
//! Runs on the session's heartbeat thread. What is written again, and what the other side already has, is decided by
//! [`Core::go_on`]. An attempt has one address, the first that answers. A round tries all addresses without a pause, and
//! each attempt has a time limit, so an address that accepts connections and is silent does not keep the others away.
//! Invariant: an attempt either replaces both connections or changes nothing.

use std::net::TcpStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use causeway_proto::control::SessionEnd;
use causeway_proto::preamble::{ClientWord, Purpose};
use causeway_proto::status::WireError;
use causeway_security::Line;

use self::recovery::HASTY;
pub(super) use self::recovery::Recovery;
use super::bulk::Owner;
use super::clock;
use super::control;
use super::core::{Break, Connected, Core, NotResumed};
use super::local::Peer;
use super::node::Node;
use super::patience::Patience;
use super::rails::Rail;
use super::report::Reported;
use super::session::NODE_LOST;
use super::socket::{Dialer, Fault, NotOpened};
use super::stops::Stops;
use crate::config::ServerSettings;

mod recovery;

/// A session that is away for longer is reported in the log.
const REPORTED: Duration = Duration::from_secs(1);
/// Time limit for asking the node why the session has ended.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// How often a pause looks whether the session has failed meanwhile.
const LOOKS_UP_EVERY: Duration = Duration::from_millis(50);

/// Why a connection is not used.
const MOVED: &str = "the session has moved meanwhile";

/// What is needed to dial a session's node again.
pub(super) struct Redialer {
    pub(super) dialer: Dialer,
    pub(super) server: ServerSettings,
    /// The purpose of the session's command connection.
    pub(super) commands: Purpose,
    /// How long the program waits.
    pub(super) patience: Patience,
    /// How long the program waits for a daemon that is started anew.
    pub(super) restart: Duration,
    /// What was done since the last break.
    pub(super) recovery: Recovery,
    /// When the connections were opened.
    pub(super) opened: Instant,
    /// The session's node, which learns where the session may have moved.
    pub(super) node: Weak<Node>,
}

/// Why an attempt did not resume the session.
#[derive(Debug, PartialEq, Eq)]
enum Failed {
    /// Another attempt may help.
    ForNow(String),
    /// The same: the node has said that the session is parked.
    Parked(String),
    /// The session cannot be resumed any more.
    ForGood(String),
    /// The daemon that answers does not know the session.
    Unknown(String),
    /// Nothing listens any more where the session had its connections.
    NoDaemon(String),
}

impl Failed {
    fn why(&self) -> &str {
        match self {
            Failed::ForNow(why)
            | Failed::Parked(why)
            | Failed::ForGood(why)
            | Failed::Unknown(why)
            | Failed::NoDaemon(why) => why,
        }
    }

    /// Why a session is lost that broke for `reason`, and that was `away` until this attempt. `was_parked`: the
    /// daemon before has ended, and was asked to park the session.
    fn text(&self, reason: &str, away: Duration, was_parked: bool) -> String {
        let away = away.as_secs_f64();
        match self {
            Failed::ForNow(why) | Failed::Parked(why) | Failed::ForGood(why) => {
                format!("{reason}; the session was not resumed within {away:.1} s: {why}")
            }
            Failed::Unknown(why) => {
                let cause = match was_parked {
                    true => "; the daemon that answers has no [survival] directory, or another one",
                    false => "",
                };
                format!("{reason}; the session was not resumed within {away:.1} s: {why}{cause}")
            }
            Failed::NoDaemon(why) => format!(
                "{reason}; the program does not wait, because nothing listens there any more: {why}"
            ),
        }
    }
}

/// Tries of all addresses, each once.
#[derive(Default)]
struct Round {
    tried: Vec<Peer>,
    failures: Vec<Failed>,
    /// How often the session had moved.
    moves: u64,
}

impl Round {
    /// Goes on at the addresses after so many moves. What was tried before a move counts no longer.
    fn go_on(&mut self, moves: u64) {
        if self.moves != moves {
            *self = Round {
                moves,
                ..Round::default()
            };
        }
    }

    /// Ends the round, because no further address answers. Returns what its failures and `more` mean together: the
    /// first that is final, else the first.
    fn end(&mut self, more: Vec<Failed>) -> Failed {
        self.tried.clear();
        let mut failures = std::mem::take(&mut self.failures);
        failures.extend(more);
        let is_final = |failed: &Failed| !matches!(failed, Failed::ForNow(_) | Failed::Parked(_));
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
    pub(super) fn resume(&mut self, core: &Arc<Core>, stops: &mut Stops) -> Option<Arc<Line>> {
        let may_restart = core.may_restart();
        let (mut patience, must_pause) = self.begin(core, may_restart);
        let mut round = Round::default();
        let mut is_reported = false;
        let again = "its connections break again and again";
        if must_pause && !self.pause(core, &mut patience, stops, again) {
            return None;
        }
        loop {
            let broken = core.the_break()?;
            if core.is_failed() {
                return None;
            }
            let begun = Instant::now();
            let mut planned = patience.attempt();
            let attempt = self.attempt(core, &mut round, &patience, &mut planned);
            stops.look(clock::since_boot(), planned);
            let taken = begun.elapsed();
            let is_parked = matches!(attempt, Err(Failed::Parked(_)));
            let last = match attempt {
                // The session may also have failed during the attempt.
                _ if core.is_failed() => return None,
                Ok((line, again)) => {
                    self.note_success(&broken, patience, may_restart);
                    self.report_back(core, &broken, again, is_reported);
                    return Some(line);
                }
                Err(Failed::ForNow(why) | Failed::Parked(why)) if !self.recovery.may_be_open() => {
                    why
                }
                Err(last) => match self.recover(core, last, &mut patience, stops) {
                    Ok(why) => why,
                    Err(last) => {
                        self.give_up(core, &broken, &last, stops);
                        return None;
                    }
                },
            };
            patience.count(planned, taken);
            match is_parked {
                true => patience.is_parked(taken),
                false => patience.is_not_parked(),
            }
            self.look_for_news(core, may_restart);
            // The end of a daemon is no hiccup of the network.
            if !is_reported && (may_restart || broken.since.elapsed() >= REPORTED) {
                is_reported = true;
                self.report_away(core, &broken, &last);
            }
            let goes_on = round.goes_on() || self.recovery.has_just_opened();
            if goes_on && patience.has_time() {
                continue;
            }
            if !self.pause(core, &mut patience, stops, &last) {
                return None;
            }
        }
    }

    // Begins to wait. Returns for how long, and whether a pause must come before the first attempt.
    fn begin(&mut self, core: &Core, may_restart: bool) -> (Patience, bool) {
        let lasted = self.opened.elapsed();
        self.recovery.begin(lasted);
        let must_pause = self.patience.begin(lasted, core.positions());
        let mut patience = match may_restart {
            true => Patience::new(self.restart),
            false => self.patience,
        };
        // The manager may find out late that the node is lost. One limit holds for all of the wait.
        if patience.has_time() && self.may_be_replaced(core) {
            self.wait_longer(core, &mut patience);
        }
        (patience, must_pause)
    }

    // Notes that the session has connections again. Another daemon's session begins with all of its time.
    fn note_success(&mut self, broken: &Break, patience: Patience, may_restart: bool) {
        if !may_restart && !self.recovery.is_anew() {
            self.patience = match self.recovery.is_longer() {
                // This one was there all the time.
                true => self.patience.after(broken.since.elapsed()),
                false => patience,
            };
        }
        self.opened = Instant::now();
    }

    // Looks for the session's node after an attempt that failed. The session may be parked because its lease moves to
    // another node.
    fn look_for_news(&self, core: &Core, may_restart: bool) {
        if let Some(node) = self.node.upgrade() {
            if may_restart || self.may_be_replaced(core) {
                node.looks_for_news();
            }
            node.is_away();
        }
    }

    // Waits before the next attempt. Returns false if the session has failed, also because no time is left.
    fn pause(&self, core: &Core, patience: &mut Patience, stops: &mut Stops, last: &str) -> bool {
        let Some(pause) = patience.pause() else {
            if let Some(broken) = core.the_break() {
                self.give_up(core, &broken, &Failed::ForNow(last.to_owned()), stops);
            }
            return false;
        };
        let begun = Instant::now();
        while begun.elapsed() < pause {
            if core.is_failed() {
                return false;
            }
            if self.has_moved(core) {
                break;
            }
            self.dialer.rails.wait_for_news(LOOKS_UP_EVERY.min(pause));
            stops.look(clock::since_boot(), LOOKS_UP_EVERY);
        }
        patience.count(pause, begun.elapsed());
        true
    }

    // Whether the session has another address since the last call.
    fn has_moved(&self, core: &Core) -> bool {
        let rails = &self.dialer.rails;
        let is_news = rails.take_news();
        if let Some(server) = rails.moved().filter(|_| is_news) {
            let what = match rails.begins_anew() {
                true => "the node is lost; the program goes on at equal devices",
                false => "the session has moved; the program goes on there",
            };
            tracing::warn!(
                address = self.dialer.address,
                node = server.name.as_deref().unwrap_or(server.address.as_str()),
                now_at = server.address.as_str(),
                "{what}"
            );
            core.tool.report(Reported::Away(format!(
                "the session moves to {}",
                server.address.as_str()
            )));
        }
        is_news
    }

    fn report_away(&self, core: &Core, broken: &Break, last: &str) {
        let (address, reason) = (&self.dialer.address, &broken.reason);
        // While the daemon ends, it is no news that it does not answer.
        let last = (!core.may_restart()).then_some(last);
        core.tool.report(Reported::Away(reason.clone()));
        tracing::warn!(
            address,
            reason,
            last,
            "the session has no connection; the program waits until the node answers"
        );
    }

    // `again`: number of bytes that are written once more. The log has a line only if the break had one.
    fn report_back(&self, core: &Core, broken: &Break, again: usize, is_reported: bool) {
        let (address, away) = (&self.dialer.address, broken.since.elapsed());
        let times = core.resumed();
        core.tool.report(Reported::Resumed { times, away });
        if is_reported {
            tracing::warn!(
                address,
                away_ms = away.as_millis() as u64,
                bytes_again = again,
                "the session is resumed"
            );
        }
    }

    // Ends a session that is not resumed. If the node knows why it has ended the session, that says more than `last`,
    // the error of the last attempt.
    fn give_up(&self, core: &Core, broken: &Break, last: &Failed, stops: &Stops) {
        let Break { reason, since } = broken;
        let away = since.elapsed();
        let stopped = stops.recent(clock::since_boot());
        // The times that the node has granted for connections say nothing about a daemon that is started anew.
        let explain = |text: String, stopped| match core.may_restart() {
            true => text,
            false => core.granted.explain(&text, stopped),
        };
        match self.end() {
            Some(SessionEnd {
                reason: end,
                lease_lost,
                ..
            }) => {
                let away = away.as_secs_f64();
                let text = match end == *reason {
                    true => end,
                    false => {
                        format!("{end}; its connection had broken {away:.1} s before: {reason}")
                    }
                };
                let text = match lease_lost {
                    true => core.explain_lost_node(text),
                    false => text,
                };
                // The node's reason says for how long the node has waited.
                core.told(match stopped {
                    Some(_) => explain(text, stopped),
                    None => text,
                });
            }
            None => {
                let text = last.text(reason, away, core.may_restart());
                let text = explain(text, stopped);
                core.fail(match last {
                    _ if self.recovery.is_hasty() => format!(
                        "{text}; it was opened again {HASTY} times, and ended at once each time: the node's log says why"
                    ),
                    Failed::Unknown(_) | Failed::NoDaemon(_) => core.explain_lost_node(text),
                    Failed::ForNow(_) | Failed::Parked(_) if core.granted.may_be_replaced => {
                        core.explain_lost_node(text)
                    }
                    _ => text,
                });
            }
        }
    }

    // Tries the first address that answers, of those that were not tried in this round. `planned` is the time for that,
    // which grows if the network is slow. If the session moves meanwhile, where it was has no final word.
    fn attempt(
        &self,
        core: &Arc<Core>,
        round: &mut Round,
        patience: &Patience,
        planned: &mut Duration,
    ) -> Result<(Arc<Line>, usize), Failed> {
        let rails = &self.dialer.rails;
        if rails.begins_anew() {
            return Err(Failed::Unknown(NODE_LOST.to_owned()));
        }
        round.go_on(rails.moves());
        let attempt = self.attempt_first(core, round, patience, planned);
        attempt.map_err(|failed| match rails.moves() == round.moves {
            true => failed,
            false => Failed::ForNow(failed.why().to_owned()),
        })
    }

    fn attempt_first(
        &self,
        core: &Arc<Core>,
        round: &mut Round,
        patience: &Patience,
        planned: &mut Duration,
    ) -> Result<(Arc<Line>, usize), Failed> {
        let begun = Instant::now();
        let candidates = self.dialer.rails.candidates();
        let (stream, rail) = match self
            .dialer
            .connect_first(candidates, &round.tried, *planned)
        {
            Ok(connected) => connected,
            Err(errors) => {
                let failures = errors.into_iter().map(|not_opened| {
                    let was_there = self.was_at(not_opened.peer.as_ref());
                    failed(not_opened, self.known(core, was_there))
                });
                return Err(round.end(failures.collect()));
            }
        };
        round.tried.push(rail.peer.clone());
        *planned = patience.attempt_over(begun.elapsed());
        let attempt = self.attempt_over(core, stream, rail, begun + *planned);
        attempt.map_err(|failed| {
            let why = failed.why().to_owned();
            let so_far = match failed {
                Failed::Parked(_) => Failed::Parked(why),
                _ => Failed::ForNow(why),
            };
            round.failures.push(failed);
            so_far
        })
    }

    // Whether the session had its connections there. Only there an error can be final: elsewhere no daemon may ever have
    // listened, and a name may also lead to another node, which does not know the session.
    fn was_at(&self, peer: Option<&Peer>) -> bool {
        let rails = &self.dialer.rails;
        peer.is_some_and(|peer| rails.peer(rails.current()).as_ref() == Some(peer))
    }

    fn known(&self, core: &Core, was_there: bool) -> Known {
        Known {
            was_there,
            is_anew: self.recovery.is_anew(),
            may_restart: core.may_restart(),
        }
    }

    fn attempt_over(
        &self,
        core: &Arc<Core>,
        stream: TcpStream,
        rail: Rail,
        deadline: Instant,
    ) -> Result<(Arc<Line>, usize), Failed> {
        let dialer = self.dialer.on_rail(rail.number);
        let was_there = self.was_at(Some(&rail.peer));
        let failed = |not_opened| failed(not_opened, self.known(core, was_there));
        let open = |stream, purpose, position, worker| {
            let word = ClientWord {
                position,
                generation: core.worker_generation_if_anew(worker),
                worker,
                ..ClientWord::default()
            };
            let opened = dialer.open_over(stream, purpose, 0, word, deadline);
            opened.map_err(failed)
        };
        let told = core.position();
        let (heartbeat, incarnation) = open(stream, Purpose::Heartbeat, 0, 0)?;
        let opened = dialer
            .connect_to(&rail.peer, deadline)
            .map_err(failed)
            .and_then(|stream| open(stream, self.commands, told, incarnation));
        let (commands, position) = opened.inspect_err(|_| {
            // The worker has this connection by now. Without a word, its end looks like that of a killed program.
            super::socket::say_comes_back(&heartbeat);
        })?;
        if !self.dialer.rails.set_current(rail) {
            super::socket::say_comes_back(&heartbeat);
            return Err(Failed::ForNow(MOVED.to_owned()));
        }
        let heartbeat = Arc::new(heartbeat);
        let connected = Connected {
            commands,
            heartbeat: Arc::clone(&heartbeat),
            told,
            position,
            incarnation,
            is_reopened: self.recovery.is_anew(),
        };
        match core.go_on(connected) {
            // The lease has lost the node meanwhile; see `Session::lead_to`.
            Ok(_) if self.dialer.rails.begins_anew() => {
                core.break_off(core.generation(), MOVED.to_owned());
                Err(Failed::ForNow(MOVED.to_owned()))
            }
            Ok(again) => {
                let owner: Arc<dyn Owner> = Arc::<Core>::clone(core);
                owner.bulk().open_if_needed(&owner);
                Ok((heartbeat, again))
            }
            Err(NotResumed::Io(error)) => {
                let reason = super::socket::plain(&error);
                core.break_off(core.generation(), reason.clone());
                Err(Failed::ForNow(reason))
            }
            Err(NotResumed::Impossible(error)) => Err(Failed::ForGood(error.to_string())),
        }
    }

    // Asks the node how the session has ended.
    fn end(&self) -> Option<SessionEnd> {
        let moved = self.dialer.rails.moved();
        let (server, session) = (
            moved.unwrap_or_else(|| self.server.clone()),
            self.dialer.session,
        );
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

/// What is known of the session at a peer.
#[derive(Clone, Copy)]
struct Known {
    /// Whether the session had its connections there.
    was_there: bool,
    /// Whether the session was opened again. It may have ended before it had any connections.
    is_anew: bool,
    /// Whether the daemon is not gone for good if it is gone.
    may_restart: bool,
}

// What an error means at a peer.
fn failed(not_opened: NotOpened, known: Known) -> Failed {
    let Known {
        was_there,
        is_anew,
        may_restart,
    } = known;
    let why = not_opened.error.to_string();
    match not_opened.fault {
        Fault::UnknownSession if was_there || is_anew => Failed::Unknown(why),
        Fault::NoDaemon if was_there && !may_restart => match not_opened.error {
            WireError::Unreachable { .. } => Failed::NoDaemon(why),
            // A daemon of another version.
            _ => Failed::ForGood(why),
        },
        Fault::Parked => Failed::Parked(why),
        Fault::UnknownSession | Fault::NoDaemon | Fault::Other => Failed::ForNow(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_says_why_the_program_waits_no_longer() {
        let text =
            |last: &Failed, was_parked| last.text("cut", Duration::from_millis(1500), was_parked);
        assert_eq!(
            text(&for_now("silent"), false),
            "cut; the session was not resumed within 1.5 s: silent"
        );
        assert_eq!(
            text(&Failed::NoDaemon("n:1 refused".to_owned()), false),
            "cut; the program does not wait, because nothing listens there any more: n:1 refused"
        );
        let unknown = Failed::Unknown("n:1 knows no such session".to_owned());
        let plain = "cut; the session was not resumed within 1.5 s: n:1 knows no such session";
        assert_eq!(text(&unknown, false), plain);
        let directory = "; the daemon that answers has no [survival] directory, or another one";
        assert_eq!(text(&unknown, true), format!("{plain}{directory}"));
    }

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

    #[test]
    fn only_the_peer_that_had_the_session_can_say_that_it_is_gone() {
        let known = |was_there, is_anew, may_restart| Known {
            was_there,
            is_anew,
            may_restart,
        };
        let is_final = |fault, was_there, may_restart| {
            let not_opened = NotOpened {
                error: WireError::Forked,
                peer: None,
                fault,
            };
            !matches!(
                failed(not_opened, known(was_there, false, may_restart)),
                Failed::ForNow(_) | Failed::Parked(_)
            )
        };
        let again = NotOpened {
            error: WireError::Forked,
            peer: None,
            fault: Fault::UnknownSession,
        };
        let again = failed(again, known(false, true, false));
        assert!(matches!(again, Failed::Unknown(_)), "it was opened again");
        for may_restart in [false, true] {
            assert!(is_final(Fault::UnknownSession, true, may_restart));
            assert_eq!(is_final(Fault::NoDaemon, true, may_restart), !may_restart);
            for fault in [
                Fault::UnknownSession,
                Fault::NoDaemon,
                Fault::Parked,
                Fault::Other,
            ] {
                assert!(!is_final(fault, false, may_restart));
            }
            assert!(!is_final(Fault::Other, true, may_restart));
            assert!(!is_final(Fault::Parked, true, may_restart));
        }
    }
}
