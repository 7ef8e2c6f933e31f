//! Command queues and all commands that are enqueued.
//!
//! - `transfer`: between host and buffer, and between buffers; `map`: host pointers into buffers;
//! - `image`: transfers of images; `by_host`: copies of images that the driver refuses;
//! - `rect`: the shapes of native transfers, pure; `calibration`: the clocks of devices.
//!
//! All functions that enqueue are non-blocking, except [`Queue::copy_by_host`]. They return an [`Event`],
//! which owns the host memory of the command. Regions are checked against the buffer before the driver sees
//! them. Invariant: no native user events exist, so no command in a native queue ever waits for the
//! application.

mod by_host;
mod calibration;
mod image;
mod map;
mod rect;
mod transfer;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use causeway_proto::region::Region;
use causeway_proto::status::Status;
use opencl_sys::{
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE, cl_command_queue, cl_event,
    clGetKernelSuggestedLocalWorkSizeKHR_fn,
};

use super::buffer::Buffer;
use super::context::{Context, bits_of};
use super::event::{Event, Home, WaitList, WatchedQueue};
use super::finisher::Finishable;
use super::kernel::{Kernel, Shape};
use super::library::{check, cl};
use super::node::Device;

pub use map::Access;

/// A native command queue; released when dropped.
#[derive(Debug)]
pub struct Queue {
    raw: cl_command_queue,
    device: Device,
    out_of_order: bool,
    profiling: bool,
    finishable: Option<Finishable>,
}

// SAFETY: OpenCL queues may be used from any thread.
unsafe impl Send for Queue {}
// SAFETY: as for `Send`.
unsafe impl Sync for Queue {}

impl Queue {
    /// Creates a queue without measuring the device's clock.
    fn unprepared(context: &Context, device: Device, properties: &[u64]) -> Result<Queue, Status> {
        let raw = context.create_queue(device, properties)?;
        let bits = bits_of(properties);
        let out_of_order = bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0;
        let profiling = bits & CL_QUEUE_PROFILING_ENABLE != 0;
        // Profiling times are there only when the driver reports the event's end.
        let may_finish = device.late_callbacks && !out_of_order && !profiling;
        Ok(Queue {
            raw,
            device,
            out_of_order,
            profiling,
            finishable: may_finish.then(|| Finishable::new(raw)),
        })
    }

    /// Returns the queue's device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns whether the queue executes commands out of order.
    pub fn is_out_of_order(&self) -> bool {
        self.out_of_order
    }

    /// Returns whether the queue's events have profiling times.
    pub fn is_profiling(&self) -> bool {
        self.profiling
    }

    /// Whether an event is of a command on the queue's device.
    #[must_use]
    pub fn has_device_of(&self, event: &Event) -> bool {
        event.is_of(self.device.meter)
    }

    fn home(&self) -> Home {
        Home {
            watched: self.device.late_callbacks.then(|| WatchedQueue {
                key: self.raw.addr(),
                in_order: !self.out_of_order,
            }),
            clock: self.device.clock,
            enqueues: self.device.enqueues,
            meter: self.device.meter,
        }
    }

    /// `clFlush`.
    pub fn flush(&self) -> Result<(), Status> {
        // SAFETY: the queue is live.
        check(unsafe { cl!(clFlush(self.raw)) })
    }

    /// Waits until all commands of the queue have ended. Blocks.
    ///
    /// # Errors
    /// The driver's error.
    pub fn finish(&self) -> Result<(), Status> {
        self.marker(&WaitList::new())?.wait()
    }

    /// Fills a whole memory object with zeros, and waits for that. Blocks.
    ///
    /// # Errors
    /// The driver's error.
    pub fn clear(&self, memory: &Buffer) -> Result<(), Status> {
        let wait = WaitList::new();
        let whole = Region::linear(0, memory.size()).map_err(|_| Status::INVALID_VALUE)?;
        let cleared = match memory.raster() {
            Some(_) => self.fill_image(memory, &whole, [0; 16], &wait),
            None => self.fill(memory, &[0], 0, memory.size(), &wait),
        };
        cleared?.wait()
    }

    /// Returns whether the ends of commands are found by polling, one event after the other, because the
    /// driver's callbacks are late. Such a driver (NVIDIA's) also fails all commands that follow a failed
    /// one.
    pub fn is_watched(&self) -> bool {
        self.device.late_callbacks
    }

