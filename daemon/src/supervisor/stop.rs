//! The end of the daemon: first a drain, then none of its processes is left, and its device manager knows it.

use std::time::Duration;

use causeway_serving::notify;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Supervisor;
use super::workers::Workers;

/// For workers that were told to leave, before they are killed.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);
/// For the device manager to hear which leases have ended.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// For the kernel to end what was killed.
const DIE_WITHIN: Duration = Duration::from_secs(2);

/// The signals that end the daemon; made before anything else is, so that none is missed.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for a signal, then drains: no new session, running ones (and their new connections) go on
    /// up to the limit. A second signal ends everything at once.
    pub(super) async fn wait_and_drain(mut self, supervisor: &Supervisor) {
        let name = self.next().await;
        notify("STOPPING=1");
        let workers = &supervisor.workers;
        // First, so that the manager gives nobody a device here whose session would be refused.
        if let Some(managed) = &supervisor.managed {
            managed.stop();
        }
        workers.drain();
        supervisor.look_at_health();
        let limit = supervisor.settings.sessions.drain_limit;
        let sessions = workers.counts().sessions;
        tracing::info!(signal = name, sessions, "shutting down");
        tokio::select! {
            () = workers.no_session() => {}
            () = tokio::time::sleep(limit) => {
                tracing::warn!(sessions = workers.counts().sessions, "out of patience");
            }
            name = self.next() => {
                tracing::warn!(signal = name, "shutting down at once");
                workers.kill_all();
            }
        }
        if let Some(managed) = &supervisor.managed {
            managed.end_all();
        }
        self.end_workers(workers).await;
        if let Some(managed) = &supervisor.managed {
            managed.leave(HEARD_WITHIN).await;
        }
    }

    async fn end_workers(&mut self, workers: &Workers) {
        workers.end_all();
        tokio::select! {
            () = workers.no_worker() => return,
            () = tokio::time::sleep(LEAVE_WITHIN) => {}
            _ = self.next() => {}
        }
        workers.kill_all();
        // One that the kernel cannot end (stuck in a driver's system call) gets its parent-death
        // signal when we are gone.
        let _ = tokio::time::timeout(DIE_WITHIN, workers.no_worker()).await;
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
