//! Command queues.
//!
//! Other modules run the commands (`engine`) and enqueue them. Invariant: a queue's lock is held for the length
//! of a push, or in instant mode of one command. The lock is never held while the application is called.

use std::sync::atomic::{AtomicUsize, Ordering};

use cl_headers::types::*;
use parking_lot::Mutex;

use crate::command::{Command, Enqueue, Rank, Work};
use crate::context::Context;
use crate::device::Device;
use crate::error::{ClResult, ensure, fail};
use crate::event::Event;
use crate::object::{Object, Ref, body};
use crate::on_device::{MAX_SIZE, PREFERRED_SIZE};
use crate::{arg, engine, tag};

/// The body of a queue.
pub(crate) struct Queue {
    pub(crate) context: Ref<Context>,
    pub(crate) device: Ref<Device>,
    properties: cl_command_queue_properties,
    /// The list passed to `clCreateCommandQueueWithProperties`, with the closing 0; empty if there was none.
    property_list: Vec<u64>,
    /// `CL_QUEUE_SIZE` of a queue on the device, into which no host enqueues.
    pub(crate) on_device: Option<cl_uint>,
    /// Commands that the engine has not taken yet.
    pub(crate) inbox: Mutex<Vec<Command>>,
    /// The number of commands that have not ended. Only a holder of the inbox's lock raises this number.
    pub(crate) open: AtomicUsize,
}

body!(Queue, tag::QUEUE, CL_INVALID_COMMAND_QUEUE, abandoned abandoned);

/// Releasing a queue flushes it. The engine may forget an empty queue.
fn abandoned(_queue: &Object<Queue>) {
    engine::ring();
}

impl Queue {
    pub(crate) fn profiling(&self) -> bool {
        self.properties & CL_QUEUE_PROFILING_ENABLE != 0
    }

    pub(crate) fn out_of_order(&self) -> bool {
        self.properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0
    }
}

impl Object<Queue> {
    /// Returns the queue of a handle. A queue on the device is not a valid queue for the host.
    ///
    /// # Safety
    /// The application passes the handle.
    pub(crate) unsafe fn borrow_host<'a>(handle: cl_command_queue) -> ClResult<&'a Self> {
        // SAFETY: the caller keeps the same contract.
        let queue = unsafe { Self::borrow(handle) }?;
        ensure(queue.on_device.is_none(), CL_INVALID_COMMAND_QUEUE)?;
        Ok(queue)
    }
}

/// Creates a queue and hands a host queue to the engine. `size` is the `CL_QUEUE_SIZE` of a
/// queue on the device.
///
/// # Safety
/// The application passes the handles.
unsafe fn create(
    context: cl_context,
    device: cl_device_id,
    properties: cl_command_queue_properties,
    property_list: Vec<u64>,
    size: Option<cl_uint>,
) -> ClResult<cl_command_queue> {
    // SAFETY: the application passes a handle that it got from this driver, or NULL.
    let context = unsafe { Object::<Context>::borrow(context) }?;
    // SAFETY: the application passes a handle that it got from this driver, or NULL.
    let device = unsafe { Object::<Device>::borrow(device) }?;
    ensure(context.has(device), CL_INVALID_DEVICE)?;
    let known = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
        | CL_QUEUE_PROFILING_ENABLE
        | CL_QUEUE_ON_DEVICE
        | CL_QUEUE_ON_DEVICE_DEFAULT;
    ensure(properties & !known == 0, CL_INVALID_VALUE)?;
    let on_device = properties & CL_QUEUE_ON_DEVICE != 0;
    let offered = if on_device {
        ensure(
            properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
            CL_INVALID_VALUE,
        )?;
        device.on_device_properties() | CL_QUEUE_ON_DEVICE | CL_QUEUE_ON_DEVICE_DEFAULT
    } else {
        device.queue_properties()
    };
    ensure(properties & !offered == 0, CL_INVALID_QUEUE_PROPERTIES)?;
    let fits = size.is_none_or(|size| on_device && size <= MAX_SIZE);
    ensure(fits, CL_INVALID_QUEUE_PROPERTIES)?;
    let is_default = properties & CL_QUEUE_ON_DEVICE_DEFAULT != 0;
    if is_default && let Some(there) = context.device_queues.default_of(device) {
        there.retain();
        return Ok(there.handle());
    }
    if on_device {
        context.device_queues.ensure_room(device)?;
    }
    let queue = Ref::new(Queue {
        on_device: on_device.then(|| size.unwrap_or(PREFERRED_SIZE)),
        context: context.hold(),
        device: device.hold(),
        properties,
        property_list,
        inbox: Mutex::new(Vec::new()),
        open: AtomicUsize::new(0),
    });
    let handle = queue.share();
    if on_device {
        context.device_queues.add(&queue);
        if is_default {
            context.device_queues.set_default(&queue);
        }
        return Ok(handle);
    }
    engine::adopt(queue);
    Ok(handle)
}

