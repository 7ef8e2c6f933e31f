//! Sessions whose lease moves to another node: parks them here, and takes those of other nodes.
//!
//! A session that is parked for a move waits in a file without a name, either for the other node or for its client,
//! which comes back here if the move fails. The session keeps its place in the lease meanwhile. This module sends nothing
//! to other nodes; `managed::moving` does.
//!
//! Invariants: a session that has left is not restored here, and its client hears that it has to try again. All sessions
//! of a lease leave, or none. A session has left when the other node has it and its place here ends. Before, it may stay.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::id::SessionId;
use causeway_proto::preamble::{Introduction, Verdict};
use rustix::fs::MemfdFlags;
use subtle::ConstantTimeEq;

use super::super::contents::Contents;
use super::super::managed::{Epoch, LeaseId, LeasePlace, Opened as PlaceOpened, PlaceNumber};
use super::super::parked::{KEPT, ParkedSessions, Ticket};
use super::super::worker::Worker;
use super::reopening::Reopened;
use super::{Served, Workers, WorkersState};
use crate::handover::{Leased, MOST_FILES};

/// How often the sessions of a lease that leaves are looked at, beside each end of a worker.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The sessions that move, or that have moved here and whose clients have not come yet.
#[derive(Default)]
pub(super) struct Moving {
    /// Leases whose sessions are being parked and sent, or were sent, and the node's grants of these leases.
    leaving: HashMap<LeaseId, Epoch>,
    /// The files of sessions that are being parked for a move.
    parking: HashMap<SessionId, Vec<Contents>>,
    parked: HashMap<SessionId, ParkedHere>,
}

/// A session that is parked in this daemon.
struct ParkedHere {
    ticket: Ticket,
    stage: Stage,
    /// When the session came into this stage.
    since: Instant,
}

enum Stage {
    /// The session waits for its client.
    Waits(Moved),
    /// The session may be on its way to another node.
    Leaves(Moved),
    /// Another node has the session too.
    Sent(Moved),
    /// The session is at another node.
    Left,
}

/// What a parked session needs beside its ticket to go on here.
struct Moved {
    contents: Vec<Contents>,
    place: LeasePlace,
    leased: Vec<Leased>,
}

/// A session on its way to another node. Its contents may still grow.
pub(in super::super) struct Departing {
    pub(in super::super) id: SessionId,
    /// One file, and the further ones.
    pub(in super::super) contents: Vec<Contents>,
}

/// The sessions of a lease that leaves.
pub(in super::super) struct LeavingLease {
    /// The workers that park their sessions.
    workers: Vec<(SessionId, Arc<Worker>)>,
    pub(in super::super) sessions: Vec<Departing>,
}

/// How far a session is that leaves.
pub(in super::super) enum Progress {
    /// Its worker writes its contents.
    Parks,
    /// Its contents are whole.
    Parked(Box<Ticket>),
    /// It has ended.
    Over,
    /// Its lease does not leave any more.
    Stays,
}

/// A session that has come from another node.
pub(in super::super) struct Arrived {
    pub(in super::super) ticket: Ticket,
    pub(in super::super) contents: Vec<Contents>,
    pub(in super::super) place: LeasePlace,
    pub(in super::super) leased: Vec<Leased>,
}

impl Moving {
    /// Whether the sessions of a lease are leaving, so that none may open.
    pub(super) fn leaves(&self, lease: LeaseId) -> bool {
        self.leaving.contains_key(&lease)
    }

    /// Takes a session whose worker has ended. Returns whether the worker has parked it for a move.
    pub(super) fn takes(
        &mut self,
        id: SessionId,
        served: &mut Served,
        ticket: Option<Ticket>,
    ) -> bool {
        let contents = self.parking.remove(&id);
        let (Some(contents), Some(_), Some(ticket)) = (contents, served.worker.parked(), ticket)
        else {
            return false;
        };
        let Some(place) = served.place.take() else {
            return false;
        };
        let leaves = self.leaves(place.lease());
        let moved = Moved {
            contents,
            place,
            leased: std::mem::take(&mut served.leased),
        };
        let stage = match leaves {
            true => Stage::Leaves(moved),
            false => Stage::Waits(moved),
        };
        let since = Instant::now();
        self.parked.insert(
            id,
            ParkedHere {
                ticket,
                stage,
                since,
            },
        );
        true
    }

