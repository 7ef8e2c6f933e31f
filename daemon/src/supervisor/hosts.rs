//! Hosts: worker processes that serve several sessions of one domain.
//!
//! A hosted session is a [`Worker`] like any other, with a channel, a client and deadlines of its own. It has
//! no process of its own. What would kill that process ends the host: first the neighbours that end with it are told why,
//! then the host is killed.
//!
//! Invariants: a hosted session ends when the host says that nothing of it is left, or with the host's
//! process. A host that is to end takes no further session.
#![forbid(unsafe_code)]

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::domains::Domain;
use super::process::{self, Process};
use super::worker::Worker;

/// Time for the neighbours' clients to read why their sessions end, before the host is killed.
const TELL_WITHIN: Duration = Duration::from_secs(1);

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    /// The process.
    pub(super) worker: Arc<Worker>,
    pub(super) domain: Domain,
    /// The sessions that have not ended.
    sessions: Mutex<Vec<Arc<Worker>>>,
    /// Counts the times at which the host had no session, so that an old pause ends nothing.
    idle: AtomicU64,
    /// Whether the host takes no further session.
    is_closed: AtomicBool,
    /// Why the host is killed, if a session of it does not end.
    condemned: OnceLock<String>,
    /// The sessions that had commands or builds in progress when the process ended.
    suspects: OnceLock<Vec<u64>>,
    exited: watch::Sender<Option<ExitStatus>>,
}

impl Host {
    pub(super) fn new(worker: Arc<Worker>, domain: Domain) -> Arc<Host> {
        Arc::new(Host {
            worker,
            domain,
            sessions: Mutex::default(),
            idle: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            condemned: OnceLock::new(),
            suspects: OnceLock::new(),
            exited: watch::Sender::new(None),
        })
    }

    /// Returns whether the host takes a further session of this domain.
    pub(super) fn takes(&self, domain: &Domain) -> bool {
        self.domain == *domain && !self.is_retired()
    }

