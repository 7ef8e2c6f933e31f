//! The spare workers: when they are started, and which one a session or a host gets.
//!
//! Invariant: a worker is either spare or assigned. It leaves the spare ones under the table's lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::hosts::Body;
use super::super::warm::WarmDevice;
use super::super::worker::Worker;
use super::{NotOpened, Workers, WorkersState};
use crate::handover::ToWorker;

/// Number of spare workers that are tried for a session before a new one is started.
pub(super) const ATTEMPTS: usize = 3;

impl Workers {
    /// Starts spare workers until there are as many as the settings ask for.
    pub(in super::super) fn replenish(&self) {
        let wanted = self.0.sessions.spare_workers as usize;
        let mut state = self.0.state.lock();
        let since = state.alive.values().filter_map(|of| of.warming_since());
        if let Some(since) = since.min() {
            state.warming.note_under_way(since, Instant::now());
        }
        while !state.draining && state.spares.len() < wanted {
            match self.start(&mut state) {
                Ok(worker) => {
                    worker.warm(state.warming.devices(Instant::now()));
                    state.spares.push(worker);
                }
                Err(error) => {
                    tracing::error!(%error, "cannot start a spare worker");
                    break;
                }
            }
        }
    }

    pub(super) fn replenish_after(&self, pause: Duration) {
        let workers = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            workers.replenish();
        });
    }

    /// Ends the spare workers, because they have loaded drivers that have changed since.
    pub(in super::super) fn retire_spares(&self) {
        for spare in std::mem::take(&mut self.0.state.lock().spares) {
            spare.end();
        }
    }

    /// Has the spare workers, now and in future, make contexts on these devices. Those that were asked before
    /// keep their contexts.
    pub(in super::super) fn warm(&self, devices: Vec<WarmDevice>) {
        let mut state = self.0.state.lock();
        state.warming.set(devices);
        for spare in &state.spares {
            spare.warm(state.warming.devices(Instant::now()));
        }
    }

    /// Sends the assignment to a worker: preferably a spare one that has loaded OpenCL, and of those one that
    /// has made its contexts; then any spare one; then a new one. A spare one whose contexts take too long is
    /// the last choice of the spare ones.
    pub(super) fn assign(
        &self,
        state: &mut WorkersState,
        message: &ToWorker,
    ) -> Result<Arc<Worker>, NotOpened> {
        for _ in 0..ATTEMPTS {
            let spares = state.spares.iter().enumerate();
            let best = spares.max_by_key(|(_, spare)| {
                (
                    !spare.is_slow_to_warm(),
                    spare.is_ready(),
                    spare.warming_since().is_none(),
                    spare.warm_contexts(),
                )
            });
            let Some((best, _)) = best else { break };
            let spare = state.spares.swap_remove(best);
            match spare.send(message) {
                Ok(()) => {
                    spare.note_assignment(message);
                    return Ok(spare);
                }
                // The spare worker has died and has not been reaped yet, or the system refuses the message.
                Err(error) => {
                    spare.end();
                    tracing::debug!(
                        %error,
                        worker = spare.serial,
                        "a spare worker cannot be assigned a session; trying another one"
                    )
                }
            }
        }
        let worker = self.start(state)?;
        // Without its message, the worker would stay for ever.
        worker.send(message).inspect_err(|_| worker.end())?;
        worker.note_assignment(message);
        Ok(worker)
    }

    fn start(&self, state: &mut WorkersState) -> std::io::Result<Arc<Worker>> {
        state.last_serial += 1;
        let serial = state.last_serial;
        let (worker, process) = Worker::start(serial, &self.0.processes, self.0.builds.clone())?;
        state.alive.insert(serial, Arc::clone(&worker));
        let workers = self.clone();
        tokio::spawn({
            let worker = Arc::clone(&worker);
            async move {
                let status = worker.watch(Body::Own(Box::new(process))).await;
                workers.reap(&worker, status);
            }
        });
        Ok(worker)
    }
}
