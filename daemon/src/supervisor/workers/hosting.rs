//! The hosts among the workers: which one a session joins, and when one ends.
//!
//! What a host is to its sessions is in [`hosts`](super::super::hosts). Invariant: a session is added to a host under the
//! table's lock, and a host without sessions is ended under it. So no session is added to a host that ends, or that may
//! soon be killed because of a session whose client is gone. The latter is not so where only one process may use the
//! devices. A host that is killed meanwhile tells the session why ([`Host::add`]).

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use super::super::domains::Domain;
use super::super::exclusive::Claim;
use super::super::hosts::{Body, Host, Hosted};
use super::super::leaving::LEAVE_WITHIN;
use super::super::worker::Worker;
use super::spares::ATTEMPTS;
use super::{NotOpened, ROOM_WITHIN, Workers, WorkersState};
use crate::config::SessionSettings;
use crate::handover::ToWorker;

/// Time for an abandoned session to end, before a session of its domain gets another host.
const CALM_WITHIN: Duration = Duration::from_millis(500);

impl WorkersState {
    /// Returns the numbers of the workers whose sessions have commands or builds in progress, and whose clients are gone
    /// or away. Such a session may not end in time, and its host is then killed.
    fn abandoned(&self) -> Vec<u64> {
        let sessions = self.sessions.values().filter(|of| {
            let worker = &of.worker;
            of.entry.is_busy() && (worker.is_ending() || worker.away_since().is_some())
        });
        sessions.map(|of| of.worker.serial).collect()
    }

    /// Returns a host that takes a session of this domain and is not in `tried`, and in which no session is `abandoned`.
    fn host_for(&self, domain: &Domain, tried: &[u64], abandoned: &[u64]) -> Option<&Arc<Host>> {
        self.hosts.iter().find(|of| {
            of.takes(domain) && !tried.contains(&of.worker.serial) && !of.has_one_of(abandoned)
        })
    }

    /// Returns whether a session of this domain would join a host, if no session were abandoned.
    fn lacks_a_calm_host(&self, domain: &Domain) -> bool {
        self.host_for(domain, &[], &[]).is_some()
            && self.host_for(domain, &[], &self.abandoned()).is_none()
    }
}

impl Workers {
    /// Returns the hosts: the number of each in the log, the kind of its domain, and how many sessions it has.
    pub(in super::super) fn hosts(&self) -> Vec<(u64, &'static str, usize)> {
        let state = self.0.state.lock();
        let hosts = state.hosts.iter();
        hosts
            .map(|host| (host.worker.serial, host.domain.kind(), host.sessions()))
            .collect()
    }

    /// Ends a host without sessions if the session to open might need its process. Waits for its end, at most
    /// [`ROOM_WITHIN`].
    pub(super) async fn end_an_idle_host(&self) {
        let SessionSettings {
            limit,
            spare_workers,
            ..
        } = self.0.sessions;
        let most = (limit + spare_workers) as usize;
        let ended = {
            let state = self.0.state.lock();
            if state.alive.len() < most {
                return;
            }
            let Some(host) = state.hosts.iter().find(|host| host.is_idle()) else {
                return;
            };
            // Under the lock, so that no session is just being added.
            host.retire();
            host.worker.kill();
            host.worker.serial
        };
        let gone = self.until(|state| !state.alive.contains_key(&ended));
        let _ = tokio::time::timeout(ROOM_WITHIN, gone).await;
    }

    /// Ends hosts without sessions that may still have a context on an exclusive device that the session to open may
    /// use, and waits for their ends, at most [`LEAVE_WITHIN`] and the time for a kill. Hosts stay that take this
    /// session, and all of them do if the session cannot open.
    pub(in super::super) async fn make_way(&self, claim: &Claim, domain: Option<&Domain>) {
        let ended: Vec<u64> = {
            let state = self.0.state.lock();
            if state.may_have(claim).is_err() {
                return;
            }
            let takes = |host: &Host| domain.is_some_and(|domain| host.takes(domain));
            let idle = state.hosts.iter().filter(|of| of.is_idle() && !takes(of));
            // Under the lock, so that no session is just being added.
            idle.map(|host| {
                host.end();
                host.worker.serial
            })
            .collect()
        };
        let gone = self.until(|state| ended.iter().all(|of| !state.alive.contains_key(of)));
        let _ = tokio::time::timeout(LEAVE_WITHIN + ROOM_WITHIN, gone).await;
    }

