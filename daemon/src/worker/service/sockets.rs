//! The `sockets` thread: receives the supervisor's messages.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use causeway_lane::Stopped;
use causeway_proto::preamble::{ClientWord, Introduction, PREAMBLE, Preamble, Purpose, Verdict};
use causeway_security::{Line, SessionCertificate};
use causeway_serving::logging::Name;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::carrier::Arrived;
use super::ending::Ending;
use super::stage::{Commands, Stage};
use super::{Loading, Threads, heartbeat, parking, peer, proof};
use crate::accounting::{Counter, LedgerSlot};
use crate::build_cache::Client;
use crate::handover::{self, Assignment, SessionLine, ToWorker};
use crate::worker::connection::Connection;

/// Receives the supervisor's messages until it closes its end of the channel. Then the session ends. Stops if a
/// message makes the worker a host.
pub(super) fn receive(
    channel: &OwnedFd,
    stage: &Arc<Stage>,
    threads: &Threads,
    loading: &Arc<Loading>,
    builds: &Client,
) {
    let is_spare = || !threads.session.is_hosted() && stage.id().is_none();
    let mut deadlines = None;
    let ending = loop {
        match next(channel, stage, deadlines.as_ref()) {
            Ok(Some(ToWorker::Assign { assignment, page })) => {
                if is_spare() {
                    loading.warm.stop();
                }
                deadlines = Some(Deadlines::of(&assignment));
                if let Err(fault) = assign(*assignment, &page, stage, threads, builds) {
                    break Ending::Broken(fault);
                }
            }
            Ok(Some(ToWorker::Connection { preamble, socket })) => match socket {
                Some(socket) => take(stage, preamble, socket.into()),
                None => tracing::warn!(
                    "a worker has no free descriptor for a connection, which is refused; raise LimitNOFILE"
                ),
            },
            Ok(Some(ToWorker::Host { clears })) if is_spare() => {
                break Ending::IsHost { clears };
            }
            Ok(Some(ToWorker::Warm { devices })) if is_spare() => {
                loading.make_warm(channel, devices);
            }
            Ok(Some(ToWorker::Host { .. } | ToWorker::Session { .. } | ToWorker::Warm { .. })) => {
                break Ending::Broken(
                    "the supervisor sent a session a message that is for hosts or spare workers"
                        .to_owned(),
                );
            }
            Ok(Some(ToWorker::Restore { contents })) => stage.set_contents(contents),
            Ok(Some(ToWorker::Park { contents })) => parking::start(stage, contents),
            Ok(Some(ToWorker::Cached { ticket, entry })) => builds.answered(ticket, entry),
            Ok(Some(ToWorker::End { reason })) => break Ending::ToldToEnd(reason),
            Ok(None) => break Ending::SupervisorGone,
            Err(ReceiveError::Late(ending)) => break ending,
            Err(ReceiveError::Io(error)) => {
                break Ending::Broken(format!("the supervisor's socket failed: {error}"));
            }
        }
    };
    stage.endings.end(ending);
}

/// Gives the worker its session. `Err` is the reason why it cannot serve the session.
fn assign(
    assignment: Assignment,
    page: &OwnedFd,
    stage: &Stage,
    threads: &Threads,
    builds: &Client,
) -> Result<(), String> {
    threads.name_in_log(names(&assignment));
    tracing::debug!("the worker has a session now");
    let account = LedgerSlot::adopt(page, assignment.slot)
        .map_err(|error| format!("cannot map the supervisor's page of counters: {error}"))?;
    stage.count_in(account);
    let certificate = assignment.certificate.as_ref();
    let tls = certificate.map(SessionCertificate::server).transpose();
    let tls =
        tls.map_err(|error| format!("the worker cannot use the session's certificate: {error}"))?;
    // Nothing fails after this: the memory of a session that has an assignment is given back at its end.
    threads
        .limit_memory(assignment.limits.host_memory)
        .map_err(|error| format!("cannot set the session's limit on host memory: {error}"))?;
    builds.switch(assignment.build_cache);
    stage.assign(assignment, tls);
    Ok(())
}

/// Returns the session, lease and user, which the session's log lines have.
fn names(Assignment { id, owner, .. }: &Assignment) -> Vec<Name> {
    let session = Some(("session", format!("{id:?}")));
    let lease = owner.lease.clone().map(|lease| ("lease", lease));
    let user = owner.user.clone().map(|user| ("user", user));
    [session, lease, user].into_iter().flatten().collect()
}

/// The deadlines of a new session: for its command connection, and for OpenCL to be loaded.
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

    /// Returns the next deadline that is not met yet, and how the worker ends when it is missed.
    fn next(&self, stage: &Stage) -> Option<(Instant, Ending)> {
        if stage.awaits_commands() {
            Some((self.connected, Ending::NeverConnected))
        } else if stage.awaits_session() {
            let slow = "the node's OpenCL did not load before the timeout; run clinfo on the node to find the driver \
                        that hangs".to_owned();
            Some((self.begun, Ending::Broken(slow)))
        } else {
            None
        }
    }
}

/// Why there is no next message.
enum ReceiveError {
    Late(Ending),
    Io(io::Error),
}

