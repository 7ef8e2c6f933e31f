//! Many threads of one program, each with a queue and a kernel of its own: what they get through together.
//!
//! Invariant: no thread outlives the call, and no kernel is shared, so that what the threads meet in is the
//! driver.

use std::ptr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use cl_headers::types::*;

use super::{Devices, Kernel};
use crate::opencl::{ClError, check};

/// What one thread uses.
struct Share<'a> {
    cl: &'a crate::opencl::Functions,
    queue: cl_command_queue,
    kernel: cl_kernel,
}

// SAFETY: OpenCL's calls are thread-safe but for `clSetKernelArg` on one kernel, which is not called here, and
// handles are no pointers of ours.
unsafe impl Send for Share<'_> {}

impl Share<'_> {
    fn enqueue(&self, count: usize) -> Result<(), ClError> {
        let one = 1usize;
        for _ in 0..count {
            // SAFETY: one dimension, live handles, no wait list, no event.
            check("clEnqueueNDRangeKernel", unsafe {
                (self.cl.clEnqueueNDRangeKernel)(
                    self.queue,
                    self.kernel,
                    1,
                    ptr::null(),
                    &raw const one,
                    ptr::null(),
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                )
            })?;
        }
        Ok(())
    }
}

impl Devices {
    /// Each of `kernels` is launched `count` times by a thread of its own on the queue of the same place: how
    /// long until all were enqueued. On return they have ended, too.
    pub(crate) fn contend(&self, kernels: &[Kernel], count: usize) -> Result<Duration, ClError> {
        let threads = kernels.len().min(self.queues.len());
        let ready = Barrier::new(threads + 1);
        let shares = self
            .queues
            .iter()
            .zip(kernels)
            .map(|(queue, kernel)| Share {
                cl: &self.cl,
                queue: *queue,
                kernel: kernel.0,
            });
        let elapsed = std::thread::scope(|scope| {
            let threads: Vec<_> = shares
                .map(|share| {
                    let ready = &ready;
                    scope.spawn(move || {
                        // All of it, not its handles one by one: only the whole may be sent.
                        let share = share;
                        ready.wait();
                        share.enqueue(count)
                    })
                })
                .collect();
            ready.wait();
            let begin = Instant::now();
            let mut all = Ok(());
            for thread in threads {
                all = all.and(thread.join().unwrap_or(Err(ClError::NoDevice)));
            }
            all.map(|()| begin.elapsed())
        });
        self.finish_all()?;
        elapsed
    }
}
