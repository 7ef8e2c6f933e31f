//! Worker processes: spare ones, and those that serve a session.
//!
//! Invariant: a session is in the table exactly as long as its worker has not been reaped, so the limit
//! on sessions is one on processes too. Every worker has one task that watches it to its end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{Hint, Introduction, Once, PREAMBLE, Verdict};
use causeway_security::{Fingerprint, SessionCertificate};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::sync::Notify;

use super::builds::Builds;
use super::counts::Reasons;
use super::endings::{ENDINGS, ending, log_end};
use super::holders::{Holder, Holding, Holdings, TooMuch};
use super::managed::{Place, PlaceNumber};
use super::process::Processes;
use super::worker::Worker;
use crate::accounting::{Entry, Figures, Ledger};
use crate::config::{Heartbeat, SessionSettings};
use crate::handover::{Assignment, Leased, Owner, ToWorker};

/// After a spare worker died on its own: its driver would do it again.
const SPARE_BACKOFF: Duration = Duration::from_secs(10);
/// A spare worker that was taken is replaced so much later: loading the node's OpenCL takes processors that
/// the session which has just been opened needs for its own beginning, and others' on the same machine.
const REPLACE_AFTER: Duration = Duration::from_millis(250);
/// What clients hear when the daemon ends.
const STOPPED: &str = "its daemon was stopped";
/// A client comes to its session so soon, unless the machines are very busy: one that has not come by then makes room
/// where all places are taken. `etc/daemon.toml` tells of it.
const GRACE: Duration = Duration::from_secs(1);
/// For a session that makes room to be gone.
const ROOM_WITHIN: Duration = Duration::from_secs(2);
/// So many connections of a session are remembered.
const REMEMBERED: usize = 256;
/// Spare workers that are tried for one session before a fresh one is.
const ATTEMPTS: usize = 3;

/// All workers of this daemon.
#[derive(Clone)]
pub(super) struct Workers(Arc<Shared>);

struct Shared {
    sessions: SessionSettings,
    heartbeat: Heartbeat,
    load_limit: Duration,
    builds: Option<Builds>,
    processes: Processes,
    /// Whether sessions' connections are secured, each session's with a certificate of its own.
    secured: bool,
    holdings: Holdings,
    state: Mutex<State>,
    /// A worker was reaped.
    reaped: Notify,
    /// Sessions that are over.
    ended: Reasons,
}

#[derive(Default)]
struct State {
    /// Every worker that has not been reaped, by its serial number.
    alive: HashMap<u64, Arc<Worker>>,
    spares: Vec<Arc<Worker>>,
    sessions: HashMap<SessionId, Served>,
    last_serial: u64,
    draining: bool,
    opened: u64,
    /// What sessions counted that are over.
    past: Figures,
}

struct Served {
    worker: Arc<Worker>,
    hint: Hint,
    /// Of its last connections, what no other has: one that comes again is somebody's who saw it on its way.
    once: VecDeque<Once>,
    holder: Holder,
    opened: Instant,
    secret: SessionSecret,
    /// In a lease, on a managed node.
    place: Option<Place>,
    /// Where its worker counts.
    entry: Entry,
    owner: Owner,
    _holding: Holding,
}

impl State {
    /// The worker of the session that a connection is for, which has not come before.
    fn worker_for(&mut self, preamble: &Introduction) -> Option<Arc<Worker>> {
        let hint = preamble.hint();
        let mut hinted = self.sessions.iter_mut().filter(|(_, of)| of.hint == hint);
        let (_, served) = hinted.find(|(id, _)| preamble.is_for(id))?;
        let once = preamble.once();
        if served.once.contains(&once) {
            return None;
        }
        if served.once.len() == REMEMBERED {
            served.once.pop_front();
        }
        served.once.push_back(once);
        Some(Arc::clone(&served.worker))
    }

    /// Of the sessions whose client has not come, the oldest one of whoever has most of them.
    fn least_wanted(&self) -> Option<(Instant, Arc<Worker>)> {
        let waiting = || {
            let all = self.sessions.values();
            all.filter(|served| !served.worker.is_connected() && !served.worker.is_displaced())
        };
        let mut of: HashMap<&Holder, usize> = HashMap::new();
        for served in waiting() {
            *of.entry(&served.holder).or_default() += 1;
        }
        let least = waiting().max_by_key(|served| (of[&served.holder], Reverse(served.opened)))?;
        Some((least.opened, Arc::clone(&least.worker)))
    }
}

