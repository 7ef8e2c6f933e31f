//! Patterns of commands that tie each to those before it, thousands of them under way at once.

use std::ptr;
use std::time::{Duration, Instant};

use cl_headers::types::*;

use super::{Devices, Memory};
use crate::opencl::{ClError, check};
use crate::rows::Shape;

impl Devices {
    /// How long so many commands of a shape take, to their end.
    pub(crate) fn grow(
        &self,
        shape: Shape,
        memory: Memory,
        count: usize,
    ) -> Result<Duration, ClError> {
        match shape {
            Shape::HostReuse => self.reuse_host_memory(memory, count),
            Shape::Barriers => self.separate_by_barriers(memory, count),
            Shape::Kept => self.keep_events(count),
        }
    }

    fn finished(&self, queue: cl_command_queue) -> Result<(), ClError> {
        // SAFETY: a live queue.
        check("clFinish", unsafe { (self.cl.clFinish)(queue) })
    }

    fn reuse_host_memory(&self, memory: Memory, count: usize) -> Result<Duration, ClError> {
        let mut data = [0u8; 256];
        let at = data.as_mut_ptr().cast();
        let begin = Instant::now();
        let one = || {
            // SAFETY: the length is the array's, which lives until the queue is finished below.
            check("clEnqueueReadBuffer", unsafe {
                (self.cl.clEnqueueReadBuffer)(
                    self.queues[0],
                    memory.0,
                    CL_FALSE,
                    0,
                    data.len(),
                    at,
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                )
            })?;
            // SAFETY: as above.
            check("clEnqueueWriteBuffer", unsafe {
                (self.cl.clEnqueueWriteBuffer)(
                    self.queues[0],
                    memory.0,
                    CL_FALSE,
                    0,
                    data.len(),
                    at,
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                )
            })
        };
        let enqueued = (0..count).try_for_each(|_| one());
        let finished = self.finished(self.queues[0]);
        enqueued.and(finished)?;
        Ok(begin.elapsed())
    }

    fn separate_by_barriers(&self, memory: Memory, count: usize) -> Result<Duration, ClError> {
        let mut code = 0;
        let properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        // SAFETY: a device of the context.
        let queue = unsafe {
            (self.cl.clCreateCommandQueue)(self.context, self.devices[0], properties, &raw mut code)
        };
        check("clCreateCommandQueue", code)?;
        let begin = Instant::now();
        let zero = 0u32;
        let one = || {
            // SAFETY: the pattern is copied by the call; no wait list, no event.
            check("clEnqueueFillBuffer", unsafe {
                (self.cl.clEnqueueFillBuffer)(
                    queue,
                    memory.0,
                    (&raw const zero).cast(),
                    size_of::<u32>(),
                    0,
                    size_of::<u32>(),
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                )
            })?;
            // SAFETY: a live queue, no wait list, no event.
            check("clEnqueueBarrierWithWaitList", unsafe {
                (self.cl.clEnqueueBarrierWithWaitList)(queue, 0, ptr::null(), ptr::null_mut())
            })
        };
        let enqueued = (0..count).try_for_each(|_| one());
        let finished = self.finished(queue);
        let took = begin.elapsed();
        // SAFETY: a live handle, not used again.
        unsafe { (self.cl.clReleaseCommandQueue)(queue) };
        enqueued.and(finished)?;
        Ok(took)
    }

    // Kept until all is measured, as a program does that never releases them.
    fn keep_events(&self, count: usize) -> Result<Duration, ClError> {
        let mut events: Vec<cl_event> = Vec::with_capacity(count);
        let begin = Instant::now();
        let mut one = || {
            let mut event = ptr::null_mut();
            // SAFETY: a live queue, no wait list, room for an event.
            check("clEnqueueMarkerWithWaitList", unsafe {
                (self.cl.clEnqueueMarkerWithWaitList)(
                    self.queues[0],
                    0,
                    ptr::null(),
                    &raw mut event,
                )
            })?;
            events.push(event);
            Ok(())
        };
        let enqueued = (0..count).try_for_each(|_| one());
        let finished = self.finished(self.queues[0]);
        let took = begin.elapsed();
        for event in events {
            // SAFETY: a live handle, not used again.
            unsafe { (self.cl.clReleaseEvent)(event) };
        }
        enqueued.and(finished)?;
        Ok(took)
    }
}
