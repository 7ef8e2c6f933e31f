//! Command buffers (`cl_khr_command_buffer`): recorded once, enqueued again and again by one message.
//!
//! Each command is told to the worker when it is recorded, and kept there; nothing of the node's driver is needed
//! but plain enqueues, so every device has them. In a context of several sites a replay is one command, which reads
//! and writes what all of its commands do together; so they run where their queue's device is, copies too.
//!
//! - [`order`]: which command comes after which.
//!
//! What it is not: it keeps no memory alive that is only an argument of a launch, as the specification wants it; a
//! replay does while it runs. Invariant: nothing is recorded after the end of recording, so a replay is always of
//! all commands.

mod order;

use std::sync::{Arc, Weak};

use causeway_proto::command::{
    self, CreateCommandBuffer, Marker, ObjectKind, Record, command::Kind, enqueue, record,
};
use causeway_proto::id::CommandBufferId;
use causeway_proto::limits::MAX_RECORDED;
use cl_headers::types::{
    CL_COMMAND_COMMAND_BUFFER_KHR, CL_INVALID_MEM_OBJECT, CL_INVALID_OPERATION,
    CL_INVALID_SYNC_POINT_WAIT_LIST_KHR,
};
use parking_lot::Mutex;

use self::order::Order;
use super::kernel::{Kernel, Snapshot};
use super::{Binding, Buffer, Event, Hold, Queue, Site, Submission, Work, next_id, nothing};
use crate::coherence::Access;
use crate::error::{ClResult, Status, fail};

/// See the module.
pub struct CommandBuffer {
    pub(crate) binding: Binding,
    id: CommandBufferId,
    queue: Arc<Queue>,
    properties: Vec<u64>,
    state: Mutex<State>,
}

enum State {
    Recording(Recording),
    Executable(Executable),
}

struct Recording {
    order: Order,
    // Of copies and fills.
    memory: Vec<Arc<Buffer>>,
    arguments: Vec<Weak<Buffer>>,
    // By pointers in memory.
    reached: Vec<Weak<Buffer>>,
    kernels: Vec<Arc<Kernel>>,
    // Of contexts of several sites.
    accesses: Vec<Access>,
}

struct Executable {
    count: u32,
    // Each once.
    memory: Hold,
    arguments: Vec<Weak<Buffer>>,
    // What is gone is reached no more.
    reached: Vec<Weak<Buffer>>,
    _kernels: Vec<Arc<Kernel>>,
    accesses: Arc<[Access]>,
}

/// A command that is recorded.
pub enum Recorded {
    /// A copy or fill, or nothing.
    Work(Work, Hold),
    /// Comes after what it waits for, or everything, and before everything later.
    Barrier,
    /// A launch.
    Launch(Snapshot),
}

enum Kept {
    Memory(Hold),
    Launch(Snapshot),
}

/// All commands of a command buffer, to be enqueued as one.
#[derive(Clone, Debug)]
pub struct Replay {
    command_buffer: CommandBufferId,
    accesses: Arc<[Access]>,
}

impl std::fmt::Debug for CommandBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandBuffer")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl CommandBuffer {
    /// For commands of `queue`; `properties` as the application gave them, with their 0, empty for none.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn new(queue: Arc<Queue>, properties: Vec<u64>) -> ClResult<Arc<CommandBuffer>> {
        let id = CommandBufferId(next_id());
        let site = queue.site();
        site.send(Kind::CreateCommandBuffer(CreateCommandBuffer {
            command_buffer: id.0,
            context: site.context().0,
        }))?;
        let recording = Recording {
            order: Order::new(queue.is_in_order()),
            memory: Vec::new(),
            arguments: Vec::new(),
            reached: Vec::new(),
            kernels: Vec::new(),
            accesses: Vec::new(),
        };
        Ok(Arc::new(CommandBuffer {
            binding: Binding::default(),
            id,
            queue,
            properties,
            state: Mutex::new(State::Recording(recording)),
        }))
    }

    /// The queue that it was made for.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// `CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR`, with its 0; empty when made without a list.
    #[must_use]
    pub fn properties(&self) -> &[u64] {
        &self.properties
    }

    /// Whether recording has ended.
    #[must_use]
    pub fn is_executable(&self) -> bool {
        matches!(*self.state.lock(), State::Executable(_))
    }

    /// Records a command that comes after those of these sync points; its own.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when recording has ended, `CL_INVALID_SYNC_POINT_WAIT_LIST_KHR` for a sync point
    /// that is none, `CL_OUT_OF_RESOURCES` for a command too many, `CL_DEVICE_NOT_AVAILABLE`.
    pub fn record(&self, command: Recorded, sync_points: &[u32]) -> ClResult<u32> {
        let mut state = self.state.lock();
        let State::Recording(recording) = &mut *state else {
            return fail(CL_INVALID_OPERATION);
        };
        let count = recording.order.count();
        let place = |&point: &u32| point.checked_sub(1).filter(|&place| place < count);
        let list: Option<Vec<u32>> = sync_points.iter().map(place).collect();
        let list = list.ok_or(Status(CL_INVALID_SYNC_POINT_WAIT_LIST_KHR))?;
        if count as usize >= MAX_RECORDED {
            return Err(Status::OUT_OF_RESOURCES);
        }
        let is_barrier = matches!(command, Recorded::Barrier);
        let after = recording.order.after(&list, is_barrier);
        let site = self.queue.site();
        let several = self.queue.context().is_distributed();
        let accesses = if several {
            command.accesses()?
        } else {
            Vec::new()
        };
        let (operation, kept) = command.on(site)?;
        site.send(Kind::Record(Record {
            command_buffer: self.id.0,
            after: after.clone(),
            operation: Some(operation),
        }))?;
        recording.order.push(&after, is_barrier);
        recording.accesses.extend(accesses);
        recording.keep(kept);
        Ok(count + 1)
    }

    /// Ends recording.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when it has ended.
    pub fn finalize(&self) -> ClResult {
        let mut state = self.state.lock();
        let State::Recording(recording) = &mut *state else {
            return fail(CL_INVALID_OPERATION);
        };
        let executable = recording.finish();
        *state = State::Executable(executable);
        Ok(())
    }

    /// Enqueues all of it.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` before recording has ended, `CL_INVALID_MEM_OBJECT` when a buffer is gone that a
    /// launch has as an argument; as [`Queue::submit`].
    pub fn enqueue(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        wait: Vec<Arc<Event>>,
        visible: bool,
    ) -> ClResult<Arc<Event>> {
        let (hold, accesses) = {
            let state = self.state.lock();
            let State::Executable(executable) = &*state else {
                return fail(CL_INVALID_OPERATION);
            };
            if executable.count == 0 {
                drop(state);
                let command = CL_COMMAND_COMMAND_BUFFER_KHR;
                return nothing(queue, command, wait, Hold::new(), None, visible);
            }
            let arguments = executable.arguments.iter().map(Weak::upgrade);
            let arguments: Option<Vec<_>> = arguments.collect();
            let mut hold: Hold = arguments.ok_or(Status(CL_INVALID_MEM_OBJECT))?.into();
            hold.extend(executable.memory.iter().cloned());
            hold.extend(executable.reached.iter().filter_map(Weak::upgrade));
            (hold, executable.accesses.clone())
        };
        let replay = Replay {
            command_buffer: self.id,
            accesses,
        };
        // It is not released on the wire before what names it is there.
        let keep = self.clone();
        let submission = Submission {
            work: Work::Replay(replay),
            command: CL_COMMAND_COMMAND_BUFFER_KHR,
            wait,
            hold,
            finisher: Some(Box::new(move |_, _| drop(keep))),
            visible,
        };
        queue.submit(submission, |_| Ok(()))
    }
}

