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
}

/// Why an attempt did not resume the session.
enum Failed {
    /// Another attempt may help.
    ForNow(String),
    /// The session cannot be resumed any more.
    ForGood(String),
    /// The node has ended the session, for this reason.
    Ended(String),
}

impl Redialer {
    /// Resumes a session that is away. Returns the new heartbeat connection; `None` if the session has failed.
    pub(super) fn resume(&self, core: &Core) -> Option<Arc<Line>> {
        let mut patience = Patience::new(self.limit);
        let mut reported = false;
        loop {
            let Break { reason, since } = core.the_break()?;
            if core.is_failed() {
                return None;
            }
            let (planned, begun) = (patience.attempt(), Instant::now());
            let last = match self.attempt(core, begun + planned) {
                Ok((line, again)) => {
                    if reported {
                        let away_ms = since.elapsed().as_millis() as u64;
                        tracing::warn!(
                            address = self.dialer.address,
                            away_ms,
                            bytes_again = again,
                            "the session is resumed"
                        );
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
                Fault::UnknownSession => match self.end() {
                    Some(reason) => Failed::Ended(reason),
                    None => Failed::ForGood(not_opened.error.to_string()),
                },
                Fault::NoDaemon => Failed::ForGood(not_opened.error.to_string()),
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
