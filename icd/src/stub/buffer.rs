//! A buffer or sub-buffer: a compound stub.
//!
//! `memory` on the wire. A sub-buffer is a range of its parent. Host-pointer flags are the client's
//! business; the node sees kernel access flags only.

use std::sync::Arc;

use causeway_proto::command::ObjectKind;
use causeway_proto::id::MemoryId;
use parking_lot::Mutex;

use super::{Binding, Context, callbacks};

/// See the module.
pub struct Buffer {
    pub(crate) binding: Binding,
    id: MemoryId,
    context: Arc<Context>,
    flags: u64,
    size: u64,
    destructors: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("id", &self.id)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Buffer {
    /// Its name on the wire.
    #[must_use]
    pub fn id(&self) -> MemoryId {
        self.id
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// `CL_MEM_FLAGS`.
    #[must_use]
    pub fn flags(&self) -> u64 {
        self.flags
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.context.site().release(ObjectKind::Memory, self.id.0);
        for callback in std::mem::take(self.destructors.get_mut()).into_iter().rev() {
            callbacks::run(callback);
        }
    }
}
