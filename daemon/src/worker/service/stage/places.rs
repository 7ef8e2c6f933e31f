//! The places of a session's connections, and who has them.
#![forbid(unsafe_code)]

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use causeway_lane::Stopped;
use causeway_proto::preamble::{ClientWord, Introduction, Purpose, Verdict};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Stage, StageState};
use crate::handover::SessionLine;
use crate::takeovers::Takeovers;
use crate::worker::service::ending::Ending;
use crate::worker::service::presence::How;

/// The place of the client's commands or heartbeats.
#[derive(Default)]
pub(super) struct Taken {
    /// Whether a connection has the place, or had it.
    pub(super) is_taken: bool,
    /// The purpose of the first connection. Later ones have the same.
    pub(super) purpose: Option<Purpose>,
    /// Number of the newest connection.
    pub(super) number: u64,
    /// The newest connection, to be shut down when the session is away, or ends and its host goes on.
    pub(super) socket: Option<TcpStream>,
    pub(super) takeovers: Takeovers,
}

impl Taken {
    /// Whether the newest connection has not ended, as far as the system knows.
    fn is_alive(&self) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
        let looked = rustix::event::poll(&mut fds, Some(&Timespec::default()));
        looked.is_ok() && !fds[0].revents().intersects(ends)
    }

    pub(super) fn shut_down(&mut self) {
        if let Some(socket) = self.socket.take() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum ConnectionPlace {
    Commands,
    Heartbeat,
    Lane(u64),
    SharedLane(u64),
}

impl ConnectionPlace {
    /// Whether this is the place of a bulk lane.
    pub(super) fn is_of_lane(self) -> bool {
        matches!(
            self,
            ConnectionPlace::Lane(_) | ConnectionPlace::SharedLane(_)
        )
    }

    /// Takes the place. Returns the number of the connection in it, and whether there was one before.
    pub(super) fn take(self, state: &mut StageState, preamble: &Introduction) -> (u64, bool) {
        let taken = match self {
            ConnectionPlace::Commands => &mut state.commands,
            ConnectionPlace::Heartbeat => &mut state.heartbeat,
            ConnectionPlace::Lane(bit) => {
                let was_taken = state.lanes & bit != 0;
                state.lanes |= bit;
                let session = state.session.as_deref();
                if was_taken && session.is_some_and(|of| of.is_lane_up(preamble.lane)) {
                    let takeovers = state.lane_takeovers.entry(preamble.lane).or_default();
                    takeovers.may_take(Instant::now());
                }
                return (0, was_taken);
            }
            ConnectionPlace::SharedLane(bit) => {
                state.shared_lanes |= bit;
                return (0, false);
            }
        };
        let was_taken = std::mem::replace(&mut taken.is_taken, true);
        // Who comes back after a broken connection takes nothing from anybody.
        if was_taken && taken.is_alive() {
            taken.takeovers.may_take(Instant::now());
        }
        taken.purpose = Some(preamble.purpose);
        taken.number += 1;
        taken.shut_down();
        (taken.number, was_taken)
    }

    /// Frees the place, because the connection with this number broke before its use. A later connection keeps it.
    fn free(self, state: &mut StageState, number: u64) {
        let taken = match self {
            ConnectionPlace::Commands => &mut state.commands,
            ConnectionPlace::Heartbeat => &mut state.heartbeat,
            ConnectionPlace::Lane(bit) => return state.lanes &= !bit,
            ConnectionPlace::SharedLane(bit) => return state.shared_lanes &= !bit,
        };
        if taken.number == number {
            taken.is_taken = false;
        }
    }
}

/// A claimed place, which is free again if the connection breaks before its use.
pub(in super::super) struct Claimed {
    pub(super) stage: Arc<Stage>,
    pub(super) place: ConnectionPlace,
    pub(super) number: u64,
    pub(super) was_taken: bool,
    /// Of a lane that goes on over the connection.
    pub(super) stopped: Option<Stopped>,
    pub(super) is_kept: bool,
}

impl Claimed {
    /// Keeps the place claimed, because the connection is in use. Returns the connection's number in its place, and
    /// where its lane was stopped.
    pub(in super::super) fn keep(mut self) -> (u64, Option<Stopped>) {
        self.is_kept = true;
        (self.number, self.stopped)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let line = match self.place {
            ConnectionPlace::Commands => Some(SessionLine::Commands),
            ConnectionPlace::Heartbeat => Some(SessionLine::Heartbeat),
            ConnectionPlace::Lane(_) | ConnectionPlace::SharedLane(_) => None,
        };
        if self.was_taken {
            // The connection before was shut down for this one, with which the client was coming back.
            if let Some(line) = line {
                self.stage.comes_back(line, self.number);
                self.stage.ended(line, self.number, Ending::ClientClosed);
            }
            return;
        }
        self.place.free(&mut self.stage.state.lock(), self.number);
        if matches!(self.place, ConnectionPlace::Commands) && !self.stage.resumes() {
            // Nothing waits for a second command connection, and the client of this one is gone.
            self.stage.endings.end(Ending::ClientClosed);
        }
    }
}

pub(super) fn place(
    state: &StageState,
    preamble: &Introduction,
) -> Result<ConnectionPlace, Verdict> {
    let assignment = state.assignment.as_ref().ok_or(Verdict::UnknownSession)?;
    if state.is_over {
        return Err(Verdict::UnknownSession);
    }
    let free = |free: bool, place| {
        if free {
            Ok(place)
        } else {
            Err(Verdict::TooMany)
        }
    };
    let resumes = state.presence.resumes();
    let may_take = |taken: &Taken| {
        let same = taken.purpose == Some(preamble.purpose);
        let may_take_over = || !taken.is_alive() || taken.takeovers.would_allow(Instant::now());
        !taken.is_taken || resumes && same && may_take_over()
    };
    match preamble.purpose {
        Purpose::Commands | Purpose::CommandsGrpc => {
            free(may_take(&state.commands), ConnectionPlace::Commands)
        }
        Purpose::Heartbeat => free(may_take(&state.heartbeat), ConnectionPlace::Heartbeat),
        purpose @ (Purpose::Bulk | Purpose::SharedBulk) => {
            let lane = u32::from(preamble.lane);
            let bit = 1u64.checked_shl(lane).unwrap_or(0);
            let known = lane < assignment.bulk_connections;
            if purpose == Purpose::Bulk {
                let resumes_lane = || {
                    let takeovers = state.lane_takeovers.get(&preamble.lane);
                    let session = state.session.as_deref();
                    let allows = || takeovers.is_none_or(|of| of.would_allow(Instant::now()));
                    resumes
                        && session.is_some_and(|of| {
                            let lane = preamble.lane;
                            of.may_resume_lane(lane) && (!of.is_lane_up(lane) || allows())
                        })
                };
                let is_free = state.lanes & bit == 0;
                free(
                    known && (is_free || resumes_lane()),
                    ConnectionPlace::Lane(bit),
                )
            } else {
                free(
                    known && state.shared_lanes & bit == 0,
                    ConnectionPlace::SharedLane(bit),
                )
            }
        }
        // Connections of other workers have no place here: each link keeps its own.
        // A measurement has a process of its own.
        Purpose::Peer | Purpose::Measure | Purpose::Contents => Err(Verdict::Malformed),
    }
}

/// Whether nothing forwards the connection: the client has the address that this end sees.
pub(super) fn is_direct(socket: &TcpStream, word: &ClientWord) -> bool {
    let is_local = crate::worker::socket::is_local(socket).unwrap_or(false);
    let seen = || {
        let peer = socket.peer_addr().ok()?;
        Some(SocketAddr::new(peer.ip().to_canonical(), peer.port()))
    };
    is_local || word.origin.is_some() && word.origin == seen()
}

/// Returns how a connection ended, as far as that tells something about the client.
pub(super) fn how(ending: &Ending) -> How {
    match ending {
        Ending::ClientLost { error, .. } => match error.kind() {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidData
            // HTTP/2 hides the cause.
            | io::ErrorKind::Other => How::Closed,
            _ => How::Silent,
        },
        _ => How::Closed,
    }
}
