//! One call each, as the rows measure them: nothing is made, counted or released beside the call itself.
//!
//! All of them use the first device, on the queue that is named (0, or what [`Devices::add_queue`] gave).
//! Invariant: as the whole's; what is not waited for reads memory that lives for ever.

use std::ptr;

use cl_headers::types::*;

use super::{Devices, Kernel, Memory};
use crate::opencl::{ClError, check};

/// A transfer under way; it has ended when this is dropped.
pub(crate) struct Running<'a> {
    devices: &'a Devices,
    event: cl_event,
    queue: usize,
    _data: &'a mut [u8],
}

impl Running<'_> {
    /// Whether it is still under way.
    pub(crate) fn is_running(&self) -> Result<bool, ClError> {
        let mut status: cl_int = 0;
        // SAFETY: a live event; room for a status.
        check("clGetEventInfo", unsafe {
            (self.devices.cl.clGetEventInfo)(
                self.event,
                CL_EVENT_COMMAND_EXECUTION_STATUS,
                size_of::<cl_int>(),
                (&raw mut status).cast(),
                ptr::null_mut(),
            )
        })?;
        // Below zero it has failed; then, too, it runs no more.
        Ok(status > CL_COMPLETE)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // The data must not be let go of before; an error means that the session is gone with its commands.
        let _ = self.devices.finish(self.queue);
        // SAFETY: a live handle, not used again.
        unsafe { (self.devices.cl.clReleaseEvent)(self.event) };
    }
}

impl Devices {
    /// One more queue on the first device; its number.
    pub(crate) fn add_queue(&mut self) -> Result<usize, ClError> {
        let mut code = 0;
        // SAFETY: a device of the context.
        let queue = unsafe {
            (self.cl.clCreateCommandQueue)(self.context, self.devices[0], 0, &raw mut code)
        };
        check("clCreateCommandQueue", code)?;
        self.queues.push(queue);
        Ok(self.queues.len() - 1)
    }

    /// Enqueues one work-item, without an event.
    pub(crate) fn enqueue(&self, kernel: Kernel) -> Result<(), ClError> {
        let one = 1usize;
        // SAFETY: one dimension, live handles, no wait list, no event.
        check("clEnqueueNDRangeKernel", unsafe {
            (self.cl.clEnqueueNDRangeKernel)(
                self.queues[0],
                kernel.0,
                1,
                ptr::null(),
                &raw const one,
                ptr::null(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })
    }

    /// Enqueues a marker, without an event.
    pub(crate) fn enqueue_marker(&self) -> Result<(), ClError> {
        // SAFETY: a live queue, no wait list, no event.
        check("clEnqueueMarkerWithWaitList", unsafe {
            (self.cl.clEnqueueMarkerWithWaitList)(self.queues[0], 0, ptr::null(), ptr::null_mut())
        })
    }

    /// Enqueues a write of constant data, without an event.
    pub(crate) fn enqueue_write(&self, memory: Memory, data: &'static [u8]) -> Result<(), ClError> {
        // SAFETY: the length is the slice's, which lives for ever.
        unsafe { self.write_to(memory, data, CL_FALSE) }
    }

    /// Writes, blocking.
    pub(crate) fn write_now(&self, memory: Memory, data: &[u8]) -> Result<(), ClError> {
        // SAFETY: the length is the slice's, and the call blocks.
        unsafe { self.write_to(memory, data, CL_TRUE) }
    }

    /// # Safety
    ///
    /// `data` stays until the command has ended, which it has on return when `blocking`.
    unsafe fn write_to(
        &self,
        memory: Memory,
        data: &[u8],
        blocking: cl_bool,
    ) -> Result<(), ClError> {
        // SAFETY: the length is the slice's; how long it stays is the caller's word.
        check("clEnqueueWriteBuffer", unsafe {
            (self.cl.clEnqueueWriteBuffer)(
                self.queues[0],
                memory.0,
                blocking,
                0,
                data.len(),
                data.as_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })
    }

    /// Starts a write (`up`) or a read of all of `data` on a queue, and flushes it.
    pub(crate) fn start<'a>(
        &'a self,
        queue: usize,
        memory: Memory,
        data: &'a mut [u8],
        up: bool,
    ) -> Result<Running<'a>, ClError> {
        let mut event = ptr::null_mut();
        // SAFETY: the length is the slice's, which stays borrowed by what is returned; that waits for the
        // command before it lets go. Room for an event.
        let code = unsafe {
            let (queue, size) = (self.queues[queue], data.len());
            let (none, event) = (ptr::null(), &raw mut event);
            if up {
                let data = data.as_ptr().cast();
                (self.cl.clEnqueueWriteBuffer)(queue, memory.0, 0, 0, size, data, 0, none, event)
            } else {
                let data = data.as_mut_ptr().cast();
                (self.cl.clEnqueueReadBuffer)(queue, memory.0, 0, 0, size, data, 0, none, event)
            }
        };
        check("clEnqueueWriteBuffer or clEnqueueReadBuffer", code)?;
        let running = Running {
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
        let mut code = 0;
        // SAFETY: the whole of a live buffer.
        let mapped = unsafe {
            (self.cl.clEnqueueMapBuffer)(
                self.queues[0],
                memory.0,
                CL_TRUE,
                flags,
                0,
                size,
                0,
                ptr::null(),
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clEnqueueMapBuffer", code)?;
        // SAFETY: a successful blocking map gives `size` bytes until the unmap.
        touch(unsafe { std::slice::from_raw_parts_mut(mapped.cast(), size) });
        // SAFETY: the pointer is the map's, not used again.
        check("clEnqueueUnmapMemObject", unsafe {
            (self.cl.clEnqueueUnmapMemObject)(
                self.queues[0],
                memory.0,
                mapped,
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        })?;
        self.finish(0)
    }

    /// Gives a buffer back before the end.
    pub(crate) fn release(&self, memory: Memory) -> Result<(), ClError> {
        self.made
            .borrow_mut()
            .memory
            .retain(|made| *made != memory.0);
        // SAFETY: a live handle, not used again by the caller, and no longer in the list.
        check("clReleaseMemObject", unsafe {
            (self.cl.clReleaseMemObject)(memory.0)
        })
    }
}
