//! Command buffers (`cl_khr_command_buffer`): the same launches again and again.
//!
//! Invariant: a command buffer is released with its [`Replay`], when nothing of it runs.

use super::{Devices, Kernel};
use crate::opencl::{ClError, CommandBuffer, CommandBuffers};

/// Launches that were recorded on the first queue.
pub(crate) struct Replay<'a> {
    devices: &'a Devices,
    functions: CommandBuffers,
    recorded: CommandBuffer,
}

impl Devices {
    /// Records `count` launches of one work-item. `None` where the platform has no command buffers.
    pub(crate) fn record(&self, kernel: Kernel, count: u64) -> Result<Option<Replay<'_>>, ClError> {
        let Some(functions) = CommandBuffers::find(&self.cl, self.devices[0])? else {
            return Ok(None);
        };
        let replay = Replay {
            devices: self,
            recorded: functions.create(self.queues[0])?,
            functions,
        };
        for _ in 0..count {
            replay.functions.launch(replay.recorded, kernel)?;
        }
        replay.functions.finalize(replay.recorded)?;
        Ok(Some(replay))
    }
}

impl Replay<'_> {
    /// Enqueues all launches, and waits for their end.
    pub(crate) fn run(&self) -> Result<(), ClError> {
        self.functions.enqueue(self.recorded)?;
        self.devices.finish(0)
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        // An error means that the session is lost, and the command buffer with it.
        let _ = self.functions.release(self.recorded);
    }
}
