//! Programs that wait often: maps of a small image, many queues in turn, many threads.
//!
//! Each of their turns is timed by itself. Invariant: as the whole's, and no thread outlives a call.

use std::ptr;

use cl_headers::types::*;

use super::{Devices, Kernel, Memory};
use crate::opencl::{ClError, Functions, check};
use crate::probe::each;
use crate::rows::Often;

/// Elements along a side of the small image.
const SIDE: usize = 16;
/// Queues that are used in turn.
const QUEUES: usize = 100;
/// Bytes of the buffers that the threads make.
const SIZE: usize = 4096;

/// A queue on the first device; released when this is dropped.
struct OwnQueue<'a> {
    cl: &'a Functions,
    context: cl_context,
    queue: cl_command_queue,
}

// SAFETY: OpenCL's handles may be used by any thread.
unsafe impl Send for OwnQueue<'_> {}

impl Drop for OwnQueue<'_> {
    fn drop(&mut self) {
        // SAFETY: a live handle, not used again.
        unsafe { (self.cl.clReleaseCommandQueue)(self.queue) };
    }
}

impl Devices {
    /// Nanoseconds of each of `turns` turns of such a program; of all threads together, `turns` is their sum. `memory`
    /// is the argument of each of `kernels`, before and after.
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
                let times = each(turns, || self.map_small_image(image))?;
                self.release(image)?;
                Ok(times)
            }
            Often::Queues => {
                let queues = self.own_queues(QUEUES)?;
                let mut next = queues.iter().cycle();
                each(turns, || {
                    let queue = next.next().ok_or(ClError::NoDevice)?;
                    queue.launch(kernels[0])?;
                    queue.finish()
                })
            }
            Often::Threads => {
                let times = self.read_together(turns, kernels)?;
                for kernel in kernels {
                    set_argument(&self.cl, *kernel, memory.0)?;
                }
                Ok(times)
            }
        }
    }

    /// Each kernel belongs to a thread with a queue of its own.
    fn read_together(&self, turns: usize, kernels: &[Kernel]) -> Result<Vec<u64>, ClError> {
        let queues = self.own_queues(kernels.len())?;
        let turns = turns / kernels.len();
        let times = std::thread::scope(|scope| {
            let threads: Vec<_> = queues
                .into_iter()
                .zip(kernels.iter().copied())
                .map(|(queue, kernel)| {
                    scope.spawn(move || each(turns, || queue.make_launch_and_read(kernel)))
                })
                .collect();
            let ends = threads.into_iter().map(|thread| thread.join());
            ends.map(|end| end.unwrap_or(Err(ClError::NoDevice)))
                .collect::<Result<Vec<_>, _>>()
        });
        times.map(|times| times.concat())
    }

    fn own_queues(&self, count: usize) -> Result<Vec<OwnQueue<'_>>, ClError> {
        let (context, device) = (self.context, self.devices[0]);
        let queue = |_| {
            let mut code = 0;
            // SAFETY: a device of the context.
            let queue =
                unsafe { (self.cl.clCreateCommandQueue)(context, device, 0, &raw mut code) };
            check("clCreateCommandQueue", code)?;
            Ok(OwnQueue {
                cl: &self.cl,
                context,
                queue,
            })
        };
        (0..count).map(queue).collect()
    }

    fn small_image(&self) -> Result<Memory, ClError> {
        let format = cl_image_format {
            image_channel_order: CL_RGBA,
            image_channel_data_type: CL_UNSIGNED_INT8,
        };
        let (format, flags, mut code) = (&raw const format, CL_MEM_READ_WRITE, 0);
        let (none, code_at) = (ptr::null_mut(), &raw mut code);
        // SAFETY: a live context and a format; no pitch and no host pointer.
        let image = unsafe {
            (self.cl.clCreateImage2D)(self.context, flags, format, SIDE, SIDE, 0, none, code_at)
        };
        check("clCreateImage2D", code)?;
        self.made.borrow_mut().memory.push(image);
        Ok(Memory(image))
    }

    /// Maps all of it for reading, blocking, and unmaps it.
    fn map_small_image(&self, image: Memory) -> Result<(), ClError> {
        let (origin, region) = ([0usize; 3], [SIDE, SIDE, 1]);
        let (mut pitch, mut code) = (0usize, 0);
        // SAFETY: the whole of a live image; room for its pitch; no slice pitch, no wait list, no event.
        let mapped = unsafe {
            (self.cl.clEnqueueMapImage)(
                self.queues[0],
                image.0,
                CL_TRUE,
                CL_MAP_READ,
                origin.as_ptr(),
                region.as_ptr(),
                &raw mut pitch,
                ptr::null_mut(),
                0,
                ptr::null(),
                ptr::null_mut(),
                &raw mut code,
            )
        };
        check("clEnqueueMapImage", code)?;
        let (none, no_event) = (ptr::null(), ptr::null_mut());
        // SAFETY: the pointer is the map's, not used again.
        check("clEnqueueUnmapMemObject", unsafe {
            (self.cl.clEnqueueUnmapMemObject)(self.queues[0], image.0, mapped, 0, none, no_event)
        })
    }
}

