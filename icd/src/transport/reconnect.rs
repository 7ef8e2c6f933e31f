//! Resumes a session whose connections broke: dials the node again, and goes on where both sides are.
//!
//! Runs on the session's heartbeat thread. What is written again, and what the other side already has, is decided by
//! [`Core::go_on`]. Invariant: an attempt either replaces both connections or changes nothing.

use std::net::ToSocketAddrs;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use causeway_proto::preamble::Purpose;
use causeway_security::Line;

use super::control;
use super::core::{Break, Core};
use super::local::Peer;
use super::outbox::NotResumed;
use super::patience::Patience;
use super::report::{Reported, Tool};
use super::socket::{Dialer, Fault};
use crate::config::ServerSettings;
use crate::thread::Stack;

/// A session that is away for longer is reported in the log.
const REPORTED: Duration = Duration::from_secs(1);
/// Time limit for the system's resolver.
const RESOLVE_LIMIT: Duration = Duration::from_secs(2);
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
    /// The tool that learns of breaks.
    pub(super) tool: Tool,
}

/// Why an attempt did not resume the session.
enum Failed {
    /// Another attempt may help.
    ForNow(String),
    /// The session cannot be resumed any more.
    ForGood(String),
}

impl Redialer {
    /// Resumes a session that is away. Returns the new heartbeat connection; `None` if the session has failed.
    pub(super) fn resume(&self, core: &Core) -> Option<Arc<Line>> {
        let mut patience = Patience::new(self.limit);
        let mut is_reported = false;
        loop {
            let broken = core.the_break()?;
            if core.is_failed() {
                return None;
            }
            let (planned, begun) = (patience.attempt(), Instant::now());
            let last = match self.attempt(core, begun + planned) {
                Ok((line, again)) => {
                    self.report_back(core, &broken, again, is_reported);
                    return Some(line);
                }
                Err(Failed::ForGood(why)) => {
                    self.give_up(core, &broken, &why);
                    return None;
                }
                Err(Failed::ForNow(why)) => why,
            };
            patience.count(planned, begun.elapsed());
            if !is_reported && broken.since.elapsed() >= REPORTED {
                is_reported = true;
                self.report_away(&broken, &last);
            }
            let Some(pause) = patience.pause() else {
                self.give_up(core, &broken, &last);
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

    fn report_away(&self, broken: &Break, last: &str) {
        let (address, reason) = (&self.dialer.address, &broken.reason);
        self.tool.report(address, Reported::Away(reason.clone()));
        tracing::warn!(
            address,
            reason,
            last,
            "the session has no connection; the program waits until the node answers"
        );
    }

    // `again`: number of bytes that were written once more. The log has a line only if the break had one.
    fn report_back(&self, core: &Core, broken: &Break, again: usize, is_reported: bool) {
        let (address, away) = (&self.dialer.address, broken.since.elapsed());
        let times = core.resumed();
        self.tool.report(address, Reported::Resumed { times, away });
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
    fn give_up(&self, core: &Core, broken: &Break, last: &str) {
        let Break { reason, since } = broken;
        let away = since.elapsed().as_secs_f64();
        match self.end() {
            Some(end) => core.told(format!(
                "{end}; its connection had broken {away:.1} s before: {reason}"
            )),
            None => core.fail(format!(
                "{reason}; the session was not resumed within {away:.1} s: {last}"
            )),
        }
    }

    fn attempt(&self, core: &Core, deadline: Instant) -> Result<(Arc<Line>, usize), Failed> {
        let mut failed = Failed::ForNow("the name has no address".to_owned());
        for peer in self.peers() {
            failed = match self.attempt_at(core, &peer, deadline) {
                Ok(done) => {
                    *self.dialer.peer.lock() = peer;
                    return Ok(done);
                }
                Err(failed) => failed,
            };
        }
        Err(failed)
    }

    fn attempt_at(
        &self,
        core: &Core,
        peer: &Peer,
        deadline: Instant,
    ) -> Result<(Arc<Line>, usize), Failed> {
        let open = |purpose, position| {
            let opened = self.dialer.open_once(peer, purpose, 0, position, deadline);
            opened.map_err(|not_opened| match not_opened.fault {
                Fault::Other => Failed::ForNow(not_opened.error.to_string()),
                Fault::UnknownSession | Fault::NoDaemon => {
                    Failed::ForGood(not_opened.error.to_string())
                }
            })
        };
        let (heartbeat, _) = open(Purpose::Heartbeat, 0)?;
        let (commands, position) = open(self.commands, core.handled())?;
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

    // The addresses of the node: what its name has now, and the one that was reached last.
    fn peers(&self) -> Vec<Peer> {
        let last = self.dialer.peer.lock().clone();
        let Peer::Tcp(known) = last else {
            return vec![last];
        };
        let (sender, found) = mpsc::channel();
        let name = (
            self.server.address.host().to_owned(),
            self.server.address.port(),
        );
        // On a thread of its own, because the system's resolver blocks.
        let started = super::thread::spawn("cw-resolve", Stack::Runtime, move || {
            let found = name.to_socket_addrs().map(|found| found.take(8).collect());
            // A failed send means that the time limit has passed.
            let _ = sender.send(found.unwrap_or_else(|_| Vec::new()));
        });
        let mut addresses = match started {
            Ok(()) => found.recv_timeout(RESOLVE_LIMIT).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        if !addresses.contains(&known) {
            addresses.push(known);
        }
        addresses.into_iter().map(Peer::Tcp).collect()
    }

    // Asks the node why the session has ended.
    fn end(&self) -> Option<String> {
        let (server, session) = (self.server.clone(), self.dialer.session);
        let secret = self.dialer.secret.clone();
        control::converse(move || async move {
            let ask = async {
                let mut supervisor = control::Supervisor::reach(&server, ASK_LIMIT).await?;
                supervisor.session_end(session, secret).await
            };
            control::within(ASK_LIMIT, &server.address, ask).await
        })
        .ok()?
        .ok()?
    }
}
