//! How sessions and workers end because the daemon ends, or because a lease does.
//!
//! Sessions that the next daemon continues are parked first; see `parking.rs`. This module ends the others.

use std::sync::Arc;
use std::time::Duration;

use super::super::ended::SessionEnd;
use super::super::managed::{LeaseEnd, LeasePlace, PlaceNumber};
use super::super::worker::Worker;
use super::Workers;

/// Reason that clients receive when the daemon ends.
const STOPPED: &str = "the node's daemon was stopped";

impl Workers {
    /// Opens no further sessions, and ends the spare workers.
    pub(in super::super) fn drain(&self) {
        let (spares, hosts) = {
            let mut state = self.0.state.lock();
            state.draining = true;
            (std::mem::take(&mut state.spares), state.hosts.clone())
        };
        for spare in spares {
            spare.end();
        }
        for host in hosts.iter().filter(|host| host.sessions() == 0) {
            host.end();
        }
    }

    /// Asks the workers of the sessions with these places in leases to leave, and to report the reason to
    /// their clients. `end` says what the end means for the leases.
    pub(in super::super) fn end_places(&self, places: &[PlaceNumber], reason: &str, end: LeaseEnd) {
        let mut state = self.0.state.lock();
        let ended = state.moving.end_places(places, end == LeaseEnd::Everywhere);
        for (id, ticket, grant) in &ended.over {
            let end = SessionEnd {
                reason: reason.to_owned(),
                lease_lost: end == LeaseEnd::Lost,
                grant: Some(*grant),
            };
            state.refuse(*id, ticket, end);
        }
        for (id, since) in &ended.left {
            tracing::info!(session = ?id, "another node has the session, whose place here ends");
            self.forget_later(*id, *since);
        }
        for served in state.sessions.values() {
            let number = served.place.as_ref().map(LeasePlace::number);
            if number.is_some_and(|number| places.contains(&number)) {
                if end == LeaseEnd::Lost {
                    served.worker.note_lost_lease();
                }
                served.worker.end_because(reason);
            }
        }
        drop(state);
        // Connections may wait for this.
        self.0.reaped.notify_waiters();
        // Dropping their places locks the table of grants.
        drop(ended);
    }

    /// Asks every worker to leave, because the daemon ends.
    pub(in super::super) fn end_all(&self) {
        let state = self.0.state.lock();
        // A host ends with its last session.
        let is_host = |of: &&Arc<Worker>| state.hosts.iter().any(|h| h.worker.serial == of.serial);
        for worker in state.alive.values().filter(|of| !is_host(of)) {
            end(worker);
        }
        for host in &state.hosts {
            host.end_sessions(end);
        }
    }

    /// Kills all workers.
    pub(in super::super) fn kill_all(&self) {
        let state = self.0.state.lock();
        for host in &state.hosts {
            host.note_kill();
        }
        for worker in state.alive.values() {
            worker.kill();
        }
    }

    /// Waits until no session is left.
    pub(in super::super) async fn no_session(&self) {
        self.until(|state| state.sessions.is_empty() && state.parked.is_written())
            .await;
    }

    /// Waits until no worker is left.
    pub(in super::super) async fn no_worker(&self) {
        // The sessions of a host that has died leave the table a moment later.
        self.until(|state| {
            state.alive.is_empty() && state.sessions.is_empty() && state.parked.is_written()
        })
        .await;
    }

    /// Waits until the builds of the sessions that have ended are stored, `limit` at most.
    pub(in super::super) async fn store_builds(&self, limit: Duration) {
        if let Some(builds) = &self.0.builds {
            builds.flush(limit).await;
        }
    }
}

/// Asks a worker to leave because the daemon ends, and to tell its client why its session was not parked.
fn end(worker: &Worker) {
    match worker.not_parked() {
        None => worker.end_because(STOPPED),
        Some(why) => {
            tracing::warn!(worker = worker.serial, why, "a session was not parked");
            worker.end_because(&format!(
                "{STOPPED}, and the session could not be parked: {why}"
            ));
        }
    }
}
