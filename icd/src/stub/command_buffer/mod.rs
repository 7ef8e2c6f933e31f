//! Command buffers (`cl_khr_command_buffer`): recorded once, and then enqueued any number of times by one
//! message.
//!
//! Each command is sent to the worker when it is recorded, and stored there. The worker replays with plain
//! enqueues, so every device supports command buffers. In a context of several sites, a replay is one
//! command that reads and writes the ranges of all its commands. So all of them run on the device of the
//! queue, copies included.
//!
//! - [`order`]: which commands each command follows;
//! - [`mutable`]: launches that may be changed;
//! - [`replay`]: the changes that the worker has to be told.
//!
//! As the specification wants, a command buffer does not keep memory alive that is only an argument of a
//! launch; a running replay does. Invariant: nothing is recorded after finalisation, so a replay always
//! consists of all commands.

mod mutable;
mod order;
mod replay;

use std::sync::Arc;

use causeway_proto::command::{
    CreateCommandBuffer, Marker, ObjectKind, Record, command::Kind, record,
};
use causeway_proto::id::CommandBufferId;
use causeway_proto::limits::MAX_RECORDED;
use cl_headers::types::{
    CL_COMMAND_COMMAND_BUFFER_KHR, CL_INVALID_OPERATION, CL_INVALID_SYNC_POINT_WAIT_LIST_KHR,
};
use parking_lot::Mutex;

use self::mutable::MutableLaunch;
use self::order::Order;
use self::replay::{Launches, Needs};
use crate::error::{ClResult, Status, fail, require};
use crate::stub::event::EventSpec;
use crate::stub::kernel::{Kernel, Snapshot};
use crate::stub::memory::transfer::dropping;
use crate::stub::queue::command::{
    Command, Enqueue, NodeCommand, copy_message, fill_image_message, fill_message,
};
use crate::stub::{Binding, Buffer, Event, Hold, Queue, Site, next_id, nothing};

pub use self::mutable::{Change, Mutable, MutableCommand};
pub(super) use self::replay::Commit;
pub use self::replay::Replay;

/// A command buffer; see the module.
pub struct CommandBuffer {
    pub(crate) binding: Binding,
    id: CommandBufferId,
    queue: Arc<Queue>,
    properties: Properties,
    state: Mutex<CommandBufferState>,
    // The mutable launches as the worker knows them. In contexts of several sites, locked after the lock
    // that orders commands; in others, before that lock.
    told: Arc<Mutex<Launches>>,
}

/// The properties that a command buffer is made with.
#[derive(Clone, Debug, Default)]
pub struct Properties {
    /// `CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR`, with the terminating 0; empty when made without a list.
    pub list: Vec<u64>,
    /// `CL_COMMAND_BUFFER_FLAGS_KHR`.
    pub flags: u64,
    /// `CL_COMMAND_BUFFER_MUTABLE_DISPATCH_ASSERTS_KHR`.
    pub asserts: u64,
}

/// The state of a command buffer: `CL_COMMAND_BUFFER_STATE_KHR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Accepts commands.
    Recording,
    /// Accepts no more commands, but some launch lacks arguments, which an update can set.
    Finalized,
    /// May be enqueued.
    Executable,
}

enum CommandBufferState {
    Recording(Recording),
    // Recording has ended.
    Executable(Executable),
}

struct Recording {
    order: Order,
    // Memory of copies and fills.
    memory: Vec<Arc<Buffer>>,
    // Needs of all commands that cannot change.
    needs: Needs,
    kernels: Vec<Arc<Kernel>>,
    launches: Vec<MutableLaunch>,
}

struct Executable {
    count: u32,
    // Memory of copies and fills, each object once.
    memory: Hold,
    needs: Needs,
    _kernels: Vec<Arc<Kernel>>,
    launches: Vec<MutableLaunch>,
    // Whether all launches have all arguments. This never becomes false again.
    has_arguments: bool,
    // The data for replays; `None` after a change.
    current: Option<Current>,
}

// The data for replays, valid as long as nothing changes.
#[derive(Clone, Debug)]
struct Current {
    needs: Arc<Needs>,
    launches: Launches,
}

/// A command to record.
pub enum Recorded {
    /// A copy or fill, or a command that does nothing.
    Command(NodeCommand, Hold),
    /// A barrier: follows its sync points, or everything before, and everything later follows it.
    Barrier,
    /// A launch.
    Launch(Snapshot),
    /// A launch that may be changed later.
    Mutable(Snapshot, Box<Mutable>),
}

