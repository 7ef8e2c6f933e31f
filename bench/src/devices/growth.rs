//! Patterns of commands that tie each to those before it, thousands of them under way at once.
//!
//! A slow kernel goes first where the commands themselves would end as fast as they are enqueued. The result is the
//! processor time of the whole process there, until all have ended.

use std::ptr;
use std::time::{Duration, Instant};

use cl_headers::types::*;

use super::{Argument, Devices, Event, Memory};
use crate::opencl::{ClError, check};
use crate::process;
use crate::rows::Shape;

impl Devices {
    /// How long so many commands of a shape take, to their end; of [`Shape::LostNode`] something else. `lose` is
    /// called where the second device's node is to be lost.
    pub(crate) fn grow(
        &self,
        shape: Shape,
        memory: Memory,
        count: usize,
        lose: impl FnOnce(),
    ) -> Result<Duration, ClError> {
        match shape {
            Shape::HostReuse => self.reuse_host_memory(memory, count),
            Shape::Barriers => self.separate_by_barriers(memory, count),
            Shape::Kept => self.keep_events(count),
            Shape::Withheld => self.set_user_events(count),
            Shape::LostNode => self.lose_a_node(count, lose),
        }
    }

    /// Launches the kernel `name`, whose time the fake driver's configuration says.
    pub(super) fn occupy(
        &self,
        name: &str,
        device: usize,
        memory: Memory,
    ) -> Result<Event, ClError> {
        let source = format!("__kernel void {name}(__global uint *data) {{ data[0] = 1; }}");
        let program = self.build(&source, "")?;
        let kernel = self.kernel(program, name, &[Argument::Memory(memory)])?;
        let event = self.launch(device, kernel, &[1], &[])?;
        self.flush(device)?;
        Ok(event)
    }

    fn finished(&self, queue: cl_command_queue) -> Result<(), ClError> {
        // SAFETY: a live queue.
        check("clFinish", unsafe { (self.cl.clFinish)(queue) })
    }

    fn reuse_host_memory(&self, memory: Memory, count: usize) -> Result<Duration, ClError> {
        let mut data = [0u8; 256];
        let at = data.as_mut_ptr();
        self.occupy("slow", 0, memory)?;
        let begin = process::process_time();
        // The writes take overlapping parts in turns.
        let one = |turn: usize| {
            let (offset, length) = (turn % 7 * 32, 64);
            // SAFETY: the length is the array's, which lives until the queue is finished below.
            check("clEnqueueReadBuffer", unsafe {
                (self.cl.clEnqueueReadBuffer)(
                    self.queues[0],
                    memory.0,
                    CL_FALSE,
                    0,
                    data.len(),
                    at.cast(),
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                )
            })?;
            // SAFETY: as above, of a part of the array.
            check("clEnqueueWriteBuffer", unsafe {
                (self.cl.clEnqueueWriteBuffer)(
                    self.queues[0],
                    memory.0,
                    CL_FALSE,
                    offset,
                    length,
                    at.wrapping_add(offset).cast(),
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                )
            })
        };
        let enqueued = (0..count).try_for_each(one);
        let finished = self.finished(self.queues[0]);
        let took = process::process_time() - begin;
        enqueued.and(finished)?;
        Ok(took)
    }

    fn separate_by_barriers(&self, memory: Memory, count: usize) -> Result<Duration, ClError> {
        let mut code = 0;
        let properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        // SAFETY: a device of the context.
        let queue = unsafe {
            (self.cl.clCreateCommandQueue)(self.context, self.devices[0], properties, &raw mut code)
        };
        check("clCreateCommandQueue", code)?;
        let slow = self.occupy("slow", 0, memory)?;
        // SAFETY: a live queue, and one live event of its context.
        check("clEnqueueBarrierWithWaitList", unsafe {
            (self.cl.clEnqueueBarrierWithWaitList)(queue, 1, &raw const slow.0, ptr::null_mut())
        })?;
        let begin = process::process_time();
        let zero = 0u32;
        let one = |turn: usize| {
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
            let (name, call) = if turn.is_multiple_of(2) {
                (
                    "clEnqueueMarkerWithWaitList",
                    self.cl.clEnqueueMarkerWithWaitList,
                )
            } else {
                (
                    "clEnqueueBarrierWithWaitList",
                    self.cl.clEnqueueBarrierWithWaitList,
                )
            };
            // SAFETY: a live queue, no wait list, no event.
            check(name, unsafe {
                call(queue, 0, ptr::null(), ptr::null_mut())
            })
        };
        let enqueued = (0..count).try_for_each(one);
        let finished = self.finished(queue);
        let took = process::process_time() - begin;
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