    /// Whether the session that a connection names is on its way to another node, or may be.
    pub(super) fn is_moving(&self, preamble: &Introduction) -> bool {
        let mut parked = self.parked.iter();
        parked.any(|(id, of)| {
            matches!(of.stage, Stage::Leaves(_) | Stage::Sent(_)) && preamble.is_for(id)
        })
    }

    /// The place of a session that is parked here.
    pub(super) fn place_of(&self, id: SessionId) -> Option<PlaceOpened> {
        self.parked.get(&id)?.place().map(LeasePlace::opened)
    }

    /// Whether a session of this id keeps one from opening again: it is parked here, or it has left and had another secret.
    pub(super) fn refuses(&self, again: &Reopened) -> bool {
        let refuses =
            |of: &ParkedHere| !matches!(of.stage, Stage::Left) || !of.has_secret_of(again);
        self.parked.get(&again.id).is_some_and(refuses)
    }

    /// Forgets a session that has left, because it is here again.
    pub(super) fn forget_left(&mut self, id: &SessionId) {
        let has_left = |of: &ParkedHere| matches!(of.stage, Stage::Left);
        if self.parked.get(id).is_some_and(has_left) {
            self.parked.remove(id);
        }
    }

    /// The sessions of a lease that are parked here.
    fn of_lease(&self, lease: LeaseId) -> impl Iterator<Item = SessionId> + '_ {
        let is_its = move |of: &ParkedHere| of.place().is_some_and(|place| place.lease() == lease);
        let parked = self.parked.iter();
        parked.filter(move |(_, of)| is_its(of)).map(|(id, _)| *id)
    }

    /// The sessions of a lease that leaves: those that are parked, and those that these workers park.
    fn departing(&self, lease: LeaseId, workers: &[(SessionId, Arc<Worker>)]) -> Vec<Departing> {
        let parked = self.parked.iter().filter_map(|(id, of)| match &of.stage {
            Stage::Leaves(moved) if moved.place.lease() == lease => Some((*id, &moved.contents)),
            _ => None,
        });
        let parking = workers.iter();
        let parking = parking.filter_map(|(id, _)| Some((*id, self.parking.get(id)?)));
        let all = parked.chain(parking);
        all.map(|(id, contents)| Departing {
            id,
            contents: contents.clone(),
        })
        .collect()
    }

    /// Notes that the sessions of a lease leave. Those that are parked already wait no longer.
    fn leave(&mut self, lease: LeaseId, epoch: Epoch) {
        self.leaving.insert(lease, epoch);
        self.stage(lease, Stage::Leaves);
    }

    /// Lets the sessions of a lease wait for their clients here.
    fn stay(&mut self, lease: LeaseId) {
        self.leaving.remove(&lease);
        self.stage(lease, Stage::Waits);
    }

    // Puts the sessions of a lease that have not left into another stage.
    fn stage(&mut self, lease: LeaseId, stage: fn(Moved) -> Stage) {
        for id in self.of_lease(lease).collect::<Vec<_>>() {
            if let Some(of) = self.parked.get_mut(&id) {
                of.since = Instant::now();
                of.stage = match std::mem::replace(&mut of.stage, Stage::Left) {
                    Stage::Waits(moved) | Stage::Leaves(moved) | Stage::Sent(moved) => stage(moved),
                    Stage::Left => Stage::Left,
                };
            }
        }
    }

    /// Removes the sessions with these places, except those that another node has, which have left now. `is_over`: no other
    /// node has any of them.
    pub(super) fn end_places(&mut self, places: &[PlaceNumber], is_over: bool) -> EndedHere {
        let is_its = |of: &ParkedHere| {
            let number = of.place().map(LeasePlace::number);
            number.is_some_and(|number| places.contains(&number))
        };
        let mut ended = EndedHere::default();
        for (id, of) in self.parked.iter_mut().filter(|(_, of)| is_its(of)) {
            match std::mem::replace(&mut of.stage, Stage::Left) {
                Stage::Sent(moved) if !is_over => {
                    of.since = Instant::now();
                    ended.left.push((*id, of.since));
                    ended.released.push(moved);
                }
                Stage::Sent(moved) | Stage::Waits(moved) | Stage::Leaves(moved) => {
                    let grant = moved.place.grant();
                    ended.over.push((*id, of.ticket.clone(), grant));
                    ended.released.push(moved);
                }
                Stage::Left => {}
            }
        }
        for (id, ..) in &ended.over {
            self.parked.remove(id);
        }
        ended
    }
}

