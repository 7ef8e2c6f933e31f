//! Programs that wait often: maps of a small image, many queues in turn, many threads.
//!
//! Each turn is timed by itself. Invariant: no thread outlives a call.

use cl_headers::types::*;

use super::{Argument, Devices, Kernel, Memory};
use crate::opencl::{ClError, OpenCl, Queue};
use crate::probe::each;
use crate::rows::Often;

/// Elements along a side of the small image.
const SIDE: usize = 16;
/// Number of queues that are used in turn.
const QUEUES: usize = 100;
/// Bytes of the buffers that the threads make.
const SIZE: usize = 4096;

/// A queue on the first device, released when this is dropped.
struct OwnQueue<'a> {
    cl: &'a OpenCl,
    queue: Queue,
}

impl Drop for OwnQueue<'_> {
    fn drop(&mut self) {
        // An error means that the session is lost, and the queue with it.
        let _ = self.cl.release_queue(self.queue);
    }
}

impl Devices {
    /// Nanoseconds of each turn of such a program. All threads together make `turns` turns. `memory` is the
    /// argument of each of `kernels`, before and after.
    pub(crate) fn wait_often(
        &self,
        often: Often,
        turns: usize,
        kernels: &[Kernel],
        memory: Memory,
    ) -> Result<Vec<u64>, ClError> {
        match often {
            Often::MapImage => {
                let image = self.small_image()?;
                let times = each(turns, || self.cl.map_image(self.queues[0], image, SIDE))?;
                self.release(image)?;
                Ok(times)
            }
            Often::Queues => {
                let queues = self.own_queues(QUEUES)?;
                let mut next = queues.iter().cycle();
                each(turns, || {
                    let queue = next.next().ok_or(ClError::NoDevice)?.queue;
                    self.cl.launch(queue, kernels[0], &[1], &[], None)?;
                    self.cl.finish(queue)
                })
            }
            Often::Threads => {
                let times = self.read_together(turns, kernels)?;
                for kernel in kernels {
                    self.cl.set_argument(*kernel, 0, Argument::Memory(memory))?;
                }
                Ok(times)
            }
        }
    }

    fn small_image(&self) -> Result<Memory, ClError> {
        if cl_bool::from_ne_bytes(self.info(0, CL_DEVICE_IMAGE_SUPPORT)?) == CL_FALSE {
            return Err(ClError::NotOnThisDevice("images"));
        }
        let image = self.cl.image(self.context, SIDE)?;
        self.made.borrow_mut().memory.push(image);
        Ok(image)
    }

    /// Each kernel belongs to a thread with a queue of its own.
    fn read_together(&self, turns: usize, kernels: &[Kernel]) -> Result<Vec<u64>, ClError> {
        let queues = self.own_queues(kernels.len())?;
        let turns = turns / kernels.len();
        let (cl, context) = (&self.cl, self.context);
        let times = std::thread::scope(|scope| {
            let threads: Vec<_> = queues
                .iter()
                .map(|own| own.queue)
                .zip(kernels.iter().copied())
                .map(|(queue, kernel)| {
                    scope.spawn(move || {
                        each(turns, || {
                            let memory = cl.buffer(context, SIZE)?;
                            let read = launch_and_read(cl, queue, kernel, memory);
                            // The kernel's next argument replaces this one before the next launch.
                            read.and(cl.release_memory(memory))
                        })
                    })
                })
                .collect();
            let ends = threads.into_iter().map(|thread| thread.join());
            ends.map(|end| end.unwrap_or(Err(ClError::NoDevice)))
                .collect::<Result<Vec<_>, _>>()
        });
        times.map(|times| times.concat())
    }

    fn own_queues(&self, count: usize) -> Result<Vec<OwnQueue<'_>>, ClError> {
        let cl = &self.cl;
        let queue = |_| {
            let queue = cl.queue(self.context, self.devices[0], 0)?;
            Ok(OwnQueue { cl, queue })
        };
        (0..count).map(queue).collect()
    }
}

fn launch_and_read(
    cl: &OpenCl,
    queue: Queue,
    kernel: Kernel,
    memory: Memory,
) -> Result<(), ClError> {
    cl.set_argument(kernel, 0, Argument::Memory(memory))?;
    cl.launch(queue, kernel, &[1], &[], None)?;
    cl.read(queue, memory, &mut [0; 4], &[])
}
