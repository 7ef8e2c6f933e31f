//! Many threads of one program, each with a queue and a kernel of its own, and their rate together.
//!
//! Invariant: no thread outlives the call. No kernel is shared, so the threads share nothing but the driver.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::{Devices, Kernel};
use crate::opencl::ClError;

impl Devices {
    /// Launches each of `kernels` `count` times by a thread of its own on the queue of the same place; the time
    /// until all were enqueued. On return, all have ended.
    pub(crate) fn contend(&self, kernels: &[Kernel], count: usize) -> Result<Duration, ClError> {
        let threads = kernels.len().min(self.queues.len());
        let ready = Barrier::new(threads + 1);
        let shares = self.queues.iter().copied().zip(kernels.iter().copied());
        let elapsed = std::thread::scope(|scope| {
            let threads: Vec<_> = shares
                .map(|(queue, kernel)| {
                    let (ready, cl) = (&ready, &self.cl);
                    scope.spawn(move || {
                        ready.wait();
                        (0..count).try_for_each(|_| cl.launch(queue, kernel, &[1], &[], None))
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
