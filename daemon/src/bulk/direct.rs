//! Transfers straight between sockets and a mapping, for devices whose memory the host sees.
//!
//! A write: map the region on the application's queue (so it is free to be overwritten when the mapping
//! has ended), grant credit for all of it, receive into the mapping, unmap. A read: map, send from the
//! mapping, unmap. What follows in the queue is held until the unmapping is enqueued.
//!
//! Invariant: a mapping is given back once, by whoever finishes, fails or abandons the transfer, and
//! only when no lane is inside it.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use causeway_proto::id::EventId;
use causeway_proto::limits::BULK_CHUNK;
use causeway_proto::region::Region;
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::claims::Claims;
use super::lane::{LaneError, discard};
use super::memory::Window;
use super::{Incoming, Transfer};
use crate::runtime::event::{Event, Listener, WaitList};
use crate::runtime::queue::Access;
use crate::worker::session::Shared;
use crate::worker::session::enqueue::Task;
use crate::worker::session::objects::Memory;
use crate::worker::session::run::{Runner, watch};

/// A transfer's mapping.
struct Mapped {
    transfer: Transfer,
    window: Window,
    event: Arc<Event>,
    over: AtomicBool,
}

impl Mapped {
    fn new(
        shared: &Arc<Shared>,
        task: &Task,
        memory: &Arc<Memory>,
        region: Region,
        access: Access,
        waits: &WaitList<'_>,
    ) -> Result<Mapped, Status> {
        let queue = task.queue.native()?;
        let (event, pointer) = queue.map(memory.native()?, &region, access, waits)?;
        Ok(Mapped {
            transfer: Transfer::new(shared, task, memory, region),
            // SAFETY: the mapping holds the region from its first byte on, until `give_back`.
            window: unsafe { Window::new(pointer, region) },
            event: Arc::new(event),
            over: AtomicBool::new(false),
        })
    }

    /// Unmaps; the memory is not touched afterwards.
    fn give_back(&self) -> Result<Event, Status> {
        let queue = self.transfer.queue.native()?;
        let memory = self.transfer.memory.native()?;
        // SAFETY: the pointer is the mapping's; callers see to it that no lane is inside and that
        // this happens once.
        unsafe { queue.unmap(memory, self.window.first(), &WaitList::default()) }
    }

    /// Whether the caller is the one to end the transfer. A client may send a cancellation on one lane
    /// while the last bytes arrive on another.
    fn first_to_end(&self) -> bool {
        !self.over.swap(true, Ordering::AcqRel)
    }

    /// All bytes are where they belong: unmaps, and lets the queue's successors go.
    fn finish(&self) {
        if !self.first_to_end() {
            return;
        }
        let command = &self.transfer.command;
        let mut runner = Runner::new(&self.transfer.shared);
        runner.touch(&self.transfer.queue);
        match self.give_back() {
            Ok(event) => {
                command.began(Arc::clone(&self.event));
                command.enqueued(event);
                runner.watch_command(command);
                runner.passed(command);
            }
            Err(status) => {
                command.finish(status, "unmapping failed".into());
                runner.failed(command);
            }
        }
    }
}

/// A write into a mapping.
pub(super) struct DirectWrite {
    mapped: Mapped,
    state: Mutex<Receiving>,
}

struct Receiving {
    claims: Claims,
    // Lanes inside the mapping.
    inside: usize,
    mapped: bool,
    cancelled: bool,
}

