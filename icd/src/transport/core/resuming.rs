//! Lets the session go on over new connections after one has broken, with the same worker or with the next.
//!
//! The connections have a *generation*. Several threads may meet the same break; the first one that reports it for the
//! present generation closes everything of it. What comes late, of an older generation, changes nothing. If a connection
//! breaks before the session has come back, the thread that brings it back closes the others.
//!
//! Executing commands again in a worker that takes the place of a dead one is part of [`reexecution`](super::reexecution).
//!
//! Invariant: while the session is away, the outbox is closed, and nothing is written to a socket of a broken generation but
//! the word that the client comes back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use causeway_proto::preamble::{REEXECUTES, WANTS_RECORD};
use causeway_security::Line;
use parking_lot::{Mutex, MutexGuard};

use super::Core;
use super::acknowledging::Acknowledging;
use crate::transport::kept::Impossible;
use crate::transport::patience::Positions;
use crate::transport::socket;

/// What a session needs that outlives its connections.
#[derive(Default)]
pub(super) struct Resume {
    /// Number of the connections before this one.
    pub(super) generation: AtomicU64,
    /// Identifies the socket of the heartbeat connection.
    pub(super) socket: Mutex<Option<u64>>,
    /// The break, while there is no connection. Locked before the locks of outbox, carrier and lanes.
    pub(super) away: Mutex<Option<Break>>,
    pub(super) is_away: AtomicBool,
    /// The latest generation of which a connection broke. Generation 0 is not looked at.
    pub(super) broken: AtomicU64,
    pub(super) resumed: AtomicU64,
    /// The incarnation of the worker in the place of another with which the bulk transfers have begun anew. `None`: there is
    /// no such worker, or it has asked to stand since.
    pub(super) anew_with: Mutex<Option<u64>>,
    pub(super) acknowledging: Mutex<Acknowledging>,
}

impl Resume {
    /// Whether the transfers have begun anew with the worker of this incarnation.
    pub(super) fn is_anew_with(&self, incarnation: u64) -> bool {
        *self.anew_with.lock() == Some(incarnation)
    }

    // Returns whether the transfers have to begin anew with this worker.
    fn begins_anew_with(&self, incarnation: u64) -> bool {
        let mut with = self.anew_with.lock();
        let begins = with.is_none();
        with.get_or_insert(incarnation);
        begins
    }
}

/// Why and since when a session has no connection.
#[derive(Clone, Debug)]
pub(in crate::transport) struct Break {
    pub(in crate::transport) reason: String,
    pub(in crate::transport) since: Instant,
}

