//! Puts another worker into the place of one that has died, for a session whose client executes its commands again.
//!
//! The session keeps its id, secret, certificate, its place in a lease, and its accounting slot. Only its worker is new.
//! The worker begins at the session's last checkpoint. Without one, it begins with nothing.
//!
//! A session of a host that has died gets a process of its own if it may be the cause ([`Host::may_be_the_cause`]). So a
//! session that kills its process again is then alone in it. The others join another host.
//!
//! [`Host::may_be_the_cause`]: super::super::hosts::Host::may_be_the_cause
//!
//! Invariants: a worker that was told to end, or that has said why it ends, is not replaced. After [`ATTEMPTS`] workers
//! that died before the client came, the session ends, and after [too many](Replaced) in a minute. So neither a driver which
//! kills every worker nor a client which kills its own starts an endless row of them.

use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Instant;

use causeway_proto::id::SessionId;
use causeway_serving::admission::CountedAmount;

use super::super::contents::Contents;
use super::super::domains::Domain;
use super::super::ended::SessionEnd;
use super::super::endings::log_replaced;
use super::super::holders::Holdings;
use super::super::worker::{EndRequest, KeptCheckpoint, Worker};
use super::{LeasePlace, NotOpened, Served, Workers, WorkersState};
use crate::accounting::Cause;
use crate::build_cache;
use crate::handover::{Assignment, Owner, Restores, ToWorker};
use crate::takeovers::Takeovers;

/// Number of workers in a row that may die before the client has come.
const ATTEMPTS: u32 = 4;

/// A session's workers that were replaced: at most 60 in 60 s. Tests kill them as fast as they come.
type Replaced = Takeovers<60, 60>;

/// From where a session's commands are executed again. Its worker has the contents.
pub(in super::super) struct Checkpoint {
    restores: Restores,
    /// Number of workers since the last one to which the client has come.
    attempts: u32,
    /// The latest times at which a worker has died.
    replaced: Replaced,
    /// Most bytes of a checkpoint, for which the user is charged; 0: the session has no checkpoints.
    most: u64,
    charged: Option<CountedAmount<Option<String>>>,
}

impl Checkpoint {
    /// The checkpoint of a session that has just been opened: nothing.
    pub(in super::super) fn nothing() -> Checkpoint {
        let restores = Restores {
            reexecutes: true,
            ..Restores::default()
        };
        Checkpoint {
            restores,
            attempts: 0,
            replaced: Replaced::default(),
            most: 0,
            charged: None,
        }
    }

    /// The checkpoint of a session that was parked behind so many commands: what was written then.
    pub(super) fn parked(applied: u64) -> Checkpoint {
        let mut checkpoint = Checkpoint::nothing();
        checkpoint.restores.applied = applied;
        // The first worker may be replaced before the client has come to it, as one that has replaced another.
        checkpoint.attempts = 1;
        checkpoint
    }

    /// Where the session's next worker begins.
    pub(super) fn restores(&self) -> Restores {
        self.restores
    }

    /// Whether the session's next worker begins with nothing.
    pub(super) fn is_nothing(&self) -> bool {
        self.restores == Checkpoint::nothing().restores
    }

    /// Charges the session's user for checkpoints of `most` bytes. Without room for them, the session has none. Returns
    /// how many bytes one may have.
    pub(super) fn charge(&mut self, holdings: &Holdings, owner: &Owner, most: u64) -> u64 {
        self.charged = holdings.take_checkpoints(owner.user.clone(), most);
        self.most = match self.charged {
            Some(_) => most,
            None => {
                tracing::info!(
                    user = owner.user,
                    "a session has no checkpoints, because its user's sessions have reached `held_per_user`"
                );
                0
            }
        };
        self.most
    }
}

/// What becomes of the session of a worker that has ended.
pub(super) enum Fate {
    /// The worker had none.
    NoSession,
    /// Another worker has it.
    GoesOn,
    Ended(Box<(SessionId, Served)>),
}

