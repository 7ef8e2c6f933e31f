//! One call each, as the rows measure them: nothing is made, counted or released beside the call itself.
//!
//! All of them use the first device, on the named queue: 0, or the result of [`Devices::add_queue`].
//! Invariant: a command that is not waited for reads static memory only.

use std::cell::RefCell;

use cl_headers::types::*;

use super::{Devices, Event, Kernel, Memory};
use crate::opencl::{ClError, OpenCl};

/// A transfer under way, which has ended when this is dropped.
pub(crate) struct TransferUnderWay<'a> {
    devices: &'a Devices,
    event: Event,
    queue: usize,
    _data: &'a mut [u8],
}

impl TransferUnderWay<'_> {
    /// Whether the transfer is still under way.
    pub(crate) fn is_running(&self) -> Result<bool, ClError> {
        // A status below zero means that it has failed, and so does not run.
        Ok(self.devices.cl.status(self.event)? > CL_COMPLETE)
    }
}

impl Drop for TransferUnderWay<'_> {
    fn drop(&mut self) {
        // The command uses the data until it has ended. An error means that the session is lost, and its
        // commands and events with it.
        let _ = self.devices.finish(self.queue);
        let _ = self.devices.cl.release_event(self.event);
    }
}

impl Devices {
    /// Makes a queue on the first device in the same context, for another thread.
    pub(crate) fn beside(&self) -> Result<Devices, ClError> {
        let (cl, device) = (OpenCl::load()?, self.devices[0]);
        let queue = cl.queue(self.context, device, 0)?;
        cl.retain_context(self.context)?;
        Ok(Devices {
            cl,
            devices: vec![device],
            context: self.context,
            queues: vec![queue],
            made: RefCell::default(),
        })
    }

    /// Makes one more queue on the first device; its number.
    pub(crate) fn add_queue(&mut self) -> Result<usize, ClError> {
        let queue = self.cl.queue(self.context, self.devices[0], 0)?;
        self.queues.push(queue);
        Ok(self.queues.len() - 1)
    }

    /// Enqueues one work-item, without an event.
    pub(crate) fn enqueue(&self, kernel: Kernel) -> Result<(), ClError> {
        self.cl.launch(self.queues[0], kernel, &[1], &[], None)
    }

    /// Enqueues a marker, without an event.
    pub(crate) fn enqueue_marker(&self) -> Result<(), ClError> {
        self.cl.marker(self.queues[0], None)
    }

    /// Enqueues a write of constant data, without an event.
    pub(crate) fn enqueue_write(&self, memory: Memory, data: &'static [u8]) -> Result<(), ClError> {
        let bytes = (data.as_ptr(), 0, data.len());
        // SAFETY: the slice is static.
        unsafe { self.cl.start_write(self.queues[0], memory, bytes, None) }
    }

    /// Writes, blocking.
    pub(crate) fn write_now(&self, memory: Memory, data: &[u8]) -> Result<(), ClError> {
        self.cl.write(self.queues[0], memory, data)
    }

    /// Starts a write (`up`) or a read of all of `data` on a queue, and flushes it.
    pub(crate) fn start<'a>(
        &'a self,
        queue: usize,
        memory: Memory,
        data: &'a mut [u8],
        up: bool,
    ) -> Result<TransferUnderWay<'a>, ClError> {
        let (mut event, on) = (Event::NONE, self.queues[queue]);
        // SAFETY: the slice stays borrowed by what is returned, which waits for the command first.
        unsafe {
            if up {
                let bytes = (data.as_ptr(), 0, data.len());
                self.cl.start_write(on, memory, bytes, Some(&mut event))
            } else {
                let bytes = (data.as_mut_ptr(), data.len());
                self.cl.start_read(on, memory, bytes, Some(&mut event))
            }
        }?;
        let running = TransferUnderWay {
            devices: self,
            event,
            queue,
            _data: data,
        };
        self.flush(queue)?;
        Ok(running)
    }

    /// Maps all of a buffer, blocking, lets `touch` at the bytes, unmaps and finishes.
    pub(crate) fn map(
        &self,
        memory: Memory,
        size: usize,
        write: bool,
        touch: impl FnOnce(&mut [u8]),
    ) -> Result<(), ClError> {
        let flags = if write {
            CL_MAP_WRITE_INVALIDATE_REGION
        } else {
            CL_MAP_READ
        };
        self.cl.map(self.queues[0], memory, flags, size, touch)?;
        self.finish(0)
    }

    /// Releases a buffer or image before the end.
    pub(crate) fn release(&self, memory: Memory) -> Result<(), ClError> {
        let mut made = self.made.borrow_mut();
        made.memory.retain(|made| *made != memory);
        self.cl.release_memory(memory)
    }
}
