//! Moves the sessions of a lease to another node, and takes over those of other nodes.
//!
//! ```text
//! manager -- Move --> old node: parks all sessions of the lease (`workers::moving`)
//!                     old node -- TakeSessions: lease, then each session's contents, and its ticket --> new node
//!                     old node <----------------------- SessionsTaken ---------------------- places, sessions
//! manager <-- MoveEnded -- old node
//! manager -- Withdraw --> old node: releases the sessions; or Stay: they go on there
//! ```
//!
//! This module decides nothing about leases: the manager has granted the new node's units before, and withdraws the
//! grant of either node afterwards. Contents leave while the worker writes them.
//!
//! Invariants: a session's contents are released here only when the manager withdraws the lease. One move of a lease is
//! under way at a time. No thread sends for a move that has ended.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causeway_proto::control::node_client::NodeClient;
use causeway_proto::control::{Inventory, SessionPart, SessionsTaken, Taking, session_part::Part};
use causeway_proto::id::SessionId;
use causeway_proto::manager::{Move, MoveEnded, NodeShare, from_node};
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
use super::super::contents::{Contents, Writer};
use super::super::exclusive::Claim;
use super::super::inventory::Known;
use super::super::parked::Ticket;
use super::super::workers::{Arrived, ContentsFiles, Departing, Progress};
use super::name::{DeviceAt, Epoch, LeaseId};
use super::{Managed, Opened, Place, dial};
use crate::config::ManagerAddress;
use crate::handover::Leased;

/// Bytes of contents in one message.
const PIECE: usize = 48 << 10;
/// Messages that wait for the network.
const QUEUED: usize = 32;
/// Time for the other node to say that it has all sessions, after the last of their bytes.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// A session that is not parked in time is the reason for which a move fails, not the other node.
const BEHIND: Duration = Duration::from_millis(100);
/// How often the contents of a session that is being parked are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A sender that waits for a session says so this often.
const STILL_WAITS: Duration = Duration::from_secs(5);
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

/// Where a call that sends sessions has failed.
enum Failed {
    /// The contents cannot be read.
    Here(std::io::Error),
    /// The other node has refused them, or is lost.
    There(Status),
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed::There(status)
    }
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

    fn not_read(error: &std::io::Error) -> NotMoved {
        NotMoved::stays(format!("the contents of a session cannot be read: {error}"))
    }
}

