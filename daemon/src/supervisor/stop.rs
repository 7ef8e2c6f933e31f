//! The end of the daemon: first a drain, then none of its processes is left, and its device manager knows it.

use std::time::Duration;

use causeway_serving::notify;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

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
    /// Of a private daemon: resolves when whoever has started it is gone.
    orphaned: Option<oneshot::Receiver<()>>,
}

/// What [`Signals::next`] gives when whoever has started a private daemon is gone.
const ORPHANED: &str = "end of standard input";

impl Signals {
    pub(super) fn new(private: bool) -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            orphaned: match private {
                true => Some(end_of_input()?),
                false => None,
            },
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
        if name == ORPHANED {
            workers.kill_all();
        }
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
            () = orphaned(&mut self.orphaned) => ORPHANED,
        }
    }
}

/// Once, if ever.
async fn orphaned(end: &mut Option<oneshot::Receiver<()>>) {
    match end {
        Some(receiver) => {
            // It fails only if the thread has, and then nobody watches any more either.
            let _ = receiver.await;
            *end = None;
        }
        None => std::future::pending().await,
    }
}

/// Tells when everybody is gone who has the other end of standard input. The kernel closes that end with its process,
/// however the process ends.
fn end_of_input() -> std::io::Result<oneshot::Receiver<()>> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new()
        .name("parent".to_owned())
        .spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            // The daemon may be ending by itself.
            let _ = tell.send(());
        })?;
    Ok(told)
}