/// Starts a write.
///
/// # Errors
/// What the driver says to the mapping.
pub(super) fn write(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<(), Status> {
    let mapped = Mapped::new(shared, task, memory, region, Access::Overwrite, waits)?;
    let write = Arc::new(DirectWrite {
        mapped,
        state: Mutex::new(Receiving {
            claims: Claims::new(region.packed_length()),
            inside: 0,
            mapped: false,
            cancelled: false,
        }),
    });
    shared
        .bulk
        .expect(task.command.id(), Arc::<DirectWrite>::clone(&write));
    watch(&write);
    Ok(())
}

impl Listener for DirectWrite {
    fn event(&self) -> Option<&Event> {
        Some(&self.mapped.event)
    }

    fn ended(self: Arc<Self>, status: Status) {
        let transfer = &self.mapped.transfer;
        if status.is_error() {
            transfer.fail_later(status);
            return;
        }
        let credit = {
            let mut state = self.state.lock();
            state.mapped = true;
            state.claims.grant(u64::MAX);
            (!state.cancelled).then(|| state.claims.credit())
        };
        match credit {
            Some(credit) => transfer
                .shared
                .bulk
                .outgoing()
                .credit(transfer.id(), credit),
            None => {
                let write = Arc::clone(&self);
                transfer
                    .shared
                    .bulk
                    .later(&transfer.shared, move |_| write.abandon());
            }
        }
    }
}

impl DirectWrite {
    /// The client gave the write up: its bytes will not come.
    fn abandon(&self) {
        if !self.mapped.first_to_end() {
            return;
        }
        let _ = self.mapped.give_back();
        self.mapped.transfer.fail(Status::OUT_OF_RESOURCES);
    }
}

impl Incoming for DirectWrite {
    fn receive(
        &self,
        socket: &TcpStream,
        offset: u64,
        length: u32,
        scratch: &mut Vec<u8>,
    ) -> Result<(), LaneError> {
        let bytes = u64::from(length);
        {
            let mut state = self.state.lock();
            if state.cancelled {
                drop(state);
                return Ok(discard(socket, length, scratch)?);
            }
            state.claims.claim(offset, bytes)?;
            state.inside += 1;
        }
        let received = self.mapped.window.receive(socket, offset, bytes, scratch);
        let mut state = self.state.lock();
        state.inside -= 1;
        let all = received.is_ok() && state.claims.arrive(bytes);
        let abandoned = state.cancelled && state.inside == 0;
        drop(state);
        if all {
            self.mapped
                .transfer
                .shared
                .bulk
                .forget(self.mapped.transfer.id());
            self.mapped.finish();
        } else if abandoned {
            self.abandon();
        }
        Ok(received?)
    }

    fn cancelled(&self) {
        self.mapped
            .transfer
            .shared
            .bulk
            .forget(self.mapped.transfer.id());
        let mut state = self.state.lock();
        let first = !std::mem::replace(&mut state.cancelled, true);
        let now = first && state.mapped && state.inside == 0;
        drop(state);
        if now {
            self.abandon();
        }
    }
}

/// A read out of a mapping.
pub(super) struct DirectRead {
    mapped: Mapped,
    total: u64,
    taken: AtomicU64,
    sent: AtomicU64,
}

/// Starts a read.
///
/// # Errors
/// What the driver says to the mapping.
pub(super) fn read(
    shared: &Arc<Shared>,
    task: &Task,
    memory: &Arc<Memory>,
    region: Region,
    waits: &WaitList<'_>,
) -> Result<(), Status> {
    let read = Arc::new(DirectRead {
        mapped: Mapped::new(shared, task, memory, region, Access::Read, waits)?,
        total: region.packed_length(),
        taken: AtomicU64::new(0),
        sent: AtomicU64::new(0),
    });
    watch(&read);
    Ok(())
}

impl Listener for DirectRead {
    fn event(&self) -> Option<&Event> {
        Some(&self.mapped.event)
    }

    fn ended(self: Arc<Self>, status: Status) {
        let transfer = &self.mapped.transfer;
        if status.is_error() {
            transfer.fail_later(status);
        } else {
            transfer.shared.bulk.outgoing().mapped(Arc::clone(&self));
        }
    }
}

impl DirectRead {
    /// Whose bytes.
    pub(super) fn transfer(&self) -> EventId {
        self.mapped.transfer.id()
    }

    /// Where they lie.
    pub(super) fn window(&self) -> &Window {
        &self.mapped.window
    }

    /// The next chunk for a lane: offset, length, and whether it is the last.
    pub(super) fn take_chunk(&self) -> (u64, u32, bool) {
        let offset = self.taken.fetch_add(BULK_CHUNK as u64, Ordering::Relaxed);
        let left = self.total.saturating_sub(offset);
        let length = left.min(BULK_CHUNK as u64);
        (offset, length as u32, left <= BULK_CHUNK as u64)
    }

    /// A lane has handed bytes to its socket.
    pub(super) fn sent(&self, length: u64) {
        if self.sent.fetch_add(length, Ordering::AcqRel) + length == self.total {
            self.mapped.finish();
        }
    }
}
