//! Parks the sessions when the daemon ends, and takes back those that a daemon before has parked. A session that is lost
//! with its daemon leaves the reason to the next one, because its client may be away.
//!
//! Only a session is parked whose client waits for the daemon, outside of a lease and not on a device in exclusive mode. A
//! session of a host joins a host again, unless it goes by another machine's clock, or by that of an earlier boot.
//!
//! Invariant: a session that is parked is in the table of parked ones from the end of its worker on, so its client is never told that nobody knows it. Files are made, written and removed on threads that may wait
//! for a disk, and not under the table's lock. Only the file of a client that comes back is opened under it.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::id::SessionId;
use causeway_proto::preamble::{Introduction, Verdict};
use causeway_proto::version::WireVersion;

use super::super::contents::{Contents, later};
use super::super::domains::DomainRequest;
use super::super::ended::SessionEnd;
use super::super::inventory::Known;
use super::super::parked::{KEPT, ParkedSessions, Ticket};
use super::super::worker::{EndRequest, KeptCheckpoint};
use super::{
    Admitted, Checkpoint, ClientProcess, LeasePlace, NotOpened, Opening, Served, Worker, Workers,
    WorkersState,
};
use crate::handover::{Assignment, AwayTimes, Leased, Restores};
use crate::leftovers;

/// How much later than a session's process the supervisor sees, at most, that the client is away.
const SEEN_WITHIN: Duration = Duration::from_secs(1);

/// The sessions that wait for their clients in files.
pub(super) struct Parked {
    /// `None` without a directory.
    pub(super) files: Option<ParkedSessions>,
    /// The boot of this machine.
    boot: String,
    /// The node's devices, once they are known, and as they were found last.
    devices: Option<Arc<Known>>,
    latest: Option<Arc<Known>>,
    sessions: HashMap<SessionId, Ticket>,
    /// What sessions are assigned that this daemon parks.
    template: Option<Assignment>,
    /// The sessions to write for the next daemon.
    unwritten: Vec<(SessionId, Ticket)>,
    /// Number of sessions that are being written.
    writing: usize,
}

impl Default for Parked {
    fn default() -> Parked {
        Parked {
            files: None,
            // Without it, sessions that were parked have a process each.
            boot: leftovers::boot().unwrap_or_default(),
            devices: None,
            latest: None,
            sessions: HashMap::new(),
            template: None,
            unwritten: Vec::new(),
            writing: 0,
        }
    }
}

impl Parked {
    /// Takes a session whose worker has ended. Returns whether the worker has parked it. `reason`: why it has ended
    /// otherwise.
    pub(super) fn takes(&mut self, id: SessionId, served: &Served, reason: &str) -> bool {
        if self.files.is_none() {
            return false;
        }
        let Some(ticket) = self.ticket(id, served, reason) else {
            if !served.restart.is_zero() {
                self.discard(id);
            }
            return false;
        };
        let is_parked = ticket.lost.is_none();
        if is_parked {
            self.sessions.insert(id, ticket.clone());
        }
        self.unwritten.push((id, ticket));
        is_parked
    }

    /// Whether all sessions are written that were parked.
    pub(super) fn is_written(&self) -> bool {
        self.unwritten.is_empty() && self.writing == 0
    }

    // Returns what the next daemon has to know of a session that is parked, or that this daemon has ended.
    pub(super) fn ticket(&self, id: SessionId, served: &Served, reason: &str) -> Option<Ticket> {
        let restores = served.worker.parked();
        let worker = &served.worker;
        // A client that has not come back in time may ask the next daemon. One that ends its session, or is killed, is
        // away too, but not for so long.
        let may_be_over = |since: Instant| since.elapsed() + SEEN_WITHIN >= served.away.resume;
        let is_late = || worker.is_parking() && worker.away_since().is_some_and(may_be_over);
        let is_ended = worker.was_asked() != EndRequest::Nothing || is_late();
        if restores.is_none() && (!is_ended || served.restart.is_zero()) {
            return None;
        }
        let mut assignment = self.template.clone()?;
        assignment.id = id;
        assignment.secret = served.secret.clone();
        assignment.certificate = restores.and_then(|_| served.certificate.clone());
        assignment.owner = served.owner.clone();
        assignment.away = served.away;
        assignment.restores = restores;
        assignment.reexecutes = served.checkpoint.is_some();
        let client = served.client.whole();
        let (generation, holder) = (self.generation()?, &served.holder);
        let waits = served.restart.max(served.moves);
        let mut ticket = Ticket::new(&assignment, generation, client, holder, waits);
        ticket.lost = restores.is_none().then(|| reason.to_owned());
        if !served.isolated {
            ticket.boot.clone_from(&self.boot);
        }
        Some(ticket)
    }

