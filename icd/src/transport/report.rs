//! Reports of sessions that break and are resumed, to the tool that runs the program (`causeway run --json`).
//!
//! A report is a datagram to the Unix socket that [`VARIABLE`] names. Nobody waits for the tool: a report that its
//! socket does not take is dropped.
#![forbid(unsafe_code)]

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

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
}

impl SessionReport {
    /// Reads a datagram. `None` if it is no report.
    #[must_use]
    pub fn decode(datagram: &[u8]) -> Option<SessionReport> {
        let text = std::str::from_utf8(datagram).ok()?;
        let mut fields = text.splitn(4, '\t');
        let pid = fields.next()?.parse().ok()?;
        let server = fields.next()?.to_owned();
        let reported = match (fields.next()?, fields.next()?) {
            ("away", reason) => Reported::Away(reason.to_owned()),
            (times, away) => Reported::Resumed {
                times: times.parse().ok()?,
                away: Duration::from_millis(away.parse().ok()?),
            },
        };
        Some(SessionReport {
            pid,
            server,
            reported,
        })
    }

    /// The datagram of the report.
    #[must_use]
    pub fn encode(&self) -> String {
        let SessionReport {
            pid,
            server,
            reported,
        } = self;
        match reported {
            Reported::Away(reason) => format!("{pid}\t{server}\taway\t{reason}"),
            Reported::Resumed { times, away } => {
                format!("{pid}\t{server}\t{times}\t{}", away.as_millis())
            }
        }
    }
}

/// The tool that runs this process, if it wants reports.
pub(super) struct Tool(Option<PathBuf>);

impl Tool {
    /// Reads the environment.
    pub(super) fn of_process() -> Tool {
        use rustix::process::{getegid, geteuid, getgid, getuid};
        // In a setuid program the user controls the environment, so the variable does not count.
        let is_plain = getuid() == geteuid() && getgid() == getegid();
        let path = std::env::var_os(VARIABLE).filter(|path| is_plain && !path.is_empty());
        Tool(path.map(PathBuf::from))
    }

    /// Reports a change of a session on this server.
    pub(super) fn report(&self, server: &str, reported: Reported) {
        let Some(path) = &self.0 else { return };
        let report = SessionReport {
            pid: std::process::id(),
            server: server.to_owned(),
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
        for reported in [Reported::Away("no\theartbeat".to_owned()), resumed] {
            let report = SessionReport {
                pid: 7,
                server: "node:7079".to_owned(),
                reported,
            };
            let text = report.encode();
            assert_eq!(SessionReport::decode(text.as_bytes()), Some(report));
            for end in 0..text.len() {
                let _ = SessionReport::decode(&text.as_bytes()[..end]);
            }
        }
        assert_eq!(SessionReport::decode(b"\xff"), None);
        assert_eq!(SessionReport::decode(b"7\tnode\tmany\t5"), None);
    }
}