/// A session that was opened.
pub(super) struct Opened {
    pub(super) id: SessionId,
    pub(super) secret: SessionSecret,
    /// Of its certificate, if its connections are secured.
    pub(super) fingerprint: Option<Fingerprint>,
    /// In a lease, on a managed node.
    pub(super) place: Option<PlaceNumber>,
}

/// A session was not opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotOpened {
    #[error("the node is shutting down")]
    Draining,
    #[error("the node serves its full number of sessions ({0})")]
    Full(u32),
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    #[error("the node cannot start a worker: {0}")]
    NoWorker(#[from] std::io::Error),
}

/// How many there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) sessions: usize,
    pub(super) spares: usize,
    /// All processes of them.
    pub(super) workers: usize,
    /// Those that were killed and are still there.
    pub(super) stuck: usize,
    /// Sessions, ever.
    pub(super) opened: u64,
    pub(super) draining: bool,
}

impl Workers {
    pub(super) fn new(
        sessions: SessionSettings,
        heartbeat: Heartbeat,
        load_limit: Duration,
        builds: Option<Builds>,
        processes: Processes,
        secured: bool,
    ) -> Workers {
        Workers(Arc::new(Shared {
            sessions,
            heartbeat,
            load_limit,
            builds,
            processes,
            secured,
            holdings: Holdings::new(sessions.holders),
            state: Mutex::default(),
            reaped: Notify::new(),
            ended: Reasons::new(&ENDINGS),
        }))
    }

    /// Sessions at once.
    pub(super) fn limit(&self) -> u32 {
        self.0.sessions.limit
    }

    pub(super) fn counts(&self) -> Counts {
        let state = self.0.state.lock();
        Counts {
            sessions: state.sessions.len(),
            spares: state.spares.len(),
            workers: state.alive.len(),
            stuck: state.alive.values().filter(|of| of.is_stuck()).count(),
            opened: state.opened,
            draining: state.draining,
        }
    }