/// The parked sessions whose places have ended. Dropped when the table is unlocked: the end of a place locks the table of
/// grants.
#[derive(Default)]
pub(super) struct EndedHere {
    /// The sessions that are over.
    pub(super) over: Vec<(SessionId, Ticket, (LeaseId, Epoch))>,
    /// The sessions that another node has, and since when.
    pub(super) left: Vec<(SessionId, Instant)>,
    /// What the sessions had.
    released: Vec<Moved>,
}

impl ParkedHere {
    fn has_secret_of(&self, again: &Reopened) -> bool {
        let own = self.ticket.assignment();
        // In constant time, so that the duration does not reveal the secret.
        own.is_some_and(|own| own.secret.0.ct_eq(&again.secret.0).into())
    }

    fn place(&self) -> Option<&LeasePlace> {
        match &self.stage {
            Stage::Waits(moved) | Stage::Leaves(moved) | Stage::Sent(moved) => Some(&moved.place),
            Stage::Left => None,
        }
    }
}

impl Workers {
    /// Returns for how long a client may wait while its leased session moves to another node, of the time that it asks
    /// for.
    pub(in super::super) fn grants_move(&self, asked: Duration) -> Duration {
        asked.min(KEPT)
    }

    /// What makes the files for contents of sessions.
    pub(in super::super) fn contents_files(&self) -> ContentsFiles {
        ContentsFiles(self.0.state.lock().parked.files.clone())
    }

    /// Begins to park all sessions of a lease, which has this grant. The caller says afterwards whether the sessions
    /// [stay](Self::stay) or [were sent](Self::have_sent), also after an error.
    ///
    /// # Errors
    /// The reason why a session cannot move.
    pub(in super::super) async fn begin_to_park(
        &self,
        lease: LeaseId,
        epoch: Epoch,
    ) -> Result<LeavingLease, String> {
        let workers = self.begin_to_leave(lease, epoch)?;
        let asked = self.ask_to_park(&workers).await;
        asked.map_err(|error| format!("the contents of a session cannot be written: {error}"))?;
        let sessions = self.0.state.lock().moving.departing(lease, &workers);
        Ok(LeavingLease { workers, sessions })
    }

    /// Waits until all sessions of a lease are parked, until then at most. May be dropped at any time.
    ///
    /// # Errors
    /// The reason why a session cannot move.
    pub(in super::super) async fn wait_until_parked(
        &self,
        leaving: &LeavingLease,
        until: Instant,
    ) -> Result<(), String> {
        let workers = &leaving.workers;
        loop {
            let reaped = self.0.reaped.notified();
            {
                let state = self.0.state.lock();
                if workers
                    .iter()
                    .all(|(id, _)| !state.sessions.contains_key(id))
                {
                    return Ok(());
                }
            }
            // A session that ends by itself is reaped soon, and needs no move.
            let mut others = workers.iter().filter(|(_, of)| !of.is_parking());
            if let Some(why) = others.find_map(|(_, worker)| worker.not_parked()) {
                return Err(why.to_owned());
            }
            if Instant::now() >= until {
                return Err(
                    "its commands have not ended in time, or its program was away".to_owned(),
                );
            }
            let _ = tokio::time::timeout(LOOK_EVERY, reaped).await;
        }
    }

