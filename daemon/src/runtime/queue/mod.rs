//! Command queues and everything that is enqueued.
//!
//! - `transfer`: between host and buffer, and between buffers; `map`: host pointers into buffers;
//! - `image`: transfers of images; `by_host`: copies of images that the driver refuses;
//! - `rect`: the shapes that transfers take natively, pure.
//!
//! Every enqueue here but [`Queue::copy_by_host`] is non-blocking; all give an [`Event`], which owns the host memory
//! concerned.
//! Regions are checked against the buffer before the driver sees them. Invariant: no native user event
//! exists, so nothing in a native queue ever waits for the application.

mod by_host;
mod image;
mod map;
mod rect;
mod transfer;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use causeway_proto::status::Status;
use opencl_sys::{
    CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, CL_QUEUE_PROFILING_ENABLE, CL_QUEUE_PROPERTIES,
    cl_command_queue, cl_event, clGetKernelSuggestedLocalWorkSizeKHR_fn,
};

use super::context::Context;
use super::event::{Event, Home, WaitList};
use super::kernel::{Kernel, Shape};
use super::library::{check, cl};
use super::node::Device;

const INVALID_VALUE: Status = Status(-30);

pub use map::Access;

/// A native command queue; released when dropped.
#[derive(Debug)]
pub struct Queue {
    raw: cl_command_queue,
    device: Device,
    out_of_order: bool,
    profiling: bool,
}

// SAFETY: OpenCL queues may be used from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    /// Creates a queue; `properties` are names and values without the closing 0.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(context: &Context, device: Device, properties: &[u64]) -> Result<Queue, Status> {
        let queue = Queue::unprepared(context, device, properties)?;
        if queue.profiling {
            device.clock().prepare(device, context);
        }
        Ok(queue)
    }

    /// The same without a look at the device's clock.
    pub(super) fn unprepared(
        context: &Context,
        device: Device,
        properties: &[u64],
    ) -> Result<Queue, Status> {
        let raw = create(context, device, properties)?;
        let bits = bits_of(properties);
        Ok(Queue {
            raw,
            device,
            out_of_order: bits & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
            profiling: bits & CL_QUEUE_PROFILING_ENABLE != 0,
        })
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Whether its commands may pass each other.
    #[must_use]
    pub fn is_out_of_order(&self) -> bool {
        self.out_of_order
    }

    /// Whether its events have times.
    #[must_use]
    pub fn is_profiling(&self) -> bool {
        self.profiling
    }

    fn home(&self) -> Home {
        Home {
            watched: self.device.calls_back_late().then(|| self.raw.addr()),
            clock: self.device.clock(),
            enqueues: self.device.enqueues(),
        }
    }

    /// `clFlush`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn flush(&self) -> Result<(), Status> {
        // SAFETY: a live queue.
        check(unsafe { cl!(clFlush(self.raw)) })
    }

    /// `clFinish`. Blocks.
    ///
    /// # Errors
    /// What the driver says.
    pub fn finish(&self) -> Result<(), Status> {
        // SAFETY: a live queue.
        check(unsafe { cl!(clFinish(self.raw)) })
    }

    /// Whether the ends of its commands are found out by looking, an event after the other, because the driver's
    /// callbacks come late. Such a driver (NVIDIA's) fails all that follows a command that failed.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.device.calls_back_late()
    }

    /// Launches `kernel` with the arguments set on it; the caller holds it exclusively.
    ///
    /// # Errors
    /// What the driver says.
    pub fn nd_range(
        &self,
        kernel: &mut Kernel,
        shape: &Shape,
        wait: &WaitList<'_>,
    ) -> Result<Event, Status> {
        let mut event: cl_event = null_mut();
        self.launch(kernel, shape, wait, Some(&mut event))?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.home()) })
    }

    /// The same without an event.
    ///
    /// # Errors
    /// What the driver says.
    pub fn nd_range_untold(&self, kernel: &mut Kernel, shape: &Shape) -> Result<(), Status> {
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
        // SAFETY: the lists hold three numbers, `dimensions` is at most 3; the event's place is null or valid.
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

    /// The local size that the driver would choose for a launch of `kernel` with the arguments set on it
    /// (`cl_khr_suggested_local_work_size`): as many numbers as there are dimensions.
    ///
    /// # Errors
    /// What the driver says; `CL_INVALID_OPERATION` when it does not have the function.
    pub fn suggested_local_size(
        &self,
        kernel: &mut Kernel,
        shape: &Shape,
    ) -> Result<Vec<usize>, Status> {
        let name = c"clGetKernelSuggestedLocalWorkSizeKHR";
        let address = self.device.extension_function(name)?;
        // SAFETY: an `Option` of a function pointer is as large as its address, and a driver's function of this
        // name has this signature by the extension's specification; null is `None`.
        let function = unsafe {
            std::mem::transmute::<*mut c_void, clGetKernelSuggestedLocalWorkSizeKHR_fn>(address)
        };
        let function = function.ok_or(Status::INVALID_OPERATION)?;
        let offset = shape.offset.as_ref().map_or(null(), |list| list.as_ptr());
        let mut suggested = [0; 3];
        // SAFETY: the lists hold three numbers, `dimensions` is at most 3.
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

    /// Completes when the wait list, or with none everything before it in the queue, did.
    ///
    /// # Errors
    /// What the driver says.
    pub fn marker(&self, wait: &WaitList<'_>) -> Result<Event, Status> {
        let mut event: cl_event = null_mut();
        // SAFETY: live objects only.
        check(unsafe {
            cl!(clEnqueueMarkerWithWaitList(
                self.raw,
                wait.count(),
                wait.pointer(),
                &raw mut event
            ))
        })?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.home()) })
    }

    /// A marker that later commands of the queue come after.
    ///
    /// # Errors
    /// What the driver says.
    pub fn barrier(&self, wait: &WaitList<'_>) -> Result<Event, Status> {
        let mut event: cl_event = null_mut();
        // SAFETY: live objects only.
        check(unsafe {
            cl!(clEnqueueBarrierWithWaitList(
                self.raw,
                wait.count(),
                wait.pointer(),
                &raw mut event
            ))
        })?;
        // SAFETY: the driver just gave the event; no host memory is concerned.
        Ok(unsafe { Event::adopt(event, None, self.home()) })
    }

    fn release(&self) -> Result<(), Status> {
        // SAFETY: we own one reference and give it up here.
        check(unsafe { cl!(clReleaseCommandQueue(self.raw)) })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// `CL_QUEUE_PROPERTIES` among names and values.
fn bits_of(properties: &[u64]) -> u64 {
    properties
        .chunks_exact(2)
        .find(|pair| pair[0] == u64::from(CL_QUEUE_PROPERTIES))
        .map_or(0, |pair| pair[1])
}

/// Makes a queue as its driver does it, of the host or on the device.
pub(super) fn create(
    context: &Context,
    device: Device,
    properties: &[u64],
) -> Result<cl_command_queue, Status> {
    context.owns(device)?;
    let mut status = 0;
    let raw = if device.is_modern() {
        let list: Vec<u64> = properties.iter().copied().chain([0]).collect();
        // SAFETY: the list ends in 0.
        unsafe {
            cl!(clCreateCommandQueueWithProperties(
                context.raw,
                device.raw,
                list.as_ptr(),
                &raw mut status
            ))
        }
    } else {
        // SAFETY: a live context and a device of it.
        unsafe {
            cl!(clCreateCommandQueue(
                context.raw,
                device.raw,
                bits_of(properties),
                &raw mut status
            ))
        }
    };
    check(status)?;
    Ok(raw)
}
