//! Command buffers (`cl_khr_command_buffer`): recorded once, enqueued again and again by one message.
//!
//! Each command is told to the worker when it is recorded, and kept there; nothing of the node's driver is needed
//! but plain enqueues, so every device has them. In a context of several sites a replay is one command, which reads
//! and writes what all of its commands do together; so they run where their queue's device is, copies too.
//!
//! - [`order`]: which command comes after which;
//! - [`mutable`]: launches that may be changed; [`replay`]: what of that the worker must be told.
//!
//! What it is not: it keeps no memory alive that is only an argument of a launch, as the specification wants it; a
//! replay does while it runs. Invariant: nothing is recorded after the end of recording, so a replay is always of
//! all commands.

mod mutable;
mod order;
mod replay;

use std::sync::Arc;

use causeway_proto::command::{
    CreateCommandBuffer, Marker, ObjectKind, Record, command::Kind, enqueue, record,
};
use causeway_proto::id::CommandBufferId;
use causeway_proto::limits::MAX_RECORDED;
use cl_headers::types::{
    CL_COMMAND_COMMAND_BUFFER_KHR, CL_INVALID_OPERATION, CL_INVALID_SYNC_POINT_WAIT_LIST_KHR,
};
use parking_lot::Mutex;

use self::mutable::Slot;
use self::order::Order;
use self::replay::{Launches, Needs};
use super::kernel::{Kernel, Snapshot};
use super::{Binding, Buffer, Event, Hold, Queue, Site, Submission, Work, next_id, nothing};
use crate::error::{ClResult, Status, fail, require};

pub use self::mutable::{Change, Mutable, MutableCommand};
pub(super) use self::replay::Replay;

/// See the module.
pub struct CommandBuffer {
    pub(crate) binding: Binding,
    id: CommandBufferId,
    queue: Arc<Queue>,
    properties: Properties,
    state: Mutex<State>,
    // Its launches that may change, as the worker knows them. Locked after whatever orders commands in contexts of
    // several sites, before it in others.
    told: Arc<Mutex<Launches>>,
}

/// What it was made with.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    /// `CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR`, with its 0; empty when made without a list.
    pub list: Vec<u64>,
    /// `CL_COMMAND_BUFFER_FLAGS_KHR`.
    pub flags: u64,
    /// `CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR`.
    pub asserts: u64,
}

/// How far it has come: `CL_COMMAND_BUFFER_STATE_KHR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Takes commands.
    Recording,
    /// Takes no more commands, but some launch lacks arguments, which an update can set.
    Finalized,
    /// May be enqueued.
    Executable,
}

enum State {
    Recording(Recording),
    // Recording has ended.
    Executable(Executable),
}

struct Recording {
    order: Order,
    // Of copies and fills.
    memory: Vec<Arc<Buffer>>,
    // Of all that does not change.
    needs: Needs,
    kernels: Vec<Arc<Kernel>>,
    launches: Vec<Slot>,
}

struct Executable {
    count: u32,
    // Each once.
    memory: Hold,
    needs: Needs,
    _kernels: Vec<Arc<Kernel>>,
    launches: Vec<Slot>,
    // Whether all launches have all arguments; once they have, they keep them.
    has_arguments: bool,
    // Of a replay; none after a change.
    current: Option<Current>,
}

// What a replay takes along, as long as nothing changes.
#[derive(Clone)]
struct Current {
    needs: Arc<Needs>,
    launches: Launches,
}

/// A command that is recorded.
pub enum Recorded {
    /// A copy or fill, or nothing.
    Work(Work, Hold),
    /// Comes after what it waits for, or everything, and before everything later.
    Barrier,
    /// A launch.
    Launch(Snapshot),
    /// A launch that may be changed later.
    Mutable(Snapshot, Box<Mutable>),
}

enum Kept {
    Memory(Hold),
    Launch(Snapshot, Option<Box<Mutable>>),
}

