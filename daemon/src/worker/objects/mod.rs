//! A session's objects and commands: the ground on which bulk transfers and the session stand.
//!
//! - this file: contexts, queues, memory objects, samplers and kernels; [`arguments`]: what is set on a
//!   kernel; [`leased`]: the share of the node that the session may use;
//! - [`command`]: one command's event; [`task`]: a command as the bulk engine sees it; [`unobserved`]:
//!   commands whose events nobody asked for;
//! - [`outbox`], `pieces`, [`printed`]: how the ends of commands and the output of kernels reach the client;
//! - [`commons`], [`console`], [`progress`]: what the sessions of a host share, and which waits for which;
//!   [`pace`]: holds a session's launches back for its neighbours; [`warm`]: contexts that are made before a session asks for them; [`listeners`]: who hears a context's errors.
//!
//! If the node cannot make an object, its id is kept as *broken with a status*. A command that uses it
//! ends with that status. Objects are shared (`Arc`): a command keeps its objects alive after the client
//! has released them.
//!
//! This folder knows no table of ids, decides no order and moves no bulk data. Invariant: handles reach
//! the driver only through these objects.
#![forbid(unsafe_code)]

pub(crate) mod arguments;
pub(crate) mod command;
pub(crate) mod commons;
pub(crate) mod console;
pub(crate) mod hash;
pub(crate) mod leased;
pub(crate) mod listeners;
pub(crate) mod outbox;
pub(crate) mod pace;
mod pieces;
pub(crate) mod printed;
pub(crate) mod progress;
pub(crate) mod task;
pub(crate) mod unobserved;
pub(crate) mod warm;

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use causeway_proto::id::{ContextId, DeviceIndex, MemoryId, QueueId};
use causeway_proto::status::Status;
use parking_lot::Mutex;

use self::arguments::Arguments;
use self::commons::Alive;
use self::leased::{Accounts, Charge};
use self::listeners::Listening;
use self::pace::{Cost, Pace, QueuePace};
use self::unobserved::Unobserved;
use crate::runtime::buffer::Buffer;
use crate::runtime::context::Context as NativeContext;
use crate::runtime::device_queue::DeviceQueue as NativeDeviceQueue;
use crate::runtime::event::Event;
use crate::runtime::kernel::Kernel as NativeKernel;
use crate::runtime::node::Device;
use crate::runtime::pinned::{PinnedPart, PinnedPool};
use crate::runtime::queue::Queue as NativeQueue;
use crate::runtime::sampler::Sampler as NativeSampler;
use crate::runtime::sub_device::SubDevice as NativeSubDevice;

/// Limit on pinned memory for small transfers, per device and context, in MiB.
const PINNED_SLABS: usize = 16;

/// A context.
pub(crate) struct Context {
    pub(crate) id: ContextId,
    pub(crate) devices: Vec<(DeviceIndex, Device)>,
    pub(crate) native: Result<Arc<NativeContext>, Status>,
    /// The accounts that the context's buffers are charged to.
    pub(crate) accounts: Accounts,
    // The sub-devices among the devices, which live as long as the context.
    _parts: Vec<Arc<SubDevice>>,
    pools: Mutex<HashMap<DeviceIndex, Arc<OnceLock<Option<PinnedPool>>>>>,
    // The staging memory of bulk transfers, which lives as long as the context. This folder does not know
    // its type.
    staging: Mutex<HashMap<DeviceIndex, Arc<dyn Any + Send + Sync>>>,
    common: InHost,
}

/// What a context has in addition, in a host or if it was made before the session.
#[derive(Default)]
pub(crate) struct InHost {
    /// Keeps the session's listener for the errors of a native context that it did not make itself.
    pub(crate) _listening: Option<Listening>,
    /// Whether new memory is filled with zeros.
    pub(crate) clears: bool,
    /// The session's pace on each device.
    pub(crate) paces: Vec<(DeviceIndex, Arc<Pace>)>,
    pub(crate) _alive: Alive,
}

impl Context {
    /// Makes a context object, working or broken.
    pub(crate) fn new(
        id: ContextId,
        devices: Vec<(DeviceIndex, Device)>,
        native: Result<Arc<NativeContext>, Status>,
        accounts: Accounts,
        parts: Vec<Arc<SubDevice>>,
        common: InHost,
    ) -> Context {
        Context {
            id,
            devices,
            native,
            accounts,
            _parts: parts,
            pools: Mutex::default(),
            staging: Mutex::default(),
            common,
        }
    }

    /// The native context.
    pub(crate) fn native(&self) -> Result<&NativeContext, Status> {
        self.native.as_deref().map_err(|s| *s)
    }

    /// Returns new memory without the bytes of whoever had it before, if those may be another user's, or must be the same
    /// when the session's commands are executed again. Waits for the driver then.
    ///
    /// # Errors
    /// The driver's error.
    pub(crate) fn cleared(&self, memory: Buffer) -> Result<Buffer, Status> {
        self.clear(&memory)?;
        Ok(memory)
    }