    /// Waits until no session is abandoned in the host that a session of this domain joins, at most [`CALM_WITHIN`]: most
    /// sessions end soon. Returns whether there was such a session.
    pub(in super::super) async fn wait_for_host(&self, domain: &Domain) -> bool {
        if !self.0.state.lock().lacks_a_calm_host(domain) {
            return false;
        }
        let calm = self.until(|state| !state.lacks_a_calm_host(domain));
        let _ = tokio::time::timeout(CALM_WITHIN, calm).await;
        true
    }

    /// Sends the assignment to a host of this domain, which is started if there is none. A host does not count that may
    /// soon be killed, unless `only_one` process may use the devices.
    pub(super) fn assign_in_host(
        &self,
        state: &mut WorkersState,
        domain: &Domain,
        message: &ToWorker,
        only_one: bool,
    ) -> Result<Arc<Worker>, NotOpened> {
        // Before a host is started, which would otherwise stay without a session.
        state.last_serial += 1;
        let serial = state.last_serial;
        let secret = match message {
            ToWorker::Assign { assignment, .. } if self.0.secured => {
                Some(assignment.secret.clone())
            }
            _ => None,
        };
        let (worker, channel) = Worker::hosted(serial, self.0.builds.clone(), secret)?;
        worker.send(message)?;
        worker.note_assignment(message);
        let channel = ToWorker::Session {
            channel: Some(channel),
        };
        let abandoned = match only_one {
            true => Vec::new(),
            false => state.abandoned(),
        };
        let mut tried = Vec::new();
        for _ in 0..ATTEMPTS {
            let known = state.host_for(domain, &tried, &abandoned);
            let host = match known.map(Arc::clone) {
                Some(host) => host,
                None => self.start_host(state, domain)?,
            };
            // Before the host gets it, so that the session is told if the host is killed.
            if !host.add(&worker) {
                continue;
            }
            if let Err(error) = host.worker.send(&channel) {
                host.remove(&worker);
                tracing::debug!(%error, worker = host.worker.serial, "a host takes no session; trying another one");
                tried.push(host.worker.serial);
                // A full channel means many new sessions. Any other error means that the host has died and has not
                // been reaped yet.
                if error.kind() != std::io::ErrorKind::WouldBlock {
                    host.retire();
                }
                if host.is_idle() {
                    host.end();
                }
                continue;
            }
            let (workers, watched) = (self.clone(), Arc::clone(&worker));
            tokio::spawn(async move {
                let body = Body::Hosted(Hosted::new(&host));
                let status = watched.watch(body).await;
                workers.reap_hosted(&host, &watched, status);
            });
            return Ok(worker);
        }
        Err(NotOpened::NoWorker(std::io::ErrorKind::NotConnected.into()))
    }

    /// Makes a spare worker, or a new one, a host.
    fn start_host(
        &self,
        state: &mut WorkersState,
        domain: &Domain,
    ) -> Result<Arc<Host>, NotOpened> {
        let clears = !domain.is_one_user();
        let worker = self.assign(state, &ToWorker::Host { clears })?;
        tracing::info!(
            worker = worker.serial,
            domain = domain.name(),
            "a host was started"
        );
        let host = Host::new(worker, domain.clone());
        state.hosts.push(Arc::clone(&host));
        Ok(host)
    }

    /// Removes a session that has ended from its host and from the table, or gives it another worker. Ends a host that
    /// stays without sessions.
    fn reap_hosted(&self, host: &Arc<Host>, worker: &Worker, status: std::io::Result<ExitStatus>) {
        let idle = host.remove(worker);
        let domain = (!host.may_be_the_cause(worker)).then_some(&host.domain);
        let (fate, is_draining) = {
            let mut state = self.0.state.lock();
            let fate = self.end_or_replace(&mut state, worker, &status, domain);
            (fate, state.draining)
        };
        self.note_end(worker, fate, status, Some(&host.domain));
        if let Some(number) = idle {
            let (host, pause, workers) = (Arc::clone(host), self.0.host_idle, self.clone());
            tokio::spawn(async move {
                if !is_draining && !host.is_retired() {
                    tokio::time::sleep(pause).await;
                }
                let is_idle = {
                    // Locked, so that no session is just being added.
                    let _state = workers.0.state.lock();
                    host.retire_if_idle_since(number)
                };
                if is_idle {
                    tracing::debug!(
                        worker = host.worker.serial,
                        "a host without sessions is ended"
                    );
                    host.end();
                }
            });
        }
        self.0.reaped.notify_waiters();
    }
}