    /// Returns the number of sessions.
    pub(super) fn sessions(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Returns whether one of the sessions has one of these numbers.
    pub(super) fn has_one_of(&self, serials: &[u64]) -> bool {
        let sessions = self.sessions.lock();
        sessions.iter().any(|of| serials.contains(&of.serial))
    }

    /// Adds a session. Returns whether the host takes it.
    pub(super) fn add(&self, session: &Arc<Worker>) -> bool {
        let mut sessions = self.sessions.lock();
        let takes = !self.is_retired();
        if takes {
            sessions.push(Arc::clone(session));
        }
        takes
    }

    /// Removes a session that has ended. Returns the number of this idle time if it was the last one.
    pub(super) fn remove(&self, session: &Worker) -> Option<u64> {
        let mut sessions = self.sessions.lock();
        sessions.retain(|of| of.serial != session.serial);
        sessions
            .is_empty()
            .then(|| self.idle.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Takes no further session, if there has been none since this idle time began. Returns whether that is so. No
    /// other thread may add a session meanwhile: the caller has locked the table of workers.
    pub(super) fn retire_if_idle_since(&self, number: u64) -> bool {
        let is_idle = self.is_idle() && self.idle.load(Ordering::Relaxed) == number;
        if is_idle {
            self.retire();
        }
        is_idle
    }

    /// Returns whether the host has no session.
    pub(super) fn is_idle(&self) -> bool {
        self.sessions.lock().is_empty()
    }

    /// Returns whether the host takes no further session.
    pub(super) fn is_retired(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Takes no further session.
    pub(super) fn retire(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Calls `end` with all sessions, to ask them to leave.
    pub(super) fn end_sessions(&self, end: impl Fn(&Worker)) {
        for session in self.sessions.lock().iter() {
            end(session);
        }
    }

    /// Notes that the host is killed because the daemon ends, so that no session counts as lost by a fault.
    pub(super) fn note_kill(&self) {
        for session in self.sessions.lock().iter() {
            session.note_kill();
        }
    }

    /// Ends the host, which has no session. It takes no further one.
    pub(super) fn end(&self) {
        self.retire();
        self.worker.end();
    }

    /// Notes that the process has ended, for the sessions' tasks.
    pub(super) fn has_exited(&self, status: &io::Result<ExitStatus>) {
        self.retire();
        // A process that cannot be waited for counts as killed.
        let killed = || ExitStatusExt::from_raw(9);
        let status = status.as_ref().copied().unwrap_or_else(|_| killed());
        self.exited.send_replace(Some(status));
    }

    /// Notes which workers' sessions were busy when the process ended, of all that the daemon has.
    pub(super) fn suspect(&self, mut busy: Vec<u64>) {
        let sessions = self.sessions.lock();
        busy.retain(|serial| sessions.iter().any(|of| of.serial == *serial));
        let _ = self.suspects.set(busy);
    }

    /// Whether this session may have ended the process: it had commands or builds in progress, or no session had any.
    pub(super) fn may_be_the_cause(&self, session: &Worker) -> bool {
        let busy = self.suspects.get().map_or(&[][..], Vec::as_slice);
        busy.is_empty() || busy.contains(&session.serial)
    }

    /// Returns why this session of a crashed or killed host has ended, for its client.
    fn loss_reason(&self, status: ExitStatus, session: &Worker) -> String {
        if let Some(reason) = self.condemned.get() {
            return reason.clone();
        }
        let domain = self.domain.name();
        let how = process::describe(status);
        let suspects = self.suspects.get().map_or(&[][..], Vec::as_slice);
        let cause = Cause::of(status.signal(), suspects, session.serial);
        format!(
            "the process that served the sessions of {domain} ended ({how}); {cause}; CAUSEWAY_ISOLATED=1 asks for a \
             process of its own"
        )
    }

    /// Kills the host because `cause` does not end, after its neighbours' clients were told so. A neighbour whose commands are
    /// executed again does not end, and is not told.
    fn condemn(self: &Arc<Host>, cause: &Worker) {
        let domain = self.domain.name();
        let reason = format!(
            "the process that serves the sessions of {domain} is ended, because a session that has left does not end: a \
             kernel, or the driver, does not return; that other session is the likely cause; CAUSEWAY_ISOLATED=1 asks \
             for a process of its own"
        );
        if self.condemned.set(reason.clone()).is_err() {
            return;
        }
        let sessions = {
            // Locked, so that each session is told, or is not added.
            let sessions = self.sessions.lock();
            self.retire();
            sessions.clone()
        };
        let neighbours = sessions.iter();
        let neighbours = neighbours.filter(|of| of.serial != cause.serial && !of.reexecutes());
        let mut told = 0;
        for neighbour in neighbours {
            neighbour.end_because(&reason);
            told += 1;
        }
        tracing::warn!(
            worker = self.worker.serial,
            session = cause.serial,
            domain,
            neighbours = told,
            "a session of a host has not ended in time; the host is killed with its other sessions"
        );
        let host = Arc::clone(self);
        tokio::spawn(async move {
            if told > 0 {
                tokio::time::sleep(TELL_WITHIN).await;
            }
            host.worker.kill();
        });
    }
}

/// The part that a session had in the end of its host's process, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Cause {
    #[error("somebody or the system, which may lack memory, killed it")]
    Killed,
    #[error("no session had commands or builds in progress, so the driver may be the cause")]
    Nobody,
    #[error("only this session had commands or builds in progress, so it is the likely cause")]
    This,
    #[error(
        "this session had no commands or builds in progress, so another one is the likely cause"
    )]
    Another,
    #[error(
        "this session and {0} others had commands or builds in progress, so one of them is the likely cause"
    )]
    OneOfThese(usize),
}

impl Cause {
    /// Judges by the signal that ended the process, and by the sessions that were busy then.
    fn of(signal: Option<i32>, busy: &[u64], session: u64) -> Cause {
        const SIGKILL: i32 = 9;
        match (busy.len(), busy.contains(&session)) {
            _ if signal == Some(SIGKILL) => Cause::Killed,
            (0, _) => Cause::Nobody,
            (1, true) => Cause::This,
            (all, true) => Cause::OneOfThese(all - 1),
            (_, false) => Cause::Another,
        }
    }
}

/// What runs a [`Worker`].
pub(super) enum Body {
    /// A process of its own.
    Own(Box<Process>),
    Hosted(Hosted),
}

/// A session's part in its host.
pub(super) struct Hosted {
    host: Arc<Host>,
    exited: watch::Receiver<Option<ExitStatus>>,
}

impl Hosted {
    pub(super) fn new(host: &Arc<Host>) -> Hosted {
        Hosted {
            host: Arc::clone(host),
            exited: host.exited.subscribe(),
        }
    }
}