/// Waits for all commands enqueued so far.
///
/// # Safety
/// The application passes the handle.
unsafe fn finish(queue: cl_command_queue) -> ClResult {
    // SAFETY: the caller keeps the same contract. There is no list and no event.
    let mut enqueue = unsafe {
        Enqueue::begin(
            queue,
            CL_COMMAND_MARKER,
            0,
            std::ptr::null(),
            std::ptr::null_mut(),
        )
    }?;
    if enqueue.queue.open.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    enqueue.rank = Rank::Marker;
    enqueue.blocking = true;
    // SAFETY: the caller asks for no event.
    unsafe { enqueue.submit(Work::Nothing) }
}

pub(crate) mod api {
    #![allow(non_snake_case, reason = "OpenCL's names")]
    use std::ffi::c_void;

    use super::*;
    use crate::info::{Info, reply};

    pub(crate) unsafe fn clCreateCommandQueue(
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_command_queue> {
        // SAFETY: the caller keeps the same contract.
        unsafe { create(context, device, properties, Vec::new(), None) }
    }

    pub(crate) unsafe fn clCreateCommandQueueWithProperties(
        context: cl_context,
        device: cl_device_id,
        properties: *const cl_queue_properties,
        _errcode_ret: *mut cl_int,
    ) -> ClResult<cl_command_queue> {
        // SAFETY: the application passes a list that ends with 0.
        let list = unsafe { arg::properties(properties) };
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let own = unsafe { Object::<Device>::borrow(device) }?;
        let (mut flags, mut queue_size) = (0, None);
        for pair in list.chunks_exact(2) {
            match u32::try_from(pair[0]) {
                Ok(CL_QUEUE_PROPERTIES) => flags = pair[1],
                Ok(CL_QUEUE_SIZE) => queue_size = Some(pair[1] as cl_uint),
                Ok(name)
                    if u64::from(name) == CL_QUEUE_PRIORITY_KHR
                        && own.has_extension("cl_khr_priority_hints") => {}
                _ => return fail(CL_INVALID_VALUE),
            }
        }
        // SAFETY: the caller keeps the same contract.
        unsafe { create(context, device, flags, list, queue_size) }
    }

    pub(crate) unsafe fn clSetCommandQueueProperty(
        queue: cl_command_queue,
        _properties: cl_command_queue_properties,
        _enable: cl_bool,
        _old: *mut cl_command_queue_properties,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Queue>::borrow(queue) }?;
        fail(CL_INVALID_OPERATION)
    }

    pub(crate) unsafe fn clSetDefaultDeviceCommandQueue(
        context: cl_context,
        device: cl_device_id,
        queue: cl_command_queue,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let context = unsafe { Object::<Context>::borrow(context) }?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let device = unsafe { Object::<Device>::borrow(device) }?;
        ensure(context.has(device), CL_INVALID_DEVICE)?;
        let able = device.settings.device_queues > 0 && device.at_least(2, 1);
        ensure(able, CL_INVALID_OPERATION)?;
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let queue = unsafe { Object::<Queue>::borrow(queue) }?;
        let own = queue.on_device.is_some()
            && queue.device.handle() == device.handle()
            && queue.context.handle() == context.handle();
        ensure(own, CL_INVALID_COMMAND_QUEUE)?;
        context.device_queues.set_default(queue);
        Ok(())
    }

