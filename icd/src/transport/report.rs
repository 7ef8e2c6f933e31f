//! Reports of sessions that break, are resumed and are lost, to the tool that runs the program (`causeway run --json`).
//!
//! A report is a datagram to the Unix socket that [`VARIABLE`] names. Nobody waits for the tool: a report that its
//! socket does not take is dropped.
#![forbid(unsafe_code)]

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use causeway_proto::id::SessionId;

use super::standard;

/// The environment variable with the path of the tool's socket.
pub const VARIABLE: &str = "CAUSEWAY_REPORTS";

/// A change of a session's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// The process that has the session.
    pub pid: u32,
    /// The address of the session's node.
    pub server: String,
    /// The beginning of the session's id, as logs show it.
    pub session: String,
    /// The change.
    pub reported: Reported,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The session has had no connection for a second, for this reason.
    Away(String),
    /// The session has connections again.
    Resumed {
        /// How often the session was resumed, this time included.
        times: u64,
        /// How long it had no connection.
        away: Duration,
    },
    /// The session is lost.
    Lost {
        /// Why the session is lost.
        reason: String,
        /// How long it had no connection before.
        away: Duration,
    },
}

impl SessionReport {
    /// Reads a datagram. `None` if it is no report.
    #[must_use]
    pub fn decode(datagram: &[u8]) -> Option<SessionReport> {
        let text = std::str::from_utf8(datagram).ok()?;
        let mut fields = text.splitn(6, '\t');
        let mut field = || fields.next();
        let pid = field()?.parse().ok()?;
        let (server, session) = (field()?.to_owned(), field()?.to_owned());
        let (kind, away, last) = (field()?, field()?.parse().ok()?, field()?);
        let away = Duration::from_millis(away);
        let reported = match kind {
            "away" => Reported::Away(last.to_owned()),
            "resumed" => Reported::Resumed {
                times: last.parse().ok()?,
                away,
            },
            "lost" => Reported::Lost {
                reason: last.to_owned(),
                away,
            },
            _ => return None,
        };
        Some(SessionReport {
            pid,
            server,
            session,
            reported,
        })
    }

    /// The datagram of the report.
    #[must_use]
    pub fn encode(&self) -> String {
        let SessionReport {
            pid,
            server,
            session,
            reported,
        } = self;
        let (kind, away, last) = match reported {
            Reported::Away(reason) => ("away", Duration::ZERO, reason.clone()),
            Reported::Resumed { times, away } => ("resumed", *away, times.to_string()),
            Reported::Lost { reason, away } => ("lost", *away, reason.clone()),
        };
        let away = away.as_millis();
        format!("{pid}\t{server}\t{session}\t{kind}\t{away}\t{last}")
    }
}

/// The tool that runs this process, if it wants reports, and the session that is reported.
pub(super) struct Tool {
    path: Option<PathBuf>,
    server: String,
    session: String,
}

impl Tool {
    /// Reads the environment. The session is on this server.
    pub(super) fn of_process(server: &str, SessionId(id): SessionId) -> Tool {
        use rustix::process::{getegid, geteuid, getgid, getuid};
        // In a setuid program the user controls the environment, so the variable does not count.
        let is_plain = getuid() == geteuid() && getgid() == getegid();
        let path = std::env::var_os(VARIABLE).filter(|path| is_plain && !path.is_empty());
        Tool {
            path: path.map(PathBuf::from),
            server: server.to_owned(),
            session: id[..4].iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Reports a change of the session.
    pub(super) fn report(&self, reported: Reported) {
        let Some(path) = &self.path else { return };
        let report = SessionReport {
            pid: std::process::id(),
            server: self.server.clone(),
            session: self.session.clone(),
            reported,
        };
        let sent = (|| {
            let _kept_free = standard::kept_free();
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.send_to(report.encode().as_bytes(), path)
        })();
        if let Err(error) = sent {
            tracing::debug!(%error, "a break was not reported to the tool");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let resumed = Reported::Resumed {
            times: 3,
            away: Duration::from_millis(1234),
        };
        let lost = Reported::Lost {
            reason: "the node\nsaid so".to_owned(),
            away: Duration::from_secs(61),
        };
        let away = Reported::Away("no\theartbeat".to_owned());
        for reported in [away, resumed, lost] {
            let report = SessionReport {
                pid: 7,
                server: "node:7079".to_owned(),
                session: "01ab45ef".to_owned(),
                reported,
            };
            let text = report.encode();
            assert_eq!(SessionReport::decode(text.as_bytes()), Some(report));
            for end in 0..text.len() {
                let _ = SessionReport::decode(&text.as_bytes()[..end]);
            }
        }
        assert_eq!(SessionReport::decode(b"\xff"), None);
        assert_eq!(SessionReport::decode(b"7\tnode\t0\tmany\t5\t5"), None);
    }
}