/// Receives the next message. Returns an error if the session misses a deadline meanwhile.
fn next(
    channel: &OwnedFd,
    stage: &Stage,
    deadlines: Option<&Deadlines>,
) -> Result<Option<ToWorker>, ReceiveError> {
    while let Some((deadline, ending)) = deadlines.and_then(|deadlines| deadlines.next(stage)) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ReceiveError::Late(ending));
        }
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let mut fds = [PollFd::new(channel, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            // The deadline was met meanwhile, or has passed: the next round of the loop finds out.
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(ReceiveError::Io(error.into())),
        }
    }
    handover::receive_in_worker(channel).map_err(ReceiveError::Io)
}

/// Starts a thread in which a new connection proves the secret.
fn take(stage: &Arc<Stage>, bytes: [u8; PREAMBLE], socket: TcpStream) {
    // The supervisor has decoded the preamble before, so this does not fail.
    let Ok(preamble) = Preamble::decode(&bytes) else {
        proof::refuse(&socket.into(), Verdict::Malformed);
        return;
    };
    if stage.is_elsewhere() {
        proof::refuse(&socket.into(), Verdict::Parked);
        return;
    }
    let Some(proving) = stage.begin_proof(preamble.purpose, &socket) else {
        // A client that asks again and again learns that its session has ended.
        let verdict = match stage.is_closed() {
            true => Verdict::UnknownSession,
            false => Verdict::TooMany,
        };
        proof::refuse(&socket.into(), verdict);
        return;
    };
    let (stage, scope) = (Arc::clone(stage), stage.scope.clone());
    let spawned = scope.try_spawn("proof", move || {
        let taken = if preamble.purpose == Purpose::Peer {
            peer::prove(&stage, &preamble, &bytes, socket).map(|proved| {
                drop(proving);
                proved.attach();
            })
        } else {
            prove(&stage, &preamble, &bytes, socket).map(|proved| {
                drop(proving);
                attach(&stage, proved);
            })
        };
        if let Err(error) = taken {
            if let Some(account) = stage.account() {
                account.add(Counter::Refused, 1);
            }
            tracing::debug!(%error, purpose = ?preamble.purpose, "the worker refused a connection");
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "cannot start a thread for a new connection");
    }
}

fn prove(
    stage: &Arc<Stage>,
    preamble: &Introduction,
    bytes: &[u8; PREAMBLE],
    socket: TcpStream,
) -> Result<Proved, proof::Refused> {
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
    // Closed last. A client that is refused after the proof then finds the place free when it sees the end.
    let _open = socket.try_clone()?;
    let deadline = proof::deadline();
    let line = proof::secure(socket, preamble.purpose, stage.tls().as_ref(), deadline)?;
    let mut word = ClientWord::default();
    let claim = |of: &ClientWord| {
        word = *of;
        stage.claim(preamble, of)
    };
    let place = proof::prove(&line, &assignment.secret, bytes, deadline, claim)?;
    let connection = proof::connection(line, preamble, assignment.heartbeat_limit)?;
    let (number, stopped) = place.keep();
    Ok(Proved {
        connection,
        word,
        number,
        stopped,
    })
}

/// A connection that has proved the secret, with its place.
struct Proved {
    connection: Connection,
    word: ClientWord,
    /// Number of the connection in its place.
    number: u64,
    /// Of a lane that goes on over the connection.
    stopped: Option<Stopped>,
}

/// Returns the assignment if it is of the session that the connection names.
pub(super) fn assignment(
    stage: &Stage,
    preamble: &Introduction,
) -> Result<Arc<Assignment>, Verdict> {
    stage
        .assignment()
        .filter(|assignment| preamble.is_for(&assignment.id))
        .ok_or(Verdict::UnknownSession)
}

/// Hands an authenticated connection to its user. For the heartbeat connection, this thread
/// sends the heartbeats.
fn attach(stage: &Arc<Stage>, proved: Proved) {
    let Proved {
        connection,
        word,
        number,
        stopped,
    } = proved;
    let carry = |line: Line, is_grpc| {
        if stage.show_client(SessionLine::Commands, number, line.socket(), &word) {
            let arrived = Arrived {
                line,
                number,
                position: word.position,
            };
            stage.carry(Commands { arrived, is_grpc });
        }
    };
    match connection {
        Connection::Commands(line) => carry(line, false),
        Connection::CommandsGrpc(line) => carry(line, true),
        Connection::Bulk { lane, stream } => {
            if let Some(session) = stage.session() {
                match stopped {
                    None => session.attach_bulk(lane, stream),
                    Some(after) => session.resume_lane(lane, after, stream, word.position),
                }
            }
        }
        Connection::Heartbeat(line) => {
            if !stage.show_client(SessionLine::Heartbeat, number, line.socket(), &word) {
                return;
            }
            if let Some(assignment) = stage.assignment() {
                let interval = assignment.heartbeat_interval;
                let acknowledge = |event| stage.acknowledge(number, event);
                let acknowledge = stage.resumes().then_some(acknowledge);
                match heartbeat::beat(line, interval, acknowledge) {
                    lost @ (Ending::ClientClosed | Ending::ClientLost { .. }) => {
                        stage.ended(SessionLine::Heartbeat, number, lost);
                    }
                    ending => stage.endings.end(ending),
                }
            }
        }
    }
}