    pub(crate) unsafe fn clRetainCommandQueue(queue: cl_command_queue) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Queue>::borrow(queue) }?.retain();
        Ok(())
    }

    pub(crate) unsafe fn clReleaseCommandQueue(queue: cl_command_queue) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Queue>::borrow(queue) }?.release()
    }

    pub(crate) unsafe fn clGetCommandQueueInfo(
        queue: cl_command_queue,
        name: cl_command_queue_info,
        size: size_t,
        value: *mut c_void,
        size_ret: *mut size_t,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        let queue = unsafe { Object::<Queue>::borrow(queue) }?;
        let answer = match name {
            CL_QUEUE_CONTEXT => Info::handle(queue.context.handle()),
            CL_QUEUE_DEVICE => Info::handle(queue.device.handle()),
            CL_QUEUE_REFERENCE_COUNT => Info::uint(queue.references()),
            CL_QUEUE_PROPERTIES => Info::ulong(queue.properties),
            CL_QUEUE_PROPERTIES_ARRAY => Info::ulongs(&queue.property_list),
            CL_QUEUE_DEVICE_DEFAULT => {
                let context = &queue.context;
                Info::handle(context.device_queues.default_handle(&queue.device))
            }
            CL_QUEUE_SIZE => match queue.on_device {
                Some(size) => Info::uint(size),
                None => return fail(CL_INVALID_COMMAND_QUEUE),
            },
            _ => return fail(CL_INVALID_VALUE),
        };
        // SAFETY: the application passes memory as OpenCL requires.
        unsafe { reply(answer, size, value, size_ret) }
    }

    pub(crate) unsafe fn clFlush(queue: cl_command_queue) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Queue>::borrow_host(queue) }?;
        engine::ring();
        Ok(())
    }

    pub(crate) unsafe fn clFinish(queue: cl_command_queue) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { finish(queue) }
    }

    pub(crate) unsafe fn clEnqueueMarkerWithWaitList(
        queue: cl_command_queue,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        let mut enqueue = unsafe { Enqueue::begin(queue, CL_COMMAND_MARKER, count, list, event) }?;
        if count == 0 {
            enqueue.rank = Rank::Marker;
        }
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(Work::Nothing) }
    }

    pub(crate) unsafe fn clEnqueueBarrierWithWaitList(
        queue: cl_command_queue,
        count: cl_uint,
        list: *const cl_event,
        event: *mut cl_event,
    ) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        let mut enqueue = unsafe { Enqueue::begin(queue, CL_COMMAND_BARRIER, count, list, event) }?;
        enqueue.rank = Rank::Barrier;
        // SAFETY: the caller keeps the same contract.
        unsafe { enqueue.submit(Work::Nothing) }
    }

    pub(crate) unsafe fn clEnqueueMarker(
        queue: cl_command_queue,
        event: *mut cl_event,
    ) -> ClResult {
        ensure(!event.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the caller keeps the same contract.
        unsafe { clEnqueueMarkerWithWaitList(queue, 0, std::ptr::null(), event) }
    }

    pub(crate) unsafe fn clEnqueueBarrier(queue: cl_command_queue) -> ClResult {
        // SAFETY: the caller keeps the same contract.
        unsafe { clEnqueueBarrierWithWaitList(queue, 0, std::ptr::null(), std::ptr::null_mut()) }
    }

    pub(crate) unsafe fn clEnqueueWaitForEvents(
        queue: cl_command_queue,
        count: cl_uint,
        list: *const cl_event,
    ) -> ClResult {
        // SAFETY: the application passes a handle that it got from this driver, or NULL.
        unsafe { Object::<Queue>::borrow(queue) }?;
        ensure(count > 0 && !list.is_null(), CL_INVALID_VALUE)?;
        // SAFETY: the application passes a list as OpenCL requires.
        let events = unsafe { arg::objects::<Event>(count, list) }?;
        drop(events);
        // SAFETY: the caller keeps the same contract.
        unsafe { clEnqueueBarrierWithWaitList(queue, count, list, std::ptr::null_mut()) }
    }
}
