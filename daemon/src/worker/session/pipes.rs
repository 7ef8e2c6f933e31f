//! Creation of pipes; part of [`super::apply`], with its invariants.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{CreatePipe, ObjectKind};
use causeway_proto::id::{ContextId, MemoryId};

use super::shared::Shared;
use super::tables::{add, find};
use super::violation::Violation;
use crate::runtime::buffer::Buffer;
use crate::worker::objects::Memory;

/// Applies `CreatePipe`.
///
/// # Errors
/// [`Violation`], which ends the session.
pub(super) fn create(shared: &Arc<Shared>, create: &CreatePipe) -> Result<(), Violation> {
    let id = MemoryId(create.pipe);
    let context = find(
        &shared.core.lock().objects.contexts,
        ContextId(create.context),
    )?;
    let size = u64::from(create.packet_size) * u64::from(create.max_packets);
    let room = shared.room()?;
    let memory = Memory::whole(context, size, |native| {
        room?;
        Buffer::pipe(native, create.flags, create.packet_size, create.max_packets)
    });
    let broken = memory.native().err();
    shared.tell_broken(ObjectKind::Memory, id.0, broken.as_ref(), memory.context.id);
    add(&mut shared.core.lock().objects.memory, id, memory)
}