/// A move of a lease that is under way.
pub(super) struct Underway {
    pub(super) epoch: Epoch,
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
        if !state.grants.serves(lease, epoch) {
            drop(state);
            let not = NotMoved::stays("the node does not serve this grant of it");
            return self.end_move(lease, epoch, target, Err(not));
        }
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
        let is_served = state.grants.serves(lease, epoch);
        if is_served {
            state.moved.insert(lease, ended);
        }
        drop(state);
        // The grant may have ended before the sessions were told to leave.
        if !is_served {
            self.0.workers.grant_ended(lease, epoch);
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

    // Moves a lease until then, unless it is `stopped`. Its sessions are sent then, or go on here.
    async fn move_lease(
        &self,
        lease: LeaseId,
        order: Move,
        until: Instant,
        stopped: oneshot::Receiver<()>,
    ) -> Result<(), NotMoved> {
        let moved = tokio::select! {
            moved = self.park_and_send(lease, order, until) => moved,
            _ = stopped => Err(NotMoved::not_taken("the manager has called this move off")),
        };
        match moved {
            Ok(()) => self.0.workers.have_sent(lease),
            Err(_) => self.0.workers.stay(lease),
        }
        moved
    }

    // May be dropped at any time. The sessions of the lease leave from then on, until `have_sent` or `stay`.
    async fn park_and_send(
        &self,
        lease: LeaseId,
        order: Move,
        until: Instant,
    ) -> Result<(), NotMoved> {
        let target = order.target.unwrap_or_default();
        // Before any session stands still.
        drop(self.reach(&target.addresses, until).await?);
        let (workers, epoch) = (&self.0.workers, Epoch(order.epoch));
        let leaving = workers.begin_to_park(lease, epoch).await;
        let mut leaving = leaving.map_err(NotMoved::stays)?;
        let departing = std::mem::take(&mut leaving.sessions);
        let parked = workers.wait_until_parked(&leaving, until.into_std());
        let parked = async { parked.await.map_err(NotMoved::stays) };
        let sent = self.send(&target, order.credential, departing, until);
        tokio::try_join!(parked, sent).map(drop)
    }

    // Sends the sessions to another node, from when the first of them is being written.
    async fn send(
        &self,
        target: &NodeShare,
        credential: Bytes,
        departing: Vec<Departing>,
        until: Instant,
    ) -> Result<(), NotMoved> {
        let (queue, mut sent) = mpsc::channel(QUEUED);
        // Once the other node has begun to answer, the call would not end with its future.
        let (call, _goes_on) = oneshot::channel();
        let parts = Parts { queue, call };
        let taking = Taking {
            wire_version: WireVersion::CURRENT.number().into(),
            credential,
            sessions: u32::try_from(departing.len()).unwrap_or(u32::MAX),
        };
        let workers = self.0.workers.clone();
        let progress = move |id| workers.progress(id);
        let reading =
            tokio::task::spawn_blocking(move || read(&parts, taking, departing, progress));
        let Some(first) = sent.recv().await else {
            let read = read_by(reading).await;
            return Err(NotMoved::not_read(&read.err().unwrap_or_else(ended_early)));
        };
        // Anew, because the other node ends idle connections, and a session may have taken long to stand still.
        let mut client = self.reach(&target.addresses, until).await?;
        let sent = tokio_stream::once(first).chain(ReceiverStream::new(sent));
        let mut request = tonic::Request::new(sent);
        dial::authorize(&mut request, self.0.settings.token.as_ref());
        let by = until + BEHIND;
        let taken = tokio::time::timeout_at(by, take(&mut client, request, reading)).await;
        let too_long = |_| Err(Status::deadline_exceeded("it took too long").into());
        taken
            .unwrap_or_else(too_long)
            .map_err(|failed| match failed {
                Failed::Here(error) => NotMoved::not_read(&error),
                Failed::There(status) => {
                    let (name, why) = (&target.name, status.message());
                    NotMoved::not_taken(format!("node {name} did not take its sessions: {why}"))
                }
            })
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

    /// Takes over the parked sessions of a lease. `known` returns this node's devices. It may start a probe, so the caller's
    /// lease is verified before.
    ///
    /// # Errors
    /// The reason for which none is taken.
    pub(in crate::supervisor) async fn take_sessions(
        &self,
        mut parts: Streaming<SessionPart>,
        known: impl Future<Output = Arc<Known>>,
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
        drop(self.admitted(&taking)?);
        let known = known.await;
        let mut arriving = Arriving {
            managed: self,
            inventory: &known.inventory,
            peer: peer.as_ref(),
            taking: &taking,
            files: self.0.workers.contents_files(),
            room: 0,
            begun: 0,
            arrived: Vec::new(),
            last: None,
        };
        while let Some(part) = next(&mut parts).await? {
            match part {
                Part::Contents(bytes) => arriving.write(&bytes).await?,
                Part::Ticket(ticket) => arriving.end_one(&ticket).await?,
                Part::Ended(true) => arriving.forget_one()?,
                Part::Ended(false) | Part::Taking(_) => return Err(misplaced()),
            }
        }
        let arrived = arriving.end()?;
        let opened: Vec<Opened> = arrived.iter().map(|of| of.place.opened()).collect();
        let taken = self.0.workers.arrive(arrived);
        taken.map_err(Status::failed_precondition)?;
        // Ends the sessions at once if the grant was withdrawn meanwhile.
        for place in opened {
            place.tell();
        }
        Ok(SessionsTaken {})
    }

    /// Takes a place in the lease whose sessions come.
    fn admitted(&self, taking: &Taking) -> Result<(Place, Vec<Leased>), Status> {
        let admitted = self.admit(&taking.credential, &User(None));
        admitted.map_err(|error| Status::permission_denied(error.to_string()))
    }
}

/// The sessions that one call brings. Nothing is kept of a caller before the node has admitted a session of theirs.
struct Arriving<'a> {
    managed: &'a Managed,
    inventory: &'a Inventory,
    peer: Option<&'a Peer>,
    taking: &'a Taking,
    files: ContentsFiles,
    /// Bytes that may still come.
    room: u64,
    /// Number of sessions of which something has come.
    begun: u32,
    arrived: Vec<Arrived>,
    /// The session whose contents come now.
    last: Option<(Place, Vec<Leased>, Writer)>,
}

impl Arriving<'_> {
    async fn begin(&mut self) -> Result<(), Status> {
        if self.begun >= self.taking.sessions {
            return Err(misplaced());
        }
        let (place, leased) = self.managed.admitted(self.taking)?;
        if let Some(peer) = self.peer {
            authentication::let_in(peer)?;
        }
        let may_use = |at: &DeviceAt| place.devices().contains_key(at);
        if Claim::of(self.inventory, may_use, None).is_some() {
            return Err(Status::failed_precondition(
                "its device is in exclusive compute mode",
            ));
        }
        if self.begun == 0 {
            self.room = BESIDE_MEMORY.saturating_add(memory_of(self.inventory, &leased));
        }
        self.begun += 1;
        tracing::debug!(lease = ?place.lease(), "a session begins to come from another node");
        let files = self.files.clone();
        let writer = Writer::begin(move || files.make()).await?;
        self.last = Some((place, leased, writer));
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Status> {
        if self.last.is_none() {
            self.begin().await?;
        }
        let Some((.., writer)) = &mut self.last else {
            return Err(misplaced());
        };
        self.room = self.room.checked_sub(bytes.len() as u64).ok_or_else(|| {
            Status::resource_exhausted("the sessions have more than their devices' memory")
        })?;
        Ok(writer.write(bytes).await?)
    }

    async fn end_one(&mut self, ticket: &[u8]) -> Result<(), Status> {
        let (place, leased, writer) = self.last.take().ok_or_else(misplaced)?;
        let ticket = Ticket::from_bytes(ticket)
            .ok_or_else(|| Status::invalid_argument("a session's description is damaged"))?;
        let contents = writer.end().await?;
        self.arrived.push(Arrived {
            ticket,
            contents,
            place,
            leased,
        });
        Ok(())
    }

    // A session has ended while it was sent.
    fn forget_one(&mut self) -> Result<(), Status> {
        let (.., writer) = self.last.take().ok_or_else(misplaced)?;
        self.room = self.room.saturating_add(writer.length());
        Ok(())
    }

    fn end(self) -> Result<Vec<Arrived>, Status> {
        match self.last.is_none() && self.begun == self.taking.sessions {
            true => Ok(self.arrived),
            false => Err(Status::invalid_argument(
                "the stream ends before the last session",
            )),
        }
    }
}

fn misplaced() -> Status {
    Status::invalid_argument("a part comes at the wrong place")
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

// Has another node take the sessions, which a thread reads.
async fn take<Stream>(
    client: &mut NodeClient<tonic::transport::Channel>,
    request: tonic::Request<Stream>,
    reading: JoinHandle<std::io::Result<()>>,
) -> Result<(), Failed>
where
    Stream: tokio_stream::Stream<Item = SessionPart> + Send + 'static,
{
    let answer = async {
        let mut taken = client.take_sessions(request).await?.into_inner();
        let answer = taken.next().await;
        answer.unwrap_or_else(|| Err(Status::unavailable("the node closed the connection")))
    };
    tokio::pin!(answer);
    tokio::select! {
        // First, because the other node refuses what ends early.
        biased;
        read = read_by(reading) => read.map_err(Failed::Here)?,
        // An answer before the last part is a refusal.
        answer = &mut answer => return Ok(answer.map(drop)?),
    }
    let answer = tokio::time::timeout(TAKEN_WITHIN, answer).await;
    answer.map_err(|_| Status::deadline_exceeded("it did not answer in time"))??;
    Ok(())
}

async fn read_by(thread: JoinHandle<std::io::Result<()>>) -> std::io::Result<()> {
    thread.await.map_err(std::io::Error::other)?
}

fn ended_early() -> std::io::Error {
    std::io::Error::other("the sessions stay")
}

/// Where the parts of a call go.
struct Parts {
    queue: mpsc::Sender<SessionPart>,
    /// Closed when nobody waits for the call any more.
    call: oneshot::Sender<()>,
}

impl Parts {
    /// Whether the call has ended. Its answer says why, if anybody waits for it.
    fn are_over(&self) -> bool {
        self.queue.is_closed() || self.call.is_closed()
    }

    fn push(&self, part: Part) {
        if !self.are_over() {
            let _ = self.queue.blocking_send(SessionPart { part: Some(part) });
        }
    }
}

// Sends all parts, or ends early with the call. The files are read on a thread that may wait for a disk.
fn read(
    parts: &Parts,
    taking: Taking,
    departing: Vec<Departing>,
    progress: impl Fn(SessionId) -> Progress,
) -> std::io::Result<()> {
    if let Some(Departing { id, contents }) = departing.first() {
        while !parts.are_over()
            && matches!(progress(*id), Progress::Parks)
            && contents.read_at(0, 1)?.is_empty()
        {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    parts.push(Part::Taking(taking));
    for departing in departing {
        if !read_session(parts, &departing, || progress(departing.id))? {
            break;
        }
    }
    Ok(())
}

// Sends a session as far as it is written, until it is whole. Returns whether the next one follows.
fn read_session(
    parts: &Parts,
    Departing { id, contents }: &Departing,
    progress: impl Fn() -> Progress,
) -> std::io::Result<bool> {
    // The other node prepares for the session, or refuses it.
    parts.push(Part::Contents(Bytes::new()));
    let (mut at, mut last) = (0, Instant::now());
    loop {
        // Asked before the contents are read: then they are whole when the session is parked.
        let now = progress();
        let before = at;
        at = push_contents(parts, contents, at)?;
        // Looked at last: the session may be parked for a later move.
        if parts.are_over() {
            return Ok(false);
        }
        match now {
            Progress::Parks => {}
            Progress::Parked(ticket) => {
                tracing::debug!(session = ?id, bytes = at, "a session is sent to another node");
                parts.push(Part::Ticket(ticket.to_bytes().into()));
                return Ok(true);
            }
            Progress::Over => {
                parts.push(Part::Ended(true));
                return Ok(true);
            }
            Progress::Stays => return Ok(false),
        }
        if at > before {
            last = Instant::now();
        } else if last.elapsed() >= STILL_WAITS {
            parts.push(Part::Contents(Bytes::new()));
            last = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

// Sends the contents from a position on, as far as they are written. Returns the next position.
fn push_contents(parts: &Parts, contents: &Contents, mut at: u64) -> std::io::Result<u64> {
    while !parts.are_over() {
        let piece = contents.read_at(at, PIECE)?;
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
        parts.push(Part::Contents(piece.into()));
    }
    Ok(at)
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
    use std::io::Write;

    // The worker that restores a session reads from the position that all descriptors of the file share.
    #[test]
    fn sending_leaves_the_position_to_the_worker() {
        const LENGTH: usize = 3 * PIECE + 5;
        let mut file = std::fs::File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        let bytes: Vec<u8> = (0..LENGTH).map(|at| (at / 7) as u8).collect();
        file.write_all(&bytes).unwrap();
        let contents = Contents::from(file);
        let worker = contents.at_the_start().unwrap();
        seek(&worker, SeekFrom::Start(7)).unwrap();
        let (queue, mut sent) = mpsc::channel(16);
        let (call, _goes_on) = oneshot::channel();
        let parts = Parts { queue, call };
        let departing = vec![Departing {
            id: SessionId([1; 16]),
            contents,
        }];
        let parked = |_| Progress::Parked(Box::default());
        read(&parts, Taking::default(), departing, parked).unwrap();
        drop(parts);
        let mut arrived = Vec::new();
        while let Some(part) = sent.blocking_recv() {
            if let Some(Part::Contents(piece)) = part.part {
                arrived.extend_from_slice(&piece);
            }
        }
        assert!(arrived == bytes);
        assert_eq!(seek(&worker, SeekFrom::Current(0)).unwrap(), 7);
    }
}
