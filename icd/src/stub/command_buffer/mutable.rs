//! Launches of a command buffer that may be changed after recording, and the handles that name them.
//!
//! Specification: `cl_khr_command_buffer_mutable_dispatch`. Nothing is sent here; see [`super::replay`].
//! Invariant: an update applies all of its changes, or none.

use std::sync::{Arc, Weak};

use cl_headers::types::CL_INVALID_OPERATION;
use rustc_hash::FxHashMap;

use super::replay::Needs;
use super::{CommandBuffer, CommandBufferState};
use crate::error::{ClResult, fail, require};
use crate::stub::kernel::{ArgValue, Dispatch};
use crate::stub::{Binding, Buffer};

/// A launch that is recorded as changeable.
pub struct Mutable {
    /// The arguments and sizes of the launch.
    pub dispatch: Dispatch,
    /// `CL_MUTABLE_DISPATCH_*_KHR`: the fields that may be changed.
    pub fields: u64,
    /// The properties that the launch was recorded with, with the terminating 0; empty for none.
    pub properties: Vec<u64>,
}

/// The handle of a mutable launch; valid as long as its command buffer.
pub struct MutableCommand {
    pub(crate) binding: Binding,
    command_buffer: Weak<CommandBuffer>,
    index: usize,
    fields: u64,
    properties: Vec<u64>,
}

/// A change of a launch. A field that is `None` stays unchanged.
#[derive(Default)]
pub struct Change {
    /// Arguments to set, by index.
    pub args: Vec<(usize, ArgValue)>,
    /// The shared virtual memory that the launch reaches through pointers in memory.
    pub reaches: Option<Vec<Weak<Buffer>>>,
    /// The first global ids.
    pub offset: Option<[u64; 3]>,
    /// The global sizes.
    pub global: Option<[u64; 3]>,
    /// The group sizes.
    pub local: Option<[u64; 3]>,
}

/// A command buffer's record of a mutable launch.
pub(super) struct MutableLaunch {
    handle: Arc<MutableCommand>,
    place: u32,
    dispatch: Arc<Dispatch>,
    needs: Needs,
}

impl MutableLaunch {
    pub(super) fn new(
        (command_buffer, index): (&Arc<CommandBuffer>, usize),
        place: u32,
        mutable: Mutable,
        needs: Needs,
    ) -> MutableLaunch {
        let handle = MutableCommand {
            binding: Binding::default(),
            command_buffer: Arc::downgrade(command_buffer),
            index,
            fields: mutable.fields,
            properties: mutable.properties,
        };
        MutableLaunch {
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
    /// Returns the command buffer of the launch; `None` if it no longer exists.
    #[must_use]
    pub fn command_buffer(&self) -> Option<Arc<CommandBuffer>> {
        self.command_buffer.upgrade()
    }

    /// Returns the fields that may be changed.
    #[must_use]
    pub fn fields(&self) -> u64 {
        self.fields
    }

    /// Returns the properties that the launch was recorded with, with the terminating 0; empty for none.
    #[must_use]
    pub fn properties(&self) -> &[u64] {
        &self.properties
    }
}

impl CommandBuffer {
    /// Returns the current version of a launch; `None` for a handle of another command buffer.
    #[must_use]
    pub fn dispatch(&self, command: &MutableCommand) -> Option<Arc<Dispatch>> {
        let state = self.state.lock();
        let launches = match &*state {
            CommandBufferState::Recording(recording) => &recording.launches,
            CommandBufferState::Executable(executable) => &executable.launches,
        };
        let launch = launches.get(command.index)?;
        std::ptr::eq(&*launch.handle, command).then(|| launch.dispatch.clone())
    }

    /// Changes launches of this command buffer, one after the other, for later enqueues. Does not wait.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` before recording has ended, and when a change makes uniform groups
    /// non-uniform or the reverse. Those of `clEnqueueNDRangeKernel` for arguments and sizes.
    pub fn update(&self, changes: Vec<(Arc<MutableCommand>, Change)>) -> ClResult {
        let several = self.queue.context().is_distributed();
        let mut state = self.state.lock();
        let CommandBufferState::Executable(executable) = &mut *state else {
            // clUpdateMutableCommandsKHR: CL_INVALID_OPERATION when the command buffer is not finalized.
            return fail(CL_INVALID_OPERATION);
        };
        // Changes are applied to copies first, so that an error leaves all launches unchanged.
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
            let launch = &mut executable.launches[index];
            launch.dispatch = Arc::new(dispatch);
            launch.needs = needs;
            executable.current = None;
        }
        if !executable.has_arguments {
            executable.has_arguments = executable.launches.iter().all(MutableLaunch::has_arguments);
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