    /// Returns how far a session is that leaves.
    pub(in super::super) fn progress(&self, id: SessionId) -> Progress {
        let state = self.0.state.lock();
        if let Some(of) = state.moving.parked.get(&id) {
            return match of.stage {
                Stage::Leaves(_) => Progress::Parked(Box::new(of.ticket.clone())),
                _ => Progress::Stays,
            };
        }
        let lease = |of: &Served| of.place.as_ref().map(LeasePlace::lease);
        match state.sessions.get(&id).map(lease) {
            Some(Some(lease)) if state.moving.leaves(lease) => Progress::Parks,
            Some(_) => Progress::Stays,
            None => Progress::Over,
        }
    }

    // Lets no session of a lease open. Returns the sessions that are to be parked.
    fn begin_to_leave(
        &self,
        lease: LeaseId,
        epoch: Epoch,
    ) -> Result<Vec<(SessionId, Arc<Worker>)>, String> {
        let template = self.assignment(None);
        let mut workers = Vec::new();
        let mut state = self.0.state.lock();
        for (id, served) in state.sessions.iter().filter(|(_, of)| of.is_in(lease)) {
            // A worker still parks its session for a move that was called off.
            let is_parking = served.worker.is_parking() && state.moving.parking.contains_key(id);
            if let (false, Some(why)) = (is_parking, why_never(served)) {
                return Err(why.to_owned());
            }
            workers.push((*id, Arc::clone(&served.worker)));
        }
        state.parked.template(template);
        state.moving.leave(lease, epoch);
        Ok(workers)
    }

    async fn ask_to_park(&self, workers: &[(SessionId, Arc<Worker>)]) -> io::Result<()> {
        let unasked = workers.iter().filter(|(_, of)| !of.is_parking());
        let unasked: Vec<_> = unasked.collect();
        let (files, count) = (self.contents_files(), unasked.len());
        let made = move || {
            let sessions = (0..count).map(|_| files.make_all());
            sessions.collect::<io::Result<Vec<_>>>()
        };
        let made = tokio::task::spawn_blocking(made).await;
        let made = made.map_err(io::Error::other)??;
        let mut state = self.0.state.lock();
        for ((id, worker), contents) in unasked.into_iter().zip(made) {
            // A session may have ended meanwhile.
            if state.sessions.contains_key(id) {
                let files = contents.iter().map(Contents::descriptor);
                worker.park(files.collect::<io::Result<_>>()?)?;
                state.moving.parking.insert(*id, contents);
            }
        }
        Ok(())
    }

    /// Notes that another node has the sessions of a lease. They are kept here until their places end, or they stay.
    pub(in super::super) fn have_sent(&self, lease: LeaseId) {
        let mut state = self.0.state.lock();
        state.moving.stage(lease, Stage::Sent);
        self.forget_lease_later(&state, lease);
    }

    /// Lets the sessions of a lease that was not moved go on here, also those that are still being parked.
    pub(in super::super) fn stay(&self, lease: LeaseId) {
        let mut guard = self.0.state.lock();
        let state = &mut *guard;
        state.moving.stay(lease);
        // Connections may wait for this.
        self.0.reaped.notify_waiters();
        self.forget_lease_later(state, lease);
        for (id, served) in state.sessions.iter().filter(|(_, of)| of.is_in(lease)) {
            let worker = &served.worker;
            if !worker.is_parking() && worker.not_parked().is_some() {
                // The session goes on, and needs no file.
                state.moving.parking.remove(id);
            } else if state.moving.parking.contains_key(id) {
                self.forget_when_parked(*id);
            }
        }
    }

    fn forget_lease_later(&self, state: &WorkersState, lease: LeaseId) {
        for id in state.moving.of_lease(lease) {
            if let Some(of) = state.moving.parked.get(&id) {
                self.forget_later(id, of.since);
            }
        }
    }