/// Why a session does not go on over new connections.
#[derive(Debug, thiserror::Error)]
pub(in crate::transport) enum NotResumed {
    #[error(transparent)]
    Impossible(#[from] Impossible),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// New connections to the session's worker, or to another one in its place.
pub(in crate::transport) struct Connected {
    pub(in crate::transport) commands: Line,
    pub(in crate::transport) heartbeat: Arc<Line>,
    /// This end's position, as the worker knows it.
    pub(in crate::transport) told: u64,
    /// Number of commands that the worker has applied.
    pub(in crate::transport) position: u64,
    /// Tells the worker from another one; 0: not known.
    pub(in crate::transport) incarnation: u64,
    /// Whether the session was lost with its daemon and opened again.
    pub(in crate::transport) is_reopened: bool,
}

impl Core {
    /// Number of the connections before the current one.
    pub(in crate::transport) fn generation(&self) -> u64 {
        let resume = self.resume.as_ref();
        resume.map_or(0, |resume| resume.generation.load(Ordering::Acquire))
    }

    /// Whether the session has no connection, and is being resumed.
    pub(in crate::transport) fn is_away(&self) -> bool {
        let resume = self.resume.as_ref();
        resume.is_some_and(|resume| resume.is_away.load(Ordering::Acquire))
    }

    /// Number of times that the session was resumed.
    pub(in crate::transport) fn resumed(&self) -> u64 {
        let resume = self.resume.as_ref();
        resume.map_or(0, |resume| resume.resumed.load(Ordering::Relaxed))
    }

    /// Why the session has no connection.
    pub(in crate::transport) fn the_break(&self) -> Option<Break> {
        self.resume.as_ref()?.away.lock().clone()
    }

    /// The current heartbeat connection.
    pub(in crate::transport) fn heartbeat(&self) -> Arc<Line> {
        Arc::clone(&self.heartbeat.lock())
    }

    /// Handles that a connection of this generation broke. Returns whether the session goes on without; otherwise it
    /// has failed. Does not wait and calls no callback.
    pub(in crate::transport) fn break_off(&self, generation: u64, reason: String) -> bool {
        let Some(resume) = &self.resume else {
            self.fail(self.granted.explain(&reason, None));
            return false;
        };
        // A program may close every descriptor it finds, and their numbers may be those of its own files by now. Sockets
        // that are replaced would be closed once more.
        if *resume.socket.lock() != socket::inode(&self.heartbeat.lock()) {
            self.fail(format!(
                "{reason}; the program has closed the library's descriptors"
            ));
            return false;
        }
        let mut away = resume.away.lock();
        if self.is_failed() {
            return false;
        }
        // Several threads meet the same break, and some of them late.
        if generation != resume.generation.load(Ordering::Acquire) {
            return true;
        }
        resume.broken.store(generation, Ordering::Release);
        if away.is_some() {
            return true;
        }
        tracing::debug!(self.address, reason, "a connection broke");
        *away = Some(Break {
            reason,
            since: Instant::now(),
        });
        resume.is_away.store(true, Ordering::Release);
        // Still under the lock: the break must not end before everything below is shut.
        self.say_comes_back();
        self.outbox.close();
        self.carrier.shut_down();
        self.heartbeat.lock().shut_down();
        self.bulk.away();
        true
    }

    /// The number of an event batch. The worker sends those behind it again on a new connection.
    pub(in crate::transport) fn position(&self) -> u64 {
        if let Some(resume) = self.resume.as_ref().filter(|_| self.is_away()) {
            self.stop_handling(resume);
        }
        let (resume, complete) = (self.resume.as_ref(), self.complete());
        resume.map_or(0, |of| of.acknowledging.lock().window.position(complete))
    }

    /// How far the session has come, as far as this side knows.
    pub(in crate::transport) fn positions(&self) -> Positions {
        (self.outbox.known_applied(), self.position())
    }

    /// The generation of bulk lanes if the worker of this incarnation wants the record. Lanes to a worker with which the
    /// transfers have begun anew stay. Each worker that takes the place of one that has died gets lanes of its own.
    pub(in crate::transport) fn worker_generation_if_anew(&self, incarnation: u64) -> u64 {
        let resume = self.resume.as_ref();
        let now = self.bulk.worker_generation();
        match resume.is_some_and(|resume| resume.is_anew_with(incarnation)) {
            true => now,
            false => now + 1,
        }
    }

    /// Goes on over new connections. Returns the number of bytes that are written again. The next writer does that, not this thread, which
    /// must hear the heartbeats.
    ///
    /// # Errors
    /// [`NotResumed`]. The session stays away.
    pub(in crate::transport) fn go_on(&self, connected: Connected) -> Result<usize, NotResumed> {
        let Some(resume) = &self.resume else {
            return Ok(0);
        };
        if connected.position & REEXECUTES != 0 {
            return self.go_on_again(resume, connected);
        }
        let Connected {
            commands,
            heartbeat,
            told,
            position,
            incarnation,
            ..
        } = connected;
        let generation = resume.generation.load(Ordering::Acquire) + 1;
        self.replace_heartbeat(resume, heartbeat, told);
        // The connection may break again before the worker is whole.
        if position & WANTS_RECORD != 0 && resume.begins_anew_with(incarnation) {
            // The worker before may have parked the session while the bytes of a checkpoint came.
            drop(self.abandon_checkpoint());
            if self.bulk.begin_anew() {
                return Err(Impossible::NotRestored.into());
            }
        }
        // The outbox is closed, so after the last writer nobody writes before it is opened again.
        let writer = self.outbox.writer();
        self.replace_commands(resume, commands, generation)?;
        let away = self.lock_unbroken(resume, generation)?;
        // Under the lock, so that a lane that ends later breaks the new connections.
        if self.bulk.has_shared_lane_ended() {
            return Err(Impossible::SharedLaneEnded.into());
        }
        if position & WANTS_RECORD != 0 {
            self.begin_behind_park(position & !WANTS_RECORD)?;
        }
        let again = self.outbox.reopen(writer, position)?;
        self.come_back(resume, away);
        Ok(again)
    }

    /// The lock under which the session comes back.
    ///
    /// # Errors
    /// A connection of this generation has broken already.
    pub(super) fn lock_unbroken<'a>(
        &self,
        resume: &'a Resume,
        generation: u64,
    ) -> io::Result<MutexGuard<'a, Option<Break>>> {
        let away = resume.away.lock();
        if resume.broken.load(Ordering::Acquire) != generation {
            return Ok(away);
        }
        drop(away);
        self.say_comes_back();
        self.carrier.shut_down();
        self.heartbeat.lock().shut_down();
        Err(io::Error::from(io::ErrorKind::BrokenPipe))
    }

    /// The session has connections again, and its outbox is open.
    pub(super) fn come_back(&self, resume: &Resume, mut away: MutexGuard<'_, Option<Break>>) {
        *away = None;
        resume.is_away.store(false, Ordering::Release);
        // Under the lock, so that the next break shuts the lanes after this.
        self.bulk.alive();
        drop(away);
        if self.is_failed() {
            self.shut_down();
        }
        resume.resumed.fetch_add(1, Ordering::Relaxed);
        self.flusher.wake();
    }

    pub(super) fn replace_heartbeat(&self, resume: &Resume, heartbeat: Arc<Line>, told: u64) {
        // Together: the rest of an old acknowledgement must not go over the new connection.
        let mut acknowledging = resume.acknowledging.lock();
        let (mut socket, mut line) = (resume.socket.lock(), self.heartbeat.lock());
        *socket = socket::inode(&heartbeat);
        *line = heartbeat;
        acknowledging.restart(told);
    }

    pub(super) fn replace_commands(
        &self,
        resume: &Resume,
        commands: Line,
        generation: u64,
    ) -> io::Result<()> {
        resume.generation.store(generation, Ordering::Release);
        let readable = self.carrier.replace(commands, generation)?;
        if let (Some(reader), Some(readable)) = (&self.reader, readable) {
            reader.replace(readable, generation)?;
        }
        Ok(())
    }
}