impl Recording {
    fn keep(&mut self, kept: Kept) {
        match kept {
            Kept::Memory(memory) => self.memory.extend(memory),
            Kept::Launch(launch) => {
                let buffers = launch.buffers().map(|(buffer, _)| Arc::downgrade(buffer));
                self.arguments.extend(buffers);
                let reached = launch.reached().iter().map(Arc::downgrade);
                self.reached.extend(reached);
                self.kernels.push(launch.kernel().clone());
            }
        }
    }

    fn finish(&mut self) -> Executable {
        let Recording {
            order,
            memory,
            arguments,
            reached,
            kernels,
            accesses,
        } = self;
        memory.sort_unstable_by_key(Arc::as_ptr);
        memory.dedup_by(|one, other| Arc::ptr_eq(one, other));
        for list in [&mut *arguments, &mut *reached] {
            list.sort_unstable_by_key(Weak::as_ptr);
            list.dedup_by(|one, other| Weak::ptr_eq(one, other));
        }
        kernels.sort_unstable_by_key(Arc::as_ptr);
        kernels.dedup_by(|one, other| Arc::ptr_eq(one, other));
        Executable {
            count: order.count(),
            memory: std::mem::take(memory).into(),
            arguments: std::mem::take(arguments),
            reached: std::mem::take(reached),
            _kernels: std::mem::take(kernels),
            accesses: each_once(accesses).into(),
        }
    }
}

fn each_once(accesses: &[Access]) -> Vec<Access> {
    let mut seen = rustc_hash::FxHashSet::default();
    let fresh = accesses.iter().filter(|access| seen.insert(**access));
    fresh.copied().collect()
}

impl Recorded {
    // What it reads and writes.
    fn accesses(&self) -> ClResult<Vec<Access>> {
        match self {
            Recorded::Work(work, _) => work.accesses(),
            Recorded::Barrier => Ok(Vec::new()),
            Recorded::Launch(launch) => launch.accesses(),
        }
    }

    // As the wire has it, and what must stay.
    fn on(self, site: &Site) -> ClResult<(record::Operation, Kept)> {
        Ok(match self {
            Recorded::Work(work, memory) => (operation_of(work.on(site)?)?, Kept::Memory(memory)),
            Recorded::Barrier => {
                let marker = record::Operation::Marker(Marker {});
                (marker, Kept::Memory(Hold::new()))
            }
            Recorded::Launch(launch) => {
                let operation = record::Operation::NdRange(launch.recorded(site)?);
                (operation, Kept::Launch(launch))
            }
        })
    }
}

// What is recorded is what stays on the node.
fn operation_of(operation: enqueue::Operation) -> ClResult<record::Operation> {
    use enqueue::Operation as Wire;
    Ok(match operation {
        Wire::CopyBuffer(copy) => record::Operation::CopyBuffer(copy),
        Wire::FillBuffer(fill) => record::Operation::FillBuffer(fill),
        Wire::FillImage(fill) => record::Operation::FillImage(fill),
        Wire::Marker(marker) => record::Operation::Marker(marker),
        _ => return fail(CL_INVALID_OPERATION),
    })
}

impl Replay {
    /// What it reads and writes, in a context of several sites.
    pub(super) fn accesses(&self) -> &Arc<[Access]> {
        &self.accesses
    }

    /// As the wire has it.
    pub(super) fn operation(&self) -> enqueue::Operation {
        enqueue::Operation::Replay(command::Replay {
            command_buffer: self.command_buffer.0,
        })
    }
}

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        let site = self.queue.site();
        site.release(ObjectKind::CommandBuffer, self.id.0);
    }
}