    /// The generation of the node's inventory, once that is known.
    fn generation(&self) -> Option<u64> {
        Some(self.devices.as_ref()?.inventory.generation)
    }

    /// Sets what sessions are assigned that this daemon parks.
    pub(super) fn template(&mut self, template: Assignment) {
        self.template = Some(template);
    }

    /// Removes the files of a session that is over.
    fn discard(&self, id: SessionId) {
        if let Some(files) = self.files.clone() {
            later(move || files.discard(&id));
        }
    }

    /// Whether a daemon before has parked this session.
    pub(super) fn has(&self, id: &SessionId) -> bool {
        self.sessions.contains_key(id)
    }

    /// Whether the session that a connection names waits until the node's devices are known.
    pub(super) fn waits(&self, preamble: &Introduction) -> bool {
        self.devices.is_none() && self.find(preamble).is_some()
    }

    /// Finds the session that a connection names.
    fn find(&self, preamble: &Introduction) -> Option<SessionId> {
        let mut ids = self.sessions.keys();
        ids.find(|id| preamble.is_for(id)).copied()
    }
}

impl Workers {
    /// Returns for how long a client may wait for a daemon that is started anew, of the time that it asks for.
    pub(in super::super) fn grants_restart(&self, asked: Duration) -> Duration {
        match self.0.state.lock().parked.files {
            Some(_) => asked.min(KEPT),
            None => Duration::ZERO,
        }
    }