impl Served {
    /// Whether another worker may take the place of the session's worker, which has ended with this status, unless too many
    /// have died ([`Served::is_replaced`]).
    pub(super) fn may_be_replaced(&self, status: &io::Result<ExitStatus>) -> bool {
        let worker = &self.worker;
        let has_died = status.as_ref().is_ok_and(|status| !status.success());
        let may_try =
            |of: &Checkpoint| worker.is_connected() || (1..ATTEMPTS).contains(&of.attempts);
        self.checkpoint.as_ref().is_some_and(may_try)
            && has_died
            && worker.was_asked() == EndRequest::Nothing
            && !worker.has_reason_to_end()
            && self.ends_by_itself()
            && (!worker.is_unresponsive() || worker.leaves_host())
            && !worker.is_parking()
            && worker.parked().is_none()
    }

    // Whether the worker has noted no end, or only that it had to leave its host.
    fn ends_by_itself(&self) -> bool {
        let left = |cause| cause == Cause::ToldToEnd || cause == Cause::Broken;
        let noted = self.entry.ending();
        noted.is_none_or(|cause| self.worker.leaves_host() && left(cause))
    }

    /// Whether no client has come to the session's first worker, which begins with nothing. Then the client may open the
    /// session again.
    pub(super) fn has_nothing(&self) -> bool {
        let is_first = |of: &Checkpoint| of.is_nothing() && of.attempts == 0;
        !self.worker.is_connected() && self.checkpoint.as_ref().is_some_and(is_first)
    }

    /// Whether another worker takes the place of the session's worker, which has ended with this status: it may, and not too
    /// many have died.
    pub(super) fn is_replaced(&self, status: &io::Result<ExitStatus>, now: Instant) -> bool {
        let allows = |of: &Checkpoint| of.replaced.would_allow(now);
        self.may_be_replaced(status) && self.checkpoint.as_ref().is_some_and(allows)
    }
}

impl WorkersState {
    /// Remembers why a session has ended, if its client may ask.
    pub(super) fn remember_end(&mut self, id: SessionId, served: &Served, reason: String) {
        if served.worker.resumes() {
            let end = SessionEnd {
                reason,
                lease_lost: served.worker.has_lost_lease(),
                grant: served.place.as_ref().map(LeasePlace::grant),
            };
            self.ended
                .add(id, served.secret.clone(), end, Instant::now());
        }
    }
}

impl Workers {
    /// Whether another worker takes the place of this one, which does not listen any more.
    pub(super) fn is_replaceable(&self, worker: &Worker) -> bool {
        let state = self.0.state.lock();
        let mut sessions = state.sessions.values();
        let served = sessions.find(|of| of.worker.serial == worker.serial);
        !state.draining && served.is_none_or(|of| of.checkpoint.is_some())
    }

    /// Removes the session of a worker that has ended, or gives it another worker if it may have one: in a host of this
    /// domain, or with a process of its own.
    pub(super) fn end_or_replace(
        &self,
        state: &mut WorkersState,
        worker: &Worker,
        status: &io::Result<ExitStatus>,
        domain: Option<&Domain>,
    ) -> Fate {
        let now = Instant::now();
        let Some((id, served)) = state.end_session(worker, status, now) else {
            return Fate::NoSession;
        };
        if !served.is_replaced(status, now) {
            return Fate::Ended(Box::new((id, served)));
        }
        match self.replace(state, id, served, status, domain) {
            Ok(()) => Fate::GoesOn,
            Err(not_replaced) => {
                let (served, reason) = *not_replaced;
                state.remember_end(id, &served, reason);
                Fate::Ended(Box::new((id, served)))
            }
        }
    }

    // Gives a session whose worker has died another one. Returns the session if that fails, with the reason.
    fn replace(
        &self,
        state: &mut WorkersState,
        id: SessionId,
        mut served: Served,
        status: &io::Result<ExitStatus>,
        domain: Option<&Domain>,
    ) -> Result<(), Box<(Served, String)>> {
        match self.put_worker(state, id, &mut served, domain) {
            Ok(before) => {
                log_replaced(&before, id, &served.owner, &served.worker, status);
                state.sessions.insert(id, served);
                self.replenish_after(super::REPLACE_AFTER);
                Ok(())
            }
            Err(error) => {
                let reason = format!("the node cannot start another worker: {error}");
                Err(Box::new((served, reason)))
            }
        }
    }

