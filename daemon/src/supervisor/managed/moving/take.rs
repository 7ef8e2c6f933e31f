//! Takes over the sessions of a lease from another node: the call that brings them.
//!
//! This module does not decide who may have a lease: the table of grants does. Invariant: nothing is kept of a caller
//! before the node has admitted a session of theirs.
#![forbid(unsafe_code)]

use std::future::Future;
use std::sync::Arc;

use causeway_proto::control::{Inventory, SessionPart, SessionsTaken, Taking, session_part::Part};
use causeway_proto::request::answer_of;
use causeway_proto::request::property::GLOBAL_MEM_SIZE;
use causeway_proto::version;
use causeway_serving::gate::Peer;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::super::super::authentication::{self, User};
use super::super::super::contents::Writer;
use super::super::super::exclusive::Claim;
use super::super::super::inventory::Known;
use super::super::super::parked::Ticket;
use super::super::super::workers::{Arrived, ContentsFiles};
use super::super::name::{DeviceAt, LeaseId};
use super::super::{LeasePlace, Managed, Opened};
use super::SILENT_FOR;
use super::take_file::{Transfer, Transferring};
use crate::handover::Leased;

/// Most bytes of a lease's sessions beside the contents of its devices' memory.
const BESIDE_MEMORY: u64 = 2 << 30;
/// Most sessions of one lease that move together.
const MOST_SESSIONS: u32 = 1024;

/// Where a call that brings sessions is answered.
pub(in crate::supervisor) type Answers = mpsc::Sender<Result<SessionsTaken, Status>>;

impl Managed {
    /// Takes over the parked sessions of a lease. `known` returns this node's devices. It may start a probe, so the caller's
    /// lease is verified before. `answers` gets the answer before the returned one.
    ///
    /// # Errors
    /// The reason for which none is taken.
    pub(in crate::supervisor) async fn take_sessions(
        &self,
        mut parts: Streaming<SessionPart>,
        known: impl Future<Output = Arc<Known>>,
        peer: Option<Peer>,
        answers: &Answers,
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
            answers,
            files: self.0.workers.contents_files(),
            underway: None,
            begun: 0,
            arrived: Vec::new(),
            last: None,
        };
        while let Some(part) = arriving.next(&mut parts).await? {
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
        Ok(SessionsTaken::default())
    }

    /// Takes a place in the lease whose sessions come.
    fn admitted(&self, taking: &Taking) -> Result<(LeasePlace, Vec<Leased>), Status> {
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
    answers: &'a Answers,
    files: ContentsFiles,
    /// The transfer, from when the first session was admitted.
    underway: Option<Transferring>,
    /// Number of sessions of which something has come.
    begun: u32,
    arrived: Vec<Arrived>,
    /// The session whose contents come now.
    last: Option<(LeasePlace, Vec<Leased>, Writer)>,
}

impl Arriving<'_> {
    // The next part. A fault of a connection ends the call.
    async fn next(&self, parts: &mut Streaming<SessionPart>) -> Result<Option<Part>, Status> {
        let Some(underway) = &self.underway else {
            return next(parts).await;
        };
        tokio::select! {
            biased;
            fault = underway.transfer.failed() => Err(fault),
            part = next(parts) => part,
        }
    }

    fn transfer(&self) -> Result<&Transfer, Status> {
        let underway = self.underway.as_ref().ok_or_else(misplaced)?;
        Ok(&underway.transfer)
    }

    // Begins the transfer, and says how connections for it are made.
    async fn begin_transfer(&mut self, lease: LeaseId, room: u64) -> Result<(), Status> {
        let certificate = self.managed.0.workers.certificate()?;
        let transfers = &self.managed.0.transfers;
        let underway = transfers.begin(lease, room, certificate, self.files.clone())?;
        let contents = Some(underway.transfer.way());
        self.underway = Some(underway);
        // A caller that is gone is noticed with the next part.
        let _ = self.answers.send(Ok(SessionsTaken { contents })).await;
        Ok(())
    }

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
            let room = BESIDE_MEMORY.saturating_add(memory_of(self.inventory, &leased));
            self.begin_transfer(place.lease(), room).await?;
        }
        self.begun += 1;
        self.transfer()?.begin_session();
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
        self.transfer()?.take_room(bytes.len() as u64)?;
        let (.., writer) = self.last.as_mut().ok_or_else(misplaced)?;
        Ok(writer.write(bytes).await?)
    }

    async fn end_one(&mut self, ticket: &[u8]) -> Result<(), Status> {
        let (place, leased, writer) = self.last.take().ok_or_else(misplaced)?;
        let ticket = Ticket::from_bytes(ticket)
            .ok_or_else(|| Status::invalid_argument("a session's description is damaged"))?;
        let mut contents = vec![writer.end().await?];
        contents.extend(self.transfer()?.end_session()?);
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
        self.last.take().ok_or_else(misplaced)?;
        self.transfer()?.forget_session();
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
