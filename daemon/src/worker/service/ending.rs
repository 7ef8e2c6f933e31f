//! Why a worker ends. The first reason counts.

use std::io;
use std::sync::mpsc;

use causeway_proto::id::SessionId;

/// Why a worker ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// The client closed its command connection.
    ClientClosed,
    /// A connection to the client broke.
    ClientLost {
        /// Which.
        connection: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The client broke the protocol.
    Violation(String),
    /// The command connection did not come in time.
    NeverConnected,
    /// The supervisor closed its end: the session is to end, or the daemon is gone.
    SupervisorGone,
    /// Something here is broken.
    Broken(String),
}

impl Ending {
    /// Writes it to the log, as loudly as it deserves. A spare worker that is not needed says nothing.
    pub(super) fn log(&self, session: Option<SessionId>) {
        let Some(session) = session else {
            tracing::debug!(reason = ?self, "a worker without a session ends");
            return;
        };
        match self {
            Ending::ClientClosed => tracing::info!(?session, "the client closed the session"),
            // A program that ends while events are under way to it resets the connection.
            Ending::ClientLost { connection, error }
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ) =>
            {
                tracing::info!(?session, connection, %error, "the client is gone");
            }
            Ending::ClientLost { connection, error } => {
                tracing::warn!(?session, connection, %error, "the client is lost");
            }
            Ending::Violation(what) => {
                tracing::warn!(?session, what, "the client broke the protocol");
            }
            Ending::NeverConnected => {
                tracing::warn!(?session, "the client opened a session and did not come");
            }
            Ending::SupervisorGone => tracing::info!(?session, "the session was told to end"),
            Ending::Broken(what) => tracing::error!(?session, what, "the worker is broken"),
        }
    }

    /// The process's exit code: 0 for what is no fault of this node.
    pub(super) fn exit_code(&self) -> i32 {
        i32::from(matches!(self, Ending::Broken(_)))
    }
}

/// Where any thread says that the worker is to end.
#[derive(Clone, Debug)]
pub(super) struct Endings(mpsc::Sender<Ending>);

/// Where the main thread waits.
pub(super) struct Ended(mpsc::Receiver<Ending>);

impl Endings {
    pub(super) fn new() -> (Endings, Ended) {
        let (sender, receiver) = mpsc::channel();
        (Endings(sender), Ended(receiver))
    }

    /// Says it. Later reasons than the first are not heard.
    pub(super) fn end(&self, ending: Ending) {
        let _ = self.0.send(ending);
    }
}

impl Ended {
    /// The first reason.
    pub(super) fn wait(&self) -> Ending {
        self.0
            .recv()
            .unwrap_or_else(|_| Ending::Broken("every thread is gone".to_owned()))
    }
}
