//! The `sockets` thread: what the supervisor sends.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use causeway_proto::preamble::{PREAMBLE, Preamble, Purpose, Verdict};
use causeway_serving::logging;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::ending::Ending;
use super::stage::Stage;
use super::{named, peer, proof, pulse};
use crate::accounting::{Counter, Slot};
use crate::build_cache::Client;
use crate::handover::{self, Assignment, ToWorker};
use crate::worker::confine;
use crate::worker::connection::Connection;

/// Hears the supervisor until it closes its end; then the worker ends.
pub(super) fn receive(
    channel: &OwnedFd,
    stage: &Arc<Stage>,
    commands: &mpsc::Sender<Connection>,
    builds: &Client,
) {
    let mut deadlines = None;
    let ending = loop {
        match next(channel, stage, deadlines.as_ref()) {
            Ok(Some(ToWorker::Assign { assignment, page })) => {
                name_in_log(&assignment);
                tracing::debug!("assigned");
                match Slot::adopt(&page, assignment.slot) {
                    Ok(account) => stage.count_in(account),
                    Err(error) => break Ending::Broken(format!("the page to count in: {error}")),
                }
                if let Err(error) = confine::limit_memory(assignment.limits.host_memory) {
                    break Ending::Broken(format!("the limit on memory: {error}"));
                }
                deadlines = Some(Deadlines::of(&assignment));
                builds.switch(assignment.build_cache);
                if let Err(error) = stage.assign(*assignment) {
                    break Ending::Broken(format!("the session's certificate: {error}"));
                }
            }
            Ok(Some(ToWorker::Connection { preamble, socket })) => {
                take(stage, commands, preamble, socket.into());
            }
            Ok(Some(ToWorker::Cached { ticket, entry })) => builds.answered(ticket, entry),
            Ok(Some(ToWorker::End { reason })) => break Ending::ToldToEnd(reason),
            Ok(None) => break Ending::SupervisorGone,
            Err(Unheard::Late(ending)) => break ending,
            Err(Unheard::Io(error)) => {
                break Ending::Broken(format!("the supervisor's socket: {error}"));
            }
        }
    };
    stage.endings.end(ending);
}

/// From now on every line of this process tells whose it is.
fn name_in_log(Assignment { id, owner, .. }: &Assignment) {
    let session = Some(("session", format!("{id:?}")));
    let lease = owner.lease.clone().map(|lease| ("lease", lease));
    let user = owner.user.clone().map(|user| ("user", user));
    logging::name_process([session, lease, user].into_iter().flatten());
}

/// What a new session has to do by when.
struct Deadlines {
    connected: Instant,
    begun: Instant,
}

impl Deadlines {
    fn of(assignment: &Assignment) -> Deadlines {
        let connected = Instant::now() + assignment.connect_limit;
        Deadlines {
            connected,
            begun: connected + assignment.load_limit,
        }
    }

    /// The next one that is not met yet, and how the worker ends when it is missed.
    fn next(&self, stage: &Stage) -> Option<(Instant, Ending)> {
        if !stage.has_commands() {
            Some((self.connected, Ending::NeverConnected))
        } else if stage.session_now().is_none() {
            let slow = "the node's OpenCL takes too long to load; a driver hangs".to_owned();
            Some((self.begun, Ending::Broken(slow)))
        } else {
            None
        }
    }
}

/// There is no next message.
enum Unheard {
    Late(Ending),
    Io(io::Error),
}

/// The next message, or what the session has not done in time.
fn next(
    channel: &OwnedFd,
    stage: &Stage,
    deadlines: Option<&Deadlines>,
) -> Result<Option<ToWorker>, Unheard> {
    while let Some((deadline, ending)) = deadlines.and_then(|deadlines| deadlines.next(stage)) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Unheard::Late(ending));
        }
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let mut fds = [PollFd::new(channel, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            // Met meanwhile, or not: see above.
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(Unheard::Io(error.into())),
        }
    }
    handover::receive_in_worker(channel).map_err(Unheard::Io)
}

/// Gives a new connection a thread to prove itself in.
fn take(
    stage: &Arc<Stage>,
    commands: &mpsc::Sender<Connection>,
    bytes: [u8; PREAMBLE],
    socket: TcpStream,
) {
    // The supervisor has decoded it before.
    let Ok(preamble) = Preamble::decode(&bytes) else {
        proof::refuse(&socket.into(), Verdict::Malformed);
        return;
    };
    let Some(proving) = stage.begin_proof(preamble.purpose) else {
        proof::refuse(&socket.into(), Verdict::TooMany);
        return;
    };
    let (stage, commands) = (Arc::clone(stage), commands.clone());
    let spawned = named("proof", move || {
        let taken = if preamble.purpose == Purpose::Peer {
            peer::prove(&stage, &preamble, &bytes, socket).map(|proved| {
                drop(proving);
                proved.attach();
            })
        } else {
            prove(&stage, &preamble, &bytes, socket).map(|connection| {
                drop(proving);
                attach(&stage, &commands, connection);
            })
        };
        if let Err(error) = taken {
            if let Some(account) = stage.account() {
                account.add(Counter::Refused, 1);
            }
            tracing::debug!(%error, purpose = ?preamble.purpose, "a connection was not taken");
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for a new connection");
    }
}

fn prove(
    stage: &Arc<Stage>,
    preamble: &Preamble,
    bytes: &[u8; PREAMBLE],
    socket: TcpStream,
) -> Result<Connection, proof::Refused> {
    let assignment = assignment(stage, preamble).and_then(|assignment| {
        proof::fits(&socket, preamble.purpose)?;
        stage.has_place(preamble)?;
        Ok(assignment)
    });
    let assignment = match assignment {
        Ok(assignment) => assignment,
        Err(verdict) => {
            proof::refuse(&socket.into(), verdict);
            return Err(verdict.into());
        }
    };
    // Closed last: who is refused after the proof finds the place free when it sees the end.
    let _open = socket.try_clone()?;
    let deadline = proof::deadline();
    let line = proof::secure(socket, preamble.purpose, stage.tls().as_ref(), deadline)?;
    let claim = || stage.claim(preamble);
    let place = proof::prove(&line, &assignment.secret, bytes, deadline, claim)?;
    let connection = proof::connection(line, preamble, assignment.heartbeat_limit)?;
    place.keep();
    Ok(connection)
}

/// The assignment, if it is of the session that the connection names.
pub(super) fn assignment(stage: &Stage, preamble: &Preamble) -> Result<Arc<Assignment>, Verdict> {
    stage
        .assignment()
        .filter(|assignment| assignment.id == preamble.session)
        .ok_or(Verdict::UnknownSession)
}

/// Puts a proved connection where it belongs. This thread becomes the pulse's.
fn attach(stage: &Stage, commands: &mpsc::Sender<Connection>, connection: Connection) {
    match connection {
        Connection::Commands(_) | Connection::CommandsGrpc(_) => {
            // It fails only when the session thread has gone, and then the worker ends.
            let _ = commands.send(connection);
        }
        Connection::Bulk { lane, stream } => stage.session().attach_bulk(lane, stream),
        Connection::Pulse(line) => {
            if let Some(assignment) = stage.assignment() {
                let interval = assignment.heartbeat_interval;
                stage.endings.end(pulse::beat(line, interval));
            }
        }
    }
}
