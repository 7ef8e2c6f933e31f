//! All worker processes: spare ones, and those that serve a session.
//!
//! Invariant: a session is in the table exactly until its worker has been reaped, or until its host has released
//! everything of it, and no other worker takes its place. A host without sessions is ended when its process is one too many. The limit on sessions is
//! therefore also a limit on processes. Every worker has one task that watches it until its end, and so has every
//! session of a host.

mod away;
mod hosting;
mod moving;
mod parking;
mod passing;
mod reexecution;
mod reopening;
mod shutdown;
mod spares;
mod uses;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_proto::id::{SessionId, SessionSecret};
use causeway_proto::preamble::{Hint, Introduction, Once, Verdict};
use causeway_security::{Fingerprint, SessionCertificate};
use causeway_serving::counts::Reasons;
use causeway_serving::exposition::{Histogram, durations};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::sync::Notify;

use super::builds::Builds;
use super::domains::{Domain, Domains};
use super::ended::EndedSessions;
use super::endings::{ENDINGS, ending, log_end, log_host_end};
use super::exclusive::Claim;
use super::holders::{Holder, Holding, Holdings, TooMuch};
use super::hosts::Host;
use super::managed::{LeasePlace, PlaceNumber};
use super::process::{self, Processes};
use super::usage::Usage;
use super::warm::Warming;
use super::worker::Worker;
use crate::accounting::{Figures, Ledger, LedgerEntry};
use crate::build_cache;
use crate::config::{Heartbeat, SessionSettings};
use crate::handover::{Assignment, AwayTimes, Leased, Owner, ToWorker};
use away::describe_end;
pub(super) use away::{AWAY_LONG, ClientProcess, Neighbor};
use moving::Moving;
pub(super) use moving::{Arrived, ContentsFiles, Departing, Progress};
use parking::Parked;
pub(super) use reexecution::Checkpoint;
use reexecution::Fate;
pub(super) use reopening::Reopened;

/// Pause before a spare worker that ended by itself is replaced. The driver would probably make the next
/// one end, too.
const SPARE_BACKOFF: Duration = Duration::from_secs(10);
/// Pause before a spare worker that was assigned is replaced. Loading the node's OpenCL takes processor
/// time that the new session needs for its own start.
const REPLACE_AFTER: Duration = Duration::from_millis(250);
/// Age from which a session whose client has not connected may be displaced, when all places are taken.
/// Clients normally connect sooner, unless the machines are very busy. `etc/daemon.toml` documents this.
const GRACE: Duration = Duration::from_secs(1);
/// Time limit for a displaced session to end.
const ROOM_WITHIN: Duration = Duration::from_secs(2);
/// Number of a session's latest connections that are remembered against replay.
const REMEMBERED: usize = 256;

/// All workers of this daemon. Clones share their state.
#[derive(Clone)]
pub(super) struct Workers(Arc<Shared>);

struct Shared {
    sessions: SessionSettings,
    heartbeat: Heartbeat,
    load_limit: Duration,
    builds: Option<Builds>,
    processes: Processes,
    /// Whether sessions' connections use TLS, with a certificate per session.
    secured: bool,
    /// Which sessions may have one host process.
    domains: Arc<Domains>,
    /// Time for which a host without sessions is kept.
    host_idle: Duration,
    holdings: Holdings,
    started: Instant,
    state: Mutex<WorkersState>,
    /// Notified when a worker has been reaped.
    reaped: Notify,
    /// Sessions that have ended, by reason.
    ended: Reasons,
    /// Notified when a session has begun whose lease has a part of a device's time.
    timed: Notify,
    /// How long the opening of each session took.
    openings: Histogram,
}

#[derive(Default)]
struct WorkersState {
    /// Every worker that has not been reaped, by serial number.
    alive: HashMap<u64, Arc<Worker>>,
    spares: Vec<Arc<Worker>>,
    warming: Warming,
    /// Every host that has not been reaped.
    hosts: Vec<Arc<Host>>,
    sessions: HashMap<SessionId, Served>,
    last_serial: u64,
    draining: bool,
    opened: u64,
    /// How often clients of sessions that have ended have come back.
    resumed: u64,
    /// Why sessions that outlived their connections have ended.
    ended: EndedSessions,
    /// The sessions that wait for their clients in files.
    parked: Parked,
    moving: Moving,
    /// Places of sessions that could not be opened. Their drop locks the table of grants, which may lock this table.
    unused: Vec<LeasePlace>,
    /// Totals of sessions that have ended.
    past: Figures,
    usage: Usage,
}

