//! Making pipes; part of [`super::apply`], with its invariants.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{CreatePipe, ObjectKind};
use causeway_proto::id::{ContextId, MemoryId};

use super::apply::ALLOCATION_FAILURE;
use super::objects::{Memory, add, find};
use super::{Shared, Violation};
use crate::runtime::buffer::Buffer;

/// Applies it.
///
/// # Errors
/// [`Violation`] ends the session.
pub(super) fn create(shared: &Arc<Shared>, create: &CreatePipe) -> Result<(), Violation> {
    let id = MemoryId(create.pipe);
    let context = find(
        &shared.core.lock().objects.contexts,
        ContextId(create.context),
    )?;
    let size = u64::from(create.packet_size) * u64::from(create.max_packets);
    let charge = context.accounts.charge(size);
    let native = match &charge {
        None => Err(ALLOCATION_FAILURE),
        Some(_) => context.native().and_then(|native| {
            Buffer::pipe(native, create.flags, create.packet_size, create.max_packets)
        }),
    };
    shared.tell_broken(ObjectKind::Memory, id.0, native.as_ref().err(), context.id);
    let memory = Memory::whole(context, native, charge);
    shared
        .core
        .lock()
        .with_room(shared, |core| add(&mut core.objects.memory, id, memory))
}
