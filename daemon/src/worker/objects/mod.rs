//! The session's objects, by the ids that the client chose.
//!
//! If the node cannot make an object, its id is kept as *broken with a status*. A command that uses it
//! ends with that status. Objects are shared (`Arc`): a command keeps its objects alive after the client
//! has released them. Invariant: handles reach the driver only through these objects. An id that is not
//! in the tables ends the session.
#![forbid(unsafe_code)]

pub(crate) mod arguments;
pub(crate) mod command;
pub(crate) mod hash;
pub(crate) mod leased;
pub(crate) mod outbox;
pub(crate) mod printed;
pub(crate) mod unobserved;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use causeway_proto::id::{
    CommandBufferId, ContextId, DeviceIndex, KernelId, MemoryId, PlatformIndex, ProgramId, QueueId,
    SamplerId,
};
use causeway_proto::status::Status;
use parking_lot::Mutex;

use self::arguments::Arguments;
use self::hash::ById;
use self::leased::{Accounts, Charge};
use self::unobserved::Unobserved;
use crate::runtime::buffer::Buffer;
use crate::runtime::context::Context as NativeContext;
use crate::runtime::kernel::Kernel as NativeKernel;
use crate::runtime::node::Device;
use crate::runtime::pinned::{PinnedPart, PinnedPool};
use crate::runtime::queue::Queue as NativeQueue;
use crate::runtime::sampler::Sampler as NativeSampler;
use crate::worker::bulk::Rings;
use crate::worker::session::Violation;
use crate::worker::session::command_buffers::CommandBuffer;
use crate::worker::session::device_queues::DeviceQueue;
use crate::worker::session::program::Program;
use crate::worker::session::sub_devices::Part;

/// Limit on pinned memory for small transfers, per device and context, in MiB.
const PINNED_SLABS: usize = 16;

/// A context.
pub(crate) struct Context {
    pub(crate) id: ContextId,
    pub(crate) devices: Vec<(DeviceIndex, Device)>,
    pub(crate) native: Result<NativeContext, Status>,
    /// The accounts that the context's buffers are charged to.
    pub(crate) accounts: Accounts,
    // The sub-devices among the devices, which live as long as the context.
    _parts: Vec<Arc<Part>>,
    pools: Mutex<HashMap<DeviceIndex, Arc<OnceLock<Option<PinnedPool>>>>>,
    rings: Mutex<HashMap<DeviceIndex, Arc<Rings>>>,
}

impl Context {
    /// Makes a context object, working or broken.
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

    /// One of the context's devices.
    pub(crate) fn device(&self, index: DeviceIndex) -> Option<Device> {
        self.devices
            .iter()
            .find(|(i, _)| *i == index)
            .map(|(_, d)| *d)
    }

    /// Takes pinned memory for a small transfer; `None` if none is available.
    pub(crate) fn pinned(&self, device: DeviceIndex, length: usize) -> Option<PinnedPart> {
        let pool = Arc::clone(self.pools.lock().entry(device).or_default());
        let native = self.native().ok()?;
        let found = self.device(device)?;
        pool.get_or_init(|| PinnedPool::new(native, found, PINNED_SLABS).ok())
            .as_ref()?
            .take(native, length)
    }

    /// Returns the staging rings of a device. The bulk thread makes them at their first use.
    ///
    /// # Errors
    /// The error of `make`.
    pub(crate) fn rings(
        &self,
        device: DeviceIndex,
        make: impl FnOnce() -> Result<Arc<Rings>, Status>,
    ) -> Result<Arc<Rings>, Status> {
        if let Some(rings) = self.rings.lock().get(&device) {
            return Ok(Arc::clone(rings));
        }
        // Made without the lock, because `make` calls the driver.
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
    /// The queue's unobserved commands.
    pub(crate) unobserved: Unobserved,
}

impl Queue {
    /// The native queue.
    pub(crate) fn native(&self) -> Result<&NativeQueue, Status> {
        self.native.as_ref().map_err(|s| *s)
    }

    /// Takes pinned memory if the device needs it for non-blocking transfers.
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
    /// The memory charge, which ends with the object.
    _charge: Option<Charge>,
}

impl Memory {
    /// Makes an object with `size` bytes of its own. The bytes are charged before `make` asks
    /// the driver for them.
    pub(crate) fn whole(
        context: Arc<Context>,
        size: u64,
        make: impl FnOnce(&NativeContext) -> Result<Buffer, Status>,
    ) -> Memory {
        let charge = context.accounts.charge(size);
        let native = match &charge {
            None => Err(Status::MEM_ALLOCATION_FAILURE),
            Some(_) => context.native().and_then(make),
        };
        let _charge = charge.filter(|_| native.is_ok());
        Memory {
            context,
            native,
            _charge,
        }
    }

    /// Makes an object that needs no charge: a sub-buffer, an image that shares another
    /// object's bytes, or a broken object.
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

/// A kernel: its arguments as of the command stream, and the native kernel with the arguments
/// that are set on it.
pub(crate) struct Kernel {
    pub(crate) context: Arc<Context>,
    pub(crate) arguments: Mutex<Arc<Arguments>>,
    pub(crate) native: Result<Mutex<Bound>, Status>,
}

/// A native kernel, and the version of each argument that is set on it.
pub(crate) struct Bound {
    pub(crate) kernel: NativeKernel,
    pub(crate) set: Vec<u64>,
    /// The version of the set of pointers that the kernel may reach indirectly.
    pub(crate) reaches: u64,
}

type Table<I, T> = HashMap<I, Arc<T>, ById>;

/// All objects except events, which live in the graph.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) contexts: Table<ContextId, Context>,
    pub(crate) queues: Table<QueueId, Queue>,
    pub(crate) device_queues: Table<QueueId, DeviceQueue>,
    /// Device queues that the client has released, while held-back commands may still enqueue into them.
    pub(crate) lingering: Vec<Arc<DeviceQueue>>,
    pub(crate) memory: Table<MemoryId, Memory>,
    pub(crate) programs: Table<ProgramId, Program>,
    pub(crate) kernels: Table<KernelId, Kernel>,
    pub(crate) samplers: Table<SamplerId, Sampler>,
    pub(crate) sub_devices: HashMap<(PlatformIndex, DeviceIndex), Arc<Part>>,
    pub(crate) command_buffers: Table<CommandBufferId, CommandBuffer>,
    /// The size of all command buffers: recorded commands and order entries.
    pub(crate) recorded: usize,
}

impl Objects {
    /// Number of objects that count against the session's limit.
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

/// Finds an object by id. An unknown id violates the protocol.
pub(crate) fn find<I: Copy + Eq + std::hash::Hash + std::fmt::Debug, T>(
    table: &Table<I, T>,
    id: I,
) -> Result<Arc<T>, Violation> {
    table
        .get(&id)
        .map(Arc::clone)
        .ok_or_else(|| Violation::Unknown(format!("{id:?}")))
}

/// Adds an object under a new id. An id in use violates the protocol.
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
