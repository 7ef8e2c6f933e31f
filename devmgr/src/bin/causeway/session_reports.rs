//! What the library in the program's process tells about its sessions: when one has no connection, when it has been
//! resumed, and when it is lost.

use std::path::Path;

use causeway::transport::report::{Reported, SessionReport};
use tokio::net::UnixDatagram;

use crate::json::RunEvent;
use crate::text::milliseconds;

/// The name of the socket in the run's folder.
const SOCKET: &str = "reports";
/// Largest report in bytes. Longer ones are cut off.
const LARGEST: usize = 4096;

/// The socket of the reports. Without one, there are none.
pub(crate) struct SessionReports(Option<UnixDatagram>);

impl SessionReports {
    /// Receives no reports.
    pub(crate) fn none() -> SessionReports {
        SessionReports(None)
    }

    /// Receives reports through a socket in this folder. Returns its path too.
    pub(crate) fn listen(folder: &Path) -> std::io::Result<(SessionReports, std::path::PathBuf)> {
        let path = folder.join(SOCKET);
        let socket = UnixDatagram::bind(&path)?;
        Ok((SessionReports(Some(socket)), path))
    }

    /// Waits for the next report. Cancel safe.
    pub(crate) async fn next(&self) -> RunEvent {
        let Some(socket) = &self.0 else {
            return std::future::pending().await;
        };
        let mut bytes = [0; LARGEST];
        loop {
            let received = socket.recv(&mut bytes).await;
            if let Some(event) = received.ok().and_then(|count| event(&bytes[..count])) {
                return event;
            }
        }
    }

    /// Returns the next report, if it has come.
    pub(crate) fn poll_next(&self) -> Option<RunEvent> {
        let mut bytes = [0; LARGEST];
        loop {
            let count = self.0.as_ref()?.try_recv(&mut bytes).ok()?;
            if let Some(event) = event(&bytes[..count]) {
                return Some(event);
            }
        }
    }
}

fn event(datagram: &[u8]) -> Option<RunEvent> {
    let SessionReport {
        pid,
        server,
        session,
        reported,
    } = SessionReport::decode(datagram)?;
    Some(match reported {
        Reported::Away(reason) => RunEvent::Away {
            server: Some(server),
            pid: Some(pid),
            session: Some(session),
            reason,
        },
        Reported::Resumed { times, away } => RunEvent::Resumed {
            server,
            pid,
            session,
            times,
            away_ms: milliseconds(away),
        },
        Reported::Lost { reason, away } => RunEvent::Lost {
            server,
            pid,
            session,
            reason,
            away_ms: milliseconds(away),
        },
    })
}