    /// Finds the sessions that a daemon before has parked, and those that were lost with it.
    pub(in super::super) fn find_parked(&self, files: ParkedSessions) {
        let found = files.all().unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the parked sessions");
            Vec::new()
        });
        let mut state = self.0.state.lock();
        state.parked.files = Some(files);
        for (id, ticket, left) in found {
            if let Some(reason) = ticket.lost.clone() {
                state.refuse(id, &ticket, reason);
                continue;
            }
            tracing::info!(session = ?id, "a session was parked");
            state.parked.sessions.insert(id, ticket);
            let workers = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(left).await;
                workers.forget_parked(id, "its program has not come back in time");
            });
        }
    }

    /// Lets the clients of parked sessions come back, because the node's devices are known.
    pub(in super::super) fn take_back_parked(&self, devices: Arc<Known>) {
        let mut state = self.0.state.lock();
        let latest = &mut state.parked.latest;
        latest.get_or_insert_with(|| Arc::clone(&devices));
        state.parked.devices = Some(devices);
        drop(state);
        self.0.reaped.notify_waiters();
    }

    /// Notes the node's devices, which may have changed.
    pub(in super::super) fn note_devices(&self, latest: Arc<Known>) {
        self.0.state.lock().parked.latest = Some(latest);
    }

    /// Asks the workers of all sessions that can be parked to do that.
    pub(in super::super) async fn park_all(&self) {
        let template = self.assignment(None);
        let (files, parkable) = {
            let mut state = self.0.state.lock();
            let Some(files) = state.parked.files.clone() else {
                return;
            };
            state.parked.template = Some(template);
            let parkable = state.sessions.iter();
            let parkable = parkable.filter(|(_, of)| !of.restart.is_zero());
            let parkable: Vec<_> = parkable
                .map(|(id, of)| (*id, Arc::clone(&of.worker)))
                .collect();
            (files, parkable)
        };
        let asking = tokio::task::spawn_blocking(move || {
            for (id, worker) in parkable {
                let asked = files.contents(&id);
                let asked = asked.and_then(|contents| worker.park(vec![contents.into()]));
                if let Err(error) = asked {
                    worker.cannot_park(format!("its files cannot be made: {error}"));
                }
            }
        });
        if let Err(error) = asking.await {
            tracing::error!(%error, "the sessions cannot be parked");
        }
    }

    /// Returns whether the client of a session that is being parked is away and may come back, and the longest time for
    /// which the client of such a session may be away.
    pub(in super::super) fn awaited(&self, now: Instant) -> (bool, Duration) {
        let state = self.0.state.lock();
        // Sessions of leases are parked for a move only. Nobody waits for the client of a session that has parked.
        let is_its = |of: &&Served| {
            let worker = &of.worker;
            worker.is_parking() && worker.parked().is_none() && !of.restart.is_zero()
        };
        let parking = || state.sessions.values().filter(is_its);
        let may_come_back = |of: &Served| {
            let since = of.worker.away_since();
            since.is_some_and(|since| now.saturating_duration_since(since) < of.away.resume)
        };
        let longest = parking().map(|of| of.away.resume).max();
        (
            parking().any(may_come_back),
            longest.unwrap_or(Duration::ZERO),
        )
    }

    /// Writes the sessions that were parked for the next daemon.
    pub(super) fn write_parked(&self) {
        let (files, unwritten) = {
            let mut state = self.0.state.lock();
            let unwritten = std::mem::take(&mut state.parked.unwritten);
            state.parked.writing += unwritten.len();
            (state.parked.files.clone(), unwritten)
        };
        let Some(files) = files else { return };
        for (id, ticket) in unwritten {
            let (workers, files) = (self.clone(), files.clone());
            tokio::task::spawn_blocking(move || {
                let kept = files.keep(&id, &ticket);
                if let Err(error) = &kept {
                    tracing::error!(%error, session = ?id, "cannot write a session for the next daemon");
                    files.discard(&id);
                }
                let mut state = workers.0.state.lock();
                state.parked.writing -= 1;
                if let Err(error) = kept
                    && state.parked.sessions.remove(&id).is_some()
                {
                    state.refuse(
                        id,
                        &ticket,
                        format!("the session cannot be written: {error}"),
                    );
                }
                drop(state);
                workers.0.reaped.notify_waiters();
            });
        }
    }

    fn forget_parked(&self, id: SessionId, reason: &str) {
        let mut state = self.0.state.lock();
        if let Some(ticket) = state.parked.sessions.remove(&id) {
            state.refuse(id, &ticket, format!("the session was parked; {reason}"));
        }
    }

    /// Opens the parked session that a connection names, under its old id. Returns its worker.
    pub(super) fn restore(
        &self,
        state: &mut WorkersState,
        preamble: &Introduction,
    ) -> Result<Arc<Worker>, Verdict> {
        let id = state.parked.find(preamble).ok_or(Verdict::UnknownSession)?;
        // The client tries again: this daemon ends, or does not know its devices yet.
        let (false, Some(generation)) = (state.draining, state.parked.generation()) else {
            return Err(Verdict::Parked);
        };
        let Some(ticket) = state.parked.sessions.remove(&id) else {
            return Err(Verdict::UnknownSession);
        };
        let version = u32::from(WireVersion::CURRENT.number());
        let fault = if ticket.wire_version != version {
            Some(format!(
                "the daemon that parked the session has wire version {}, and this one {version}",
                ticket.wire_version
            ))
        } else if ticket.generation != generation {
            Some(
                "the node's devices or drivers have changed since the session was parked"
                    .to_owned(),
            )
        } else {
            None
        };
        let opened = match fault {
            None => self
                .open_parked(state, id, &ticket)
                .map_err(|error| error.to_string()),
            Some(fault) => Err(fault),
        };
        opened
            .and_then(|()| {
                state
                    .worker_for(preamble)
                    .ok_or_else(|| "a replay".to_owned())
            })
            .map_err(|reason| {
                state.refuse(id, &ticket, reason);
                Verdict::UnknownSession
            })
    }

    fn open_parked(
        &self,
        state: &mut WorkersState,
        id: SessionId,
        ticket: &Ticket,
    ) -> Result<(), NotOpened> {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let files = state.parked.files.clone().ok_or_else(missing)?;
        let contents = files.take(&id)?;
        self.open_parked_with(state, id, ticket, vec![contents.into()], None)
    }

    /// Opens a parked session with these contents, in the lease in which it has a place. If that fails, the place waits in the
    /// table until the caller has unlocked it (`unused`).
    pub(super) fn open_parked_with(
        &self,
        state: &mut WorkersState,
        id: SessionId,
        ticket: &Ticket,
        contents: Vec<Contents>,
        place: Option<(LeasePlace, Vec<Leased>)>,
    ) -> Result<(), NotOpened> {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let (place, leased) = place.unzip();
        let Some(parked) = ticket.assignment() else {
            state.unused.extend(place);
            return Err(missing().into());
        };
        let mut opening = self.opening_of_parked(state, ticket, &parked, place, leased);
        // The next worker begins with these contents as with a checkpoint.
        let kept = KeptCheckpoint {
            applied: parked.restores.map_or(0, |restores| restores.applied),
            contents,
        };
        match self.begin_parked(state, &mut opening, parked, kept) {
            Ok((admitted, worker)) => {
                let user = opening.owner.user.as_deref();
                tracing::info!(session = ?id, user, worker = worker.serial, "parked session opened");
                state.enter(opening, admitted, worker);
                self.replenish_after(super::REPLACE_AFTER);
                Ok(())
            }
            Err(error) => {
                state.unused.extend(opening.place);
                Err(error)
            }
        }
    }

    // What a parked session is opened for.
    fn opening_of_parked(
        &self,
        state: &WorkersState,
        ticket: &Ticket,
        parked: &Assignment,
        place: Option<LeasePlace>,
        leased: Option<Vec<Leased>>,
    ) -> Opening {
        let waits = Duration::from_millis(ticket.restart_ms).min(KEPT);
        let (restart, moves) = match place.is_some() {
            true => (Duration::ZERO, waits),
            false => (waits, Duration::ZERO),
        };
        let owner = match &place {
            Some(place) => place.owner().clone(),
            None => parked.owner.clone(),
        };
        let isolated = ticket.boot.is_empty() || ticket.boot != state.parked.boot;
        let asked = DomainRequest {
            user: owner.user.as_deref(),
            leased: place.as_ref().map(LeasePlace::devices),
            isolated,
        };
        let devices = state.parked.latest.as_ref();
        let domain = devices.and_then(|devices| self.0.domains.of(&asked, &devices.inventory));
        let checkpoint = |restores: Restores| Checkpoint::parked(restores.applied);
        Opening {
            holder: ticket.holder(),
            owner,
            client: ClientProcess::of(&ticket.client.clone().unwrap_or_default()),
            away: self.away_of_parked(parked.away, place.as_ref()),
            restart,
            moves,
            place,
            leased,
            domain,
            isolated,
            claim: None,
            checkpoint: (parked.restores.filter(|_| parked.reexecutes)).map(checkpoint),
            again: None,
            begun: None,
        }
    }

    // Gives a parked session a worker that begins with these contents.
    fn begin_parked(
        &self,
        state: &mut WorkersState,
        opening: &mut Opening,
        parked: Assignment,
        kept: KeptCheckpoint,
    ) -> Result<(Admitted, Arc<Worker>), NotOpened> {
        state.may_open(self.0.sessions.limit)?;
        let id = parked.id;
        let mut assignment = Assignment {
            id,
            secret: parked.secret,
            restores: parked.restores,
            ..self.assignment_of(opening, parked.certificate)
        };
        let lengths = kept.contents.iter().map(Contents::length);
        let length: u64 = lengths.sum::<std::io::Result<_>>()?;
        if opening.checkpoint.is_some() && length > assignment.checkpoint_bytes {
            tracing::warn!(session = ?id, length, "the session's commands are not executed again from here on, because its \
                contents are larger than a checkpoint may be");
            opening.checkpoint = None;
            (assignment.reexecutes, assignment.checkpoint_bytes) = (false, 0);
        }
        let admitted = self.admit(opening, assignment)?;
        let domain = opening.domain.as_ref();
        // A process of its own goes by the clock of the contents.
        opening.isolated |= domain.is_none();
        let worker = self.begin_at(state, &admitted.message, Some(&kept), domain)?;
        if opening.checkpoint.is_some() {
            worker.begins_at(kept);
        }
        Ok((admitted, worker))
    }

    /// How long the client of a parked session may be away. The ticket may be another node's, so a lease's limit holds.
    fn away_of_parked(&self, parked: AwayTimes, place: Option<&LeasePlace>) -> AwayTimes {
        let Some(place) = place else {
            return parked;
        };
        let limit = self.0.sessions.resume_limit;
        let limit = place.resume().map_or(limit, |of_lease| of_lease.min(limit));
        AwayTimes::granted(parked.resume, parked.keep, limit)
    }
}

impl WorkersState {
    /// Gives up a session of a daemon before. Its client is told why, if it asks.
    pub(super) fn refuse(&mut self, id: SessionId, ticket: &Ticket, end: impl Into<SessionEnd>) {
        let end = end.into();
        tracing::warn!(session = ?id, reason = end.reason, "a session of a daemon before this one cannot go on");
        self.parked.discard(id);
        if let Some(assignment) = ticket.assignment() {
            self.ended.add(id, assignment.secret, end, Instant::now());
        }
    }
}
