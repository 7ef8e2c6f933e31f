//! A kernel: its signature and the arguments set so far.

use std::sync::Arc;

use causeway_proto::command::ObjectKind;
use causeway_proto::id::KernelId;

use super::{Binding, Program};

/// See the module.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) binding: Binding,
    id: KernelId,
    program: Arc<Program>,
}

impl Kernel {
    /// Its name on the wire.
    #[must_use]
    pub fn id(&self) -> KernelId {
        self.id
    }

    /// Its program.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.program
            .context()
            .site()
            .release(ObjectKind::Kernel, self.id.0);
    }
}
