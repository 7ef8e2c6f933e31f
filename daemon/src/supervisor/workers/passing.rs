//! Passes connections to the workers of their sessions.
//!
//! A session may have no worker for a moment: its worker has died and another one takes its place, or the session moves to
//! another node. Its client's connection then waits here for [`PARKED_HOLD`] at most. A client that is refused pauses before its
//! next attempt, so waiting saves the pause. This module opens no session.
//!
//! Invariant: a connection reaches a worker at most once.

use std::os::fd::OwnedFd;

use causeway_proto::limits::PARKED_HOLD;
use causeway_proto::preamble::{Introduction, PREAMBLE, Purpose, Verdict};
use tokio::time::{Instant, timeout_at};

use super::{Worker, Workers, WorkersState};
use crate::handover::ToWorker;

impl Workers {
    /// Passes a connection to the worker of the session that it names. Waits for a session that changes its worker. On
    /// failure, returns the socket and the verdict.
    pub(in super::super) async fn pass(
        &self,
        preamble: &Introduction,
        bytes: [u8; PREAMBLE],
        mut socket: OwnedFd,
    ) -> Result<(), (OwnedFd, Verdict)> {
        let until = Instant::now() + PARKED_HOLD;
        loop {
            // The future exists before the attempt, so that no notification between both is lost.
            let changed = self.0.reaped.notified();
            match self.pass_now(preamble, bytes, socket) {
                Err((back, Verdict::Parked)) if self.is_changing(preamble) => socket = back,
                passed => return passed,
            }
            if timeout_at(until, changed).await.is_err() {
                return Err((socket, Verdict::Parked));
            }
        }
    }

    /// Whether the session that a connection names changes its worker, or moves to another node. Sessions whose daemon ends
    /// do not change here.
    fn is_changing(&self, preamble: &Introduction) -> bool {
        let state = self.0.state.lock();
        let is_here = || state.sessions.keys().any(|id| preamble.is_for(id));
        !state.draining
            && (state.moving.is_moving(preamble) || state.parked.waits(preamble) || is_here())
    }

    fn pass_now(
        &self,
        preamble: &Introduction,
        bytes: [u8; PREAMBLE],
        socket: OwnedFd,
    ) -> Result<(), (OwnedFd, Verdict)> {
        let worker = match self.worker_of(preamble) {
            Ok(worker) => worker,
            Err(verdict) => return Err((socket, verdict)),
        };
        if worker.parked().is_some() {
            // The process is about to end.
            self.forget_connection(preamble);
            return Err((socket, Verdict::Parked));
        }
        if matches!(
            preamble.purpose,
            Purpose::Commands | Purpose::CommandsGrpc | Purpose::Heartbeat
        ) {
            worker.note_passed(&socket);
        }
        let message = ToWorker::Connection {
            preamble: bytes,
            socket: Some(socket),
        };
        let sent = worker.send(&message);
        let (
            Err(error),
            ToWorker::Connection {
                socket: Some(socket),
                ..
            },
        ) = (sent, message)
        else {
            return Ok(());
        };
        self.forget_connection(preamble);
        Err((socket, self.verdict_on(&worker, &error)))
    }

    // Why a worker did not get a connection. A full channel means that the client opens too many connections. Any other
    // error means that the worker is ending.
    fn verdict_on(&self, worker: &Worker, error: &std::io::Error) -> Verdict {
        match error.kind() {
            std::io::ErrorKind::WouldBlock => Verdict::TooMany,
            // The next daemon has the session.
            _ if worker.is_parking() => Verdict::Parked,
            // Another worker takes the place of this one, which has not been reaped yet.
            _ if self.is_replaceable(worker) => Verdict::Parked,
            _ => Verdict::UnknownSession,
        }
    }

    // Lets a connection that reached no worker be passed later.
    fn forget_connection(&self, preamble: &Introduction) {
        self.0.state.lock().forget_connection(preamble);
    }
}

impl WorkersState {
    fn forget_connection(&mut self, preamble: &Introduction) {
        let mut sessions = self.sessions.iter_mut();
        if let Some((_, served)) = sessions.find(|(id, _)| preamble.is_for(id)) {
            let once = preamble.once();
            served.once.retain(|of| *of != once);
        }
    }
}
