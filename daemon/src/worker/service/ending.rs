//! Why a worker ends. The first reason counts.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::accounting::Cause;

/// How often a worker that ends looks whether it may end at once.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Why a worker ends. The text is for the client.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    /// The client closed its command connection.
    #[error("the client closed its connections")]
    ClientClosed,
    /// The session is parked, and goes on when the daemon is started anew.
    #[error("the session is parked")]
    Parked,
    /// The client said that it ends the session.
    #[error("the client closed the session")]
    Farewell,
    /// A connection to the client broke.
    #[error("the connection for {connection} broke ({error})")]
    ClientLost {
        /// The connection's name, for the log.
        connection: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The client stayed away for longer than the session waits.
    #[error("the client did not come back within {:.1} s: {broken}", away.as_secs_f64())]
    NotBack {
        /// How long the client was away.
        away: Duration,
        /// How its last connection ended.
        broken: Box<Ending>,
    },
    /// The client violated the protocol.
    #[error("the client violated the protocol: {0}")]
    Violation(String),
    /// The command connection did not arrive in time.
    #[error("the client did not connect before the timeout")]
    NeverConnected,
    /// The supervisor ends the session, for a reason that the client is told.
    #[error("{0}")]
    ToldToEnd(String),
    /// The supervisor closed its end of the channel: it ends the session, or the daemon is gone.
    #[error("the node ended the session, or its daemon is gone")]
    SupervisorGone,
    /// The worker itself has failed.
    #[error("the node cannot continue the session: {0}")]
    Broken(String),
    /// The worker becomes a host before it has a session.
    #[error("the worker becomes a host")]
    IsHost {
        /// Whether memory that goes from one session to another is filled with zeros.
        clears: bool,
    },
}

impl Ending {
    /// Logs the ending at its level. An unused spare worker logs at debug level only.
    pub(super) fn log(&self, has_session: bool) {
        if !has_session {
            tracing::debug!(reason = %self, "a worker that no session uses ends");
            return;
        }
        match self {
            Ending::ClientClosed | Ending::Farewell => {
                tracing::info!("the client closed the session");
            }
            // A program that exits while events are on their way to it resets the connection.
            Ending::ClientLost { connection, error }
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ) =>
            {
                tracing::info!(connection, %error, "the client closed its connection without an end of the session");
            }
            Ending::ClientLost { connection, error } => {
                tracing::warn!(connection, %error, "the connection to the client broke, so the session ends");
            }
            Ending::NotBack { away, broken } => tracing::info!(
                ?away,
                reason = %broken,
                "the client has not come back in time, so the session ends"
            ),
            Ending::Violation(what) => tracing::warn!(
                what,
                "the client violated the protocol, so the session ends; check that client and node have the same \
                 version"
            ),
            Ending::NeverConnected => {
                tracing::warn!(
                    "the client opened a session, but did not connect before the timeout"
                );
            }
            Ending::Parked => tracing::info!("the session is parked"),
            Ending::ToldToEnd(reason) => tracing::info!(reason, "the supervisor ended the session"),
            Ending::SupervisorGone => tracing::info!("the supervisor is gone, so the session ends"),
            Ending::Broken(what) => {
                tracing::error!(what, "the worker cannot continue, so the session ends")
            }
            // Only a worker without a session becomes a host.
            Ending::IsHost { .. } => {}
        }
    }

    /// The cause for the supervisor's counters.
    pub(super) fn cause(&self) -> Cause {
        match self {
            Ending::ClientClosed | Ending::Farewell => Cause::ClientClosed,
            Ending::ClientLost { .. } => Cause::ClientLost,
            Ending::NotBack { broken, .. } => broken.cause(),
            Ending::Violation(_) => Cause::Violation,
            Ending::NeverConnected => Cause::NeverConnected,
            Ending::ToldToEnd(_) | Ending::SupervisorGone | Ending::Parked => Cause::ToldToEnd,
            Ending::Broken(_) | Ending::IsHost { .. } => Cause::Broken,
        }
    }

    /// The process's exit code: 0 unless the fault is on this node.
    pub(super) fn exit_code(&self) -> i32 {
        i32::from(matches!(self, Ending::Broken(_)))
    }
}

/// The sending end, on which any thread reports why the worker should end.
#[derive(Clone, Debug)]
pub(super) struct Endings(mpsc::Sender<Ending>);

/// The receiving end, on which the main thread waits.
pub(super) struct EndingReceiver(mpsc::Receiver<Ending>);

impl Endings {
    pub(super) fn new() -> (Endings, EndingReceiver) {
        let (sender, receiver) = mpsc::channel();
        (Endings(sender), EndingReceiver(receiver))
    }

    /// Reports a reason. Only the first one counts.
    pub(super) fn end(&self, ending: Ending) {
        let _ = self.0.send(ending);
    }
}

impl EndingReceiver {
    /// Waits for the first reason and returns it.
    pub(super) fn wait(&self) -> Ending {
        self.0
            .recv()
            .unwrap_or_else(|_| Ending::Broken("every thread is gone".to_owned()))
    }

    /// Waits for `done`, at most `limit`. Stops when the supervisor ends the session.
    pub(super) fn wait_for(&self, done: &mpsc::Receiver<()>, limit: Duration) {
        let until = Instant::now() + limit;
        while done.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout)
            && Instant::now() < until
        {
            let is_told = |ending| matches!(ending, Ending::ToldToEnd(_) | Ending::SupervisorGone);
            if self.0.try_iter().any(is_told) {
                return;
            }
        }
    }

    /// Waits until the client of a session that ends has left: another reason has come, or the client `is_away`. At
    /// most `limit`.
    pub(super) fn wait_until_left(&self, is_away: impl Fn() -> bool, limit: Duration) {
        let until = Instant::now() + limit;
        let stays = || {
            matches!(
                self.0.recv_timeout(LOOK_EVERY),
                Err(RecvTimeoutError::Timeout)
            )
        };
        while stays() && !is_away() && Instant::now() < until {}
    }
}
