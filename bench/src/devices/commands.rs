//! What is enqueued on the devices' queues, and waited for.
//!
//! Invariant: as the whole's: a method that takes memory of the program returns when no command
//! touches it any more, also after an error.

use std::ptr;

use cl_headers::types::*;

use super::{Devices, Event, Kernel, Memory};
use crate::dealing;
use crate::opencl::{ClError, check};

impl Devices {
    fn event(&self, event: cl_event) -> Event {
        self.made.borrow_mut().events.push(event);
        Event(event)
    }

    /// Launches a kernel of one or two dimensions on a device, after `waits`.
    pub(crate) fn launch(
        &self,
        device: usize,
        kernel: Kernel,
        global: &[usize],
        waits: &[Event],
    ) -> Result<Event, ClError> {
        let mut event = ptr::null_mut();
        let (count, list) = wait_list(waits);
        // SAFETY: as many sizes as dimensions; the list with its length; room for an event.
        check("clEnqueueNDRangeKernel", unsafe {
            (self.cl.clEnqueueNDRangeKernel)(
                self.queues[device],
                kernel.0,
                global.len() as cl_uint,
                ptr::null(),
                global.as_ptr(),
                ptr::null(),
                count,
                list,
                &raw mut event,
            )
        })?;
        Ok(self.event(event))
    }

    /// Zeroes the first `size` bytes of a buffer by a device, after `waits`.
    pub(crate) fn zero(
        &self,
        device: usize,
        memory: Memory,
        size: usize,
        waits: &[Event],
    ) -> Result<Event, ClError> {
        let (zero, mut event) = (0u32, ptr::null_mut());
        let (count, list) = wait_list(waits);
        // SAFETY: the pattern is copied by the call; the list with its length; room for an event.
        check("clEnqueueFillBuffer", unsafe {
            (self.cl.clEnqueueFillBuffer)(
                self.queues[device],
                memory.0,
                (&raw const zero).cast(),
                size_of::<u32>(),
                0,
                size,
                count,
                list,
                &raw mut event,
            )
        })?;
        Ok(self.event(event))
    }

    /// Writes pieces to buffers, each through the queue of a device, all at once, and waits.
    pub(crate) fn write(&self, pieces: &[(usize, Memory, &[u8])]) -> Result<(), ClError> {
        let enqueue = |(device, memory, data): &(usize, Memory, &[u8])| {
            // SAFETY: the length is the slice's, which stays borrowed until all queues are finished
            // below.
            check("clEnqueueWriteBuffer", unsafe {
                (self.cl.clEnqueueWriteBuffer)(
                    self.queues[*device],
                    memory.0,
                    CL_FALSE,
                    0,
                    data.len(),
                    data.as_ptr().cast(),
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                )
            })?;
            self.flush(*device)
        };
        let enqueued = pieces.iter().try_for_each(enqueue);
        enqueued.and(self.finish_all())
    }

    /// Reads from the beginning of a buffer through a device's queue, after `waits`, and waits.
    pub(crate) fn read(
        &self,
        device: usize,
        memory: Memory,
        data: &mut [u8],
        waits: &[Event],
    ) -> Result<(), ClError> {
        let (count, list) = wait_list(waits);
        // SAFETY: the length is the slice's, and the call blocks; the list with its length.
        check("clEnqueueReadBuffer", unsafe {
            (self.cl.clEnqueueReadBuffer)(
                self.queues[device],
                memory.0,
                CL_TRUE,
                0,
                data.len(),
                data.as_mut_ptr().cast(),
                count,
                list,
                ptr::null_mut(),
            )
        })
    }

    /// Reads lines that were dealt to the devices in turn back into their places: line `k` of
    /// `shares[d]` is line `d + k * shares.len()` of `lines`, each `width` elements long. All devices'
    /// reads are under way at once.
    pub(crate) fn gather_lines(
        &self,
        shares: &[Memory],
        width: usize,
        lines: &mut [u32],
    ) -> Result<(), ClError> {
        let height = lines.len() / width;
        let bytes = width * size_of::<u32>();
        let target = lines.as_mut_ptr();
        let enqueue = |(device, share): (usize, &Memory)| {
            let count = dealing::share(height, shares.len(), device);
            if count == 0 {
                return Ok(());
            }
            let region = [bytes, count, 1];
            let origin = [0usize; 3];
            // SAFETY: `count` lines from line `device` on, `shares.len()` apart, end within `lines`
            // (that is how `share` counts), which stay borrowed until all queues are finished below.
            check("clEnqueueReadBufferRect", unsafe {
                (self.cl.clEnqueueReadBufferRect)(
                    self.queues[device],
                    share.0,
                    CL_FALSE,
                    origin.as_ptr(),
                    origin.as_ptr(),
                    region.as_ptr(),
                    bytes,
                    0,
                    bytes * shares.len(),
                    0,
                    target.add(width * device).cast(),
                    0,
                    ptr::null(),
                    ptr::null_mut(),
                )
            })?;
            self.flush(device)
        };
        let enqueued = shares.iter().enumerate().try_for_each(enqueue);
        // Also after an error: what was enqueued writes into `lines`.
        enqueued.and(self.finish_all())
    }

    /// `clFlush`.
    pub(crate) fn flush(&self, device: usize) -> Result<(), ClError> {
        // SAFETY: a live queue.
        check("clFlush", unsafe { (self.cl.clFlush)(self.queues[device]) })
    }

    /// `clFinish` of every queue, also after an error of one.
    pub(crate) fn finish_all(&self) -> Result<(), ClError> {
        let mut all = Ok(());
        for queue in 0..self.queues.len() {
            all = all.and(self.finish(queue));
        }
        all
    }

    /// `clFinish`.
    pub(crate) fn finish(&self, device: usize) -> Result<(), ClError> {
        // SAFETY: a live queue.
        check("clFinish", unsafe {
            (self.cl.clFinish)(self.queues[device])
        })
    }

    /// Waits for events, and releases all events made so far.
    pub(crate) fn wait(&self, events: &[Event]) -> Result<(), ClError> {
        let (count, list) = wait_list(events);
        // SAFETY: live events with their number.
        let result = check("clWaitForEvents", unsafe {
            (self.cl.clWaitForEvents)(count, list)
        });
        self.forget_events();
        result
    }

    /// Releases all events made so far; none of them may be named again.
    pub(super) fn forget_events(&self) {
        for event in self.made.borrow_mut().events.drain(..) {
            // SAFETY: a live handle, dropped from the list.
            unsafe { (self.cl.clReleaseEvent)(event) };
        }
    }
}

fn wait_list(events: &[Event]) -> (cl_uint, *const cl_event) {
    if events.is_empty() {
        (0, ptr::null())
    } else {
        // An `Event` is transparent: a slice of them is an array of handles.
        (events.len() as cl_uint, events.as_ptr().cast())
    }
}