    /// Launches `kernel` with the arguments that are set on it.
    pub fn nd_range(
        &self,
        kernel: &mut Kernel,
        shape: &Shape,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let mut event: cl_event = null_mut();
        self.launch(kernel, shape, wait, Some(&mut event))?;
        // SAFETY: the driver has just returned the event; no host memory is involved.
        Ok(unsafe { Event::adopt(event, self.home()) })
    }

    /// Launches `kernel` without an event.
    pub fn nd_range_without_event(&self, kernel: &mut Kernel, shape: &Shape) -> Result<(), Status> {
        self.launch(kernel, shape, &WaitList::new(), None)
    }

    fn launch(
        &self,
        kernel: &mut Kernel,
        shape: &Shape,
        wait: &WaitList<'_>,
        event: Option<&mut cl_event>,
    ) -> Result<(), Status> {
        let optional = |list: &Option<[usize; 3]>| list.as_ref().map_or(null(), |l| l.as_ptr());
        // SAFETY: the lists contain three numbers, and `dimensions` is at most 3; the pointer to the event
        // is null or valid.
        check(unsafe {
            cl!(clEnqueueNDRangeKernel(
                self.raw,
                kernel.raw,
                shape.dimensions(),
                optional(&shape.offset),
                shape.global.as_ptr(),
                optional(&shape.local),
                wait.count(),
                wait.pointer(),
                event.map_or(null_mut(), std::ptr::from_mut)
            ))
        })
    }

    /// Returns the local size that the driver would choose for a launch of `kernel` with the arguments that
    /// are set on it (`cl_khr_suggested_local_work_size`). The result has one number per dimension.
    ///
    /// # Errors
    /// The driver's error; `CL_INVALID_OPERATION` if the driver lacks the function.
    pub fn suggested_local_size(
        &self,
        kernel: &mut Kernel,
        shape: &Shape,
    ) -> Result<Vec<usize>, Status> {
        let name = c"clGetKernelSuggestedLocalWorkSizeKHR";
        let address = self.device.extension_function(name)?;
        // SAFETY: an `Option` of a function pointer has the size of an address, and null is `None`. A
        // driver's function of this name has this signature according to the extension's specification.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, clGetKernelSuggestedLocalWorkSizeKHR_fn>(address)
        };
        let function = function.ok_or(Status::INVALID_OPERATION)?;
        let offset = shape.offset.as_ref().map_or(null(), |list| list.as_ptr());
        let mut suggested = [0; 3];
        // SAFETY: the lists contain three numbers, and `dimensions` is at most 3.
        check(unsafe {
            function(
                self.raw,
                kernel.raw,
                shape.dimensions(),
                offset,
                shape.global.as_ptr(),
                suggested.as_mut_ptr(),
            )
        })?;
        Ok(suggested[..shape.dimensions() as usize].to_vec())
    }

    /// Enqueues a marker. It ends when the commands in the wait list have ended. With an empty list, it
    /// ends when all earlier commands of the queue have ended.
    pub fn marker(&self, wait: &WaitList<'_>) -> Result<Event, Status> {
        // SAFETY: all objects are live.
        unsafe { enqueue!(clEnqueueMarkerWithWaitList(self, wait)) }
    }

    /// Enqueues a barrier: a marker for which all later commands of the queue wait.
    pub fn barrier(&self, wait: &WaitList<'_>) -> Result<Event, Status> {
        // SAFETY: all objects are live.
        unsafe { enqueue!(clEnqueueBarrierWithWaitList(self, wait)) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Nobody may begin to use the queue after this object gives up its reference.
        drop(self.finishable.take());
        let release = || -> Result<(), Status> {
            // SAFETY: this object owns one reference and gives it up here.
            check(unsafe { cl!(clReleaseCommandQueue(self.raw)) })
        };
        // No one can do anything about a refusal.
        let _ = release();
    }
}

/// Enqueues a native command of `$queue` behind `$wait` and returns its event. The caller keeps the host
/// memory that the command uses, or lets the event keep it. Expands to an unsafe call, as `cl!` does.
macro_rules! enqueue {
    ($name:ident($queue:expr, $wait:expr $(, $argument:expr)* $(,)?)) => {{
        let mut event = std::ptr::null_mut();
        let status = $crate::runtime::library::cl!($name(
            $queue.raw,
            $($argument,)*
            $wait.count(),
            $wait.pointer(),
            &raw mut event
        ));
        // The driver has just returned the event.
        $crate::runtime::library::check(status)
            .map(|()| $crate::runtime::event::Event::adopt(event, $queue.home()))
    }};
}
use enqueue;