    /// Sessions that are over, by reason.
    pub(super) fn ended(&self) -> BTreeMap<&'static str, u64> {
        self.0.ended.all()
    }

    /// What all sessions have used since the daemon started.
    pub(super) fn figures(&self) -> Figures {
        let state = self.0.state.lock();
        let open = state.sessions.values().map(|served| served.entry.figures());
        open.fold(state.past, Figures::plus)
    }

    /// Starts spare workers until there are as many as the settings ask for.
    pub(super) fn replenish(&self) {
        let wanted = self.0.sessions.spare_workers as usize;
        let mut state = self.0.state.lock();
        while !state.draining && state.spares.len() < wanted {
            match self.start(&mut state) {
                Ok(worker) => state.spares.push(worker),
                Err(error) => {
                    tracing::error!(%error, "no spare worker");
                    break;
                }
            }
        }
    }

    fn replenish_after(&self, pause: Duration) {
        let workers = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            workers.replenish();
        });
    }

    /// Replaces the spare workers: the drivers that they have loaded have changed.
    pub(super) fn retire_spares(&self) {
        for spare in std::mem::take(&mut self.0.state.lock().spares) {
            spare.end();
        }
        self.replenish();
    }

    /// Where all places are taken, has a session make room for one of `holder`'s whose client has not come. Takes
    /// [`ROOM_WITHIN`] at most, and does nothing where all clients have come.
    ///
    /// # Errors
    /// [`TooMuch`], where the holder may have no more sessions: nobody makes room for those.
    pub(super) async fn make_room(&self, holder: &Holder) -> Result<(), TooMuch> {
        let host_memory = self.0.sessions.limits.host_memory;
        let until = Instant::now() + ROOM_WITHIN;
        let mut displaced = 0;
        loop {
            let reaped = self.0.reaped.notified();
            let next = {
                let state = self.0.state.lock();
                let excess =
                    (state.sessions.len() + 1).saturating_sub(self.0.sessions.limit as usize);
                if state.draining || excess == 0 {
                    return Ok(());
                }
                self.0.holdings.may_take(holder, host_memory)?;
                let going = state
                    .sessions
                    .values()
                    .filter(|of| of.worker.is_displaced());
                match going.count() < excess {
                    true => state.least_wanted(),
                    false => None,
                }
            };
            let wait = match next {
                Some((opened, worker)) if opened.elapsed() >= GRACE => {
                    tracing::warn!(
                        worker = worker.serial,
                        "all places are taken: a session ends to which its client has not come"
                    );
                    worker.displace();
                    displaced += 1;
                    continue;
                }
                Some((opened, _)) => opened + GRACE,
                None if displaced > 0 => until,
                None => return Ok(()),
            };
            let wait = wait.min(until).saturating_duration_since(Instant::now());
            let _ = tokio::time::timeout(wait, reaped).await;
            if Instant::now() >= until {
                return Ok(());
            }
        }
    }

    /// Gives a new session of `holder`'s a worker; on a managed node with a place in a lease, and its devices.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub(super) fn open(
        &self,
        holder: &Holder,
        owner: &Owner,
        lease: Option<(Place, Vec<Leased>)>,
    ) -> Result<Opened, NotOpened> {
        let (place, leased) = lease.unzip();
        let number = place.as_ref().map(Place::number);
        let certificate = self.certificate()?;
        let fingerprint = certificate.as_ref().map(SessionCertificate::fingerprint);
        let opened = {
            let mut state = self.0.state.lock();
            if state.draining {
                return Err(NotOpened::Draining);
            }
            if state.sessions.len() >= self.0.sessions.limit as usize {
                return Err(NotOpened::Full(self.0.sessions.limit));
            }
            let mut assignment = self.assignment(certificate);
            assignment.leased = leased;
            assignment.owner = owner.clone();
            let ledger = match &place {
                Some(place) => Arc::clone(place.ledger()),
                None => Ledger::new(1)?,
            };
            // A lease's has as many slots as there may be sessions.
            let entry = ledger.enter();
            let entry = entry.ok_or(NotOpened::Full(self.0.sessions.limit))?;
            assignment.slot = entry.number();
            let holding = self
                .0
                .holdings
                .take(holder, assignment.limits.host_memory)?;
            let page = entry.page().try_clone_to_owned()?;
            let worker = self.assign(
                &mut state,
                &ToWorker::Assign {
                    assignment: Box::new(assignment.clone()),
                    page,
                },
            )?;
            worker.serve(assignment.id, assignment.connect_limit);
            state.opened += 1;
            tracing::info!(session = ?assignment.id, lease = owner.lease, user = owner.user,
                worker = worker.serial, "session opened");
            let Assignment { id, secret, .. } = assignment;
            let served = Served {
                worker,
                hint: Hint::of(&id),
                once: VecDeque::new(),
                holder: holder.clone(),
                opened: Instant::now(),
                secret: secret.clone(),
                place,
                entry,
                owner: owner.clone(),
                _holding: holding,
            };
            state.sessions.insert(id, served);
            Opened {
                id,
                secret,
                fingerprint,
                place: number,
            }
        };
        self.replenish_after(REPLACE_AFTER);
        Ok(opened)
    }

    /// Tells a session's worker to leave.
    ///
    /// # Errors
    /// When there is no such session, or the secret is another's.
    pub(super) fn close(&self, id: SessionId, secret: &SessionSecret) -> Result<(), Verdict> {
        let state = self.0.state.lock();
        let served = state.sessions.get(&id).ok_or(Verdict::UnknownSession)?;
        if !bool::from(served.secret.0.ct_eq(&secret.0)) {
            return Err(Verdict::Unproved);
        }
        served.worker.end();
        Ok(())
    }

    /// Passes a connection to the worker of the session that it names; gives it back with the verdict
    /// if that cannot be.
    pub(super) fn pass(
        &self,
        preamble: &Introduction,
        bytes: [u8; PREAMBLE],
        socket: OwnedFd,
    ) -> Result<(), (OwnedFd, Verdict)> {
        let worker = self.0.state.lock().worker_for(preamble);
        let Some(worker) = worker else {
            return Err((socket, Verdict::UnknownSession));
        };
        let message = ToWorker::Connection {
            preamble: bytes,
            socket,
        };
        let sent = worker.send(&message);
        let (Err(error), ToWorker::Connection { socket, .. }) = (sent, message) else {
            return Ok(());
        };
        // A full queue is a client that floods; any other error is a worker that is just ending.
        let verdict = match error.kind() {
            std::io::ErrorKind::WouldBlock => Verdict::TooMany,
            _ => Verdict::UnknownSession,
        };
        Err((socket, verdict))
    }

    /// Opens no further session, keeps no spare worker.
    pub(super) fn drain(&self) {
        let spares = {
            let mut state = self.0.state.lock();
            state.draining = true;
            std::mem::take(&mut state.spares)
        };
        for spare in spares {
            spare.end();
        }
    }

    /// Tells the workers of the sessions that have these places in leases to leave, and their clients why.
    pub(super) fn end_places(&self, places: &[PlaceNumber], reason: &str) {
        for served in self.0.state.lock().sessions.values() {
            let number = served.place.as_ref().map(Place::number);
            if number.is_some_and(|number| places.contains(&number)) {
                served.worker.end_because(reason);
            }
        }
    }

    /// Tells every worker to leave: the daemon ends.
    pub(super) fn end_all(&self) {
        for worker in self.0.state.lock().alive.values() {
            worker.end_because(STOPPED);
        }
    }

    /// Leaves no worker a choice.
    pub(super) fn kill_all(&self) {
        for worker in self.0.state.lock().alive.values() {
            worker.kill();
        }
    }

    /// Waits until no session is left.
    pub(super) async fn no_session(&self) {
        self.until(|state| state.sessions.is_empty()).await;
    }

    /// Waits until no worker is left.
    pub(super) async fn no_worker(&self) {
        self.until(|state| state.alive.is_empty()).await;
    }

    async fn until(&self, done: impl Fn(&State) -> bool) {
        loop {
            let reaped = self.0.reaped.notified();
            if done(&self.0.state.lock()) {
                return;
            }
            reaped.await;
        }
    }

    fn certificate(&self) -> Result<Option<SessionCertificate>, NotOpened> {
        Ok(match self.0.secured {
            true => Some(SessionCertificate::generate()?),
            false => None,
        })
    }

    fn assignment(&self, certificate: Option<SessionCertificate>) -> Assignment {
        let Shared {
            sessions,
            heartbeat,
            ..
        } = &*self.0;
        Assignment {
            id: SessionId(rand::random()),
            secret: SessionSecret(rand::random()),
            limits: sessions.limits,
            bulk_connections: sessions.bulk_connections,
            connect_limit: sessions.connect_limit,
            load_limit: self.0.load_limit,
            heartbeat_interval: heartbeat.interval,
            heartbeat_limit: heartbeat.limit,
            build_cache: self.0.builds.is_some(),
            certificate,
            leased: None,
            slot: 0,
            owner: Owner::default(),
        }
    }

    /// Finds a worker that takes the assignment: a spare one that is ready, any spare one, a fresh one.
    fn assign(&self, state: &mut State, message: &ToWorker) -> Result<Arc<Worker>, NotOpened> {
        for _ in 0..ATTEMPTS {
            let ready = state.spares.iter().position(|spare| spare.is_ready());
            if state.spares.is_empty() {
                break;
            }
            let spare = state.spares.swap_remove(ready.unwrap_or(0));
            match spare.send(message) {
                Ok(()) => return Ok(spare),
                // It has died and not been reaped yet.
                Err(error) => tracing::debug!(%error, worker = spare.serial, "not assigned"),
            }
        }
        let worker = self.start(state)?;
        worker.send(message)?;
        Ok(worker)
    }

    fn start(&self, state: &mut State) -> std::io::Result<Arc<Worker>> {
        state.last_serial += 1;
        let serial = state.last_serial;
        let (worker, process) = Worker::start(serial, &self.0.processes, self.0.builds.clone())?;
        state.alive.insert(serial, Arc::clone(&worker));
        let workers = self.clone();
        tokio::spawn({
            let worker = Arc::clone(&worker);
            async move {
                let status = worker.watch(process).await;
                workers.reap(&worker, status);
            }
        });
        Ok(worker)
    }

    /// Takes a worker that has ended off every list.
    fn reap(&self, worker: &Worker, status: std::io::Result<ExitStatus>) {
        // Its place in a lease is given up when the table is not locked.
        let (served, was_spare) = {
            let mut state = self.0.state.lock();
            state.alive.remove(&worker.serial);
            let spares = state.spares.len();
            state.spares.retain(|spare| spare.serial != worker.serial);
            let session = state
                .sessions
                .iter()
                .find(|(_, served)| served.worker.serial == worker.serial)
                .map(|(id, _)| *id);
            let served = session.and_then(|id| Some((id, state.sessions.remove(&id)?)));
            if let Some((_, served)) = &served {
                state.past = state.past.plus(served.entry.figures());
            }
            (served, state.spares.len() < spares)
        };
        if let Some((_, served)) = &served {
            self.0
                .ended
                .count(ending(worker, served.entry.ending(), &status));
        }
        let session = served.as_ref().map(|(id, served)| (*id, &served.owner));
        log_end(worker, session, status);
        if was_spare {
            self.replenish_after(SPARE_BACKOFF);
        }
        self.0.reaped.notify_waiters();
    }
}
