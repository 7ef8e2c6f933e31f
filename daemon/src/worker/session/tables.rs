//! The session's tables: its objects, by the ids that the client chose.
//!
//! Invariant: an id that is not in the tables ends the session.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use causeway_proto::id::{
    CommandBufferId, ContextId, DeviceIndex, KernelId, MemoryId, PlatformIndex, ProgramId, QueueId,
    SamplerId,
};

use super::commands::CommandBuffer;
use super::program::Program;
use super::violation::Violation;
use crate::worker::objects::hash::ById;
use crate::worker::objects::{Context, DeviceQueue, Kernel, Memory, Queue, Sampler, SubDevice};

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
    pub(crate) sub_devices: HashMap<(PlatformIndex, DeviceIndex), Arc<SubDevice>>,
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
