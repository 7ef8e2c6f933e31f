//! Patterns of commands that tie each command to those before it, thousands of them under way at once.
//!
//! Where the commands would end as fast as they are enqueued, a slow kernel goes first. The result is then the
//! processor time of the whole process until all have ended.

use std::time::{Duration, Instant};

use cl_headers::types::*;

use super::{Argument, Devices, Event, Memory};
use crate::opencl::ClError;
use crate::process;
use crate::rows::Shape;

impl Devices {
    /// The time that `count` commands of a shape take, to their end; [`Shape::LostNode`] measures something else.
    /// `lose` is called when the second device's node is to be lost.
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

    /// Launches the kernel `name`. Its time is in the fake driver's settings.
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

    fn reuse_host_memory(&self, memory: Memory, count: usize) -> Result<Duration, ClError> {
        let mut data = [0u8; 256];
        let (at, queue) = (data.as_mut_ptr(), self.queues[0]);
        self.occupy("slow", 0, memory)?;
        let begin = process::process_time();
        let one = |turn: usize| {
            // The writes take overlapping parts in turns.
            let offset = turn % 7 * 32;
            let part = (at.wrapping_add(offset).cast_const(), offset, 64);
            // SAFETY: the lengths are the array's and that of a part, and the array lives until the queue is
            // finished below. The queue runs its commands in order.
            unsafe {
                self.cl.start_read(queue, memory, (at, data.len()), None)?;
                self.cl.start_write(queue, memory, part, None)
            }
        };
        let enqueued = (0..count).try_for_each(one);
        let finished = self.cl.finish(queue);
        let took = process::process_time() - begin;
        enqueued.and(finished)?;
        Ok(took)
    }

    fn separate_by_barriers(&self, memory: Memory, count: usize) -> Result<Duration, ClError> {
        let properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
        let queue = self.cl.queue(self.context, self.devices[0], properties)?;
        let slow = self.occupy("slow", 0, memory)?;
        self.cl.barrier(queue, &[slow])?;
        let begin = process::process_time();
        let one = |turn: usize| {
            self.cl.zero(queue, memory, size_of::<u32>(), &[], None)?;
            if turn.is_multiple_of(2) {
                self.cl.marker(queue, None)
            } else {
                self.cl.barrier(queue, &[])
            }
        };
        let enqueued = (0..count).try_for_each(one);
        let finished = self.cl.finish(queue);
        let took = process::process_time() - begin;
        enqueued.and(finished).and(self.cl.release_queue(queue))?;
        Ok(took)
    }

    // The events are kept until all is measured, as by a program that never releases them.
    fn keep_events(&self, count: usize) -> Result<Duration, ClError> {
        let mut events = vec![Event::NONE; count];
        let begin = Instant::now();
        let enqueued = events
            .iter_mut()
            .try_for_each(|event| self.cl.marker(self.queues[0], Some(event)));
        let finished = self.cl.finish(self.queues[0]);
        let took = begin.elapsed();
        for event in events.into_iter().filter(|event| *event != Event::NONE) {
            self.cl.release_event(event)?;
        }
        enqueued.and(finished)?;
        Ok(took)
    }
}
