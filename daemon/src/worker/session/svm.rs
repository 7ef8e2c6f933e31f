//! Shared virtual memory: memory objects whose address the client asks for.
//!
//! Invariant: it is answered once, and memory that could not be had keeps its id as a broken object, like any other.
#![forbid(unsafe_code)]

use std::sync::Arc;

use causeway_proto::command::{Answer, CreateSvm, answer};
use causeway_proto::id::{ContextId, MemoryId};
use causeway_proto::status::Status;

use super::objects::{Memory, add, find};
use super::{Shared, Violation};
use crate::runtime::buffer::Buffer;

/// Makes it, and answers with its address.
///
/// # Errors
/// [`Violation`] for what no client of ours sends.
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
