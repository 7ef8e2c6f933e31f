//! Moves the sessions of a lease to another node, and takes over those of other nodes.
//!
//! ```text
//! manager -- Move --> old node: parks all sessions of the lease (`workers::moving`)
//!                     old node -- TakeSessions: lease, then each ticket with its contents --> new node
//!                     old node <----------------------- SessionsTaken ---------------------- places, sessions
//! manager <-- MoveEnded -- old node
//! manager -- Withdraw --> old node: releases the sessions; or Stay: they go on there
//! ```
//!
//! This module decides nothing about leases: the manager has granted the new node's units before, and withdraws the
//! grant of either node afterwards. Invariants: a session's contents are released here only when the manager withdraws the
//! lease. One move of a lease is under way at a time.

use std::fs::File;
use std::io::{Read, Seek};
use std::time::Duration;

use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{Inventory, SessionPart, SessionsTaken, Taking, session_part::Part};
use causeway_proto::manager::{Move, MoveEnded, from_node};
use causeway_proto::request::answer_of;
use causeway_proto::request::property::GLOBAL_MEM_SIZE;
use causeway_proto::version::{self, WireVersion};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use causeway_serving::gate::Peer;

use super::super::authentication::{self, User};
use super::super::exclusive::Claim;
use super::super::parked::Ticket;
use super::super::workers::{Arrived, Departing};
use super::contents::Writer;
use super::name::{DeviceAt, Epoch, LeaseId};
use super::{Managed, Opened, dial};
use crate::config::ManagerAddress;
use crate::handover::Leased;

/// Bytes of contents in one message.
const PIECE: usize = 48 << 10;
/// Messages that wait for the network.
const QUEUED: usize = 32;
/// Time for the other node to say that it has all sessions, after the last of their bytes.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Longest time without any part of a session.
const SILENT_FOR: Duration = Duration::from_secs(30);
/// Most bytes of a lease's sessions beside the contents of its devices' memory.
const BESIDE_MEMORY: u64 = 2 << 30;
/// Most sessions of one lease that move together.
const MOST_SESSIONS: u32 = 1024;

/// Why the sessions of a lease have not moved.
#[derive(Debug)]
struct NotMoved {
    reason: String,
    /// Whether another node may take them.
    elsewhere: bool,
}

impl NotMoved {
    fn stays(reason: impl Into<String>) -> NotMoved {
        NotMoved {
            reason: reason.into(),
            elsewhere: false,
        }
    }

    fn not_taken(reason: impl Into<String>) -> NotMoved {
        NotMoved {
            reason: reason.into(),
            elsewhere: true,
        }
    }
}

