//! The `sockets` thread: what the supervisor sends.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use causeway_proto::preamble::{PREAMBLE, Preamble, Verdict};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::ending::Ending;
use super::stage::Stage;
use super::{named, proof, pulse};
use crate::handover::{self, ToWorker};
use crate::worker::confine;
use crate::worker::connection::Connection;

/// Hears the supervisor until it closes its end; then the worker ends.
pub(super) fn receive(channel: &OwnedFd, stage: &Arc<Stage>, commands: &mpsc::Sender<Connection>) {
    let mut deadline = None;
    let ending = loop {
        match next(channel, stage, deadline) {
            Ok(Some(ToWorker::Assign(assignment))) => {
                tracing::debug!(session = ?assignment.id, "assigned");
                if let Err(error) = confine::limit_memory(assignment.limits.host_memory) {
                    break Ending::Broken(format!("the limit on memory: {error}"));
                }
                deadline = Some(Instant::now() + assignment.connect_limit);
                stage.assign(assignment);
            }
            Ok(Some(ToWorker::Connection { preamble, socket })) => {
                take(stage, commands, preamble, socket.into());
            }
            Ok(None) => break Ending::SupervisorGone,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => break Ending::NeverConnected,
            Err(error) => break Ending::Broken(format!("the supervisor's socket: {error}")),
        }
    };
    stage.endings.end(ending);
}

/// The next message; `TimedOut` when the command connection has not come by the deadline.
fn next(
    channel: &OwnedFd,
    stage: &Stage,
    deadline: Option<Instant>,
) -> io::Result<Option<ToWorker>> {
    while let Some(deadline) = deadline
        && !stage.has_commands()
    {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap_or_default();
        let mut fds = [PollFd::new(channel, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) if !stage.has_commands() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    handover::receive_in_worker(channel)
}

/// Gives a new connection a thread to prove itself in.
fn take(
    stage: &Arc<Stage>,
    commands: &mpsc::Sender<Connection>,
    preamble: [u8; PREAMBLE],
    socket: TcpStream,
) {
    let Some(proving) = stage.begin_proof() else {
        proof::refuse(&socket, Verdict::TooMany);
        return;
    };
    let (stage, commands) = (Arc::clone(stage), commands.clone());
    let spawned = named("proof", move || {
        let proved = prove(&stage, &preamble, socket);
        drop(proving);
        match proved {
            Ok(connection) => attach(&stage, &commands, connection),
            Err(error) => tracing::debug!(%error, "a connection was not taken"),
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for a new connection");
    }
}

fn prove(
    stage: &Arc<Stage>,
    bytes: &[u8; PREAMBLE],
    socket: TcpStream,
) -> Result<Connection, proof::Refused> {
    // The supervisor has decoded it before.
    let preamble = Preamble::decode(bytes)?;
    let assignment = stage
        .assignment()
        .filter(|assignment| assignment.id == preamble.session)
        .ok_or(proof::Refused::Verdict(Verdict::UnknownSession));
    let free = assignment.and_then(|assignment| {
        stage.has_place(&preamble)?;
        Ok(assignment)
    });
    let assignment = free.inspect_err(|refused| {
        if let proof::Refused::Verdict(verdict) = refused {
            proof::refuse(&socket, *verdict);
        }
    })?;
    let place = proof::prove(&socket, &assignment.secret, bytes, || {
        stage.claim(&preamble)
    })?;
    let connection = proof::connection(socket, &preamble, assignment.heartbeat_limit)?;
    place.keep();
    Ok(connection)
}

/// Puts a proved connection where it belongs. This thread becomes the pulse's.
fn attach(stage: &Stage, commands: &mpsc::Sender<Connection>, connection: Connection) {
    match connection {
        Connection::Commands(_) | Connection::CommandsGrpc(_) => {
            // It fails only when the session thread has gone, and then the worker ends.
            let _ = commands.send(connection);
        }
        Connection::Bulk { lane, socket } => stage.session().attach_bulk(lane, socket),
        Connection::Pulse(socket) => {
            if let Some(assignment) = stage.assignment() {
                stage
                    .endings
                    .end(pulse::beat(&socket, assignment.heartbeat_interval));
            }
        }
    }
}
