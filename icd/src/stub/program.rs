//! A program: source, binaries, builds and what they gave.

use std::sync::Arc;

use causeway_proto::command::ObjectKind;
use causeway_proto::id::ProgramId;

use super::{Binding, Context};

/// See the module.
#[derive(Debug)]
pub struct Program {
    pub(crate) binding: Binding,
    id: ProgramId,
    context: Arc<Context>,
}

impl Program {
    /// Its name on the wire.
    #[must_use]
    pub fn id(&self) -> ProgramId {
        self.id
    }

    /// Its context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.context.site().release(ObjectKind::Program, self.id.0);
    }
}