impl OwnQueue<'_> {
    fn finish(&self) -> Result<(), ClError> {
        // SAFETY: a live queue.
        check("clFinish", unsafe { (self.cl.clFinish)(self.queue) })
    }

    fn launch(&self, kernel: Kernel) -> Result<(), ClError> {
        let (one, none) = (1usize, ptr::null());
        let (size, no_event) = (&raw const one, ptr::null_mut());
        // SAFETY: one dimension, live handles, no wait list, no event.
        check("clEnqueueNDRangeKernel", unsafe {
            let launch = self.cl.clEnqueueNDRangeKernel;
            launch(
                self.queue,
                kernel.0,
                1,
                none,
                size,
                none,
                0,
                ptr::null(),
                no_event,
            )
        })
    }

    /// Makes a buffer, launches the kernel on it, reads it and releases it.
    fn make_launch_and_read(&self, kernel: Kernel) -> Result<(), ClError> {
        let mut code = 0;
        let (flags, no_data) = (CL_MEM_READ_WRITE, ptr::null_mut());
        // SAFETY: a live context; no host pointer.
        let memory =
            unsafe { (self.cl.clCreateBuffer)(self.context, flags, SIZE, no_data, &raw mut code) };
        check("clCreateBuffer", code)?;
        let set = set_argument(self.cl, kernel, memory);
        let read = set.and_then(|()| self.launch(kernel));
        let read = read.and_then(|()| self.read(memory));
        // SAFETY: a live handle. The kernel's next argument replaces it before the next launch.
        let released = check("clReleaseMemObject", unsafe {
            (self.cl.clReleaseMemObject)(memory)
        });
        read.and(released)
    }

    fn read(&self, memory: cl_mem) -> Result<(), ClError> {
        let mut data = [0u8; 4];
        let (at, none, no_event) = (data.as_mut_ptr().cast(), ptr::null(), ptr::null_mut());
        // SAFETY: the length is the array's, and the call blocks.
        check("clEnqueueReadBuffer", unsafe {
            let read = self.cl.clEnqueueReadBuffer;
            read(
                self.queue,
                memory,
                CL_TRUE,
                0,
                data.len(),
                at,
                0,
                none,
                no_event,
            )
        })
    }
}

/// Sets the argument of a kernel that no other thread uses.
fn set_argument(cl: &Functions, kernel: Kernel, memory: cl_mem) -> Result<(), ClError> {
    // SAFETY: size and address are those of a live handle.
    check("clSetKernelArg", unsafe {
        (cl.clSetKernelArg)(kernel.0, 0, size_of::<cl_mem>(), (&raw const memory).cast())
    })
}
