//! The session's objects, by the ids that the client chose.
//!
//! An object that the node could not make keeps its id as *broken with a status*: a command that uses
//! it ends with that status. Objects are shared (`Arc`): a command holds what it uses, so a release by
//! the client disturbs nothing. Invariant: a handle reaches the driver only through these objects, and
//! an id that is not in the tables ends the session.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use causeway_proto::id::{
    CommandBufferId, ContextId, DeviceIndex, KernelId, MemoryId, PlatformIndex, ProgramId, QueueId,
    SamplerId,
};
use causeway_proto::status::Status;
use parking_lot::Mutex;

use super::Violation;
use super::arguments::Arguments;
use super::command_buffers::CommandBuffer;
use super::device_queues::DeviceQueue;
use super::hash::ById;
use super::leased::{Accounts, Charge};
use super::program::Program;
use super::sub_devices::Part;
use super::unseen::Unseen;
use crate::bulk::Rings;
use crate::runtime::buffer::{ALLOCATION_FAILURE, Buffer};
use crate::runtime::context::Context as NativeContext;
use crate::runtime::kernel::Kernel as NativeKernel;
use crate::runtime::node::Device;
use crate::runtime::pinned::{PinnedPart, PinnedPool};
use crate::runtime::queue::Queue as NativeQueue;
use crate::runtime::sampler::Sampler as NativeSampler;

/// Pinned memory for small transfers, of one device in one context: at most so many MiB.
const PINNED_SLABS: usize = 16;

/// A context.
pub(crate) struct Context {
    pub(crate) id: ContextId,
    pub(crate) devices: Vec<(DeviceIndex, Device)>,
    pub(crate) native: Result<NativeContext, Status>,
    /// What its buffers count against.
    pub(crate) accounts: Accounts,
    // Those of the devices that are parts of others: they live as long.
    _parts: Vec<Arc<Part>>,
    pools: Mutex<HashMap<DeviceIndex, Arc<OnceLock<Option<PinnedPool>>>>>,
    rings: Mutex<HashMap<DeviceIndex, Arc<Rings>>>,
}

impl Context {
    /// A context, made or broken.
    pub(crate) fn new(
        id: ContextId,
        devices: Vec<(DeviceIndex, Device)>,
        native: Result<NativeContext, Status>,
        accounts: Accounts,
        parts: Vec<Arc<Part>>,
    ) -> Context {
        Context {
            id,
            devices,
            native,
            accounts,
            _parts: parts,
            pools: Mutex::default(),
            rings: Mutex::default(),
        }
    }

    /// The native context.
    pub(crate) fn native(&self) -> Result<&NativeContext, Status> {
        self.native.as_ref().map_err(|s| *s)
    }

    /// One of its devices.
    pub(crate) fn device(&self, index: DeviceIndex) -> Option<Device> {
        self.devices
            .iter()
            .find(|(i, _)| *i == index)
            .map(|(_, d)| *d)
    }

    /// Pinned memory for a small transfer; `None` when there is none to be had.
    pub(crate) fn pinned(&self, device: DeviceIndex, length: usize) -> Option<PinnedPart> {
        let pool = Arc::clone(self.pools.lock().entry(device).or_default());
        let native = self.native().ok()?;
        let found = self.device(device)?;
        pool.get_or_init(|| PinnedPool::new(native, found, PINNED_SLABS).ok())
            .as_ref()?
            .take(native, length)
    }

    /// The staging rings of a device, made at their first use by the bulk thread.
    ///
    /// # Errors
    /// What `make` says.
    pub(crate) fn rings(
        &self,
        device: DeviceIndex,
        make: impl FnOnce() -> Result<Arc<Rings>, Status>,
    ) -> Result<Arc<Rings>, Status> {
        if let Some(rings) = self.rings.lock().get(&device) {
            return Ok(Arc::clone(rings));
        }
        let made = make()?;
        Ok(Arc::clone(self.rings.lock().entry(device).or_insert(made)))
    }
}

/// A command queue.
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) context: Arc<Context>,
    pub(crate) device: DeviceIndex,
    pub(crate) native: Result<NativeQueue, Status>,
    /// Its commands whose ends nobody looks at.
    pub(crate) unseen: Unseen,
}

impl Queue {
    /// The native queue.
    pub(crate) fn native(&self) -> Result<&NativeQueue, Status> {
        self.native.as_ref().map_err(|s| *s)
    }