    /// Takes sessions of another node, whose clients come here next.
    ///
    /// # Errors
    /// The daemon ends, or a session of the lease or of the same id is here already. None is taken then.
    pub(in super::super) fn arrive(&self, arrived: Vec<Arrived>) -> Result<(), &'static str> {
        // Dropped after the lock: a place that is dropped locks the table of grants.
        let mut sessions = Vec::new();
        let mut ids = HashSet::new();
        for of in arrived {
            let id = of
                .ticket
                .assignment()
                .ok_or("a session's description is damaged")?
                .id;
            if !ids.insert(id) {
                return Err("two sessions have one id");
            }
            sessions.push((id, of));
        }
        let mut state = self.0.state.lock();
        if state.draining {
            return Err("the daemon ends");
        }
        // A lease that moves has all its sessions at the other node.
        let mut leases = sessions.iter().map(|(_, of)| of.place.lease());
        if leases.any(|lease| state.moving.of_lease(lease).next().is_some()) {
            return Err("sessions of this lease have come already");
        }
        let is_here = |(id, _): &(SessionId, Arrived)| {
            let parked = state.moving.parked.get(id);
            // The session was here before and has left.
            let is_parked = parked.is_some_and(|of| !matches!(of.stage, Stage::Left));
            is_parked || state.sessions.contains_key(id)
        };
        if sessions.iter().any(is_here) {
            return Err("a session of this id is here already");
        }
        for (id, of) in sessions {
            tracing::info!(session = ?id, lease = ?of.place.lease(), "a session has come from another node");
            let moved = Moved {
                contents: of.contents,
                place: of.place,
                leased: of.leased,
            };
            let parked = ParkedHere {
                ticket: of.ticket,
                stage: Stage::Waits(moved),
                since: Instant::now(),
            };
            self.forget_later(id, parked.since);
            state.moving.parked.insert(id, parked);
        }
        Ok(())
    }

    /// Notes that the node does not serve a lease's grants up to this one any more.
    pub(in super::super) fn grant_ended(&self, lease: LeaseId, epoch: Epoch) {
        let mut state = self.0.state.lock();
        let leaving = &mut state.moving.leaving;
        leaving.retain(|of, its| *of != lease || *its > epoch);
    }

    // A session may be parked only after its lease was to move.
    fn forget_when_parked(&self, id: SessionId) {
        let workers = self.clone();
        tokio::spawn(async move {
            workers
                .until(|state| !state.sessions.contains_key(&id))
                .await;
            let state = workers.0.state.lock();
            if let Some(of) = state.moving.parked.get(&id) {
                workers.forget_later(id, of.since);
            }
        });
    }

    // Forgets a session that stays in its stage for too long.
    pub(super) fn forget_later(&self, id: SessionId, since: Instant) {
        let workers = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(KEPT).await;
            let mut state = workers.0.state.lock();
            let is_it = |of: &ParkedHere| of.since == since;
            if !state.moving.parked.get(&id).is_some_and(is_it) {
                return;
            }
            let forgotten = state.moving.parked.remove(&id);
            if let Some(of) = forgotten.as_ref().filter(|of| of.place().is_some()) {
                state.refuse(
                    id,
                    &of.ticket,
                    "the session was moved; its program has not come back in time".to_owned(),
                );
            }
            drop(state);
            drop(forgotten);
        });
    }

    /// Returns the worker of the session that a connection names. Opens the session again if it is parked.
    pub(super) fn worker_of(&self, preamble: &Introduction) -> Result<Arc<Worker>, Verdict> {
        let (found, unused) = {
            let mut state = self.0.state.lock();
            let found = match state.worker_for(preamble) {
                Some(worker) => Ok((worker, None)),
                None => match self.restore_moved(&mut state, preamble) {
                    Some(restored) => restored.map(|(worker, place)| (worker, Some(place))),
                    None => self
                        .restore(&mut state, preamble)
                        .map(|worker| (worker, None)),
                },
            };
            (found, std::mem::take(&mut state.unused))
        };
        drop(unused);
        let (worker, place) = found?;
        if let Some(place) = place {
            // The table of grants may end the session at once, which locks this table.
            place.tell();
        }
        Ok(worker)
    }

    /// Opens the session that a connection names, if it is parked for or after a move. `None`: there is none.
    fn restore_moved(
        &self,
        state: &mut WorkersState,
        preamble: &Introduction,
    ) -> Option<Result<(Arc<Worker>, PlaceOpened), Verdict>> {
        let mut ids = state.moving.parked.keys();
        let id = ids.find(|id| preamble.is_for(id)).copied()?;
        let waits = |of: &ParkedHere| matches!(of.stage, Stage::Waits(_));
        if state.draining || !state.moving.parked.get(&id).is_some_and(waits) {
            return Some(Err(Verdict::Parked));
        }
        let parked = state.moving.parked.remove(&id)?;
        let Stage::Waits(moved) = parked.stage else {
            return None;
        };
        let (ticket, opened) = (parked.ticket, moved.place.opened());
        let place = Some((moved.place, moved.leased));
        let restored = self.open_parked_with(state, id, &ticket, moved.contents, place);
        let worker = restored.map_err(|error| error.to_string());
        let worker = worker.and_then(|()| {
            state
                .worker_for(preamble)
                .ok_or_else(|| "a replay".to_owned())
        });
        Some(match worker {
            Ok(worker) => Ok((worker, opened)),
            Err(reason) => {
                state.refuse(id, &ticket, reason);
                Err(Verdict::UnknownSession)
            }
        })
    }
}