    /// As [`Context::cleared`], for memory that exists.
    pub(crate) fn clear(&self, memory: &Buffer) -> Result<(), Status> {
        match self.common.clears {
            true => {
                let (_, device) = self.devices.first().ok_or(Status::INVALID_VALUE)?;
                NativeQueue::new(self.native()?, *device, &[])?.clear(memory)
            }
            false => Ok(()),
        }
    }

    /// Drops the staging memory, because the session ends.
    pub(crate) fn drop_staging(&self) {
        // Dropped outside of the locks, because the drop calls the driver.
        let staging = std::mem::take(&mut *self.staging.lock());
        let pools = std::mem::take(&mut *self.pools.lock());
        drop((staging, pools));
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

    /// The session's pace on one of the devices, if it may have neighbours there.
    pub(crate) fn pace(&self, device: DeviceIndex) -> Option<Arc<Pace>> {
        let mut paces = self.common.paces.iter();
        let (_, pace) = paces.find(|(of, _)| *of == device)?;
        Some(Arc::clone(pace))
    }

    /// Returns the staging memory of a device, which `make` makes at its first use. All callers use one
    /// type `T`.
    ///
    /// # Errors
    /// The error of `make`.
    pub(crate) fn staging<T: Any + Send + Sync>(
        &self,
        device: DeviceIndex,
        make: impl FnOnce() -> Result<Arc<T>, Status>,
    ) -> Result<Arc<T>, Status> {
        let known = self.staging.lock().get(&device).map(Arc::clone);
        if let Some(Ok(known)) = known.map(Arc::downcast) {
            return Ok(known);
        }
        // Made without the lock, because `make` calls the driver.
        let made = make()?;
        let mut staging = self.staging.lock();
        let kept = staging
            .entry(device)
            .or_insert_with(|| Arc::<T>::clone(&made));
        Ok(Arc::clone(kept).downcast().unwrap_or(made))
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
    /// The queue's pace on the device, if the session may have neighbours there.
    pub(crate) pace: Option<Arc<QueuePace>>,
}

impl Queue {
    /// Whether a native event is of a command on the queue's device.
    pub(crate) fn has_device_of(&self, event: &Event) -> bool {
        (self.native.as_ref()).is_ok_and(|native| native.has_device_of(event))
    }

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
    /// The object whose bytes this one shares.
    pub(crate) parent: Option<MemoryId>,
    /// The memory charge, which ends with the object.
    _charge: Option<Charge>,
}

impl Memory {
    /// Makes an object with `size` bytes of its own. The bytes are charged before `make` asks
    /// the driver for them.
    pub(crate) fn whole(
        context: Arc<Context>,
        size: u64,
        make: impl FnOnce(&Context) -> Result<Buffer, Status>,
    ) -> Memory {
        let charge = context.accounts.charge(size);
        let native = match &charge {
            None => Err(Status::MEM_ALLOCATION_FAILURE),
            Some(_) => make(&context),
        };
        let _charge = charge.filter(|_| native.is_ok());
        Memory {
            context,
            native,
            parent: None,
            _charge,
        }
    }

    /// Makes an object that needs no charge: a sub-buffer, an image that shares another
    /// object's bytes, or a broken object.
    pub(crate) fn part(
        context: Arc<Context>,
        native: Result<Buffer, Status>,
        parent: Option<MemoryId>,
    ) -> Memory {
        Memory {
            context,
            native,
            parent,
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
    /// Whether launches may print.
    pub(crate) prints: bool,
    /// How long a launch takes. Kernels of one program and name have this in common.
    pub(crate) cost: Arc<Cost>,
}

/// A native kernel, and the version of each argument that is set on it.
pub(crate) struct Bound {
    pub(crate) kernel: NativeKernel,
    pub(crate) set: Vec<u64>,
    /// The version of the set of pointers that the kernel may reach indirectly.
    pub(crate) reaches: u64,
}

/// A device queue, working or broken.
pub(crate) struct DeviceQueue {
    pub(crate) context: Arc<Context>,
    pub(crate) native: Result<NativeDeviceQueue, Status>,
}

impl DeviceQueue {
    /// The native queue.
    pub(crate) fn native(&self) -> Result<&NativeDeviceQueue, Status> {
        self.native.as_ref().map_err(|status| *status)
    }
}

/// A sub-device, working or broken.
#[derive(Debug)]
pub(crate) struct SubDevice {
    pub(crate) native: Result<NativeSubDevice, Status>,
    /// For a broken sub-device, its parent's device, which is then never used.
    pub(crate) device: Device,
    /// The root device, which decides permission and memory accounting.
    pub(crate) root: DeviceIndex,
    /// Keeps the parent alive.
    pub(crate) _parent: Option<Arc<SubDevice>>,
}