impl std::fmt::Debug for CommandBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandBuffer")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl CommandBuffer {
    /// For commands of `queue`.
    ///
    /// # Errors
    /// `CL_DEVICE_NOT_AVAILABLE` when the session is lost.
    pub fn new(queue: Arc<Queue>, properties: Properties) -> ClResult<Arc<CommandBuffer>> {
        let id = CommandBufferId(next_id());
        let site = queue.site();
        site.send(Kind::CreateCommandBuffer(CreateCommandBuffer {
            command_buffer: id.0,
            context: site.context().0,
        }))?;
        let recording = Recording {
            order: Order::new(queue.is_in_order()),
            memory: Vec::new(),
            needs: Needs::default(),
            kernels: Vec::new(),
            launches: Vec::new(),
        };
        Ok(Arc::new(CommandBuffer {
            binding: Binding::default(),
            id,
            queue,
            properties,
            state: Mutex::new(State::Recording(recording)),
            told: Arc::default(),
        }))
    }

    /// The queue that it was made for.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// What it was made with.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// How far it has come.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match &*self.state.lock() {
            State::Recording(_) => Phase::Recording,
            State::Executable(executable) if executable.has_arguments => Phase::Executable,
            State::Executable(_) => Phase::Finalized,
        }
    }

    /// Records a command that comes after those of these sync points; its own, and the handle of a launch that may be
    /// changed.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when recording has ended, `CL_INVALID_SYNC_POINT_WAIT_LIST_KHR` for a sync point
    /// that is none, `CL_OUT_OF_RESOURCES` for a command too many, `CL_DEVICE_NOT_AVAILABLE`.
    pub fn record(
        self: &Arc<Self>,
        command: Recorded,
        sync_points: &[u32],
    ) -> ClResult<(u32, Option<Arc<MutableCommand>>)> {
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
        let needs = command.needs(self.queue.context().is_distributed())?;
        let (operation, kept) = command.on(site)?;
        site.send(Kind::Record(Record {
            command_buffer: self.id.0,
            after: after.clone(),
            operation: Some(operation),
        }))?;
        recording.order.push(&after, is_barrier);
        let handle = match kept {
            Kept::Memory(memory) => {
                recording.memory.extend(memory);
                recording.needs.add(&needs);
                None
            }
            Kept::Launch(launch, None) => {
                recording.kernels.push(launch.kernel().clone());
                recording.needs.add(&needs);
                None
            }
            Kept::Launch(launch, Some(mutable)) => {
                launch.kernel().set_recorded();
                recording.kernels.push(launch.kernel().clone());
                let index = recording.launches.len();
                let slot = Slot::new((self, index), count, *mutable, needs);
                let handle = slot.handle().clone();
                recording.launches.push(slot);
                Some(handle)
            }
        };
        Ok((count + 1, handle))
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
        let mut executable = recording.finish();
        *self.told.lock() = executable.current().launches;
        *state = State::Executable(executable);
        Ok(())
    }

    /// Enqueues all of it.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` unless it is [`Phase::Executable`], `CL_INVALID_MEM_OBJECT` when a buffer is gone that
    /// a launch has as an argument; as [`Queue::submit`].
    pub fn enqueue(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        wait: Vec<Arc<Event>>,
        visible: bool,
    ) -> ClResult<Arc<Event>> {
        let (hold, replay) = {
            let mut state = self.state.lock();
            let State::Executable(executable) = &mut *state else {
                return fail(CL_INVALID_OPERATION);
            };
            require(executable.has_arguments, CL_INVALID_OPERATION)?;
            if executable.count == 0 {
                drop(state);
                let command = CL_COMMAND_COMMAND_BUFFER_KHR;
                return nothing(queue, command, wait, Hold::new(), None, visible);
            }
            let current = executable.current();
            let mut hold = current.needs.hold()?;
            hold.extend(executable.memory.iter().cloned());
            let told = self.told.clone();
            (hold, Replay::new(self.id, current, told))
        };
        // It is not released on the wire before what names it is there.
        let keep = self.clone();
        let submission = |work| Submission {
            work,
            command: CL_COMMAND_COMMAND_BUFFER_KHR,
            wait,
            hold,
            finisher: Some(Box::new(move |_, _| drop(keep))),
            visible,
        };
        if queue.context().is_distributed() {
            return queue.submit(submission(Work::Replay(replay)), |_| Ok(()));
        }
        let (operation, commit) = replay.operation(queue.site())?;
        let event = queue.submit(submission(Work::Ready(operation)), |_| Ok(()))?;
        commit.sent();
        Ok(event)
    }
}

impl Recording {
    fn finish(&mut self) -> Executable {
        let Recording {
            order,
            memory,
            needs,
            kernels,
            launches,
        } = self;
        memory.sort_unstable_by_key(Arc::as_ptr);
        memory.dedup_by(|one, other| Arc::ptr_eq(one, other));
        kernels.sort_unstable_by_key(Arc::as_ptr);
        kernels.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let mut needs = std::mem::take(needs);
        needs.each_once();
        Executable {
            count: order.count(),
            memory: std::mem::take(memory).into(),
            needs,
            _kernels: std::mem::take(kernels),
            has_arguments: launches.iter().all(Slot::has_arguments),
            launches: std::mem::take(launches),
            current: None,
        }
    }
}

impl Executable {
    fn current(&mut self) -> Current {
        let Executable {
            needs,
            launches,
            current,
            ..
        } = self;
        let made = || {
            let mut all = needs.clone();
            launches.iter().for_each(|slot| all.add(slot.needs()));
            all.each_once();
            Current {
                needs: Arc::new(all),
                launches: launches.iter().map(Slot::launch).collect(),
            }
        };
        current.get_or_insert_with(made).clone()
    }
}

impl Recorded {
    // What a replay of it must hold, and in a context of several sites what it reads and writes.
    fn needs(&self, several: bool) -> ClResult<Needs> {
        match self {
            Recorded::Work(work, _) if several => Ok(Needs::of_work(work.accesses()?)),
            Recorded::Work(..) | Recorded::Barrier => Ok(Needs::default()),
            Recorded::Launch(launch) | Recorded::Mutable(launch, _) => Needs::of(launch, several),
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
                (operation, Kept::Launch(launch, None))
            }
            Recorded::Mutable(launch, mutable) => {
                let operation = record::Operation::NdRange(launch.recorded(site)?);
                (operation, Kept::Launch(launch, Some(mutable)))
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

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        let site = self.queue.site();
        site.release(ObjectKind::CommandBuffer, self.id.0);
    }
}