struct Served {
    worker: Arc<Worker>,
    /// The host, with the kind of its domain; `None`: the session has a worker of its own.
    host: Option<(u64, &'static str)>,
    hint: Hint,
    /// Unique values of the latest connections. A connection that repeats one is a replay by an
    /// eavesdropper.
    once: VecDeque<Once>,
    holder: Holder,
    opened: Instant,
    secret: SessionSecret,
    /// The place in a lease, on a managed node.
    place: Option<LeasePlace>,
    /// The slot in which the worker counts.
    entry: LedgerEntry,
    owner: Owner,
    /// The client's process, as its library describes it.
    client: ClientProcess,
    /// Whether the client asks for a process of its own.
    isolated: bool,
    /// The session's claim, if it may use exclusive devices only.
    claim: Option<Claim>,
    /// How long the client waits for a daemon that is started anew. 0: the session is never parked.
    restart: Duration,
    /// How long the client waits while the session's lease moves to another node. 0: the session never moves.
    moves: Duration,
    /// The devices of the session's lease.
    leased: Vec<Leased>,
    /// The session's certificate, with TLS.
    certificate: Option<SessionCertificate>,
    away: AwayTimes,
    /// Present if the client executes its commands again when the worker dies.
    checkpoint: Option<Checkpoint>,
    _holding: Holding,
}

impl WorkersState {
    /// Returns the worker of the session that a connection names. Returns `None` if there is none, or if
    /// the connection is a replay.
    fn worker_for(&mut self, preamble: &Introduction) -> Option<Arc<Worker>> {
        let hint = preamble.hint();
        // The hint selects candidates cheaply. Only `is_for` proves that the connection belongs to the
        // session.
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

    /// Puts a session into the table, whose worker has got its assignment.
    fn enter(&mut self, opening: Opening, admitted: Admitted, worker: Arc<Worker>) {
        let Assignment {
            id,
            secret,
            certificate,
            connect_limit,
            leased,
            ..
        } = admitted.assignment;
        let user = build_cache::Owner::of(opening.owner.user.as_deref());
        let domain = opening.domain.as_ref();
        let host = domain.and_then(|domain| self.host_of(&worker, domain));
        worker.serve(id, user, connect_limit, opening.away);
        self.opened += 1;
        let served = Served {
            worker,
            host,
            hint: Hint::of(&id),
            once: VecDeque::new(),
            holder: opening.holder,
            opened: Instant::now(),
            secret,
            place: opening.place,
            entry: admitted.entry,
            owner: opening.owner,
            client: opening.client,
            isolated: opening.isolated,
            claim: opening.claim,
            restart: opening.restart,
            moves: opening.moves,
            leased: leased.unwrap_or_default(),
            certificate,
            away: opening.away,
            checkpoint: opening.checkpoint,
            _holding: admitted.holding,
        };
        self.sessions.insert(id, served);
    }

    /// Removes the session of a worker that has ended from the table. Remembers why it has ended if its client may ask.
    fn end_session(
        &mut self,
        worker: &Worker,
        status: &std::io::Result<ExitStatus>,
        now: Instant,
    ) -> Option<(SessionId, Served)> {
        let mut sessions = self.sessions.iter();
        let (&id, _) = sessions.find(|(_, of)| of.worker.serial == worker.serial)?;
        let mut served = self.sessions.remove(&id)?;
        served.samples().for_each(|sample| self.usage.end(sample));
        self.past = self.past.plus(served.entry.figures());
        self.resumed += served.worker.resumed();
        let reason = worker.end_reason().map(str::to_owned);
        let label = || ending(worker, served.entry.ending(), status);
        let reason = reason.unwrap_or_else(|| describe_end(label(), status));
        let ticket = self.parked.ticket(id, &served, &reason);
        if self.moving.takes(id, &mut served, ticket) {
            return Some((id, served));
        }
        if self.parked.takes(id, &served, &reason) || served.is_replaced(status, now) {
            return Some((id, served));
        }
        // If it may be replaced and is not, that has happened too often.
        let reason = match served.may_be_replaced(status) {
            true => format!("{reason}; its processes die again and again"),
            false => reason,
        };
        if !served.has_nothing() {
            self.remember_end(id, &served, reason);
        }
        Some((id, served))
    }

    /// Returns the numbers of the workers whose sessions have commands or builds in progress.
    fn busy(&self) -> Vec<u64> {
        let busy = self.sessions.values().filter(|of| of.entry.is_busy());
        busy.map(|of| of.worker.serial).collect()
    }

    /// Checks whether a further session may open.
    fn may_open(&self, limit: u32) -> Result<(), NotOpened> {
        if self.draining {
            return Err(NotOpened::Draining);
        }
        match self.sessions.len() < limit as usize {
            true => Ok(()),
            false => Err(NotOpened::Full(limit)),
        }
    }

    /// Checks whether a session that may use exclusive devices only may open.
    fn may_have(&self, claim: &Claim) -> Result<(), NotOpened> {
        let open = self.sessions.values();
        match claim.is_refused(open.filter_map(|served| served.claim.as_ref())) {
            true => Err(NotOpened::Exclusive),
            false => Ok(()),
        }
    }

    /// Selects the session to displace: among those whose client has not connected, the oldest one of the
    /// holder with the most.
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

/// What a session is opened for.
pub(super) struct Opening {
    pub(super) holder: Holder,
    pub(super) owner: Owner,
    pub(super) client: ClientProcess,
    /// How long the session waits for a client that is away.
    pub(super) away: AwayTimes,
    /// How long the session waits for the next daemon; 0 if it is never parked.
    pub(super) restart: Duration,
    /// How long the client waits while the session's lease moves to another node; 0 if the session never moves.
    pub(super) moves: Duration,
    /// On a managed node, the session's place in a lease and its devices.
    pub(super) place: Option<LeasePlace>,
    pub(super) leased: Option<Vec<Leased>>,
    /// Sessions of one domain may have one host process; without a domain, the session has a worker of its own.
    pub(super) domain: Option<Domain>,
    /// Whether the client asks for a worker of its own.
    pub(super) isolated: bool,
    /// Set if the session may use exclusive devices only.
    pub(super) claim: Option<Claim>,
    /// Present if the client executes its commands again when the worker dies.
    pub(super) checkpoint: Option<Checkpoint>,
    /// The session, if it was lost with its node, and its client executes its commands again here.
    pub(super) again: Option<Reopened>,
    /// When the session was requested; `None` if an earlier daemon, or another one, has opened it.
    pub(super) begun: Option<Instant>,
}

/// What an admitted session has taken, and what its worker gets.
struct Admitted {
    assignment: Assignment,
    entry: LedgerEntry,
    holding: Holding,
    message: ToWorker,
}

pub(super) struct Opened {
    pub(super) id: SessionId,
    pub(super) secret: SessionSecret,
    /// Fingerprint of the session's certificate, if its connections use TLS.
    pub(super) fingerprint: Option<Fingerprint>,
    /// Number of the place in a lease, on a managed node.
    pub(super) place: Option<PlaceNumber>,
}

/// Reasons for which a session is not opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotOpened {
    #[error("the node is shutting down")]
    Draining,
    #[error("the session's lease is being moved to another node; try again later")]
    Moves,
    #[error("a session of this id is here already; try again later")]
    IsHere,
    #[error("the node has ended the session: {0}")]
    HasEnded(String),
    #[error("the node has reached its limit of {0} sessions; try again later")]
    Full(u32),
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    #[error(
        "the node's device is in exclusive compute mode, and another session uses it; try again later, or ask the node's \
         administrator for the mode DEFAULT (nvidia-smi -c)"
    )]
    Exclusive,
    #[error("the node cannot start a worker: {0}")]
    NoWorker(#[from] std::io::Error),
}

/// Numbers of sessions and workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) sessions: usize,
    pub(super) spares: usize,
    /// Contexts that spare workers, hosts, and workers of sessions have made before any session.
    pub(super) warm_in_spares: u64,
    pub(super) warm_in_hosts: u64,
    pub(super) warm_in_sessions: u64,
    /// Worker processes for several sessions.
    pub(super) hosts: usize,
    /// All worker processes.
    pub(super) workers: usize,
    /// Worker processes that were killed and still exist.
    pub(super) stuck: usize,
    /// Sessions opened since the daemon started.
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
        (domains, host_idle): (Arc<Domains>, Duration),
    ) -> Workers {
        Workers(Arc::new(Shared {
            sessions,
            heartbeat,
            load_limit,
            builds,
            processes,
            secured,
            domains,
            host_idle,
            holdings: Holdings::new(sessions.holders),
            started: Instant::now(),
            state: Mutex::default(),
            reaped: Notify::new(),
            ended: Reasons::new(&ENDINGS),
            timed: Notify::new(),
            openings: durations(-3, 2),
        }))
    }

    /// Returns the maximum number of simultaneous sessions.
    pub(super) fn limit(&self) -> u32 {
        self.0.sessions.limit
    }

    /// Returns the number of spare workers that are kept.
    pub(super) fn spare_target(&self) -> u32 {
        self.0.sessions.spare_workers
    }

    /// Returns how long the opening of each session took.
    pub(super) fn openings(&self) -> Histogram {
        self.0.openings.clone()
    }

    pub(super) fn counts(&self) -> Counts {
        let state = self.0.state.lock();
        let warm = |of: &Worker| u64::from(of.warm_contexts());
        Counts {
            sessions: state.sessions.len(),
            spares: state.spares.len(),
            warm_in_spares: state.spares.iter().map(|spare| warm(spare)).sum(),
            warm_in_sessions: state.sessions.values().map(|of| warm(&of.worker)).sum(),
            warm_in_hosts: state.hosts.iter().map(|host| warm(&host.worker)).sum(),
            hosts: state.hosts.len(),
            workers: state.alive.len(),
            stuck: state.alive.values().filter(|of| of.is_stuck()).count(),
            opened: state.opened,
            draining: state.draining,
        }
    }

    /// Waits until a session begins whose lease has a part of a device's time.
    pub(super) async fn timed_session(&self) {
        self.0.timed.notified().await;
    }

    /// Calls `each` with every session whose lease has a part of a device's time, and the slot in which its worker counts.
    pub(super) fn each_timed(&self, mut each: impl FnMut(&LeasePlace, &LedgerEntry)) {
        let state = self.0.state.lock();
        for served in state.sessions.values() {
            if let Some(place) = &served.place
                && !place.times().is_empty()
            {
                each(place, &served.entry);
            }
        }
    }

    /// Returns the number of ended sessions by reason.
    pub(super) fn ended(&self) -> BTreeMap<&'static str, u64> {
        self.0.ended.all()
    }

    /// Returns the totals of all sessions since the daemon started.
    pub(super) fn figures(&self) -> Figures {
        let state = self.0.state.lock();
        let open = state.sessions.values().map(|served| served.entry.figures());
        open.fold(state.past, Figures::plus)
    }

    /// Returns whether a session has commands or builds in progress.
    pub(super) fn are_busy(&self) -> bool {
        let state = self.0.state.lock();
        state.sessions.values().any(|served| served.entry.is_busy())
    }

    /// If all places are taken, displaces a session whose client has not connected, to make room for one of
    /// `holder`. A session of `holder` that is away ends first. Waits [`ROOM_WITHIN`] at most. Does nothing if all clients
    /// have connected.
    ///
    /// # Errors
    /// [`TooMuch`] if the holder itself may have no more sessions. Nothing is displaced then.
    pub(super) async fn make_room(&self, holder: &Holder) -> Result<(), TooMuch> {
        self.end_an_idle_host().await;
        self.end_one_away(holder).await;
        let host_memory = self.0.sessions.limits.host_memory;
        let until = Instant::now() + ROOM_WITHIN;
        let mut displaced = 0;
        loop {
            // The future exists before the check, so that no notification between check and wait is lost.
            let reaped = self.0.reaped.notified();
            let next = {
                let state = self.0.state.lock();
                let excess =
                    (state.sessions.len() + 1).saturating_sub(self.0.sessions.limit as usize);
                if state.draining || excess == 0 {
                    return Ok(());
                }
                self.0.holdings.may_take(holder, host_memory)?;
                // Sessions that are already on their way out count as room, so that callers do not displace
                // more than necessary.
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
                        "the session limit is reached; a session whose client has not connected is ended"
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

    /// Opens a session and assigns it a worker.
    ///
    /// # Errors
    /// [`NotOpened`].
    pub(super) fn open(&self, mut opening: Opening) -> Result<Opened, NotOpened> {
        let certificate = self.certificate()?;
        let fingerprint = certificate.as_ref().map(SessionCertificate::fingerprint);
        let opened = {
            let mut state = self.0.state.lock();
            state.may_open(self.0.sessions.limit)?;
            if let Some(claim) = &opening.claim {
                state.may_have(claim)?;
            }
            if let Some(again) = &opening.again {
                let grant = opening.place.as_ref().map(LeasePlace::grant);
                state.may_open_again(again, grant)?;
            }
            let lease = opening.place.as_ref().map(LeasePlace::lease);
            if lease.is_some_and(|lease| state.moving.leaves(lease)) {
                return Err(NotOpened::Moves);
            }
            let assignment = self.assignment_of(&mut opening, certificate);
            let admitted = self.admit(&opening, assignment)?;
            let (message, domain) = (&admitted.message, &opening.domain);
            let worker = match domain {
                None => self.assign(&mut state, message)?,
                Some(domain) => {
                    self.assign_in_host(&mut state, domain, message, opening.claim.is_some())?
                }
            };
            let id = admitted.assignment.id;
            tracing::info!(session = ?id, lease = opening.owner.lease, user = opening.owner.user,
                worker = worker.serial, domain = domain.as_ref().map(Domain::name), "session opened");
            let place = opening.place.as_ref();
            if place.is_some_and(|place| !place.times().is_empty()) {
                self.0.timed.notify_one();
            }
            let opened = Opened {
                id,
                secret: admitted.assignment.secret.clone(),
                fingerprint,
                place: place.map(LeasePlace::number),
            };
            // The lock is still held, so neither a connection of the client nor the worker's end finds the
            // session missing.
            if let Some(begun) = opening.begun {
                worker.time_opening(begun, self.0.openings.clone());
            }
            if opening.again.is_some() {
                state.moving.forget_left(&id);
            }
            state.enter(opening, admitted, worker);
            opened
        };
        self.replenish_after(REPLACE_AFTER);
        Ok(opened)
    }

    /// What a session's worker is told of it. Charges the session's owner for its checkpoints.
    fn assignment_of(
        &self,
        opening: &mut Opening,
        certificate: Option<SessionCertificate>,
    ) -> Assignment {
        let checkpoint_bytes = match &mut opening.checkpoint {
            Some(checkpoint) => checkpoint.charge(
                &self.0.holdings,
                &opening.owner,
                self.0.sessions.checkpoint_bytes,
            ),
            None => 0,
        };
        let assignment = Assignment {
            leased: opening.leased.take(),
            owner: opening.owner.clone(),
            away: opening.away,
            reexecutes: opening.checkpoint.is_some(),
            checkpoint_bytes,
            ..self.assignment(certificate)
        };
        opening.begun_again(assignment)
    }

    /// Takes a slot and host memory for a session, and makes the message that assigns it a worker.
    fn admit(&self, opening: &Opening, mut assignment: Assignment) -> Result<Admitted, NotOpened> {
        let ledger = match &opening.place {
            Some(place) => Arc::clone(place.ledger()),
            None => Ledger::new(1)?,
        };
        // A lease's ledger has as many slots as the node may have sessions, so this fails only at that
        // limit.
        let entry = ledger.enter();
        let entry = entry.ok_or(NotOpened::Full(self.0.sessions.limit))?;
        assignment.slot = entry.number();
        let memory = assignment.limits.host_memory;
        let holding = self.0.holdings.take(&opening.holder, memory)?;
        let message = ToWorker::Assign {
            assignment: Box::new(assignment.clone()),
            page: entry.page().try_clone_to_owned()?,
        };
        Ok(Admitted {
            assignment,
            entry,
            holding,
            message,
        })
    }

    /// Asks the worker of a session to leave.
    ///
    /// # Errors
    /// `UnknownSession` if no such session exists, `Unproved` if the secret is wrong.
    pub(super) fn close(&self, id: SessionId, secret: &SessionSecret) -> Result<(), Verdict> {
        let state = self.0.state.lock();
        let served = state.sessions.get(&id).ok_or(Verdict::UnknownSession)?;
        // The comparison takes constant time, so that its duration does not reveal the secret.
        if !bool::from(served.secret.0.ct_eq(&secret.0)) {
            return Err(Verdict::Unproved);
        }
        // The session stays in the table until its worker has been reaped.
        served.worker.end();
        Ok(())
    }

    async fn until(&self, done: impl Fn(&WorkersState) -> bool) {
        loop {
            let reaped = self.0.reaped.notified();
            if done(&self.0.state.lock()) {
                return;
            }
            reaped.await;
        }
    }

    /// A certificate for connections that prove a secret, if the node uses TLS.
    pub(super) fn certificate(&self) -> std::io::Result<Option<SessionCertificate>> {
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
            away: AwayTimes::default(),
            build_cache: self.0.builds.is_some(),
            certificate,
            leased: None,
            slot: 0,
            owner: Owner::default(),
            restores: None,
            reexecutes: false,
            checkpoint_bytes: 0,
        }
    }

    /// Removes a worker that has ended from all tables.
    fn reap(&self, worker: &Worker, status: std::io::Result<ExitStatus>) {
        let (fate, was_spare, host) = {
            let mut state = self.0.state.lock();
            state.alive.remove(&worker.serial);
            let spares = state.spares.len();
            state.spares.retain(|spare| spare.serial != worker.serial);
            let is_it = |host: &Arc<Host>| host.worker.serial == worker.serial;
            let host = state.hosts.iter().position(is_it);
            let host = host.map(|at| state.hosts.swap_remove(at));
            let was_spare = state.spares.len() < spares;
            let has_crashed = was_spare || status.as_ref().is_ok_and(|of| process::is_crash(*of));
            if has_crashed && worker.warming_since().is_some() {
                state.warming.note_crash(Instant::now());
            }
            if let Some(host) = &host {
                host.suspect(state.busy());
            }
            let fate = self.end_or_replace(&mut state, worker, &status, None);
            (fate, was_spare, host)
        };
        match host {
            Some(host) => {
                log_host_end(worker, &host.domain.name(), &status);
                host.has_exited(&status);
            }
            None => self.note_end(worker, fate, status, None),
        }
        if was_spare {
            self.replenish_after(SPARE_BACKOFF);
        }
        self.0.reaped.notify_waiters();
    }

    /// Counts and logs the end of a worker, and of its session if it had one. Writes a session that was parked. A session
    /// that has ended is dropped here, when the table is unlocked: dropping its place in a lease may lead back here to end
    /// other sessions.
    fn note_end(
        &self,
        worker: &Worker,
        fate: Fate,
        status: std::io::Result<ExitStatus>,
        domain: Option<&Domain>,
    ) {
        let (id, served) = match fate {
            Fate::GoesOn => return,
            Fate::NoSession => return log_end(worker, None, status, None),
            Fate::Ended(ended) => *ended,
        };
        self.write_parked();
        let label = ending(worker, served.entry.ending(), &status);
        self.0.ended.count(label);
        let session = Some((id, &served.owner));
        log_end(worker, session, status, domain.map(Domain::name));
        // The lease may have ended while the worker was parking the session.
        let place = self.0.state.lock().moving.place_of(id);
        if let Some(place) = place {
            place.tell();
        }
    }
}