    /// Pinned memory, where the device needs it for transfers that do not block.
    pub(crate) fn stage(&self, length: usize) -> Option<PinnedPart> {
        let native = self.native().ok()?;
        if native.device().has_direct_memory() {
            return None;
        }
        self.context.pinned(self.device, length)
    }
}

/// A buffer, sub-buffer, image or pipe.
pub(crate) struct Memory {
    pub(crate) context: Arc<Context>,
    pub(crate) native: Result<Buffer, Status>,
    /// Given back with it.
    _charge: Option<Charge>,
}

impl Memory {
    /// With so many bytes of its own: they are charged, and then `make` asks the driver for them.
    pub(crate) fn whole(
        context: Arc<Context>,
        size: u64,
        make: impl FnOnce(&NativeContext) -> Result<Buffer, Status>,
    ) -> Memory {
        let charge = context.accounts.charge(size);
        let native = match &charge {
            None => Err(ALLOCATION_FAILURE),
            Some(_) => context.native().and_then(make),
        };
        let _charge = charge.filter(|_| native.is_ok());
        Memory {
            context,
            native,
            _charge,
        }
    }

    /// A sub-buffer, or an image made from another object: its bytes are its parent's; and what could not be made.
    pub(crate) fn part(context: Arc<Context>, native: Result<Buffer, Status>) -> Memory {
        Memory {
            context,
            native,
            _charge: None,
        }
    }

    /// The native object.
    pub(crate) fn native(&self) -> Result<&Buffer, Status> {
        self.native.as_ref().map_err(|s| *s)
    }
}

/// A sampler, made or broken.
pub(crate) struct Sampler {
    pub(crate) native: Result<NativeSampler, Status>,
}

/// A kernel: the argument table in command order, and the native kernel with what is set on it.
pub(crate) struct Kernel {
    pub(crate) context: Arc<Context>,
    pub(crate) arguments: Mutex<Arc<Arguments>>,
    pub(crate) native: Result<Mutex<Bound>, Status>,
}

/// A native kernel and which version of each argument is set on it.
pub(crate) struct Bound {
    pub(crate) kernel: NativeKernel,
    pub(crate) set: Vec<u64>,
    /// The same of what it reaches by pointers in memory.
    pub(crate) reaches: u64,
}

type Table<I, T> = HashMap<I, Arc<T>, ById>;

/// All objects but events, which live in the graph.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) contexts: Table<ContextId, Context>,
    pub(crate) queues: Table<QueueId, Queue>,
    pub(crate) device_queues: Table<QueueId, DeviceQueue>,
    /// Device queues that the client has released, and commands that are held back may enqueue into.
    pub(crate) lingering: Vec<Arc<DeviceQueue>>,
    pub(crate) memory: Table<MemoryId, Memory>,
    pub(crate) programs: Table<ProgramId, Program>,
    pub(crate) kernels: Table<KernelId, Kernel>,
    pub(crate) samplers: Table<SamplerId, Sampler>,
    pub(crate) sub_devices: HashMap<(PlatformIndex, DeviceIndex), Arc<Part>>,
    pub(crate) command_buffers: Table<CommandBufferId, CommandBuffer>,
    /// What is kept in command buffers: commands and their places in others' order.
    pub(crate) recorded: usize,
}

impl Objects {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.contexts.len()
            + self.queues.len()
            + self.device_queues.len()
            + self.lingering.len()
            + self.memory.len()
            + self.programs.len()
            + self.kernels.len()
            + self.samplers.len()
            + self.sub_devices.len()
            + self.command_buffers.len()
            + self.recorded
    }
}

/// An id that is in the table, or the end of the session.
pub(crate) fn find<I: Copy + Eq + std::hash::Hash + std::fmt::Debug, T>(
    table: &Table<I, T>,
    id: I,
) -> Result<Arc<T>, Violation> {
    table
        .get(&id)
        .map(Arc::clone)
        .ok_or_else(|| Violation::Unknown(format!("{id:?}")))
}

/// A new id in the table, or the end of the session.
pub(crate) fn add<I: Copy + Eq + std::hash::Hash + std::fmt::Debug, T, S: BuildHasher>(
    table: &mut HashMap<I, Arc<T>, S>,
    id: I,
    object: T,
) -> Result<(), Violation> {
    match table.entry(id) {
        std::collections::hash_map::Entry::Occupied(_) => Err(Violation::Taken(format!("{id:?}"))),
        std::collections::hash_map::Entry::Vacant(place) => {
            place.insert(Arc::new(object));
            Ok(())
        }
    }
}
