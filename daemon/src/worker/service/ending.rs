//! Why a worker ends. The first reason counts.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use crate::accounting::Cause;

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
    /// The session is to end, for a reason that the client is to hear.
    ToldToEnd(String),
    /// The supervisor closed its end: the session is to end, or the daemon is gone.
    SupervisorGone,
    /// Something here is broken.
    Broken(String),
}

impl Ending {
    /// Writes it to the log, as loudly as it deserves. A spare worker that is not needed says nothing.
    pub(super) fn log(&self, has_session: bool) {
        if !has_session {
            tracing::debug!(reason = ?self, "a worker without a session ends");
            return;
        }
        match self {
            Ending::ClientClosed => tracing::info!("the client closed the session"),
            // A program that ends while events are under way to it resets the connection.
            Ending::ClientLost { connection, error }
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ) =>
            {
                tracing::info!(connection, %error, "the client is gone");
            }
            Ending::ClientLost { connection, error } => {
                tracing::warn!(connection, %error, "the client is lost");
            }
            Ending::Violation(what) => tracing::warn!(what, "the client broke the protocol"),
            Ending::NeverConnected => {
                tracing::warn!("the client opened a session and did not come");
            }
            Ending::ToldToEnd(reason) => tracing::info!(reason, "the session was told to end"),
            Ending::SupervisorGone => tracing::info!("the session was told to end"),
            Ending::Broken(what) => tracing::error!(what, "the worker is broken"),
        }
    }

    /// For the supervisor's counts.
    pub(super) fn cause(&self) -> Cause {
        match self {
            Ending::ClientClosed => Cause::ClientClosed,
            Ending::ClientLost { .. } => Cause::ClientLost,
            Ending::Violation(_) => Cause::Violation,
            Ending::NeverConnected => Cause::NeverConnected,
            Ending::ToldToEnd(_) | Ending::SupervisorGone => Cause::ToldToEnd,
            Ending::Broken(_) => Cause::Broken,
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

    /// Waits for another one, so long at most.
    pub(super) fn wait_for_another(&self, limit: Duration) {
        // Which it is makes no difference any more.
        let _ = self.0.recv_timeout(limit);
    }
}
