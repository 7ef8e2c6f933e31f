//! Launches of a command buffer that may be changed after recording, and the handles that name them.
//!
//! Specification: `cl_khr_command_buffer_mutable_dispatch`. Nothing here is sent: see [`super::replay`]. Invariant: an
//! update changes all that it names, or nothing.

use std::sync::{Arc, Weak};

use cl_headers::types::CL_INVALID_OPERATION;
use rustc_hash::FxHashMap;

use super::replay::Needs;
use super::{CommandBuffer, State};
use crate::error::{ClResult, fail, require};
use crate::stub::kernel::{ArgValue, Dispatch};
use crate::stub::{Binding, Buffer};

/// A launch that is recorded so that it may be changed.
pub struct Mutable {
    /// Its arguments and sizes.
    pub dispatch: Dispatch,
    /// `CL_MUTABLE_DISPATCH_*_KHR`: what may be changed.
    pub fields: u64,
    /// The properties that it was recorded with, with their 0; empty for none.
    pub properties: Vec<u64>,
}

/// The handle of a launch; goes with its command buffer.
pub struct MutableCommand {
    pub(crate) binding: Binding,
    command_buffer: Weak<CommandBuffer>,
    index: usize,
    fields: u64,
    properties: Vec<u64>,
}

/// A change of a launch; what is `None` stays.
#[derive(Default)]
pub struct Change {
    /// Arguments, by their indices.
    pub args: Vec<(usize, ArgValue)>,
    /// The shared virtual memory that is reached by pointers in memory.
    pub reaches: Option<Vec<Weak<Buffer>>>,
    /// First global id.
    pub offset: Option<[u64; 3]>,
    /// Work-items.
    pub global: Option<[u64; 3]>,
    /// Work-items of a group.
    pub local: Option<[u64; 3]>,
}

/// What a command buffer has of one.
pub(super) struct Slot {
    handle: Arc<MutableCommand>,
    place: u32,
    dispatch: Arc<Dispatch>,
    needs: Needs,
}

impl Slot {
    pub(super) fn new(
        (command_buffer, index): (&Arc<CommandBuffer>, usize),
        place: u32,
        mutable: Mutable,
        needs: Needs,
    ) -> Slot {
        let handle = MutableCommand {
            binding: Binding::default(),
            command_buffer: Arc::downgrade(command_buffer),
            index,
            fields: mutable.fields,
            properties: mutable.properties,
        };
        Slot {
            handle: Arc::new(handle),
            place,
            dispatch: Arc::new(mutable.dispatch),
            needs,
        }
    }

    pub(super) fn handle(&self) -> &Arc<MutableCommand> {
        &self.handle
    }

    pub(super) fn needs(&self) -> &Needs {
        &self.needs
    }

    pub(super) fn has_arguments(&self) -> bool {
        self.dispatch.has_arguments()
    }

    pub(super) fn launch(&self) -> (u32, Arc<Dispatch>) {
        (self.place, self.dispatch.clone())
    }
}

impl MutableCommand {
    /// Whose it is; none when that is gone.
    #[must_use]
    pub fn command_buffer(&self) -> Option<Arc<CommandBuffer>> {
        self.command_buffer.upgrade()
    }

    /// What may be changed.
    #[must_use]
    pub fn fields(&self) -> u64 {
        self.fields
    }

    /// The properties that it was recorded with, with their 0; empty for none.
    #[must_use]
    pub fn properties(&self) -> &[u64] {
        &self.properties
    }
}

impl CommandBuffer {
    /// A launch as it is now; none for a handle of another one's.
    #[must_use]
    pub fn dispatch(&self, command: &MutableCommand) -> Option<Arc<Dispatch>> {
        let state = self.state.lock();
        let launches = match &*state {
            State::Recording(recording) => &recording.launches,
            State::Executable(executable) => &executable.launches,
        };
        let slot = launches.get(command.index)?;
        std::ptr::eq(&*slot.handle, command).then(|| slot.dispatch.clone())
    }

    /// Changes launches of its own, one after the other, for later enqueues; waits for nothing.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` before recording has ended, and when groups would not be of one size any more, or would be;
    /// as `clEnqueueNDRangeKernel` for arguments and sizes.
    pub fn update(&self, changes: Vec<(Arc<MutableCommand>, Change)>) -> ClResult {
        let several = self.queue.context().is_distributed();
        let mut state = self.state.lock();
        let State::Executable(executable) = &mut *state else {
            return fail(CL_INVALID_OPERATION);
        };
        let mut changed: FxHashMap<usize, Dispatch> = FxHashMap::default();
        for (command, change) in changes {
            let before = &*executable.launches[command.index].dispatch;
            let dispatch = changed
                .entry(command.index)
                .or_insert_with(|| before.clone());
            change.apply(dispatch);
        }
        let judged = changed.into_iter().map(|(index, dispatch)| {
            let needs = Needs::of(&dispatch.snapshot()?, several)?;
            let was_uniform = executable.launches[index].dispatch.is_uniform();
            require(dispatch.is_uniform() == was_uniform, CL_INVALID_OPERATION)?;
            Ok((index, dispatch, needs))
        });
        let judged = judged.collect::<ClResult<Vec<_>>>()?;
        for (index, dispatch, needs) in judged {
            let slot = &mut executable.launches[index];
            slot.dispatch = Arc::new(dispatch);
            slot.needs = needs;
            executable.current = None;
        }
        if !executable.has_arguments {
            executable.has_arguments = executable.launches.iter().all(Slot::has_arguments);
        }
        Ok(())
    }
}

impl Change {
    fn apply(self, dispatch: &mut Dispatch) {
        for (index, value) in self.args {
            dispatch.set_arg(index, value);
        }
        if let Some(memory) = self.reaches {
            dispatch.set_reaches(memory);
        }
        let mut range = *dispatch.range();
        range.offset = self.offset.or(range.offset);
        range.global = self.global.unwrap_or(range.global);
        range.local = self.local.or(range.local);
        dispatch.set_range(range);
    }
}