    /// Gives a worker its assignment, and the checkpoint with which it begins. A session with a domain joins a host.
    pub(super) fn begin_at(
        &self,
        state: &mut WorkersState,
        message: &ToWorker,
        kept: Option<&KeptCheckpoint>,
        domain: Option<&Domain>,
    ) -> Result<Arc<Worker>, NotOpened> {
        let worker = match domain {
            Some(domain) => self.assign_in_host(state, domain, message, false)?,
            None => self.assign(state, message)?,
        };
        if let Some(kept) = kept {
            let contents = kept.contents.iter().map(Contents::at_the_start);
            let contents = contents.collect::<io::Result<_>>()?;
            let sent = worker.send(&ToWorker::Restore { contents });
            sent.inspect_err(|_| worker.end())?;
        }
        Ok(worker)
    }

    // As `begin_at`. What has killed the worker before may kill the next ones, too.
    fn begin_at_with_retries(
        &self,
        state: &mut WorkersState,
        message: &ToWorker,
        checkpoint: &mut Checkpoint,
        kept: Option<&KeptCheckpoint>,
        domain: Option<&Domain>,
    ) -> Result<Arc<Worker>, NotOpened> {
        let mut tries = 1;
        loop {
            checkpoint.replaced.may_take(Instant::now());
            let may_go_on = tries < ATTEMPTS && checkpoint.replaced.would_allow(Instant::now());
            match self.begin_at(state, message, kept, domain) {
                Err(NotOpened::NoWorker(error)) if may_go_on => {
                    tracing::debug!(%error, "another worker died at once; starting one more");
                    tries += 1;
                }
                begun => return begun,
            }
        }
    }

    // Assigns the session a worker. Returns the one before.
    fn put_worker(
        &self,
        state: &mut WorkersState,
        id: SessionId,
        served: &mut Served,
        domain: Option<&Domain>,
    ) -> Result<Arc<Worker>, NotOpened> {
        if state.draining {
            return Err(NotOpened::Draining);
        }
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let checkpoint = served.checkpoint.as_mut().ok_or_else(missing)?;
        let kept = served.worker.take_checkpoint();
        if let Some(kept) = &kept {
            checkpoint.restores.applied = kept.applied;
        }
        // The slot stays the session's: a lease whose sessions take all slots has no other one.
        served.entry.begin_anew();
        // The client may be away when its worker dies.
        let connect_limit = self.0.sessions.connect_limit.max(served.away.resume);
        let assignment = Assignment {
            id,
            secret: served.secret.clone(),
            connect_limit,
            leased: served.place.as_ref().map(|_| served.leased.clone()),
            owner: served.owner.clone(),
            away: served.away,
            restores: Some(checkpoint.restores),
            slot: served.entry.number(),
            reexecutes: true,
            checkpoint_bytes: checkpoint.most,
            ..self.assignment(served.certificate.clone())
        };
        let message = ToWorker::Assign {
            assignment: Box::new(assignment),
            page: served.entry.page().try_clone_to_owned()?,
        };
        let kept_here = kept.as_ref();
        let worker = self.begin_at_with_retries(state, &message, checkpoint, kept_here, domain)?;
        // The process goes by the clock of the checkpoint.
        served.isolated |= domain.is_none() && kept.is_some();
        served.host = domain.and_then(|domain| state.host_of(&worker, domain));
        if let Some(kept) = kept {
            worker.begins_at(kept);
        }
        let user = build_cache::Owner::of(served.owner.user.as_deref());
        worker.serve(id, user, connect_limit, served.away);
        if let Some(checkpoint) = &mut served.checkpoint {
            checkpoint.attempts = match served.worker.is_connected() {
                true => 1,
                false => checkpoint.attempts + 1,
            };
        }
        if served.place.as_ref().is_some_and(has_times) {
            self.0.timed.notify_one();
        }
        Ok(std::mem::replace(&mut served.worker, worker))
    }
}

fn has_times(place: &LeasePlace) -> bool {
    !place.times().is_empty()
}