/// A move of a lease that is under way.
pub(super) struct Underway {
    epoch: Epoch,
    target: u64,
    /// Dropped to stop the move.
    _goes_on: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Managed {
    /// Handles the manager's order to move a lease. Reports the result to the manager.
    pub(super) fn begin_move(&self, lease: LeaseId, order: Move) {
        let until = Instant::now() + Duration::from_millis(order.within_ms);
        let (goes_on, stopped) = oneshot::channel();
        let (epoch, target) = (Epoch(order.epoch), order.target_epoch);
        let mut state = self.0.state.lock();
        state.moved.remove(&lease);
        let before = state.moves.remove(&lease);
        let managed = self.clone();
        let task = tokio::spawn(async move {
            if let Some(Underway { _goes_on, task, .. }) = before {
                drop(_goes_on);
                let _ = task.await;
            }
            let moved = managed.move_lease(lease, order, until, stopped).await;
            managed.end_move(lease, epoch, target, moved);
        });
        let underway = Underway {
            epoch,
            target,
            _goes_on: goes_on,
            task,
        };
        state.moves.insert(lease, underway);
    }

    fn end_move(&self, lease: LeaseId, epoch: Epoch, target: u64, moved: Result<(), NotMoved>) {
        match &moved {
            Ok(()) => tracing::info!(?lease, "another node has taken the lease's sessions"),
            Err(not) => tracing::warn!(?lease, reason = not.reason, "the lease has not moved"),
        }
        let (reason, elsewhere) = match moved {
            Ok(()) => (String::new(), false),
            Err(not) => (not.reason, not.elsewhere),
        };
        let ended = MoveEnded {
            lease_id: lease.0.to_vec().into(),
            epoch: epoch.0,
            reason,
            elsewhere,
            target_epoch: target,
        };
        let mut state = self.0.state.lock();
        if let Some(manager) = &state.manager {
            manager.push(from_node::Message::MoveEnded(ended.clone()));
        }
        // A later order may be waiting for this end.
        if state
            .moves
            .get(&lease)
            .is_some_and(|of| of.target == target)
        {
            state.moves.remove(&lease);
        }
        // Repeated after the next hello, in case that this message is lost. The grant's withdrawal removes it.
        if state.grants.has(lease) {
            state.moved.insert(lease, ended);
        }
    }

    /// Handles that the sessions of a lease go on here, whatever has become of its move.
    pub(super) fn stay(&self, lease: LeaseId, epoch: Epoch) {
        {
            let mut state = self.0.state.lock();
            if !state.grants.serves(lease, epoch) {
                return;
            }
            if state.moves.get(&lease).is_some_and(|of| of.epoch == epoch) {
                // Stops the move, which then lets the sessions go on.
                state.moves.remove(&lease);
                return;
            }
            let has_sent = |ended: &MoveEnded| ended.reason.is_empty();
            if state.moved.remove(&lease).is_none_or(|of| !has_sent(&of)) {
                return;
            }
        }
        tracing::warn!(
            ?lease,
            "the other node is lost; the lease's sessions go on here"
        );
        self.0.workers.stay(lease);
    }

    // Moves a lease until then, unless it is `stopped`.
    async fn move_lease(
        &self,
        lease: LeaseId,
        order: Move,
        until: Instant,
        mut stopped: oneshot::Receiver<()>,
    ) -> Result<(), NotMoved> {
        let serves = self.0.state.lock().grants.serves(lease, Epoch(order.epoch));
        if !serves {
            return Err(NotMoved::stays("the node does not serve this grant of it"));
        }
        let target = order.target.unwrap_or_default();
        let workers = &self.0.workers;
        // Before any session stands still.
        drop(self.reach(&target.addresses, until).await?);
        let departing = workers.park_lease(lease, until.into_std()).await;
        let departing = departing.map_err(NotMoved::stays)?;
        let sent = async {
            // Anew, because the other node ends idle connections, and a session may have taken long to stand still.
            let mut client = self.reach(&target.addresses, until).await?;
            let sent = send(&mut client, order.credential, departing, self);
            let sent = tokio::time::timeout_at(until, sent).await;
            sent.unwrap_or_else(|_| Err(Status::deadline_exceeded("it took too long")))
                .map_err(|status| {
                    let (name, why) = (&target.name, status.message());
                    NotMoved::not_taken(format!("node {name} did not take its sessions: {why}"))
                })
        };
        let sent = tokio::select! {
            sent = sent => sent,
            _ = &mut stopped => Err(NotMoved::not_taken("the manager has lost the other node")),
        };
        match sent {
            Ok(()) => workers.have_sent(lease),
            Err(_) => workers.stay(lease),
        }
        sent
    }

    async fn reach(
        &self,
        addresses: &[String],
        until: Instant,
    ) -> Result<NodeClient<tonic::transport::Channel>, NotMoved> {
        let mut last = "it has no address".to_owned();
        for address in addresses {
            let Some(address) = ManagerAddress::parse(address) else {
                continue;
            };
            let dialed = dial::dial(&address, self.0.settings.tls.as_ref());
            match tokio::time::timeout_at(until, dialed).await {
                Ok(Ok(channel)) => return Ok(NodeClient::new(channel)),
                Ok(Err(error)) => last = error.at_node(),
                Err(_) => last = "it did not answer in time".to_owned(),
            }
        }
        Err(NotMoved::not_taken(format!(
            "the other node cannot be reached: {last}"
        )))
    }

    /// Takes over the parked sessions of a lease. `inventory` is this node's.
    ///
    /// # Errors
    /// The reason for which none is taken.
    pub(in crate::supervisor) async fn take_sessions(
        &self,
        mut parts: Streaming<SessionPart>,
        inventory: &Inventory,
        peer: Option<Peer>,
    ) -> Result<SessionsTaken, Status> {
        let Some(Part::Taking(taking)) = next(&mut parts).await? else {
            return Err(Status::invalid_argument("the first part is not `taking`"));
        };
        version::check(taking.wire_version)
            .map_err(|mismatch| Status::failed_precondition(mismatch.to_string()))?;
        if taking.sessions > MOST_SESSIONS {
            return Err(Status::resource_exhausted("too many sessions at once"));
        }
        let files = self.0.workers.contents_files();
        let mut writer = Writer::start(move || files.make());
        let (mut arrived, mut room) = (Vec::new(), 0);
        while let Some(part) = next(&mut parts).await? {
            match part {
                Part::Ticket(ticket) if (arrived.len() as u32) < taking.sessions => {
                    let ticket = Ticket::from_bytes(&ticket).ok_or_else(|| {
                        Status::invalid_argument("a session's description is damaged")
                    })?;
                    let admitted = self.admit(&taking.credential, &User(None));
                    let (place, leased) =
                        admitted.map_err(|error| Status::permission_denied(error.to_string()))?;
                    if let Some(peer) = &peer {
                        authentication::let_in(peer)?;
                    }
                    let may_use = |at: &DeviceAt| place.devices().contains_key(at);
                    if Claim::of(inventory, may_use, None).is_some() {
                        return Err(Status::failed_precondition(
                            "its device is in exclusive compute mode",
                        ));
                    }
                    if arrived.is_empty() {
                        room = BESIDE_MEMORY.saturating_add(memory_of(inventory, &leased));
                    }
                    writer.begin().await?;
                    arrived.push((ticket, place, leased));
                }
                Part::Contents(bytes) => {
                    if arrived.is_empty() {
                        return Err(Status::invalid_argument("contents of no session"));
                    }
                    room = room.checked_sub(bytes.len() as u64).ok_or_else(|| {
                        Status::resource_exhausted(
                            "the sessions have more than their devices' memory",
                        )
                    })?;
                    writer.write(bytes).await?;
                }
                Part::Ticket(_) | Part::Taking(_) => {
                    return Err(Status::invalid_argument("a part comes at the wrong place"));
                }
            }
        }
        if arrived.len() as u32 != taking.sessions {
            return Err(Status::invalid_argument(
                "the stream ends before the last session",
            ));
        }
        let contents = writer.end().await?;
        let arrived = arrived.into_iter().zip(contents);
        let arrived = arrived.map(|((ticket, place, leased), contents)| Arrived {
            ticket,
            contents,
            place,
            leased,
        });
        let arrived: Vec<Arrived> = arrived.collect();
        let opened: Vec<Opened> = arrived.iter().map(|of| of.place.opened()).collect();
        let taken = self.0.workers.arrive(arrived);
        taken.map_err(Status::failed_precondition)?;
        // Ends the sessions at once if the grant was withdrawn meanwhile.
        for place in opened {
            place.tell();
        }
        Ok(SessionsTaken {})
    }
}

async fn next(parts: &mut Streaming<SessionPart>) -> Result<Option<Part>, Status> {
    let part = tokio::time::timeout(SILENT_FOR, parts.message()).await;
    let part =
        part.map_err(|_| Status::deadline_exceeded("no part of a session came in time"))??;
    match part {
        None => Ok(None),
        Some(SessionPart { part: Some(part) }) => Ok(Some(part)),
        Some(SessionPart { part: None }) => Err(Status::invalid_argument("an empty part")),
    }
}

async fn send(
    client: &mut NodeClient<tonic::transport::Channel>,
    credential: bytes::Bytes,
    departing: Vec<Departing>,
    managed: &Managed,
) -> Result<(), Status> {
    let (parts, sent) = mpsc::channel(QUEUED);
    let taking = Taking {
        wire_version: WireVersion::CURRENT.number().into(),
        credential,
        sessions: u32::try_from(departing.len()).unwrap_or(u32::MAX),
    };
    let reading = tokio::task::spawn_blocking(move || read(&parts, taking, departing));
    let mut request = tonic::Request::new(ReceiverStream::new(sent));
    dial::authorize(&mut request, managed.0.settings.token.as_ref());
    let mut taken = client.take_sessions(request).await?.into_inner();
    let answer = async {
        let answer = taken.next().await;
        answer.unwrap_or_else(|| Err(Status::unavailable("the node closed the connection")))
    };
    tokio::pin!(answer);
    // An answer before the last part is a refusal.
    let read = tokio::select! {
        answer = &mut answer => return answer.map(drop),
        read = reading => read,
    };
    read.map_err(|error| Status::internal(error.to_string()))??;
    let answer = tokio::time::timeout(TAKEN_WITHIN, answer).await;
    answer.map_err(|_| Status::deadline_exceeded("it did not answer in time"))??;
    Ok(())
}

// Sends all parts. The files are read on a thread that may wait for a disk.
fn read(
    parts: &mpsc::Sender<SessionPart>,
    taking: Taking,
    departing: Vec<Departing>,
) -> std::io::Result<()> {
    let push = |part: Part| {
        // The call has ended, whose answer says why.
        let _ = parts.blocking_send(SessionPart { part: Some(part) });
    };
    push(Part::Taking(taking));
    for Departing {
        ticket,
        mut contents,
    } in departing
    {
        push(Part::Ticket(ticket.to_bytes().into()));
        contents.rewind()?;
        while !parts.is_closed() {
            let piece = piece(&mut contents)?;
            if piece.is_empty() {
                break;
            }
            push(Part::Contents(piece.into()));
        }
    }
    Ok(())
}

fn piece(contents: &mut File) -> std::io::Result<Vec<u8>> {
    let mut piece = Vec::with_capacity(PIECE);
    contents.take(PIECE as u64).read_to_end(&mut piece)?;
    Ok(piece)
}

/// Bytes of memory that a session may have on these devices.
fn memory_of(inventory: &Inventory, leased: &[Leased]) -> u64 {
    let memory = leased.iter().map(|of| match of.memory {
        0 => whole_memory(inventory, of),
        limit => limit,
    });
    memory.fold(0, u64::saturating_add)
}

fn whole_memory(inventory: &Inventory, of: &Leased) -> u64 {
    let platform = inventory.platforms.get(of.platform as usize);
    let device = platform.and_then(|platform| platform.devices.get(of.device as usize));
    let bytes = device.and_then(|device| answer_of(&device.info, GLOBAL_MEM_SIZE));
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}