impl Served {
    fn is_in(&self, lease: LeaseId) -> bool {
        let place = self.place.as_ref();
        place.is_some_and(|place| place.lease() == lease)
    }
}

/// Returns why a session never moves, or not now.
fn why_never(served: &Served) -> Option<&'static str> {
    if served.moves.is_zero() {
        return Some(
            "a session's library is of an older version, does not resume, or waits for no restart (`restart` in \
             servers.toml), or its device is in exclusive mode",
        );
    }
    let is_parking = served.worker.is_parking();
    is_parking.then_some("an earlier attempt to park a session has not ended")
}

/// Makes the files for contents of sessions, without names. May wait for a disk.
#[derive(Clone, Default)]
pub(in super::super) struct ContentsFiles(Option<ParkedSessions>);

impl ContentsFiles {
    pub(in super::super) fn make(&self) -> io::Result<File> {
        match &self.0 {
            Some(files) => files.nameless(),
            None => Ok(rustix::fs::memfd_create("session", MemfdFlags::CLOEXEC)?.into()),
        }
    }

    // The files of one session. With further ones, a large session has several threads that write and send.
    fn make_all(&self) -> io::Result<Vec<Contents>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let further = cores.saturating_sub(1).clamp(1, MOST_FILES - 1);
        let files = (0..=further).map(|_| Ok(self.make()?.into()));
        files.collect()
    }
}

impl ParkedSessions {
    fn nameless(&self) -> io::Result<File> {
        let id = SessionId(rand::random());
        let file = self.contents(&id)?;
        self.discard(&id);
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::Assignment;
    use crate::supervisor::holders::Holder;
    use causeway_proto::control::Client;
    use causeway_proto::id::SessionSecret;

    #[test]
    fn only_a_session_that_has_left_itself_opens_again() {
        let assignment = Assignment::of_test(SessionId([1; 16]));
        let ticket = Ticket::new(
            &assignment,
            5,
            Client::default(),
            &Holder::default(),
            Duration::ZERO,
        );
        let again = |id, secret: &SessionSecret| Reopened {
            id: SessionId([id; 16]),
            secret: secret.clone(),
        };
        let mut moving = Moving::default();
        let left = ParkedHere {
            ticket,
            stage: Stage::Left,
            since: Instant::now(),
        };
        moving.parked.insert(assignment.id, left);
        let another = SessionSecret([9; 32]);
        assert!(moving.refuses(&again(1, &another)));
        assert!(!moving.refuses(&again(2, &another)));
        // It is not forgotten before the session is here again.
        for _ in 0..2 {
            assert!(!moving.refuses(&again(1, &assignment.secret)));
            assert!(moving.refuses(&again(1, &another)));
        }
        moving.forget_left(&assignment.id);
        assert!(moving.parked.is_empty());
    }
}