impl Body {
    /// Waits until the process has ended. Cancel safe.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            Body::Own(process) => process.wait().await,
            Body::Hosted(hosted) => {
                let exited = hosted.exited.wait_for(Option::is_some).await;
                let exited = exited.map_err(io::Error::other)?;
                Ok(exited.unwrap_or_default())
            }
        }
    }

    /// Kills the process of the session, which is `worker`.
    pub(super) fn kill(&self, worker: &Worker) {
        match self {
            Body::Own(process) => process.kill(),
            Body::Hosted(hosted) => hosted.host.condemn(worker),
        }
    }

    /// Returns the id of the process that runs the session, if it has not been reaped.
    pub(super) fn id(&self) -> Option<u32> {
        match self {
            Body::Own(process) => process.id(),
            Body::Hosted(hosted) => hosted.host.worker.process_id(),
        }
    }

    /// Has a host take no further session.
    pub(super) fn retire(&self) {
        if let Body::Hosted(hosted) = self {
            hosted.host.retire();
        }
    }

    /// Returns whether the session is in a host.
    pub(super) fn is_hosted(&self) -> bool {
        matches!(self, Body::Hosted(_))
    }

    /// Returns whether `session` is in a host in which another session is not about to end.
    pub(super) fn has_neighbour(&self, session: &Worker) -> bool {
        let Body::Hosted(hosted) = self else {
            return false;
        };
        let sessions = hosted.host.sessions.lock();
        let mut others = sessions.iter().filter(|of| of.serial != session.serial);
        others.any(|of| !of.is_ending())
    }

    /// Returns what the client of `session` is told, which ends with its host's process.
    pub(super) fn loss_reason(&self, status: ExitStatus, session: &Worker) -> Option<String> {
        match self {
            Body::Own(_) => None,
            Body::Hosted(hosted) => Some(hosted.host.loss_reason(status, session)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::{Assignment, ToWorker};
    use crate::supervisor::domains::tests::domain_of;
    use crate::supervisor::worker::EndRequest;
    use causeway_proto::id::SessionId;

    fn session(serial: u64) -> Arc<Worker> {
        Worker::hosted(serial, None, None).unwrap().0
    }

    fn reexecuted_assignment() -> ToWorker {
        ToWorker::Assign {
            assignment: Box::new(Assignment {
                reexecutes: true,
                ..Assignment::of_test(SessionId([1; 16]))
            }),
            page: std::fs::File::open("/dev/null").unwrap().into(),
        }
    }

    #[tokio::test]
    async fn a_session_is_told_of_a_kill_or_is_not_added() {
        let host = Host::new(session(1), domain_of("ann"));
        let (cause, neighbour) = (session(2), session(3));
        let reexecuted = session(5);
        reexecuted.note_assignment(&reexecuted_assignment());
        assert!(host.add(&cause) && host.add(&neighbour) && host.add(&reexecuted));
        host.condemn(&cause);
        assert_eq!(neighbour.was_asked(), EndRequest::ToEnd);
        assert_eq!(reexecuted.was_asked(), EndRequest::Nothing);
        assert!(!host.add(&session(4)) && host.sessions() == 3);
        // The signal is the daemon's own.
        let reason = host.loss_reason(ExitStatus::from_raw(9), &cause);
        assert_eq!(Some(reason.as_str()), neighbour.end_reason());
    }

    #[tokio::test]
    async fn a_session_is_no_neighbour_of_its_own() {
        let host = Host::new(session(1), domain_of("ann"));
        let (alone, neighbour) = (session(2), session(3));
        host.add(&alone);
        let body = Body::Hosted(Hosted::new(&host));
        assert!(!body.has_neighbour(&alone));
        host.add(&neighbour);
        assert!(body.has_neighbour(&alone));
        neighbour.end();
        assert!(!body.has_neighbour(&alone));
    }

    #[test]
    fn a_session_is_told_whether_it_was_the_cause() {
        const CRASH: Option<i32> = Some(11);
        assert_eq!(Cause::of(CRASH, &[], 1), Cause::Nobody);
        assert_eq!(Cause::of(CRASH, &[1], 1), Cause::This);
        assert_eq!(Cause::of(CRASH, &[2], 1), Cause::Another);
        assert_eq!(Cause::of(CRASH, &[2, 1, 3], 1), Cause::OneOfThese(2));
        assert_eq!(Cause::of(None, &[1], 1), Cause::This);
        assert_eq!(Cause::of(Some(9), &[1], 1), Cause::Killed);
    }
}