enum RecordedObjects {
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
    /// Makes a command buffer for commands of `queue`.
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
            state: Mutex::new(CommandBufferState::Recording(recording)),
            told: Arc::default(),
        }))
    }

    /// Returns the queue that the command buffer was made for.
    #[must_use]
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Returns the properties that the command buffer was made with.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns the state of the command buffer.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match &*self.state.lock() {
            CommandBufferState::Recording(_) => Phase::Recording,
            CommandBufferState::Executable(executable) if executable.has_arguments => {
                Phase::Executable
            }
            CommandBufferState::Executable(_) => Phase::Finalized,
        }
    }

    /// Records a command that follows the commands of `sync_points`. Returns the command's own sync point,
    /// and the handle of a mutable launch.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when recording has ended, `CL_INVALID_SYNC_POINT_WAIT_LIST_KHR` for an
    /// invalid sync point, `CL_OUT_OF_RESOURCES` for too many commands, `CL_DEVICE_NOT_AVAILABLE` when the
    /// session is lost.
    pub fn record(
        self: &Arc<Self>,
        command: Recorded,
        sync_points: &[u32],
    ) -> ClResult<(u32, Option<Arc<MutableCommand>>)> {
        let mut state = self.state.lock();
        let CommandBufferState::Recording(recording) = &mut *state else {
            // clCommand*KHR: CL_INVALID_OPERATION when the command buffer is finalized.
            return fail(CL_INVALID_OPERATION);
        };
        let count = recording.order.count();
        // Sync points are numbered from 1, the places of commands from 0.
        let place = |&point: &u32| point.checked_sub(1).filter(|&place| place < count);
        let list: Option<Vec<u32>> = sync_points.iter().map(place).collect();
        // clCommand*KHR: CL_INVALID_SYNC_POINT_WAIT_LIST_KHR when a sync point is not one of this
        // command buffer.
        let list = list.ok_or(Status(CL_INVALID_SYNC_POINT_WAIT_LIST_KHR))?;
        // This is no rule of the specification: a worker refuses a longer command buffer.
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
        // The command is on its way, so nothing may fail from here on.
        recording.order.push(&after, is_barrier);
        let handle = match kept {
            RecordedObjects::Memory(memory) => {
                recording.memory.extend(memory);
                recording.needs.add(&needs);
                None
            }
            RecordedObjects::Launch(launch, None) => {
                recording.kernels.push(launch.kernel().clone());
                recording.needs.add(&needs);
                None
            }
            RecordedObjects::Launch(launch, Some(mutable)) => {
                launch.kernel().set_recorded();
                recording.kernels.push(launch.kernel().clone());
                let index = recording.launches.len();
                let launch = MutableLaunch::new((self, index), count, *mutable, needs);
                let handle = launch.handle().clone();
                recording.launches.push(launch);
                Some(handle)
            }
        };
        Ok((count + 1, handle))
    }

    /// Ends recording.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` when recording has ended already.
    pub fn finalize(&self) -> ClResult {
        let mut state = self.state.lock();
        let CommandBufferState::Recording(recording) = &mut *state else {
            // clFinalizeCommandBufferKHR: CL_INVALID_OPERATION when the command buffer is finalized
            // already.
            return fail(CL_INVALID_OPERATION);
        };
        let mut executable = recording.finish();
        *self.told.lock() = executable.current().launches;
        *state = CommandBufferState::Executable(executable);
        Ok(())
    }

    /// Enqueues all commands of the command buffer.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` unless the phase is [`Phase::Executable`], `CL_INVALID_MEM_OBJECT` when an
    /// argument's buffer no longer exists, and those of [`Queue::enqueue`].
    pub fn enqueue(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        wait: Vec<Arc<Event>>,
        visible: bool,
    ) -> ClResult<Arc<Event>> {
        let (hold, replay) = {
            let mut state = self.state.lock();
            let CommandBufferState::Executable(executable) = &mut *state else {
                // clEnqueueCommandBufferKHR: CL_INVALID_OPERATION when the command buffer is not
                // finalized.
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
        // The command buffer must not be released on the wire before the command that names it is sent.
        let keep = self.clone();
        let event = EventSpec {
            event_type: CL_COMMAND_COMMAND_BUFFER_KHR,
            wait,
            hold,
            finisher: dropping(keep),
            visible,
            note: None,
        };
        let command = Command::Node(NodeCommand::Replay(replay));
        Ok(queue.enqueue(Enqueue { command, event })?.event)
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
            has_arguments: launches.iter().all(MutableLaunch::has_arguments),
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
            launches.iter().for_each(|launch| all.add(launch.needs()));
            all.each_once();
            Current {
                needs: Arc::new(all),
                launches: launches.iter().map(MutableLaunch::launch).collect(),
            }
        };
        current.get_or_insert_with(made).clone()
    }
}

impl Recorded {
    // The objects that a replay must keep alive and, in a context of several sites, the ranges that it
    // reads and writes.
    fn needs(&self, several: bool) -> ClResult<Needs> {
        match self {
            Recorded::Command(command, _) if several => {
                Ok(Needs::of_command(command.accesses()?.into_owned()))
            }
            Recorded::Command(..) | Recorded::Barrier => Ok(Needs::default()),
            Recorded::Launch(launch) | Recorded::Mutable(launch, _) => Needs::of(launch, several),
        }
    }

    // The operation for the wire, and the objects that must be kept alive.
    fn on(self, site: &Site) -> ClResult<(record::Operation, RecordedObjects)> {
        Ok(match self {
            Recorded::Command(command, memory) => {
                (message(&command, site)?, RecordedObjects::Memory(memory))
            }
            Recorded::Barrier => {
                let marker = record::Operation::Marker(Marker {});
                (marker, RecordedObjects::Memory(Hold::new()))
            }
            Recorded::Launch(launch) => {
                let operation = record::Operation::NdRange(launch.recorded(site)?);
                (operation, RecordedObjects::Launch(launch, None))
            }
            Recorded::Mutable(launch, mutable) => {
                let operation = record::Operation::NdRange(launch.recorded(site)?);
                (operation, RecordedObjects::Launch(launch, Some(mutable)))
            }
        })
    }
}

// Only commands whose effects stay on the node can be recorded.
fn message(command: &NodeCommand, site: &Site) -> ClResult<record::Operation> {
    Ok(match command {
        NodeCommand::Copy {
            source,
            destination,
        } => record::Operation::CopyBuffer(copy_message(source, destination, site)?),
        NodeCommand::Fill {
            buffer,
            pattern,
            region,
        } => record::Operation::FillBuffer(fill_message(buffer, pattern, region, site)?),
        NodeCommand::FillImage {
            image,
            colour,
            region,
        } => record::Operation::FillImage(fill_image_message(image, colour, region, site)?),
        NodeCommand::Nothing => record::Operation::Marker(Marker {}),
        _ => return fail(CL_INVALID_OPERATION),
    })
}

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        let site = self.queue.site();
        site.release(ObjectKind::CommandBuffer, self.id.0);
    }
}
