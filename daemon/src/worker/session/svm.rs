//! Shared virtual memory: memory objects whose address the client requests.
//!
//! Invariant: each request is answered once. Memory that could not be allocated keeps its id as a broken
//! object, like any other.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{Answer, CreateSvm, answer};
use causeway_proto::id::{ContextId, MemoryId};
use causeway_proto::status::Status;

use super::shared::Shared;
use super::tables::{add, find};
use super::violation::Violation;
use crate::runtime::buffer::Buffer;
use crate::worker::objects::Memory;

/// Applies `CreateSvm` and answers with the memory's address.
///
/// # Errors
/// [`Violation`] for a message that no Causeway client sends.
pub(crate) fn create(shared: &Arc<Shared>, create: &CreateSvm) -> Result<(), Violation> {
    let id = MemoryId(create.buffer);
    let context = find(
        &shared.core.lock().objects.contexts,
        ContextId(create.context),
    )?;
    let room = shared.room()?;
    let memory = Memory::whole(context, create.size, |native| {
        room?;
        Buffer::svm(native, create.flags, create.size, create.alignment)
    });
    let address = memory.native().ok().and_then(Buffer::svm_address);
    let status = memory.native().err().unwrap_or(Status::SUCCESS);
    add(&mut shared.core.lock().objects.memory, id, memory)?;
    shared.outbox.answer(Answer {
        request: create.request,
        status: status.0,
        message: String::new(),
        body: address.map(|address| answer::Body::Value(address.to_le_bytes().to_vec().into())),
    });
    Ok(())
}
